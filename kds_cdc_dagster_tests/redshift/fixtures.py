"""Fixtures of tests that load over the stand-in (`pytest_plugins` of a test module names this one)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.server import redshift_with_s3
from kds_cdc_dagster_tests.redshift.warehouse import Site, site_on


@pytest.fixture(scope="session")
def redshift_s3() -> Iterator[S3Place]:
    """An S3 emulator; its stand-in keeps the server process running for the session."""
    with redshift_with_s3() as stand_in:
        yield stand_in.s3


@pytest.fixture
def redshift_site(redshift_s3: S3Place) -> Iterator[Site]:
    """A fresh database and a fresh bucket."""
    with site_on(redshift_s3) as opened:
        yield opened
