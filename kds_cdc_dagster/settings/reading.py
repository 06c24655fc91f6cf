"""Reading the settings: every wrong or unknown variable is named."""

from __future__ import annotations

import os
from typing import Any

from pydantic import ValidationError

from kds_cdc_dagster.errors import SettingsError
from kds_cdc_dagster.settings.tree import PREFIX, Settings


def read_settings(**overrides: Any) -> Settings:
    """Settings from the environment. Raises SettingsError naming each wrong variable."""
    _refuse_unknown()
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise SettingsError(
            "; ".join(_explained(item) for item in error.errors()), hint="README, Configuration"
        ) from error


def _explained(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"])
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{PREFIX}{where.upper()}: {message}" if where else message


def _refuse_unknown() -> None:
    """A misspelt variable would otherwise be ignored in silence."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known and not name.startswith(PREFIX + "TEST_"):
            raise SettingsError("unknown setting", variable=name, hint="README, Configuration, lists all of them")
