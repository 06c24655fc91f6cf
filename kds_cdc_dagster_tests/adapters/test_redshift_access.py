"""How the Redshift adapter is reached: passwords, IAM, settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kds_cdc_dagster.adapters.redshift_access import RedshiftAccess
from kds_cdc_dagster.adapters.redshift_warehouse import RepeatPolicy, open_redshift_warehouse
from kds_cdc_dagster.errors import SettingsError, TransientError
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.warehouse import Site, ids, insert

pytest_plugins = ("kds_cdc_dagster_tests.redshift.fixtures",)


@pytest.fixture
def site(redshift_site: Site) -> Site:
    """A fresh database with an empty table `t`."""
    return redshift_site.with_table()


def test_wrong_password_is_the_deployers_matter(site: Site) -> None:
    """Not repeated: a locked account helps nobody."""
    with pytest.raises(SettingsError):
        site.warehouse(site.access(password="wrong")).run(insert(1))
    assert site.waits == []


def test_unreachable_redshift_is_transient(site: Site) -> None:
    """After bounded attempts; nothing was accepted."""
    access = site.access()
    site.redshift.stop()
    with pytest.raises(TransientError, match="connection"):
        site.warehouse(access).run(insert(1))
    assert len(site.waits) == 7


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (
            RedshiftAccess(host="h", user="u", password="p"),
            {"host": "h", "port": 5439, "user": "u", "password": "p", "ssl": True, "sslmode": "verify-full"},
        ),
        (
            RedshiftAccess(iam="serverless", workgroup="wg", region="eu-west-1"),
            {"iam": True, "is_serverless": True, "serverless_work_group": "wg", "region": "eu-west-1"},
        ),
        (
            RedshiftAccess(iam="provisioned", cluster="c", user="loader"),
            {"iam": True, "cluster_identifier": "c", "db_user": "loader"},
        ),
    ],
    ids=["password", "serverless", "provisioned"],
)
def test_access_kinds(access: RedshiftAccess, expected: dict[str, Any]) -> None:
    """Each kind passes what the driver needs and nothing of the others; TLS checks the host's name."""
    kwargs = access.connect_kwargs()
    assert {name: kwargs.get(name) for name in expected} == expected
    assert kwargs["max_prepared_statements"] == 0
    assert ("password" in kwargs) == (access.iam == "off")
    assert ("host" in kwargs) == bool(access.host)


@pytest.mark.parametrize("changed", [{"is_ssl": False}, {"user": ""}], ids=["no TLS", "no user"])
def test_impossible_access_is_refused(changed: dict[str, Any]) -> None:
    """Before anything is opened."""
    access = replace(RedshiftAccess(iam="provisioned", cluster="c", user="loader"), **changed)
    with pytest.raises(SettingsError):
        access.connect_kwargs()


def test_iam_credentials_are_asked_for(site: Site, redshift_s3: S3Place) -> None:
    """A cluster that IAM does not know is the deployer's matter; with credentials the driver goes on to connect."""
    import boto3

    client = boto3.client("redshift", region_name=redshift_s3.region, endpoint_url=redshift_s3.endpoint_url)
    client.create_cluster(
        ClusterIdentifier="kds", NodeType="ra3.large", MasterUsername="admin", MasterUserPassword="Admin-123"
    )
    iam = {"iam": "provisioned", "is_ssl": True, "region": redshift_s3.region, "endpoint_url": redshift_s3.endpoint_url}
    with pytest.raises(SettingsError, match="NotFound"):
        site.warehouse(site.access(**iam, cluster="other")).run(insert(1))
    # The stand-in speaks no TLS, which IAM needs: this far and no further.
    once = RepeatPolicy(attempts_max=1)
    with pytest.raises(TransientError, match="SSL"):
        site.warehouse(site.access(**iam, cluster="kds"), policy=once).run(insert(1))


def test_settings_reach_the_adapter(site: Site) -> None:
    """A warehouse opened from settings works; a wrong combination is told at once."""
    kwargs = site.redshift.connect_kwargs
    named = {f"redshift_{name}": kwargs[name] for name in ("host", "port", "database", "user", "password", "ssl")}
    settings = Settings(warehouse="redshift", redshift_copy_role=site.redshift.role, **named)
    warehouse = open_redshift_warehouse(settings, site.store)
    warehouse.run(insert(1), lock="t")
    assert ids(warehouse) == [1]
    with pytest.raises(SettingsError):
        open_redshift_warehouse(settings.model_copy(update={"redshift_iam": "serverless"}), site.store)
