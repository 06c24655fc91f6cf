"""How to reach Redshift: arguments of the driver for passwords and for both kinds of IAM credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kds_cdc_dagster.errors import SettingsError

_CONNECT = {
    # Idle NAT entries are dropped after minutes: probes keep them. No socket timeout: the driver cannot cancel
    # a statement, so the server's statement_timeout ends it.
    "tcp_keepalive": True,
    "tcp_keepalive_idle": 60,
    "tcp_keepalive_interval": 30,
    "tcp_keepalive_count": 5,
    # Unnamed statements: no cache to invalidate, no storm of Close messages after each DDL and ROLLBACK.
    "max_prepared_statements": 0,
    "application_name": "kds_cdc_dagster",
}


@dataclass(frozen=True, slots=True)
class RedshiftAccess:
    """Address and credentials. `iam` takes them from the surroundings (instance, task or profile role)."""

    host: str = ""
    """Empty with IAM: looked up by cluster or workgroup."""
    port: int = 5439
    database: str = "dev"
    user: str = ""
    password: str = ""
    is_ssl: bool = True
    iam: Literal["off", "provisioned", "serverless"] = "off"
    cluster: str = ""
    workgroup: str = ""
    region: str = ""
    endpoint_url: str = ""
    """Of the services that give IAM credentials: emulators in tests."""

    def connect_kwargs(self) -> dict[str, Any]:
        """Arguments of `redshift_connector.connect`. Raises SettingsError."""
        if self.iam != "off" and not self.is_ssl:
            raise SettingsError("IAM credentials need TLS", variable="KDS_CDC_REDSHIFT_SSL")
        kwargs: dict[str, Any] = {**_CONNECT, "database": self.database, "ssl": self.is_ssl, **self._credentials()}
        if self.is_ssl:
            kwargs["sslmode"] = "verify-full"  # unless it is said, a wrong host name is only a warning
        if self.host:
            kwargs |= {"host": self.host, "port": self.port}
        return kwargs

    def _credentials(self) -> dict[str, Any]:
        if self.iam == "off":
            return {"user": self.user, "password": self.password}
        names = {"region": self.region, "endpoint_url": self.endpoint_url}
        region = {name: value for name, value in names.items() if value}
        if self.iam == "serverless":
            return {"iam": True, "is_serverless": True, "serverless_work_group": self.workgroup, **region}
        if not self.user:
            raise SettingsError("IAM of a provisioned cluster needs a user", variable="KDS_CDC_REDSHIFT_USER")
        return {"iam": True, "cluster_identifier": self.cluster, "db_user": self.user, **region}
