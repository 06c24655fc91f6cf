"""The documents keep true."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_the_invariants_name_exists() -> None:
    """A promise whose test is gone is no promise."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "INVARIANTS.md").read_text("utf-8")))
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "kds_cdc_dagster_tests").rglob("*.py"))
    assert named
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []


def test_no_document_links_into_nothing() -> None:
    """Relative links of the documents lead to files."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
