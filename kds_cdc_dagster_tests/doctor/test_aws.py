"""`kds-cdc doctor` on the aws profile over emulators, with faults made in the services themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kds_cdc_dagster.doctor import examine
from kds_cdc_dagster.doctor.finding import Finding, Severity
from kds_cdc_dagster.wiring import Pipeline
from kds_cdc_dagster_tests.aws.site import QUEUE, AwsSite, aws_site
from kds_cdc_dagster_tests.doctor.test_embedded import of


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsSite]:
    """All services, as they should be."""
    with aws_site(tmp_path_factory.mktemp("home")) as opened:
        yield opened


def examined(line: AwsSite, **changed: str) -> list[Finding]:
    """Findings of a process with these settings."""
    parts = Pipeline(line.settings(**changed))
    found = list(examine(parts))
    parts.close()
    return found


def test_all_as_it_should_be(line: AwsSite) -> None:
    """No error and no warning; COPY and UNLOAD were really tried; one group's ceiling is told."""
    found = examined(line)
    assert of(found, Severity.ERROR) == of(found, Severity.WARN) == []
    assert any("loads from the store and unloads" in what for _, what in of(found, Severity.OK))
    assert any("one group's ceiling" in what for _, what in of(found, Severity.INFO))


def test_a_queue_without_fifo(line: AwsSite) -> None:
    """It keeps no order: an error of the queue, and the other parts are looked at."""
    plain = line.aws.client("sqs").create_queue(QueueName="plain")["QueueUrl"]
    found = examined(line, sqs_queue_url=plain)
    ((part, what),) = of(found, Severity.ERROR)
    assert (part, "FIFO" in what) == ("queue", True)
    assert "store" in [part for part, _ in of(found, Severity.OK)]


def test_a_queue_that_is_set_up_badly(line: AwsSite) -> None:
    """Poison moved away before it is quarantined, a journal too short, slow mode, no watched dead letters."""
    slow = {**QUEUE, "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue", "VisibilityTimeout": "30"}
    redrive = line.aws.client("sqs").get_queue_attributes(
        QueueUrl=line.variables["KDS_CDC_SQS_DEAD_LETTER_URL"], AttributeNames=["QueueArn"]
    )["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn":"{redrive}","maxReceiveCount":3}}'
    queue = line.aws.fifo("bad", RedrivePolicy=policy, **{**slow, "ContentBasedDeduplication": "true"})
    changed = {"sqs_queue_url": queue, "journal_days": "14", "queue_retention_days": "4", "sqs_dead_letter_url": ""}
    found = examined(line, **changed)
    errors, warnings, told = (str(of(found, severity)) for severity in (Severity.ERROR, Severity.WARN, Severity.INFO))
    assert "moved away after 3 receives" in errors
    assert "messages live 14 days, the journal that answers for them 14" in errors
    assert "high-throughput" in warnings
    assert "dead letters are not watched" in warnings
    assert "the settings say 4" in warnings
    assert "content-based deduplication" in told
    assert "hides messages for 30 s" in told


def test_a_redriven_letter_older_than_the_journal(line: AwsSite) -> None:
    """Both retentions count: a FIFO queue's dead letter starts its time anew. The queues' real ones are told."""
    ((part, what),) = of(examined(line, journal_days="28.5"), Severity.WARN)
    assert (part, what) == ("settings", "a redriven letter may be 28 days old, the journal answers for 28.5")
    assert of(examined(line, journal_days="29"), Severity.WARN) == []
    ((part, what),) = of(examined(line, journal_days="21", dead_letter_retention_days="4"), Severity.WARN)
    assert (part, what) == ("queue", "dead letters live 14 days, the settings say 4")


def test_a_queue_that_is_not_there(line: AwsSite) -> None:
    """The address is named."""
    gone = line.variables["KDS_CDC_SQS_QUEUE_URL"].replace(".fifo", "-gone.fifo")
    ((part, what),) = of(examined(line, sqs_queue_url=gone), Severity.ERROR)
    assert part == "queue"
    assert "gone" in what


def test_a_bucket_that_is_not_there(line: AwsSite) -> None:
    """Store and, over it, the warehouse's probe fail; the queue is well."""
    errors = of(examined(line, s3_bucket="kds-nowhere"), Severity.ERROR)
    assert [part for part, _ in errors] == ["store", "warehouse"]
    assert "bucket" in errors[0][1]


def test_a_lifecycle_rule_that_deletes_the_journal(line: AwsSite) -> None:
    """Each folder that a rule would empty too early is named; versions that pile up are told."""
    s3, bucket = line.aws.client("s3"), line.aws.bucket("kds-short")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    rules = [
        {"ID": "weeks", "Status": "Enabled", "Filter": {"Prefix": "kds/journal/"}, "Expiration": {"Days": 20}},
        {"ID": "year", "Status": "Enabled", "Filter": {"Prefix": "kds/raw/"}, "Expiration": {"Days": 365}},
        {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}},
        {"ID": "others", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 1}},
    ]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    found = [finding for finding in examined(line, s3_bucket=bucket) if finding.part == "store"]
    ((_, what),) = of(found, Severity.ERROR)
    assert what == "lifecycle rule weeks deletes kds/journal/ after 20 days; it is needed 30 days"
    ((_, versions),) = of(found, Severity.WARN)
    assert "versioning is on and nothing removes old versions" in versions


def test_a_role_that_may_not_copy(line: AwsSite) -> None:
    """COPY is really tried, so a role that Redshift may not take shows."""
    role = "arn:aws:iam::123456789012:role/somebody"
    ((part, what),) = of(examined(line, redshift_copy_role=role), Severity.ERROR)
    assert part == "warehouse"
    assert "COPY" in what


def test_a_warehouse_that_refuses_the_login(line: AwsSite) -> None:
    """The error names the settings, not the password."""
    found = examined(line, redshift_password="secret-1")
    ((part, what),) = of(found, Severity.ERROR)
    assert (part, "login" in what, "secret-1" in str(found)) == ("warehouse", True, False)
