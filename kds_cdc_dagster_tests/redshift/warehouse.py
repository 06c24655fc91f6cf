"""The adapter over the stand-in, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from kds_cdc_dagster.adapters.object_store import open_s3
from kds_cdc_dagster.adapters.redshift_access import RedshiftAccess
from kds_cdc_dagster.adapters.redshift_transaction import Exchange
from kds_cdc_dagster.adapters.redshift_warehouse import RedshiftWarehouse, RepeatPolicy
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse
from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.server import RedshiftStandIn

FAST = RepeatPolicy(wait_seconds=0.01, wait_seconds_max=0.05)


@dataclass
class Site:
    """A stand-in, the object store both sides use, and adapters on them."""

    redshift: RedshiftStandIn
    store: ObjectStore
    waits: list[float] = field(default_factory=list)
    """Seconds that adapters waited between attempts (they did not really)."""

    def access(self, **changed: Any) -> RedshiftAccess:
        """How the stand-in is reached."""
        kwargs = self.redshift.connect_kwargs
        names = ("host", "port", "database", "user", "password")
        return RedshiftAccess(**{**{name: kwargs[name] for name in names}, "is_ssl": False, **changed})

    def with_table(self) -> Site:
        """With an empty table `t` of (id, note), and nothing recorded yet."""
        self.warehouse().run(lambda tx: tx.execute("CREATE TABLE t (id BIGINT, note VARCHAR(8))"))
        self.redshift.statements.clear()
        return self

    def warehouse(self, access: RedshiftAccess | None = None, **changed: Any) -> RedshiftWarehouse:
        """An adapter; each stands for a process of its own."""
        options = {"exchange": Exchange(self.store, self.redshift.role), "policy": FAST, "sleep": self.waits.append}
        return RedshiftWarehouse(access or self.access(), **{**options, **changed})


def insert(value: int) -> Callable[[Transaction], None]:
    """A body that inserts into `t` once, however often it runs to its end."""

    def body(tx: Transaction) -> None:
        if not tx.rows("SELECT 1 FROM t WHERE id = ?", (value,)):
            tx.execute("INSERT INTO t VALUES (?, ?)", (value, "x"))

    return body


def ids(warehouse: Warehouse) -> list[int]:
    """What is in `t`."""
    return [value for (value,) in warehouse.run(lambda tx: tx.rows("SELECT id FROM t ORDER BY id"))]


@contextmanager
def site_on(s3: S3Place) -> Iterator[Site]:
    """A fresh database and a fresh object store."""
    s3 = s3.another()
    names = {"AWS_ACCESS_KEY_ID": s3.access_key_id, "AWS_SECRET_ACCESS_KEY": s3.secret_access_key}
    with patch.dict("os.environ", names), RedshiftStandIn(s3) as redshift:
        yield Site(redshift, open_s3(s3.bucket, "kds", endpoint_url=s3.endpoint_url, region=s3.region))
