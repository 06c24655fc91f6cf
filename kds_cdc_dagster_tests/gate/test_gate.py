"""The gate passes on the embedded warehouse, and it can fail."""

from __future__ import annotations

import pytest

from kds_cdc_dagster.load import ledger
from kds_cdc_dagster_tests.gate.__main__ import main


@pytest.mark.timeout(300)
def test_the_gate_passes_on_duckdb(capsys: pytest.CaptureFixture[str]) -> None:
    """Each stage under each fault ends as the undisturbed line, which ends as the source."""
    assert main(["--warehouse", "duckdb"]) == 0
    assert "17 cells, 0 differ" in capsys.readouterr().out


@pytest.mark.timeout(300)
def test_the_gate_sees_a_ledger_that_forgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A merge that never finds itself in the ledger is recorded twice when repeated: the gate names it, and fails."""
    monkeypatch.setattr(ledger, "sequence_of", lambda *_: None)
    assert main(["--warehouse", "duckdb"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line]
    assert any(line.startswith("curated  repeated") and "ledger" in line for line in lines)
