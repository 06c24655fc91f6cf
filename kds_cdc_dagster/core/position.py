"""Positions as text: fixed-width lower-case hex, no separators, compared as bytes.

Two orders exist and are never mixed:

* *stream order* proves delivery inside a stream: ``epoch + stream position``;
* *row order* says which version of a row wins:
  ``epoch + phase + row position + rank + queue sequence number``.

Source of the per-connector rules: Debezium's own comparators, and `semantics` in docs/INVARIANTS.md.
"""

from __future__ import annotations

from functools import lru_cache

EPOCH_DIGITS = 8
SEQUENCE_DIGITS = 48
"""Wide enough for SQS (20 decimal digits) and Kinesis (56)."""
POSITION_DIGITS = 48
"""Wide enough for every connector (PostgreSQL needs 33, binlog and Oracle 40, SQL Server 20, Db2 32)."""
LCR_DIGITS = 72
"""Oracle XStream alone needs more: an LCR position has up to 33 bytes. Positions of one source have one width."""

_LSNS = 16**16
"""What a log position of PostgreSQL is below."""

NO_POSITION = ""
"""Below every position: a stream that has not accepted anything yet."""


def hex_number(value: int, digits: int) -> str:
    """`value` as `digits` hex digits. Raises ValueError if negative or too wide."""
    text = f"{value:0{digits}x}"
    if value < 0 or len(text) > digits:
        raise ValueError(f"{value} does not fit {digits} hex digits")
    return text


def fixed(*parts: tuple[int, int]) -> str:
    """Join (value, digits) parts, padded on the right to the common position width."""
    text = "".join(hex_number(value, digits) for value, digits in parts)
    return text.ljust(POSITION_DIGITS, "0")


def postgresql(last_commit_lsn: int | None, lsn: int) -> str:
    """(last completed commit, this change). A null first part is 0, others are raised by one."""
    head = 0 if last_commit_lsn is None else last_commit_lsn + 1
    try:  # `fixed` of (head, 17) and (lsn, 16) in one step, as this runs for every change
        found = (head << 124 | lsn << 60).to_bytes(POSITION_DIGITS // 2)
    except OverflowError:
        found = b""
    if not found or lsn >= _LSNS:
        raise ValueError("a log position is negative or too wide")
    return found.hex()


def postgresql_flattened(lsn: int) -> str:
    """Row position of a flattened row without `sequence`: the lsn alone."""
    return fixed((0, 17), (lsn, 16))


def binlog(file: str, pos: int, row: int) -> str:
    """(numeric suffix of the binlog file, offset, row). Raises ValueError on a name without number."""
    return fixed((int(file.rsplit(".", 1)[1]), 16), (pos, 16), (row, 8))


def lsn_text(commit_lsn: str) -> str:
    """SQL Server and Db2: the commit LSN's bytes; inside one commit arrival decides.

    Raises ValueError when it is not three hex numbers.
    """
    high, middle, low = commit_lsn.split(":")
    digits = high.zfill(8) + middle.zfill(8) + low.zfill(4)
    return bytes.fromhex(digits).hex().ljust(POSITION_DIGITS, "0")


def oracle(commit_scn: int, transaction_sequence: int) -> str:
    """LogMiner: (commit SCN, sequence in the transaction or 0)."""
    return fixed((commit_scn, 24), (transaction_sequence, 16))


def lcr(position: str) -> str:
    """Oracle XStream: the LCR position's bytes. Raises ValueError if it is no hex text or too long."""
    digits = bytes.fromhex(position).hex()
    if not 0 < len(digits) <= LCR_DIGITS:
        raise ValueError("not an LCR position")
    return digits.ljust(LCR_DIGITS, "0")


def arrival(sequence_number: str) -> str:
    """Stream position where the message carries none: the queue's sequence number."""
    return fixed((int(sequence_number), SEQUENCE_DIGITS))


def counter(value: int) -> str:
    """Stream position of the mock contract: its own dense counter."""
    return fixed((value, 16))


def successor(position: str) -> str:
    """The next position of a dense counter stream order (epoch + counter)."""
    head, number = position[:EPOCH_DIGITS], position[EPOCH_DIGITS : EPOCH_DIGITS + 16]
    return head + counter(int(number, 16) + 1)


def stream_order(epoch: int, stream_position: str) -> str:
    """What `committed` holds: comparable inside one stream, across epochs."""
    return hex_number(epoch, EPOCH_DIGITS) + stream_position


def row_order(epoch: int, phase: int, row_position: str, rank: int, sequence_number: str) -> str:
    """What a curated row keeps: the greater one wins. Raises ValueError on a number that is too wide."""
    head, digit = _row_order_digits(epoch, phase, rank)
    try:
        number = int(sequence_number).to_bytes(SEQUENCE_DIGITS // 2)
    except OverflowError as error:
        raise ValueError("a sequence number is negative or too wide for a row order") from error
    return f"{head}{row_position}{digit}{number.hex()}"


@lru_cache(64)
def _row_order_digits(epoch: int, phase: int, rank: int) -> tuple[str, str]:
    """What comes before the row position, and the rank behind it. Kept, as it is the same for nearly all changes."""
    return hex_number(epoch, EPOCH_DIGITS) + hex_number(phase, 1), hex_number(rank, 1)
