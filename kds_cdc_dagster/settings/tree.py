"""The settings: one flat tree, the defaults of its profiles, and what must hold between them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "KDS_CDC_"

AWS: dict[str, Any] = {
    "queue": "sqs",
    "state": "redis",
    "store": "s3",
    "warehouse": "redshift",
    "receivers": 8,
    "wait_seconds": 20.0,
    "linger_seconds": 0.25,
    "batch_age_seconds": 60.0,
    "batch_bytes_max": 256 << 20,
    "tick_seconds": 19.0,
    "export_every_seconds": 300.0,
    "intake_sensors": 2,
}
"""What KDS_CDC_PROFILE=aws changes."""


def default_home() -> Path:
    """The per-user data folder of the embedded profile."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "kds_cdc_dagster"


class Settings(BaseSettings):
    """One flat tree: the field `batch_age_seconds` is the variable KDS_CDC_BATCH_AGE_SECONDS."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True, use_attribute_docstrings=True
    )

    profile: Literal["embedded", "aws"] = "embedded"
    """Chooses the defaults of all parts: `embedded` needs no server and no account."""
    home: Path = Field(default_factory=default_home)
    """Where the embedded parts keep everything: queue, state, store, warehouse, Dagster's own files."""
    pipeline: str = Field("kds", pattern=r"^[A-Za-z0-9_-]{1,40}$")
    """Prefix of every object and every state key: two pipelines may share one store."""
    catalogue: Path | None = None
    """A catalogue file that replaces the packaged one."""
    contracts: tuple[str, ...] = ("debezium", "kds-cdc-mock/v1")
    """Contracts that are allowed in."""
    intake: Literal["on", "off"] = "off"
    """Sensors drain the queue only where this is on."""
    worker: str = Field("", pattern=r"^[A-Za-z0-9_-]{0,40}$")
    """Name of this worker in claims and heartbeats; the host name if empty."""

    queue: Literal["local", "sqs"] = "local"
    """Queue."""
    state: Literal["embedded", "redis"] = "embedded"
    """Ordering and duplicate state."""
    store: Literal["local", "s3"] = "local"
    """Object store."""
    warehouse: Literal["duckdb", "redshift"] = "duckdb"
    """Warehouse."""
    store_fsync: Literal["on", "off"] = "on"
    """Local store and queue: what was put or sent survives a power cut, for 1 to 8 ms a put on a local disk."""

    receivers: int = Field(2, ge=1, le=64)
    """Receiver threads per intake (SQS)."""
    wait_seconds: float = Field(1.0, ge=0, le=20)
    """Long poll of a receive; sensors wait 2 s at most."""
    visibility_seconds: float = Field(60.0, ge=1, le=43200)
    """How long a received message is hidden. Must exceed a round."""
    safety_seconds: float = Field(15.0, ge=0)
    """A round this near to the end of its visibility is extended or given up."""
    receives_max: int = Field(5, ge=1, le=1000)
    """A message received more often is quarantined unparsed."""
    body_bytes_max: int = Field(1 << 20, ge=1024)
    """A larger body is quarantined."""

    linger_seconds: float = Field(0.1, ge=0, le=5)
    """How long a busy round waits for more messages."""
    segment_bytes_max: int = Field(4 << 20, ge=1024)
    """A round is written when its bodies reach this."""
    segment_records_max: int = Field(10_000, ge=1)
    """A round is written when it has so many deliveries."""

    batch_records_max: int = Field(10_000, ge=1, le=1_000_000)
    """A batch is closed at so many records …"""
    batch_records_backlog_max: int = Field(100_000, ge=1, le=1_000_000)
    """The record limit grows up to this under backlog, so that fewer, bigger runs drain it."""
    batch_age_seconds: float = Field(8.0, gt=0, le=900)
    """… or this long after its first record was received …"""
    batch_bytes_max: int = Field(64 << 20, ge=1024)
    """… or at this size."""

    duplicate_window_seconds: float = Field(3600.0, ge=60)
    """How long hot state remembers a change; older repeats are answered from the index."""
    duplicate_bucket_seconds: float = Field(900.0, ge=10)
    """Every message looks into window / bucket + 2 buckets: wider ones cost memory, narrower ones time."""
    heartbeat_seconds: float = Field(5.0, gt=0)
    """How often a worker says that it lives."""
    dead_after_seconds: float = Field(60.0, gt=0)
    """A claim whose heartbeat is older than this is adopted."""

    tick_seconds: float = Field(9.0, gt=0, le=45)
    """Budget of one sensor tick: a little less than a multiple of the daemon's 5 s. Must be below the visibility."""
    tick_backlog_seconds: float = Field(16.5, gt=0, le=45)
    """Its budget while more messages wait than fill a batch, if longer: 20 s less what handing on takes the daemon."""
    intake_sensors: int = Field(1, ge=1, le=32)
    """Sensors `intake_1` … `intake_n`, each a worker of its own."""
    run_requests_max: int = Field(10, ge=1, le=100)
    """Batches handed on per tick."""
    run_attempts_max: int = Field(3, ge=1, le=20)
    """Runs of a batch before it is moved aside as failed."""
    export_every_seconds: float = Field(30.0, ge=0)
    """A target is exported at most so often; the catalogue may say it per target."""
    slice_threads: int = Field(4, ge=1, le=64)
    """Slices (tenants' export files) written at once inside one step, and threads of the embedded warehouse."""

    journal_days: float = Field(30.0, gt=0)
    """Journal, END objects and index: must outlive what a redelivery can be old, from the queue or its dead letters."""
    raw_days: float = Field(90.0, gt=0)
    """How long raw artifacts, partitions and runs are kept."""
    partition_keys_max: int = Field(10_000, ge=100)
    """Never more live partition keys than this."""
    queue_retention_days: float = Field(14.0, gt=0)
    """Retention of the queue."""
    dead_letter_retention_days: float = Field(14.0, ge=0)
    """Retention of its dead-letter queue, where a message's time begins anew; 0: redriven at once or never."""

    local_dead_letter_after: int = Field(10, ge=2)
    """Receives after which the local queue moves a message to its dead letters."""
    local_receive_max: int = Field(100, ge=1, le=1000)
    """Messages the local queue gives at once; SQS gives ten."""

    sqs_queue_url: str = ""
    """URL of the FIFO queue, of any account."""
    sqs_dead_letter_url: str = ""
    """URL of its dead-letter queue (depth and redrive)."""
    sqs_role_arn: str = ""
    """Role to assume for the queue (cross-account)."""
    sqs_large_bodies: Literal["off", "s3"] = "off"
    """`s3`: bodies may be pointers to S3 (extended client)."""
    aws_region: str = ""
    """Region, where the AWS configuration does not say."""
    aws_endpoint_url: str = ""
    """Overrides every AWS endpoint: emulators in tests."""
    s3_bucket: str = ""
    """Bucket of the object store."""
    redis_url: SecretStr = SecretStr("")
    """`redis://` or `rediss://` address; a cluster is recognised."""
    redis_timeout_seconds: float = Field(2.0, gt=0)
    """Of one call."""
    redshift_host: str = ""
    """Endpoint."""
    redshift_port: int = 5439
    redshift_database: str = "dev"
    redshift_user: str = ""
    redshift_password: SecretStr = SecretStr("")
    redshift_ssl: bool = True
    """TLS with full verification."""
    redshift_iam: Literal["off", "provisioned", "serverless"] = "off"
    """Temporary credentials for a cluster or a workgroup."""
    redshift_cluster: str = ""
    """Cluster identifier, with `provisioned`."""
    redshift_workgroup: str = ""
    """Workgroup, with `serverless`."""
    redshift_copy_role: str = ""
    """Role for COPY and UNLOAD (ARN, or `default`)."""
    redshift_statement_timeout_seconds: float = Field(600.0, gt=0)
    """Server-side limit of one statement."""
    schema_staging: str = "staging"
    """Schema of staging tables."""
    schema_curated: str = "curated"
    """Schema of curated tables and views."""
    schema_ops: str = "ops"
    """Schema of ledgers and quarantine."""

    @model_validator(mode="before")
    @classmethod
    def _profile_defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Settings given win over the profile's, which win over the fields' defaults."""
        if values.get("profile") == "aws":
            values = {**AWS, **({"receivers": 1} if _is_emulated(values) else {}), **values}
        return values

    @model_validator(mode="after")
    def _together(self) -> Self:
        _require(self.safety_seconds < self.visibility_seconds, "safety_seconds", "must be below visibility_seconds")
        _require(self.tick_seconds < self.visibility_seconds, "tick_seconds", "must be below visibility_seconds")
        _require(
            self.journal_days > self.queue_retention_days,
            "journal_days",
            "must exceed queue_retention_days: older segments answer late redeliveries",
        )
        _require(
            self.queue != "local" or self.local_dead_letter_after > self.receives_max,
            "local_dead_letter_after",
            "must exceed receives_max, or poison is moved away before it is quarantined",
        )
        missing = self._missing()
        if missing:
            raise ValueError(f"{', '.join(missing)}: not set, but needed by the chosen parts")
        return self

    def _missing(self) -> list[str]:
        """Settings that the chosen parts need and that are empty, all of them."""
        is_redshift = self.warehouse == "redshift"
        needed = {
            "sqs_queue_url": self.queue == "sqs",
            "s3_bucket": self.store == "s3",
            "redis_url": self.state == "redis",
            "redshift_host": is_redshift and self.redshift_iam == "off",
            "redshift_workgroup": is_redshift and self.redshift_iam == "serverless",
            "redshift_cluster": is_redshift and self.redshift_iam == "provisioned",
        }
        given = {**dict(self), "redis_url": self.redis_url.get_secret_value()}
        return [PREFIX + name.upper() for name, is_needed in needed.items() if is_needed and not given[name]]

    @property
    def longest_tick_seconds(self) -> float:
        """Budget of a tick under backlog, cut where the visibility leaves less: what is received must stay ours."""
        return max(self.tick_seconds, min(self.tick_backlog_seconds, self.visibility_seconds - self.safety_seconds))

    @property
    def dagster_home(self) -> Path:
        """Where the embedded profile keeps Dagster's own files."""
        return self.home / "dagster"


def _is_emulated(values: dict[str, Any]) -> bool:
    """An emulator's FIFO lock need not hold between overlapping receives (moto's does not): one receiver then."""
    endpoint = str(values.get("aws_endpoint_url", ""))
    return bool(endpoint) and ".amazonaws.com" not in endpoint


def _require(is_true: object, name: str, rule: str) -> None:
    if not is_true:
        raise ValueError(f"{PREFIX}{name.upper()} {rule}")
