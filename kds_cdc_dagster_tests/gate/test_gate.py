"""The gate passes on the embedded warehouse, and it can fail. `make gate` runs all of it, on both warehouses."""

from __future__ import annotations

import pytest

from kds_cdc_dagster.load import export
from kds_cdc_dagster_tests.gate.__main__ import main


def test_the_gate_passes_on_duckdb(capsys: pytest.CaptureFixture[str]) -> None:
    """Raw and export under each fault end as the undisturbed line, which ends as the source."""
    assert main(["--warehouse", "duckdb", "--stage", "raw", "--stage", "export"]) == 0
    assert "9 cells, 0 differ" in capsys.readouterr().out


def test_the_gate_sees_an_older_export_win(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A pointer that follows whoever writes last: the gate names the fault and what differs, and fails."""

    def switch(store: export.ObjectStore, new: export.Export) -> None:
        store.overwrite(export.keys.current_export(new.target), export.msgspec.json.encode(new))

    monkeypatch.setattr(export, "_record", lambda *_: True)
    monkeypatch.setattr(export, "_switch", switch)
    assert main(["--warehouse", "duckdb", "--stage", "export"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line]
    assert line.startswith("export   older after newer")
    assert "DIFFERS: export" in line
