"""moto's AWS services over real HTTP on a free port of 127.0.0.1, with made-up credentials in the environment.

Slow but, with its calls put one after the other (`_in_turn`), faithful on FIFO locks; it does not refuse expired
receipt handles, know attempt ids or cap messages in flight: tests of those use `sqs_stub`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import boto3
from moto.server import ThreadedMotoServer
from moto.sqs.models import SQSBackend

REGION = "eu-west-1"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


_LOOK_SECONDS = 0.05


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
            with _in_turn():
                yield AwsServer(f"http://{host}:{port}")
        finally:
            server.stop()


@contextmanager
def _in_turn() -> Iterator[None]:
    """One queue call at a time, polls in short looks.

    As it is, moto notes the locked groups at the start of a receive, so that overlapping ones share a group out
    among them, and deletes that overlap undo each other; the service does neither.
    """
    lock = threading.RLock()
    look = SQSBackend.receive_message

    def receive(backend: Any, queue_name: str, count: int, wait_seconds: int, *args: Any) -> Any:
        until = time.monotonic() + wait_seconds
        while True:
            with lock:
                found = look(backend, queue_name, count, 0, *args)
            if found or time.monotonic() >= until:
                return found
            time.sleep(_LOOK_SECONDS)

    def alone(call: Any) -> Any:
        def locked(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return call(*args, **kwargs)

        return locked

    others = ("send_message", "delete_message", "change_message_visibility")
    calls = {"receive_message": receive, **{name: alone(getattr(SQSBackend, name)) for name in others}}
    with mock.patch.multiple(SQSBackend, **calls):
        yield
