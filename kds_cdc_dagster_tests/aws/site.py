"""Everything the aws profile needs, on 127.0.0.1: SQS and S3 (moto), Valkey, the Redshift stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from kds_cdc_dagster.settings import Settings, read_settings
from kds_cdc_dagster_tests.aws_server import AwsServer, aws_server
from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.server import RedshiftStandIn
from kds_cdc_dagster_tests.servers import ValkeyServer, valkey

QUEUE = {
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
    "VisibilityTimeout": "60",
    "MessageRetentionPeriod": "1209600",
}
"""Attributes as infra/queue.yaml sets them."""


@dataclass(frozen=True)
class AwsSite:
    """The services, and the environment that points a process at them."""

    aws: AwsServer
    redis: ValkeyServer
    redshift: RedshiftStandIn
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self, **changed: str) -> dict[str, str]:
        """Environment of a process; `changed` settings are named without prefix, in lower case."""
        mine = {f"KDS_CDC_{name.upper()}": value for name, value in changed.items()}
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("KDS_CDC_", "DAGSTER_"))}
        return {**bare, **self.variables, **mine}

    def settings(self, **changed: str) -> Settings:
        """The settings that such a process reads."""
        with mock.patch.dict(os.environ, self.environment(**changed), clear=True):
            return read_settings()

    def kds_cdc(self, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a process of its own."""
        command = [sys.executable, "-m", "kds_cdc_dagster.cli", *arguments]
        return subprocess.run(command, env=self.environment(**changed), capture_output=True, text=True, check=False)


@contextmanager
def aws_site(home: Path) -> Iterator[AwsSite]:
    """Start all of it, with queue and bucket as they should be; stop all of it at the end."""
    with aws_server() as aws, valkey(options=("--appendonly", "yes")) as redis:
        name = f"kds-{uuid.uuid4().hex[:8]}"  # the emulator's accounts are one per process, whatever its servers
        dead = aws.fifo(f"{name}-dead", **QUEUE)
        redrive = f'{{"deadLetterTargetArn":"{_arn(aws, dead)}","maxReceiveCount":"10"}}'
        queue = aws.fifo(name, RedrivePolicy=redrive, **QUEUE)
        bucket = aws.bucket(name)
        place = S3Place(aws.endpoint_url, bucket, aws.region, "testing", "testing")
        with RedshiftStandIn(place) as redshift:
            reached = redshift.connect_kwargs
            yield AwsSite(
                aws,
                redis,
                redshift,
                home,
                {
                    "KDS_CDC_PROFILE": "aws",
                    "KDS_CDC_HOME": str(home),
                    "KDS_CDC_SQS_QUEUE_URL": queue,
                    "KDS_CDC_SQS_DEAD_LETTER_URL": dead,
                    "KDS_CDC_RECEIVERS": "4",
                    "KDS_CDC_AWS_REGION": aws.region,
                    "KDS_CDC_AWS_ENDPOINT_URL": aws.endpoint_url,
                    "KDS_CDC_S3_BUCKET": bucket,
                    "KDS_CDC_REDIS_URL": redis.url,
                    **{f"KDS_CDC_REDSHIFT_{name.upper()}": str(reached[name]) for name in _REACHED},
                    "KDS_CDC_REDSHIFT_SSL": "false",
                    "KDS_CDC_REDSHIFT_COPY_ROLE": redshift.role,
                },
            )


_REACHED = ("host", "port", "database", "user", "password")


def _arn(aws: AwsServer, url: str) -> str:
    found = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(found["Attributes"]["QueueArn"])
