"""A fault point for crash tests: kill this very process (SIGKILL) before or after the n-th call of a port's verb.

Reached only through the variable KDS_CDC_TEST_KILL, for example `create:after:3` or `settle:before:1`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_counts: dict[str, int] = {}
_lock = threading.Lock()


def killing(part: T, plan: str) -> T:
    """The part, with the planned verb fitted with the fault point (if it has that verb)."""
    verb, moment, number = plan.split(":")
    call = getattr(part, verb, None)
    if call is not None:
        setattr(part, verb, _fitted(call, verb, moment, int(number)))
    return part


def _fitted(call: Callable[..., Any], verb: str, moment: str, number: int) -> Callable[..., Any]:
    def fitted(*args: Any, **kwargs: Any) -> Any:
        is_due = _is_due(verb, number)
        if is_due and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = call(*args, **kwargs)
        if is_due:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return fitted


def _is_due(verb: str, number: int) -> bool:
    with _lock:
        _counts[verb] = _counts.get(verb, 0) + 1
        return _counts[verb] == number
