"""Parquet files and manifests for tests of COPY."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kds_cdc_dagster_tests.redshift.bucket import S3Place


def put_parquet(s3: S3Place, key: str, table: pa.Table) -> dict[str, Any]:
    """Write a file; its manifest entry, mandatory and with its true length."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    s3.put(s3.url(key), sink.getvalue())
    return {"url": s3.url(key), "mandatory": True, "meta": {"content_length": len(sink.getvalue())}}


def put_manifest(s3: S3Place, key: str, entries: Sequence[dict[str, Any]]) -> str:
    """Write a COPY manifest; its URL."""
    s3.put(s3.url(key), json.dumps({"entries": list(entries)}).encode())
    return s3.url(key)
