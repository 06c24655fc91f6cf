"""Settings: what is wrong is named, all of it at once."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from kds_cdc_dagster.errors import SettingsError
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.settings import Settings, read_settings
from kds_cdc_dagster.wiring import Pipeline


def read(**variables: str) -> Settings:
    """Settings of a process with these variables and no others of ours."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("KDS_CDC_")}
    mine = {f"KDS_CDC_{name.upper()}": value for name, value in variables.items()}
    with mock.patch.dict(os.environ, {**bare, **mine}, clear=True):
        return read_settings()


def test_the_aws_profile_names_everything_that_is_missing() -> None:
    """One error, not one per start."""
    with pytest.raises(SettingsError) as refused:
        read(profile="aws")
    for name in ("SQS_QUEUE_URL", "S3_BUCKET", "REDIS_URL", "REDSHIFT_HOST"):
        assert f"KDS_CDC_{name}" in str(refused.value)
    assert "WORKGROUP" not in str(refused.value)


def test_what_is_given_is_not_missing() -> None:
    """And each way to reach Redshift needs its own name."""
    given = {"sqs_queue_url": "https://q", "s3_bucket": "b", "redis_url": "redis://r"}
    for iam, name in (("off", "HOST"), ("serverless", "WORKGROUP"), ("provisioned", "CLUSTER")):
        with pytest.raises(SettingsError, match=f"KDS_CDC_REDSHIFT_{name}: not set, but needed"):
            read(profile="aws", redshift_iam=iam, **given)
    assert read(profile="aws", redshift_host="h", **given).warehouse == "redshift"


def test_the_journal_outlives_the_oldest_redelivery_by_default() -> None:
    """Queue and dead-letter queue as the template makes them, one after the other."""
    defaults = Settings()
    assert defaults.journal_days > defaults.queue_retention_days + defaults.dead_letter_retention_days
    with pytest.raises(SettingsError, match="KDS_CDC_JOURNAL_DAYS must exceed queue_retention_days"):
        read(journal_days="14")


@pytest.mark.parametrize(("variables", "is_synced"), [({}, True), ({"store_fsync": "off"}, False)])
def test_a_power_cut_takes_nothing_by_default(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_synced: bool
) -> None:
    """What is put and sent is on the disk unless a setting says that it need not be: store and queue alike."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    parts = Pipeline(read(home=str(tmp_path), **variables))
    parts.store.create("journal/c/1", b"x")
    assert bool(synced) == is_synced
    turn = mock.Mock(wraps=parts.outbound._file.turn)  # type: ignore[attr-defined]
    monkeypatch.setattr(parts.outbound._file, "turn", turn)  # type: ignore[attr-defined]
    parts.outbound.send([Message("a", "g", "d")])
    turn.assert_called_once_with(is_synced=is_synced)
    parts.close()


@pytest.mark.parametrize(("visibility", "longest"), [("60", 16.5), ("20", 11.0), ("12", 9.0)])
def test_a_tick_under_backlog_ends_before_the_visibility_does(visibility: str, longest: float, tmp_path: Path) -> None:
    """Nine seconds of safety are left of it, unless a usual tick leaves less."""
    found = read(home=str(tmp_path), visibility_seconds=visibility, safety_seconds="9", tick_seconds="9")
    assert found.longest_tick_seconds == longest


def test_the_local_queue_gives_and_is_asked_for_as_many_as_the_setting_says(tmp_path: Path) -> None:
    """One setting for both sides: twelve a receive, so that a round of thirty takes three."""
    parts = Pipeline(read(home=str(tmp_path), local_receive_max="12"))
    parts.outbound.send([Message(str(number), f"g{number}", str(number)) for number in range(30)])
    receive = mock.Mock(wraps=parts.inbox.receive)
    with mock.patch.object(parts.inbox, "receive", receive):
        assert len(parts.ticker("w")._collector.collect(0.0)) == 30
    assert {call.kwargs["max_messages"] for call in receive.call_args_list} == {12}
    assert len(receive.call_args_list) == 4  # the last one finds nothing
    parts.close()
