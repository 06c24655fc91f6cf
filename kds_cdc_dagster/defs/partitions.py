"""The one partition set: a key per sealed batch."""

from __future__ import annotations

import dagster as dg

BATCHES = dg.DynamicPartitionsDefinition(name="batches")
"""Keys are batch ids. Bounded: `prune` removes old keys together with their runs."""
