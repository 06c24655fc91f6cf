"""Short ways to a decoder, for the tests of values."""

from __future__ import annotations

from typing import Any

import pytest

from kds_cdc_dagster.core.catalogue import Column, Source
from kds_cdc_dagster.core.values import LogicalType, Undecodable, compile_decoder


def source(connector: str = "postgresql", **modes: Any) -> Source:
    """A Debezium source with other modes; `mock` gives the mock source."""
    if connector == "mock":
        return Source(name="s", contract="kds-cdc-mock/v1", **modes)
    return Source.model_validate({"name": "s", "connector": connector, **modes})


def decoded(
    value: object,
    target: str,
    declared: str | None = None,
    by: Source | None = None,
    *,
    logical: LogicalType | None = None,
) -> object:
    """`value` of a column declared so, decoded for its target type."""
    column = Column(name="total", type=target, source_type=declared)
    return compile_decoder(column, by or source(), logical)(value)


def refused(value: object, target: str, declared: str | None = None, by: Source | None = None) -> str:
    """The rule by which `value` is refused; the error names the column and never the value."""
    with pytest.raises(Undecodable) as caught:
        decoded(value, target, declared, by)
    assert caught.value.column == "total"
    text = str(value)
    assert text.isalpha() or len(text) < 3 or text not in str(caught.value)
    return caught.value.rule
