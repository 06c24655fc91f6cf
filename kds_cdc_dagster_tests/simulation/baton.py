"""Turns: every actor has a thread of its own, and exactly one of them runs, from one pause to the next.

Who goes on is the schedule's choice, so a run is a function of its seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Crash(BaseException):
    """The actor dies here: no handler of the code under test catches it."""


class Actor:
    """One incarnation of a worker. `step` is the schedule's side, `pause` the actor's."""

    def __init__(self, name: str, body: Callable[[Actor], None]) -> None:
        self.name = name
        self.where = "start"
        self.is_over = False
        self.failure: Exception | None = None
        """What escaped the code under test; anything is a finding."""
        self.wakes_at = 0
        """Step of the schedule before which it is left alone: a zombie."""
        self._body = body
        self._is_crashing = False
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()  # both are handed over locked: a bare lock is the cheapest baton
        self._back.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Let it run up to its next pause (or its end)."""
        self._go.release()
        self._back.acquire()
        if self.is_over:
            self._thread.join()

    def crash(self) -> None:
        """Kill it where it stands."""
        if not self.is_over:
            self._is_crashing = True
            self.step()

    def pause(self, where: str) -> None:
        """Hand the baton back; dies here if the schedule says so."""
        self.where = where
        self._back.release()
        self._go.acquire()
        if self._is_crashing:
            raise Crash(where)

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_crashing:
                self._body(self)
        except Crash:
            pass
        except Exception as error:  # noqa: BLE001 reported by the schedule as a finding
            self.failure = error
        finally:
            self.is_over = True
            self._back.release()
