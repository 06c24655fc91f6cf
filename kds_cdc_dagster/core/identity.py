"""Identity and content hash: what makes two deliveries the same change, and whether they agree.

Source of the rules: docs/INVARIANTS.md, "Identity". Neither looks at the body's bytes: a Debezium redelivery
has new payload times, perhaps another `sequence[0]`, `xmin`, transaction block or connector version.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

_CANONICAL = msgspec.json.Encoder(order="deterministic", decimal_format="number")
"""Sorted keys, no blanks; `msgspec.Raw` numbers stand as they were written."""

PRODUCTION = "prod"
MOCK = "mock"


class _Content(msgspec.Struct, gc=False):
    """In canonical order, so that it need not be sorted."""

    after: object
    before: object
    op: str
    pk: str


def content_hash(op: str, primary_key: str, before: object, after: object) -> str:
    """16 hex digits over the canonical form of {op, primary key, before, after}.

    An image is a dict, or a struct whose fields are in canonical order and unset where it has no such column.
    """
    return blake2b(_CANONICAL.encode(_Content(after, before, op, primary_key)), digest_size=8).hexdigest()


def identity(*parts: object) -> str:
    """32 hex digits over the parts: origin, source, table, operation, key and stable coordinates.

    Snapshot reads have no stable coordinates: their content hash is one more part.
    """
    return blake2b(_CANONICAL.encode(parts), digest_size=16).hexdigest()


def stem(*parts: object) -> bytes:
    """What identities that begin with these parts have in common, for `identity_after`."""
    return _CANONICAL.encode(parts)[:-1] + b","


def identity_after(common: bytes, *parts: object) -> str:
    """`identity` of the stem's parts and these."""
    return blake2b(common + _CANONICAL.encode(parts)[1:], digest_size=16).hexdigest()


def canonical(value: object) -> str:
    """Canonical JSON text of a decoded value: of key values, the text of the key."""
    return _CANONICAL.encode(value).decode()
