"""Coordinates: positions, identity parts and lineage of a Debezium source block, per connector.

Source of the rules: each connector's SourceInfo and offset comparators. What is left out on purpose
(sequence[0], xmin, txSeq, event_serial_no) may differ between two deliveries of one change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kds_cdc_dagster.core import position
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.core.contracts.body import Refused, RowMessage

_SEQUENCE = msgspec.json.Decoder(tuple[str | None, str | None])


class Coordinates(msgspec.Struct, frozen=True, gc=False):
    """Where a change stands in its source."""

    row_position: str
    identity: tuple[object, ...]
    """Coordinates that are the same whenever this change is delivered."""
    is_arrival: bool = False
    """The row position orders rows, but delivery is proven by the queue's own number only."""


def coordinates(connector: str, message: RowMessage) -> Coordinates | None:
    """Coordinates of a message; None where it carries none (flattened incremental reads).

    Raises Refused when they are missing where they must not be, or malformed.
    """
    try:
        found = _CONNECTORS[connector](message)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise Refused(Reason.MISSING_COORDINATES, f"malformed coordinates ({type(error).__name__})") from None
    if found is None and (message.op != "r" or message.has_sequence):
        raise Refused(Reason.MISSING_COORDINATES, f"no {connector} coordinates in the source block")
    return found


def lineage(connector: str, message: RowMessage) -> str:
    """What tells one server history from another: binlog base name and GTID origin; empty if unknown."""
    source = message.source
    if connector not in {"mysql", "mariadb"} or message.op == "r":
        return ""
    return f"{source.file.rsplit('.', 1)[0]}|{_origin(source.gtid) or source.server_id}"


def _origin(gtid: str | None) -> str:
    """MySQL `uuid:n` and `uuid:tag:n` -> uuid; MariaDB `domain-server-n` -> domain-server."""
    if not gtid:
        return ""
    return gtid.split(":", 1)[0] if ":" in gtid else gtid.rsplit("-", 1)[0]


def _postgresql(message: RowMessage) -> Coordinates | None:
    source = message.source
    if source.sequence is None:
        if source.lsn is None or message.has_sequence:
            return None
        lsn = _number(source.lsn)
        return Coordinates(position.postgresql_flattened(lsn), (lsn,), is_arrival=True)
    last_commit, own = _SEQUENCE.decode(source.sequence)
    lsn = source.lsn
    if type(lsn) is not int:
        lsn = _number(own if lsn is None else lsn)
    return Coordinates(position.postgresql(None if last_commit is None else int(last_commit), lsn), (lsn,))


def _binlog(message: RowMessage) -> Coordinates | None:
    source = message.source
    if source.file is None or source.pos is None:
        return None
    pos, row = _number(source.pos), _number(source.row or 0)
    return Coordinates(position.binlog(source.file, pos, row), (source.gtid or "", source.file, pos, row))


def _commit_lsn(message: RowMessage) -> Coordinates | None:
    source = message.source
    if source.commit_lsn is None:
        return None
    change_lsn = None if source.change_lsn is None else position.lsn_text(source.change_lsn)
    commit_lsn = position.lsn_text(source.commit_lsn)
    return Coordinates(commit_lsn, (commit_lsn, change_lsn))


def _oracle(message: RowMessage) -> Coordinates | None:
    source = message.source
    if source.lcr_position:
        found = position.lcr(source.lcr_position)
        return Coordinates(found, (found,))
    commit_scn = source.scn if source.commit_scn is None and message.op == "r" else source.commit_scn
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


_CONNECTORS: dict[str, Callable[[RowMessage], Coordinates | None]] = {
    "postgresql": _postgresql,
    "mysql": _binlog,
    "mariadb": _binlog,
    "sqlserver": _commit_lsn,
    "db2": _commit_lsn,
    "oracle": _oracle,
}
