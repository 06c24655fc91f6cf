"""A quick stand-in for the segments' Parquet form, so that a schedule costs milliseconds.

Same columns, same answers; `kds_cdc_dagster_tests/journal` tests the real form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from unittest import mock

import msgspec

from kds_cdc_dagster.journal import index, segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.segment import END, SCHEMA, Segment


class Column:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_pylist(self) -> list[Any]:
        return list(self._values)


class Rows:
    """As much of a pyarrow table as readers of segments use."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.num_rows = len(columns["outcome"])

    def column(self, name: str) -> Column:
        return Column(self._columns[name])

    def to_pylist(self) -> list[dict[str, Any]]:
        rows = zip(*self._columns.values(), strict=True)
        return [dict(zip(self._columns, row, strict=True)) for row in rows]


def encode(columns: Mapping[str, Sequence[object]], counts: Mapping[str, int]) -> bytes:
    """As `segment.encode`."""
    ordered = [list(columns[name]) for name in SCHEMA.names]
    return msgspec.msgpack.encode([ordered, sorted(counts.items())])


def decode(id_: SegmentId, body: bytes, *, dictionaries: Sequence[str] = ()) -> Segment | None:
    """As `segment.decode`; nothing here has a dictionary."""
    del dictionaries
    return None if body == END else _decoded(id_, body)


@lru_cache(4096)
def _decoded(id_: SegmentId, body: bytes) -> Segment:
    ordered, counts = msgspec.msgpack.decode(body)
    rows: Any = Rows(dict(zip(SCHEMA.names, ordered, strict=True)))
    return Segment(id_, rows, dict(counts), len(body))


@contextmanager
def quick_segments() -> Iterator[None]:
    """Segments in the quick form; index files merge after three, so that merging is simulated too."""
    with (
        mock.patch.object(segment, "encode", encode),
        mock.patch.object(segment, "decode", decode),
        mock.patch.object(index, "FAN", 3),
    ):
        yield
