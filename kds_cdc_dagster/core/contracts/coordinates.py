"""Coordinates: positions, identity parts and lineage of a Debezium source block, per connector.

Source of the rules: each connector's SourceInfo and offset comparators. What is left out on purpose
(sequence[0], xmin, txSeq, event_serial_no) may differ between two deliveries of one change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kds_cdc_dagster.core import position
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.core.contracts.body import Refused, ShortBlock, SourceBlock

WITH_LINEAGE = frozenset({"mysql", "mariadb"})
"""Connectors whose changes name their server's history."""
_SEQUENCE = msgspec.json.Decoder(tuple[str | None, str | None])


class Coordinates(msgspec.Struct, frozen=True, gc=False):
    """Where a change stands in its source."""

    row_position: str
    identity: tuple[object, ...]
    """Coordinates that are the same whenever this change is delivered."""
    is_arrival: bool = False
    """The row position orders rows, but delivery is proven by the queue's own number only."""


def coordinates(connector: str, op: str, source: SourceBlock, *, has_sequence: bool) -> Coordinates | None:
    """Coordinates of a message; None where it carries none (flattened incremental reads).

    `has_sequence`: as `RowMessage` says. Raises Refused when they are missing where they must not be, or malformed.
    """
    try:
        found = (CONNECTORS if has_sequence else _PARTIAL)[connector](op, source)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise Refused(Reason.MISSING_COORDINATES, f"malformed coordinates ({type(error).__name__})") from None
    if found is None and (op != "r" or has_sequence):
        raise Refused(Reason.MISSING_COORDINATES, f"no {connector} coordinates in the source block")
    return found


def lineage(connector: str, op: str, source: ShortBlock) -> str:
    """What tells one server history from another: binlog base name and GTID origin; empty if unknown."""
    if connector not in WITH_LINEAGE or op == "r":
        return ""
    return f"{source.file.rsplit('.', 1)[0]}|{_origin(source.gtid) or source.server_id}"


def _origin(gtid: str | None) -> str:
    """MySQL `uuid:n` and `uuid:tag:n` -> uuid; MariaDB `domain-server-n` -> domain-server."""
    if not gtid:
        return ""
    return gtid.split(":", 1)[0] if ":" in gtid else gtid.rsplit("-", 1)[0]


def _postgresql(_op: str, source: ShortBlock) -> Coordinates | None:
    if source.sequence is None:
        return None
    last_commit, own = _SEQUENCE.decode(source.sequence)
    lsn = source.lsn
    if type(lsn) is not int:
        lsn = _number(own if lsn is None else lsn)
    return Coordinates(position.postgresql(None if last_commit is None else int(last_commit), lsn), (lsn,))


def _postgresql_partial(op: str, source: SourceBlock) -> Coordinates | None:
    if source.sequence is not None or source.lsn is None:
        return _postgresql(op, source)
    lsn = _number(source.lsn)
    return Coordinates(position.postgresql_flattened(lsn), (lsn,), is_arrival=True)


def _binlog(_op: str, source: ShortBlock) -> Coordinates | None:
    if source.file is None or source.pos is None:
        return None
    pos, row = _number(source.pos), _number(source.row or 0)
    return Coordinates(position.binlog(source.file, pos, row), (source.gtid or "", source.file, pos, row))


def _commit_lsn(_op: str, source: SourceBlock) -> Coordinates | None:
    if source.commit_lsn is None:
        return None
    change_lsn = None if source.change_lsn is None else position.lsn_text(source.change_lsn)
    commit_lsn = position.lsn_text(source.commit_lsn)
    return Coordinates(commit_lsn, (commit_lsn, change_lsn))


def _oracle(op: str, source: SourceBlock) -> Coordinates | None:
    if source.lcr_position:
        found = position.lcr(source.lcr_position)
        return Coordinates(found, (found,))
    commit_scn = source.scn if source.commit_scn is None and op == "r" else source.commit_scn
    if commit_scn is None:
        return None
    place = position.oracle(_number(commit_scn), _number(source.txSeq or 0))
    redo = source.rs_id.strip() if source.rs_id else None
    return Coordinates(place, (source.txId, source.scn, redo, source.row_id))


def _number(value: Any) -> int:
    """A coordinate: a whole number, or its decimal text (CloudEvents, Oracle)."""
    if isinstance(value, int | str) and not isinstance(value, bool):
        return int(value)
    raise TypeError("not a whole number")


USUAL: Mapping[str, Callable[[str, ShortBlock], Coordinates | None]] = {
    "postgresql": _postgresql,
    "mysql": _binlog,
    "mariadb": _binlog,
}
"""Connectors of which the short block says enough."""
CONNECTORS: Mapping[str, Callable[[str, SourceBlock], Coordinates | None]] = {
    **USUAL,
    "sqlserver": _commit_lsn,
    "db2": _commit_lsn,
    "oracle": _oracle,
}
"""Connector -> coordinates by operation and source block; on malformed ones it raises what `coordinates` catches."""
_PARTIAL = {**CONNECTORS, "postgresql": _postgresql_partial}
"""Of forms that may have lost PostgreSQL's `sequence`."""
