"""What an SQS FIFO queue takes as a message: whoever publishes asks first, every queue refuses alike.

Source: the SendMessage reference of the Amazon SQS API.
"""

from __future__ import annotations

BODY_BYTES_MAX = 1 << 20
_ID_CHARACTERS_MAX = 128
_TAKEN_BYTES = bytes((*b"\t\n\r", *range(0x20, 0x80)))
_REFUSED_PAIRS = ("\ufffe".encode(), "\uffff".encode())
"""Refused beyond ASCII; in a body's other bytes they cannot arise by chance, as each begins like a character."""


def is_fifo_id(text: str) -> bool:
    """Whether `text` can be a group id or a deduplication id: 1 to 128 printable ASCII characters."""
    return 0 < len(text) <= _ID_CHARACTERS_MAX and text.isascii() and text.isprintable() and " " not in text


def broken_rule(body: str, group_id: str, dedup_id: str) -> str:
    """Why a FIFO queue would refuse this message; empty if it would not. Never shows a part of the body."""
    if not is_fifo_id(group_id):
        return "the group id needs 1 to 128 printable ASCII characters"
    if not is_fifo_id(dedup_id):
        return "the deduplication id needs 1 to 128 printable ASCII characters"
    try:
        raw = body.encode()
    except UnicodeEncodeError:  # half a pair of surrogates
        raw = b""
    strange = raw.translate(None, _TAKEN_BYTES)  # all of a text is looked at in a quarter of the time of a search
    if not raw or (strange and (min(strange) < 0x80 or any(pair in strange for pair in _REFUSED_PAIRS))):
        return "the body is empty or holds a character that SQS refuses"
    if len(raw) > BODY_BYTES_MAX:
        return f"the body exceeds {BODY_BYTES_MAX} bytes"
    return ""
