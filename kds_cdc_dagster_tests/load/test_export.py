"""Exports: complete or invisible, forward only, and no more rewritten than what changed."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kds_cdc_dagster.load import export as export_module
from kds_cdc_dagster.load import ledger
from kds_cdc_dagster.load.export import Export, current_export, export
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster_tests.load.breaking import BreakingWarehouse, Broken
from kds_cdc_dagster_tests.load.loading import LAYOUT, Loading
from kds_cdc_dagster_tests.load.source import SourceTable


@pytest.fixture
def loading() -> Iterator[Loading]:
    """The dish target with dishes 1 and 2 of acct-1 and 3 of acct/2."""
    with Loading.on_duckdb() as found:
        yield found


@pytest.fixture
def table(loading: Loading) -> SourceTable:
    """The source of the loaded dishes."""
    found = SourceTable()
    found.insert(1, "soup")
    found.insert(2, "stew")
    found.insert(3, "salad", account_id="acct/2")
    loading.load("b-1", found.emitted)
    return found


def read(store: ObjectStore, found: Export | None) -> dict[int, dict[str, object]]:
    """What a consumer of the export reads, following the pointer alone."""
    assert found is not None
    rows: dict[int, dict[str, object]] = {}
    for tenant, files in found.files.items():
        for file in files:
            part = pq.read_table(pa.BufferReader(store.get(file.key))).to_pylist()
            assert len(part) == file.rows
            assert {row["account_id"] for row in part} == {tenant}
            rows |= {row.pop("dish_id"): row for row in part}
    assert len(rows) == found.rows
    return rows


def load(loading: Loading, table: SourceTable, batch: str) -> None:
    """Load the table's last change."""
    loading.load(batch, table.emitted[-1:])


def run(loading: Loading) -> tuple[str, tuple[str, ...], int]:
    """Export; outcome, tenants rewritten, tenants carried over."""
    report = export(loading.warehouse, loading.store, LAYOUT)
    return report.outcome, report.rewritten, report.carried_over


def test_s23_only_what_changed_is_rewritten(loading: Loading, table: SourceTable) -> None:
    """All tenants at first; then only those whose rows changed; nothing at all without a merge."""
    assert run(loading) == ("exported", ("acct-1", "acct/2"), 0)
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows
    assert run(loading)[0] == "unchanged"
    table.update(3, title="slaw")
    load(loading, table, "b-2")
    assert run(loading) == ("exported", ("acct/2",), 1)
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows


def test_tenants_without_rows_disappear(loading: Loading, table: SourceTable) -> None:
    """A tenant whose last row was deleted, moved to another tenant or truncated has no file any more."""
    run(loading)
    table.update(3, account_id="acct-1")
    load(loading, table, "b-2")
    assert run(loading) == ("exported", ("acct-1", "acct/2"), 0)
    found = current_export(loading.store, "dish")
    assert found is not None
    assert found.files.keys() == {"acct-1"}
    assert read(loading.store, found) == table.rows
    table.truncate()
    load(loading, table, "b-3")
    assert run(loading)[:2] == ("exported", ("acct-1",))
    assert read(loading.store, current_export(loading.store, "dish")) == {}


def test_s22_broken_at_every_step(loading: Loading, table: SourceTable) -> None:
    """An export that dies anywhere shows the old state or the new one, whole; the repetition shows the new one."""
    breaking = BreakingWarehouse(loading.warehouse)
    run(loading)
    survived = 0
    while True:
        before = {key: dict(row) for key, row in table.rows.items()}
        table.update(1, title=f"soup {survived}")
        load(loading, table, f"b-{2 + survived}")
        breaking.steps, breaking.at = 0, 1 + survived
        try:
            export(breaking, loading.store, LAYOUT)
        except Broken:
            survived += 1
            assert read(loading.store, current_export(loading.store, "dish")) in (before, table.rows)
            run(loading)
            assert read(loading.store, current_export(loading.store, "dish")) == table.rows
        else:
            break
    assert survived > 5


def test_s22_older_exporter_finishes_later(
    loading: Loading, table: SourceTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exporter that began before a merge and finishes after a newer export changes nothing that is seen."""
    run(loading)
    table.update(1, title="broth")
    load(loading, table, "b-2")
    create = loading.store.create
    outcomes = []

    def overtaken(key: str, body: bytes) -> None:
        """Just before the older export's index is written, a newer export runs through."""
        create(key, body)
        if key.endswith("index.json"):
            monkeypatch.setattr(loading.store, "create", create)
            table.update(3, title="slaw")
            load(loading, table, "b-3")
            outcomes.append(run(loading)[0])

    monkeypatch.setattr(loading.store, "create", overtaken)
    outcomes.append(run(loading)[0])
    assert outcomes == ["exported", "superseded"]
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows


def test_pointer_is_repaired(loading: Loading, table: SourceTable) -> None:
    """A pointer that was lost, or never switched because its writer died, is put right by the next export."""
    run(loading)
    loading.store.delete(["exports/dish/current.json"])
    assert current_export(loading.store, "dish") is None
    assert run(loading)[0] == "unchanged"
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows


def test_before_the_first_merge(loading: Loading) -> None:
    """A target that nothing was merged into has no export."""
    assert run(loading) == ("unchanged", (), 0)
    assert current_export(loading.store, "dish") is None


def test_a_lost_file_is_written_anew(loading: Loading, table: SourceTable) -> None:
    """Nothing was merged since: only the tenants of missing or cut files are rewritten, as a later version."""
    run(loading)
    before = current_export(loading.store, "dish")
    assert before is not None
    loading.store.delete([before.files["acct-1"][0].key])
    assert run(loading) == ("exported", ("acct-1",), 1)
    found = current_export(loading.store, "dish")
    assert found is not None
    assert (found.watermark, found.version > before.version) == (before.watermark, True)
    assert read(loading.store, found) == table.rows
    loading.store.overwrite(found.files["acct/2"][0].key, b"cut")
    assert run(loading) == ("exported", ("acct/2",), 1)
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows
    assert run(loading)[0] == "unchanged"


def test_a_lost_file_is_written_with_what_changed(loading: Loading, table: SourceTable) -> None:
    """A busy target is never unchanged: the lost tenant is not carried over. Many lost ones mean all."""
    run(loading)
    lost = current_export(loading.store, "dish")
    assert lost is not None
    loading.store.delete([lost.files["acct-1"][0].key])
    table.update(3, title="slaw")
    load(loading, table, "b-2")
    assert run(loading) == ("exported", ("acct-1", "acct/2"), 0)
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows
    found = current_export(loading.store, "dish")
    assert found is not None
    loading.store.delete([found.files["acct-1"][0].key])
    with mock.patch.object(export_module, "LOST_NAMED_MAX", 0):
        assert run(loading)[0] == "exported"
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows


def test_a_lost_index_is_written_anew(loading: Loading, table: SourceTable) -> None:
    """The pointer says what was in it; with both gone everything is exported again."""
    run(loading)
    found = current_export(loading.store, "dish")
    assert found is not None
    loading.store.delete([f"exports/dish/{found.version}/index.json"])
    assert run(loading)[0] == "unchanged"
    loading.store.delete(["exports/dish/current.json"])
    assert run(loading)[0] == "exported"
    assert read(loading.store, current_export(loading.store, "dish")) == table.rows
    assert run(loading)[0] == "unchanged"


def test_of_two_that_restore_one_wins(loading: Loading, table: SourceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower one finds another version recorded and changes nothing; so does one whose clock is behind."""
    run(loading)
    found = current_export(loading.store, "dish")
    assert found is not None
    loading.store.delete([found.files["acct-1"][0].key])
    create, outcomes = loading.store.create, []

    def overtaken(key: str, body: bytes) -> None:
        create(key, body)
        if key.endswith("index.json"):
            monkeypatch.setattr(loading.store, "create", create)
            outcomes.append(export(loading.warehouse, loading.store, LAYOUT, now=lambda: 1.0).outcome)

    monkeypatch.setattr(loading.store, "create", overtaken)
    outcomes.append(run(loading)[0])
    assert outcomes == ["exported", "superseded"]
    restored = current_export(loading.store, "dish")
    assert restored is not None
    assert restored.version > found.version
    assert read(loading.store, restored) == table.rows


def test_notes_of_changed_tenants_are_bounded(
    loading: Loading, table: SourceTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given many merges, notes that later ones repeat go; the next export still writes every changed tenant."""
    monkeypatch.setattr(ledger, "NOTES_KEPT", 4)
    export(loading.warehouse, loading.store, LAYOUT)
    table.update(3, title="once, early")
    load(loading, table, "b-2")
    for number in range(3, 30):
        table.update(1, title=f"version {number}")
        load(loading, table, f"b-{number}")
    notes = loading.warehouse.run(lambda tx: tx.rows("SELECT tenant, COUNT(*) FROM ops.changed_tenants GROUP BY 1"))
    assert 0 < dict(notes)["acct-1"] <= 2 * 4
    assert run(loading) == ("exported", ("acct-1", "acct/2"), 0)
    assert read(loading.store, current_export(loading.store, "dish"))[3]["title"] == "once, early"
