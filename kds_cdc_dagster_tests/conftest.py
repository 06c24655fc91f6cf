"""For all tests: what their processes are told, and which of them go first."""

from __future__ import annotations

import os

import hypothesis
import pytest

# Every put would wait for the disk of whatever machine this is. Kills take nothing that a process has written, synced
# or not; what syncing promises is tested beside the adapters, that it is on by default in test_settings, and the
# daemon's kill test (S37) runs with it.
os.environ.setdefault("KDS_CDC_STORE_FSYNC", "off")

# The same examples in every run, so that what CI says of a change is about the change. New ones are looked for with
# `KDS_CDC_TEST_EXAMPLES=new make test`.
hypothesis.settings.register_profile("same", derandomize=True)
if os.environ.get("KDS_CDC_TEST_EXAMPLES", "same") != "new":
    hypothesis.settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with whole processes first: with several workers the short tests then fill the time until the last ends."""
    slow = {item.path for item in items if item.get_closest_marker("e2e")}
    items.sort(key=lambda item: item.path not in slow)
