"""Identity and content hash: what makes two deliveries the same change, and whether they agree.

Source of the rules: docs/INVARIANTS.md, "Identity". Neither looks at the body's bytes: a Debezium redelivery
has new payload times, perhaps another `sequence[0]`, `xmin`, transaction block or connector version.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

_CANONICAL = msgspec.json.Encoder(order="deterministic", decimal_format="number")
"""Sorted keys, no blanks; `msgspec.Raw` numbers stand as they were written."""

_CONTENT, _IDENTITY = blake2b(digest_size=8), blake2b(digest_size=16)
"""Nothing hashed yet. To copy one takes half the time of making one: two are needed for every change."""

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
    found = _CONTENT.copy()
    found.update(_CANONICAL.encode(_Content(after, before, op, primary_key)))
    return found.hexdigest()


def identity(*parts: object) -> str:
    """32 hex digits over the parts: origin, source, table, operation, key and stable coordinates.

    Snapshot reads have no stable coordinates: their content hash is one more part.
    """
    found = _IDENTITY.copy()
    found.update(_CANONICAL.encode(parts))
    return found.hexdigest()


def stem(*parts: object) -> blake2b:
    """What identities that begin with these parts have in common, for `identity_after`."""
    common = _IDENTITY.copy()
    common.update(_CANONICAL.encode(parts)[:-1] + b",")
    return common


def identity_after(common: blake2b, *parts: object) -> str:
    """`identity` of the stem's parts and these."""
    found = common.copy()
    found.update(_CANONICAL.encode(parts)[1:])
    return found.hexdigest()


def canonical(value: object) -> str:
    """Canonical JSON text of a decoded value: of key values, the text of the key."""
    return _CANONICAL.encode(value).decode()
