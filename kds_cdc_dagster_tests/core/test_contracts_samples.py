"""Every form of message that Debezium's sinks write, by the invented samples."""

from __future__ import annotations

import json

import pytest

from kds_cdc_dagster.catalogue import parse_catalogue
from kds_cdc_dagster.core.change import Change, Control, Parsed, Phase, Rank, Reason, Rejection
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster_tests.captures import DATA, delivery, samples

GROUP = "40017:7c1f3b52-9f5e-4d7a-8a61-2f0c4de91b10"
PARSER = Parser(
    parse_catalogue((DATA / "samples-catalogue.yaml").read_text("utf-8")), Limits(5, 1 << 20, frozenset({"debezium"}))
)


def parsed(name: str, number: int = 1) -> Parsed:
    """What the parser makes of a sample."""
    return PARSER.parse(delivery(samples()[name], GROUP, number))


def change(name: str) -> Change:
    """The change in a sample."""
    found = parsed(name)
    assert isinstance(found, Change), found
    return found


ROWS = sorted(
    name for name in samples() if not name.startswith(("common/", "other/m", "other/v")) and "-message" not in name
)


@pytest.mark.parametrize("name", ROWS)
def test_row_samples_are_changes_of_their_key_and_stream(name: str) -> None:
    """Each row event of five connectors is one change, with the identity of its own key and place."""
    found = change(name)
    document = json.loads(samples()[name])
    assert found.op == document["op"]
    assert found.stream == GROUP
    assert (found.primary_key == "") == (found.op == "t")
    assert len(found.identity) == 32
    assert len(found.content_hash) == 16
    assert (found.stream_position is None) == (found.op == "r")
    assert found.row_position is not None


def test_every_connector_has_one_width_of_position() -> None:
    """Positions of one source compare as text, so they have one width; only XStream's is another."""
    widths = {name: len(change(name).row_position or "") for name in ROWS}
    assert widths.pop("oracle/09-xstream-insert") == 72
    assert set(widths.values()) == {48}


CONTROLS = {
    "common/flattened-delete-default-mode-schemaless": "null",
    "common/flattened-delete-default-mode-with-schema": "null",
    "common/heartbeat": "heartbeat",
    "common/heartbeat-with-schema": "heartbeat",
    "common/notification": "notification",
    "common/schema-change-mysql": "schema_change",
    "common/signal-table-row": "signal",
    "common/transaction-begin": "transaction",
    "common/transaction-end": "transaction",
    "postgresql/10-logical-decoding-message": "logical_message",
}


@pytest.mark.parametrize(("name", "kind"), CONTROLS.items())
def test_messages_without_a_row_are_control_messages(name: str, kind: str) -> None:
    """Heartbeats, DDL, markers, notifications, signals and null bodies are counted, never errors."""
    assert parsed(name) == Control(kind)


@pytest.mark.parametrize("name", ["other/mongodb-update", "other/vitess-insert"])
def test_unknown_connectors_are_refused(name: str) -> None:
    """A connector the catalogue cannot name is an unknown source, not garbage."""
    found = parsed(name)
    assert isinstance(found, Rejection)
    assert found.reason == Reason.UNKNOWN_SOURCE


def test_a_redelivery_after_a_crash_has_the_same_identity_and_content() -> None:
    """Only payload times differ between the two bodies."""
    first, again = change("postgresql/02-insert"), change("postgresql/02-redelivered-after-crash")
    assert samples()["postgresql/02-insert"] != samples()["postgresql/02-redelivered-after-crash"]
    assert (first.identity, first.content_hash) == (again.identity, again.content_hash)


@pytest.mark.parametrize("name", ["cloudevents-insert", "insert-with-schema-wrapper"])
def test_other_forms_of_one_event_have_its_identity(name: str) -> None:
    """Identity rests on source, table, key and coordinates, whatever form carries them."""
    assert change(f"common/{name}").identity == change("postgresql/02-insert").identity


def test_a_null_snapshot_mark_is_a_streaming_row() -> None:
    """With replace.null.with.default=false a streaming row says snapshot: null."""
    found = change("common/insert-numeric-decimal-null-snapshot")
    assert (found.phase, found.rank, found.is_snapshot_start) == (Phase.STREAMING, Rank.STREAMING, False)


def test_rows_that_share_a_position_are_different_changes() -> None:
    """COPY rows share an lsn, both halves of a key change share everything but key and operation."""
    pairs = [
        ("postgresql/02a-insert-copy-same-lsn", "postgresql/02b-insert-copy-same-lsn"),
        ("postgresql/05a-pk-change-delete-old-key", "postgresql/05b-pk-change-create-new-key-toast"),
        ("mysql/05a-pk-change-delete-old-key", "mysql/05b-pk-change-create-new-key"),
        ("sqlserver/05a-pk-change-delete-old-key", "sqlserver/05b-pk-change-create-new-key"),
        ("oracle/05a-pk-change-delete-old-key", "oracle/05b-pk-change-create-new-key"),
    ]
    for left, right in pairs:
        assert change(left).row_position == change(right).row_position
        assert change(left).identity != change(right).identity


def test_rows_of_one_statement_are_ordered_by_their_row_number() -> None:
    """Two rows of one binlog event differ in `row` alone."""
    for connector in ("mysql", "mariadb"):
        first = change(f"{connector}/02a-insert-multirow-row0").stream_position
        second = change(f"{connector}/02b-insert-multirow-row1").stream_position
        assert first is not None
        assert second is not None
        assert first < second


def test_binlog_files_compare_as_numbers_and_lineages_are_told_apart() -> None:
    """binlog.1000000 is newer than binlog.999999; a failover shows another server under a lower position."""
    before, after = change("mysql/10a-before-file-rollover"), change("mysql/10b-after-file-rollover")
    elsewhere = change("mysql/11-after-failover-lower-position")
    assert (before.stream_position or "") < (after.stream_position or "")
    assert (elsewhere.stream_position or "") < (before.stream_position or "")
    assert before.lineage == after.lineage == "binlog|3f1d0c9a-7b6e-11ef-9c0d-0a58a9feac02"
    assert elsewhere.lineage == "binlog|b7720f4e-7b6e-11ef-8d11-0a58a9feac03"
    assert change("mariadb/02-insert").lineage == "mariadb-bin|0-7311"


def test_snapshot_reads_and_incremental_reads_have_their_phases() -> None:
    """Initial reads rank below all streaming rows; incremental ones rank with them, behind at a tie."""
    for connector in ("postgresql", "mysql", "mariadb", "sqlserver", "oracle"):
        found = change(f"{connector}/01-snapshot-read")
        assert (found.phase, found.stream_position) == (Phase.SNAPSHOT, None)
        assert found.lineage == ""
    for name in ("postgresql/09", "mysql/09", "mariadb/09", "sqlserver/08"):
        found = change(f"{name}-incremental-snapshot-read")
        assert (found.phase, found.rank) == (Phase.STREAMING, Rank.INCREMENTAL)
        assert not found.is_snapshot_start


def test_oracle_orders_by_commit_and_falls_back_to_the_snapshot_scn() -> None:
    """The scn 88121530 < commit_scn 88121544: the commit counts; a snapshot row has only its scn."""
    assert (change("oracle/02-insert").row_position or "").startswith(f"{88121544:024x}")
    assert (change("oracle/01-snapshot-read").row_position or "").startswith(f"{88120044:024x}")


def test_sql_server_rows_of_one_commit_are_siblings() -> None:
    """change_lsn may go down inside a commit in direct mode, so only commit_lsn orders."""
    found = change("sqlserver/02-insert").row_position or ""
    assert found == "0000002a00000fe80004".ljust(48, "0")


def test_a_key_only_delete_belongs_to_the_stream_it_arrived_in() -> None:
    """PostgreSQL invents account 0 and an empty store: neither is believed, no tenant is known."""
    found = change("postgresql/04-delete-identity-default")
    assert (found.account, found.store, found.tenant) == (None, None, None)
    assert (found.primary_key, found.stream) == ("[900144]", GROUP)
    rewritten = change("common/flattened-delete-rewrite")
    assert (rewritten.op, rewritten.account, rewritten.primary_key) == ("d", None, "[900144]")


def test_a_flattened_row_without_sequence_is_proven_by_arrival_and_ordered_by_lsn() -> None:
    """Stream order is the queue's number, row order the lsn."""
    found = PARSER.parse(delivery(samples()["common/flattened-insert"], GROUP, 77))
    assert isinstance(found, Change)
    assert found.stream_position == f"{77:048x}"
    assert found.row_position == f"{0:017x}{33601120:016x}".ljust(48, "0")
