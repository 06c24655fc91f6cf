"""moto's AWS services over real HTTP on a free port of 127.0.0.1, with made-up credentials in the environment.

Slow but faithful on FIFO locks; it does not refuse expired receipt handles, know attempt ids or cap messages in
flight: tests of those use `sqs_stub`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import boto3
from moto.server import ThreadedMotoServer

REGION = "eu-west-1"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@dataclass(frozen=True)
class AwsServer:
    """A running server."""

    endpoint_url: str
    region: str = REGION

    def client(self, service: str, **keys: Any) -> Any:
        """A boto3 client of the server; `keys` are those of another account's credentials."""
        return boto3.client(service, endpoint_url=self.endpoint_url, region_name=self.region, **keys)  # type: ignore[call-overload]

    def bucket(self, name: str) -> str:
        """A new bucket's name."""
        self.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": self.region})
        return name

    def fifo(self, name: str, *, sqs: Any = None, **attributes: str) -> str:
        """Address of a new FIFO queue."""
        wanted = {"FifoQueue": "true", "ContentBasedDeduplication": "false", **attributes}
        answer = (sqs or self.client("sqs")).create_queue(QueueName=f"{name}.fifo", Attributes=wanted)
        return str(answer["QueueUrl"])


@contextmanager
def aws_server() -> Iterator[AwsServer]:
    """Start, and stop at the end. boto3 finds the made-up credentials while it runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with mock.patch.dict(os.environ, {**kept, **_ENVIRONMENT}, clear=True):
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield AwsServer(f"http://{host}:{port}")
        finally:
            server.stop()
