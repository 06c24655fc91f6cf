"""The README keeps true."""

from __future__ import annotations

from kds_cdc_dagster.cli import main
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster_tests.readme import README, with_table


def test_the_settings_table_is_the_settings() -> None:
    """Every setting stands in the README with its defaults (make it so: python -m kds_cdc_dagster_tests.readme)."""
    text = README.read_text("utf-8")
    assert with_table(text) == text


def test_every_reason_code_is_explained() -> None:
    """A user who meets a reason in the quarantine finds it in the README."""
    text = README.read_text("utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []


def test_every_command_is_named() -> None:
    """A command that the README does not name is not found by a newcomer."""
    text = README.read_text("utf-8")
    assert [
        name for name in main.list_commands(None) if f"kds-cdc {name}" not in text and f"`{name}`" not in text
    ] == []  # type: ignore[arg-type]
