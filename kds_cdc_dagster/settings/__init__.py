"""All settings, read once from KDS_CDC_* environment variables.

A wrong one fails at start, naming the variable and the rule. Profiles choose defaults; every part can
be chosen alone. The README lists them; a test holds the README and these fields together.
"""

from __future__ import annotations

from kds_cdc_dagster.settings.reading import read_settings
from kds_cdc_dagster.settings.tree import AWS, PREFIX, Settings

__all__ = ["AWS", "PREFIX", "Settings", "read_settings"]
