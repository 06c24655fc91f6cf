"""What a check found: passed or not, with the numbers that say why. Never row values."""

from __future__ import annotations

import msgspec

Fact = int | float | str


class Finding(msgspec.Struct, frozen=True):
    """One check of one asset (and one batch, where it has one)."""

    asset: tuple[str, str]
    """(stage, name), as the Dagster asset key."""
    check: str
    has_passed: bool
    facts: dict[str, Fact] = {}
    batch: str = ""
    is_blocking: bool = True
    """Whether going on would spread damage."""

    def line(self) -> str:
        """One line for people."""
        where = "/".join(self.asset) + (f" {self.batch}" if self.batch else "")
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{'ok    ' if self.has_passed else 'FAILED'} {where} {self.check}" + (f": {facts}" if facts else "")
