"""The README's table of settings, made from the settings themselves: `python -m kds_cdc_dagster_tests.readme`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr

from kds_cdc_dagster.settings import AWS, PREFIX, Settings

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- settings:begin -->", "<!-- settings:end -->"


def settings_table() -> str:
    """Markdown rows: variable, embedded default, aws default where it differs, meaning."""
    rows = ["| variable | default | aws | meaning |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        shown = "user data dir" if name == "home" else _shown(default)
        aws = _shown(AWS[name]) if name in AWS else ""
        rows.append(f"| `{PREFIX}{name.upper()}` | {shown} | {aws} | {_meaning(field)} |")
    return "\n".join(rows)


def _meaning(field: Any) -> str:
    text = " ".join((field.description or "").split())
    choices = [str(choice) for choice in get_args(field.annotation) if isinstance(choice, str)]
    joined = " \\| ".join(choices)
    return f"{text} ({joined})".strip() if choices else text


def _shown(value: object) -> str:
    if isinstance(value, SecretStr) or value is None or value == "":
        return ""
    if isinstance(value, tuple):
        return f"`{list(value)}`".replace("'", '"')
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`"


def with_table(text: str) -> str:
    """The README's text with a fresh table."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{settings_table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
