"""Bodies that lie in S3, over moto's SQS and S3."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from kds_cdc_dagster.adapters.sqs_access import SqsAccess
from kds_cdc_dagster.adapters.sqs_inbox import SqsInbox
from kds_cdc_dagster.adapters.sqs_large_bodies import LargeBodies
from kds_cdc_dagster.adapters.sqs_outbound import SqsOutbound
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.aws_server import AwsServer, aws_server
from kds_cdc_dagster_tests.contracts.clocks import WallClock


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    """One server for the module."""
    with aws_server() as server:
        yield server


def open_wire(aws: AwsServer, url: str) -> SqsWire:
    """A wire to a queue of the server."""
    return SqsWire(SqsAccess(url, region=aws.region, endpoint_url=aws.endpoint_url), clock=WallClock())


def open_inbox(aws: AwsServer, url: str, bodies: LargeBodies) -> SqsInbox:
    """An inbox that follows pointers."""
    return SqsInbox(open_wire(aws, url), visibility_seconds=60, large_bodies=bodies)


def received(inbox: SqsInbox) -> list[bytes]:
    """Bodies of one receive."""
    return [one.body for one in inbox.receive(max_messages=10, wait_seconds=0)]


def pointer(bucket: str, key: str, name: str = "software.amazon.payloadoffloading.PayloadS3Pointer") -> str:
    """A body as the extended clients write it."""
    return json.dumps([name, {"s3BucketName": bucket, "s3Key": key}], separators=(",", ":"))


@pytest.fixture(scope="module")
def bucket(aws: AwsServer) -> str:
    """A bucket with one object, `big`, of 6 bytes."""
    name = aws.bucket("publisher-payloads")
    aws.client("s3").put_object(Bucket=name, Key="big", Body="{…}!".encode())
    return name


def large_bodies(aws: AwsServer, size_bytes_max: int = 100) -> LargeBodies:
    """As wiring makes it."""
    access = SqsAccess("https://x/kds.fifo", region=aws.region, endpoint_url=aws.endpoint_url)
    return LargeBodies(lambda: access.client("s3"), size_bytes_max=size_bytes_max)


@pytest.mark.parametrize(
    "name", ["software.amazon.payloadoffloading.PayloadS3Pointer", "com.amazon.sqs.javamessaging.MessageS3Pointer"]
)
def test_a_pointer_is_replaced_by_the_body_it_points_at(aws: AwsServer, bucket: str, name: str) -> None:
    """Both names of the convention; ordinary bodies pass untouched; the object stays for redeliveries."""
    url = aws.fifo(uuid.uuid4().hex)
    bodies = ["{}", pointer(bucket, "big", name), "[]"]
    SqsOutbound(open_wire(aws, url)).send([Message(body, "a:s", str(n)) for n, body in enumerate(bodies)])
    assert received(open_inbox(aws, url, large_bodies(aws))) == [b"{}", "{…}!".encode(), b"[]"]
    assert large_bodies(aws).whole(pointer(bucket, "big", name).encode()) == "{…}!".encode()


@pytest.mark.parametrize("body", [pointer("publisher-payloads", "gone"), pointer("no-bucket", "big")])
def test_a_pointer_that_leads_nowhere_stays_for_the_quarantine(aws: AwsServer, bucket: str, body: str) -> None:
    """No error, no invented body: the parser rejects the pointer with its bytes kept."""
    assert large_bodies(aws).whole(body.encode()) == body.encode()


def test_a_pointer_to_more_than_the_limit_is_not_read(aws: AwsServer, bucket: str) -> None:
    """The limit on bodies holds for those in S3 too."""
    body = pointer(bucket, "big").encode()
    assert large_bodies(aws, size_bytes_max=5).whole(body) == body
    assert large_bodies(aws, size_bytes_max=6).whole(body) != body


@pytest.mark.parametrize("tail", ["", ",1]", ',{"s3Key":"k"}]', ',{"s3BucketName":1,"s3Key":"k"}]', ",{}"])
def test_a_broken_pointer_is_an_ordinary_body(tail: str) -> None:
    """Text that only begins like a pointer raises nothing."""
    body = b'["software.amazon.payloadoffloading.PayloadS3Pointer"' + tail.encode()
    assert LargeBodies(lambda: None, size_bytes_max=9).whole(body) == body


def test_a_body_that_cannot_be_read_now_keeps_back_its_own_group_only(
    aws: AwsServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 in trouble: the message and those behind it in its group stay hidden, other groups go on."""
    url = aws.fifo(uuid.uuid4().hex)
    sent = [("a:1", "1"), ("a:1", pointer(bucket, "big")), ("a:1", "3"), ("a:2", "4")]
    SqsOutbound(open_wire(aws, url)).send([Message(body, group, str(n)) for n, (group, body) in enumerate(sent)])
    bodies = large_bodies(aws)

    def unwell(body: bytes) -> bytes:
        if body.startswith(b"["):
            raise TransientError("a message body cannot be read from S3")
        return body

    monkeypatch.setattr(bodies, "whole", unwell)
    inbox = open_inbox(aws, url, bodies)
    assert sorted(received(inbox)) == [b"1", b"4"]
    assert (inbox.depth().in_flight, inbox.counts()) == (4, {"body_missing": 1})
