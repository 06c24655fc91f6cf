"""Who the SQS adapter is and where it goes: signature, region, roles, other accounts, the queue's template."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from kds_cdc_dagster.adapters.sqs_access import SqsAccess, connect
from kds_cdc_dagster.adapters.sqs_inbox import SqsInbox
from kds_cdc_dagster.adapters.sqs_open import open_dead_letters, open_inbox, open_outbound
from kds_cdc_dagster.adapters.sqs_outbound import SqsDeadLetters, SqsOutbound
from kds_cdc_dagster.adapters.sqs_sign import CONTENT_TYPE, Target, signed_headers
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.errors import SettingsError
from kds_cdc_dagster.ports import Message, QueueDepth
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster_tests.aws_server import AwsServer, aws_server
from kds_cdc_dagster_tests.contracts.clocks import WallClock

TEMPLATE = Path(__file__).parents[2] / "infra" / "queue.yaml"
PUBLISHER_ACCOUNT = "222222222222"


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    """One server for the module."""
    with aws_server() as server:
        yield server


def open_wire(aws: AwsServer, url: str, **access: str) -> SqsWire:
    """A wire to a queue of the server."""
    return SqsWire(SqsAccess(url, region=aws.region, endpoint_url=aws.endpoint_url, **access), clock=WallClock())


def inbox_of(aws: AwsServer, url: str, **access: str) -> SqsInbox:
    """An inbox of a queue of the server."""
    return SqsInbox(open_wire(aws, url, **access), visibility_seconds=60)


def received(inbox: SqsInbox) -> list[bytes]:
    """Bodies of one receive."""
    return [one.body for one in inbox.receive(max_messages=10, wait_seconds=0)]


# --- signature and region -------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "a/session+token=="])
def test_the_signature_is_botocores_to_the_byte(monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    """Same request, same second, same keys: the same Authorization header as botocore writes."""
    now = dt.datetime(2026, 11, 30, 23, 59, 59, tzinfo=dt.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: now)
    keys = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token)
    target = Target("sqs.eu-west-1.amazonaws.com", "eu-west-1")
    payload = '{"QueueUrl":"https://…/kds.fifo"}'.encode()
    ours = signed_headers(target, "ReceiveMessage", payload=payload, credentials=keys, now=now.timestamp())
    headers = {"Content-Type": CONTENT_TYPE, "X-Amz-Target": "AmazonSQS.ReceiveMessage"}
    request = AWSRequest("POST", f"https://{target.host}/", headers=headers, data=payload)
    botocore.auth.SigV4Auth(keys, "sqs", "eu-west-1").add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]
    assert ours["x-amz-date"] == request.headers["X-Amz-Date"]
    assert ours.get("x-amz-security-token") == token


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://sqs.eu-central-1.amazonaws.com/222222222222/kds.fifo", "eu-central-1"),
        ("https://sqs.us-gov-west-1.amazonaws.com/222222222222/kds.fifo", "us-gov-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/222222222222/kds.fifo", "cn-north-1"),
        ("https://vpce-0a1b-2c3d.sqs.ap-southeast-2.vpce.amazonaws.com/222222222222/kds.fifo", "ap-southeast-2"),
        ("https://eu-west-3.queue.amazonaws.com/222222222222/kds.fifo", "eu-west-3"),
        ("http://127.0.0.1:5000/222222222222/kds.fifo", "eu-west-1"),
    ],
)
def test_the_region_in_the_queues_address_wins(url: str, region: str) -> None:
    """Whatever region we run in, calls are signed for the queue's."""
    assert SqsAccess(url, region="eu-west-1").queue_region == region


def test_a_real_address_leads_to_the_regions_endpoint_without_opening_anything(aws: AwsServer) -> None:
    """Endpoint and signing region come from the queue's address; looking them up needs no network."""
    peer = connect(SqsAccess("https://sqs.cn-north-1.amazonaws.com.cn/222222222222/kds.fifo"), connections_max=3)
    assert peer.target == Target("sqs.cn-north-1.amazonaws.com.cn", "cn-north-1")
    dial = peer.connections._dial
    assert dial.url == "https://sqs.cn-north-1.amazonaws.com.cn"
    assert dial.trust is not None
    assert dial.trust.verify_mode is ssl.CERT_REQUIRED
    assert dial.trust.check_hostname


def test_missing_credentials_are_a_settings_error(aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody to sign as: said so, with or without a role to assume."""
    url = aws.fifo(uuid.uuid4().hex)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(SettingsError, match="no AWS credentials"):
        received(inbox_of(aws, url))
    with pytest.raises(SettingsError, match="KDS_CDC_SQS_ROLE_ARN"):
        received(inbox_of(aws, url, role_arn=f"arn:aws:iam::{PUBLISHER_ACCOUNT}:role/drain"))


# --- another account, and the template ------------------------------------------------------------


def publisher(aws: AwsServer, service: str) -> Any:
    """A client in the publisher's account."""
    role = f"arn:aws:iam::{PUBLISHER_ACCOUNT}:role/deploy"
    keys = aws.client("sts").assume_role(RoleArn=role, RoleSessionName="deploy")["Credentials"]
    return aws.client(
        service,
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )


@pytest.fixture(scope="module")
def stack(aws: AwsServer) -> dict[str, str]:
    """Outputs of the template, deployed in the publisher's account."""
    parameters = {
        "PublisherArn": f"arn:aws:iam::{PUBLISHER_ACCOUNT}:role/debezium",
        "ConsumerAccount": "123456789012",
        "ConsumerRoleName": "kds-cdc",
    }
    stacks = publisher(aws, "cloudformation")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto knows no queue policies
        stacks.create_stack(
            StackName="kds",
            TemplateBody=TEMPLATE.read_text(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
            Capabilities=["CAPABILITY_IAM"],
        )
    (made,) = stacks.describe_stacks(StackName="kds")["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in made["Outputs"]}


def test_the_templates_queue_is_drained_by_its_role_from_another_account(aws: AwsServer, stack: dict[str, str]) -> None:
    """The stack's outputs are the settings: through the role the queue is drained, without it there is none."""
    url = stack["QueueUrl"]
    publisher(aws, "sqs").send_message(QueueUrl=url, MessageBody="{}", MessageGroupId="a:s")
    with pytest.raises(SettingsError, match="QueueDoesNotExist"):
        received(inbox_of(aws, url))
    assert received(inbox_of(aws, url, role_arn=stack["ConsumerRoleArn"])) == [b"{}"]


def test_the_template_asks_for_high_throughput_and_quarantines_before_dead_letters(
    aws: AwsServer, stack: dict[str, str]
) -> None:
    """FIFO limit and deduplication per group; retention and redrive fit the settings' defaults."""
    sqs = publisher(aws, "sqs")
    found = sqs.get_queue_attributes(QueueUrl=stack["QueueUrl"], AttributeNames=["All"])["Attributes"]
    assert (found["FifoThroughputLimit"], found["DeduplicationScope"]) == ("perMessageGroupId", "messageGroup")
    defaults = Settings(profile="embedded")
    assert int(found["MessageRetentionPeriod"]) == defaults.queue_retention_days * 86_400
    dead = sqs.get_queue_attributes(QueueUrl=stack["DeadLetterUrl"], AttributeNames=["All"])["Attributes"]
    assert int(dead["MessageRetentionPeriod"]) == defaults.dead_letter_retention_days * 86_400
    policy = json.loads(found["RedrivePolicy"])
    assert policy["deadLetterTargetArn"].endswith(":" + stack["DeadLetterUrl"].rsplit("/", 1)[-1])
    assert int(policy["maxReceiveCount"]) > defaults.receives_max


# --- from settings --------------------------------------------------------------------------------


def test_everything_opens_from_settings(aws: AwsServer) -> None:
    """Queue, dead letters, endpoint, region and visibility reach the service; nothing is connected before a call."""
    settings = Settings(
        queue="sqs",
        sqs_queue_url=aws.fifo(uuid.uuid4().hex),
        sqs_dead_letter_url=aws.fifo(uuid.uuid4().hex),
        sqs_large_bodies="s3",
        aws_region=aws.region,
        aws_endpoint_url=aws.endpoint_url,
        visibility_seconds=20,
    )
    inbox, outbound = (opened(settings, clock=WallClock()) for opened in (open_inbox, open_outbound))
    dead = open_dead_letters(settings, outbound, clock=WallClock())._dead_letters
    assert inbox._wire._peer is dead._wire._peer is outbound._wire._peer is None
    outbound.send([Message("{}", "a:s", "1"), Message("{}", "a:t", "2")])
    assert received(dead) == []
    assert len(received(inbox)) == 2
    assert inbox.depth() == QueueDepth(visible=0, in_flight=2, dead_letter=0)


# --- redrive --------------------------------------------------------------------------------------


def test_a_redrive_moves_dead_letters_back_in_order(aws: AwsServer) -> None:
    """Bodies and groups as they were, up to the limit; the dead-letter queue keeps only the rest."""
    main, dead = aws.fifo(uuid.uuid4().hex), aws.fifo(uuid.uuid4().hex)
    SqsOutbound(open_wire(aws, dead)).send([Message(f"{n} 🍮", "a:s", str(n)) for n in range(12)])
    letters = inbox_of(aws, dead)
    assert SqsDeadLetters(letters, SqsOutbound(open_wire(aws, main))).redrive(limit=11) == 11
    assert received(inbox_of(aws, main)) == [f"{n} 🍮".encode() for n in range(10)]
    assert received(letters) == ["11 🍮".encode()]


def test_dead_letters_are_shown_without_their_bodies_and_stay(aws: AwsServer) -> None:
    """The oldest of each group, which one receive gives out before it is locked; all can be received afterwards."""
    dead = aws.fifo(uuid.uuid4().hex)
    SqsOutbound(open_wire(aws, dead)).send(
        [Message(f"body {group} {n}", group, f"{group}-{n}") for group in ("a:s", "a:t") for n in range(12)]
    )
    letters = inbox_of(aws, dead)
    shown = SqsDeadLetters(letters, SqsOutbound(open_wire(aws, dead))).letters(limit=100)
    assert {one.group_id for one in shown} == {"a:s", "a:t"}
    assert max(Counter(one.group_id for one in shown).values()) <= 10
    assert "body" not in str(shown)
    assert all(one.receive_count == 1 and one.message_id and one.sent_at_ms for one in shown)
    assert len(SqsDeadLetters(letters, SqsOutbound(open_wire(aws, dead))).letters(limit=3)) == 3
    assert len(received(letters)) == 10


def test_dead_letters_without_an_address_name_the_setting() -> None:
    """The operator learns what is missing."""
    settings = Settings(queue="sqs", sqs_queue_url="https://sqs.eu-west-1.amazonaws.com/1/kds.fifo")
    with pytest.raises(SettingsError, match="KDS_CDC_SQS_DEAD_LETTER_URL"):
        open_dead_letters(settings, open_outbound(settings, clock=WallClock()), clock=WallClock())
