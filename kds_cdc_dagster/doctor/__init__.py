"""`kds-cdc doctor`: looks at every part of the chosen profile and says what is wrong and what to do.

Each part has a module that yields findings. Looks change nothing that stays: probe objects are removed,
probe tables are temporary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from kds_cdc_dagster.doctor import ceiling, plain, queue, state, store, warehouse
from kds_cdc_dagster.doctor.finding import Finding, Severity
from kds_cdc_dagster.errors import KdsCdcError
from kds_cdc_dagster.wiring import Pipeline

Look = Callable[[Pipeline], Iterable[Finding]]
LOOKS: Mapping[str, Look] = {
    "settings": plain.settings,
    "catalogue": plain.catalogue,
    "disk": plain.disk,
    "queue": queue.look,
    "state": state.look,
    "store": store.look,
    "warehouse": warehouse.look,
    "ceiling": ceiling.look,
}


def examine(parts: Pipeline) -> Iterator[Finding]:
    """All findings, part by part. One part that is away does not hide the others."""
    broken: set[str] = set()
    for part, look in LOOKS.items():
        if part == "ceiling" and broken & {"queue", "state", "store"}:
            continue  # it times their calls
        try:
            yield from look(parts)
        except Exception as error:  # noqa: BLE001  (told, not hidden: whatever a part raises is its finding)
            broken.add(part)
            yield failed(part, error)


def failed(part: str, error: Exception) -> Finding:
    """The finding of an error that ended a look."""
    if not isinstance(error, KdsCdcError):
        return Finding(Severity.ERROR, part, f"{type(error).__name__} ended the look", "report this with its traceback")
    facts = ", ".join(f"{name}={value}" for name, value in error.facts.items())
    what = error.what + (f" [{facts}]" if facts else "")
    return Finding(Severity.ERROR, part, what, error.hint or "address, network and rights of this part")
