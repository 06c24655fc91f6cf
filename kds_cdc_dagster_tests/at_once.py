"""An executor that does at once what it is given: working ahead, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class AtOnce(Executor):
    """Errors are raised where the work is given."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Do it."""
        future: Future[_T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
