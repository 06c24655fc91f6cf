"""A fault point for crash tests: kill this very process (SIGKILL) at a planned call of a port.

Reached only through the variable KDS_CDC_TEST_KILL: `<label>:<before|after>:<n>` kills at the n-th call whose
label begins so. A label is `port.verb`, for the object store with the first part of the key, for example
`store.create journal:after:3`, `inbox.acknowledge:after:1`, `warehouse.run:before:2`. With KDS_CDC_TEST_CALLS the
labels of all calls are appended to that file, one a line.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PLAN, CALLS = "KDS_CDC_TEST_KILL", "KDS_CDC_TEST_CALLS"

_counts: dict[str, int] = {}
_lock = threading.Lock()


def is_wanted() -> bool:
    """Whether a crash test fits fault points into this process."""
    return bool(os.environ.get(PLAN) or os.environ.get(CALLS))


def fitted(part: T, port: str) -> T:
    """The part, with a fault point around each of its verbs."""
    for verb in dir(part):
        call = getattr(part, verb)
        if not verb.startswith("_") and callable(call):
            setattr(part, verb, _around(call, f"{port}.{verb}"))
    return part


def _around(call: Callable[..., Any], label: str) -> Callable[..., Any]:
    def around(*args: Any, **kwargs: Any) -> Any:
        is_due, moment = _pass(label, args)
        if is_due and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = call(*args, **kwargs)
        if is_due:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return around


def _pass(label: str, args: tuple[Any, ...]) -> tuple[bool, str]:
    """Count a call; whether it is the planned one."""
    if label.startswith("store.") and args and isinstance(args[0], str):
        label = f"{label} {args[0].split('/')[0]}"
    with _lock:
        if os.environ.get(CALLS):
            with Path(os.environ[CALLS]).open("a", encoding="utf-8") as calls:
                calls.write(label + "\n")
        plan = os.environ.get(PLAN, "")
        if not plan:
            return False, ""
        wanted, moment, number = plan.rsplit(":", 2)
        if not label.startswith(wanted):
            return False, moment
        _counts[wanted] = _counts.get(wanted, 0) + 1
        return _counts[wanted] == int(number), moment
