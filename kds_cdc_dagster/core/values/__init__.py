"""Scalar conversion: the JSON value of a column to the Python value of its target type. Pure.

`compile_decoder` is the whole interface: once per column and source, then one call per value.
Source of the encodings: Debezium's converters as the catalogue declares them, or the wrapper's schema.
"""

from __future__ import annotations

from kds_cdc_dagster.core.values.decoder import UNAVAILABLE, Unavailable, compile_decoder
from kds_cdc_dagster.core.values.encoding import Declared, Encoding, declared_type, encoding_of
from kds_cdc_dagster.core.values.logical import LogicalType, logical_types
from kds_cdc_dagster.core.values.target import Oversize, TargetType, Undecodable, json_lines, json_text, target_type

__all__ = [
    "UNAVAILABLE",
    "Declared",
    "Encoding",
    "LogicalType",
    "Oversize",
    "TargetType",
    "Unavailable",
    "Undecodable",
    "compile_decoder",
    "declared_type",
    "encoding_of",
    "json_lines",
    "json_text",
    "logical_types",
    "target_type",
]
