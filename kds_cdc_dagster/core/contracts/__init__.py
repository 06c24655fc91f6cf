"""Contracts: what a message body means. Pure: a delivery goes in, a change, a rejection or a control
message comes out, and nothing is ever raised.
"""

from __future__ import annotations

from kds_cdc_dagster.core.contracts.parser import Limits, Parser

__all__ = ["Limits", "Parser"]
