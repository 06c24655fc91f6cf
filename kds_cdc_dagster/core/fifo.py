"""What an SQS FIFO queue takes as a message: whoever publishes asks first, every queue refuses alike.

Source: the SendMessage reference of the Amazon SQS API.
"""

from __future__ import annotations

import re

BODY_BYTES_MAX = 1 << 20
_ID = re.compile(r"[!-~]{1,128}")
_REFUSED_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_fifo_id(text: str) -> bool:
    """Whether `text` can be a group id or a deduplication id: 1 to 128 printable ASCII characters."""
    return _ID.fullmatch(text) is not None


def broken_rule(body: str, group_id: str, dedup_id: str) -> str:
    """Why a FIFO queue would refuse this message; empty if it would not. Never shows a part of the body."""
    if not is_fifo_id(group_id):
        return "the group id needs 1 to 128 printable ASCII characters"
    if not is_fifo_id(dedup_id):
        return "the deduplication id needs 1 to 128 printable ASCII characters"
    # A printable text holds none of them, and is seen to be one in a tenth of the search's time.
    if not body or (not body.isprintable() and _REFUSED_CHARACTER.search(body)):
        return "the body is empty or holds a character that SQS refuses"
    if len(body) > BODY_BYTES_MAX // 4 and len(body.encode()) > BODY_BYTES_MAX:
        return f"the body exceeds {BODY_BYTES_MAX} bytes"
    return ""
