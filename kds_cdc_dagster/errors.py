"""Errors, sorted by who must act.

Every error carries the facts that name the thing (message, stream, position, setting) and, where
there is one, a hint. None of them ever carries row data.

===================  =====================  =========================================
Error                who acts               what happens
===================  =====================  =========================================
TransientError       nobody                 retried inside the adapter, then raised
StateUnavailable     nobody / operator      fail closed: nothing is accepted
StateNotReady        nobody                 state is rebuilt before anything is decided
SlotTaken            nobody                 the round is given up under a new claim
SettingsError        deployer               refused at start, naming the variable
CatalogueError       data engineer          refused at start, naming the entry
InvariantBroken      us                     stop at once
===================  =====================  =========================================

A *rejected change* is not an exception: it is an ordinary outcome (`core.change.Rejection`).
"""

from __future__ import annotations


class KdsCdcError(Exception):
    """Base of all errors of this package. `facts` are shown to the operator, never row data."""

    def __init__(self, what: str, *, hint: str = "", **facts: object) -> None:
        self.what = what
        self.hint = hint
        self.facts = facts
        super().__init__(self._text())

    def _text(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return self.what + (f" [{facts}]" if facts else "") + (f". Hint: {self.hint}" if self.hint else "")


class TransientError(KdsCdcError):
    """The other side failed in a way that goes away; bounded retries in the adapter are used up."""


class StateUnavailable(TransientError):
    """The state store cannot be reached: nothing may be accepted."""


class StateNotReady(KdsCdcError):
    """The state store was emptied (or failed over) and is not rebuilt yet."""


class ObjectExists(KdsCdcError):
    """A create-only put met an object of that key."""


class ObjectMissing(KdsCdcError):
    """No object of that key."""


class SlotTaken(KdsCdcError):
    """The journal slot holds other bytes than ours: somebody judged this claim dead."""


class SettingsError(KdsCdcError):
    """A setting is missing or wrong. Names the variable and the rule."""


class CatalogueError(KdsCdcError):
    """The catalogue file is wrong. Names the entry and the rule."""


class InvariantBroken(KdsCdcError):
    """Something that must never happen. Stop at once rather than go on wrongly."""


class WarehouseBusy(TransientError):
    """The warehouse could not be locked, or lost a serialisation cycle, more often than allowed."""


class LoadRefused(KdsCdcError):
    """The warehouse refused the rows of a batch (data or schema): no retry helps."""
