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


def content_hash(op: str, primary_key: str, before: object, after: object) -> str:
    """16 hex digits over the canonical form of {op, primary key, before, after}."""
    content = {"after": after, "before": before, "op": op, "pk": primary_key}
    return blake2b(_CANONICAL.encode(content), digest_size=8).hexdigest()


def identity(*parts: object) -> str:
    """32 hex digits over the parts: origin, source, table, operation, key and stable coordinates.

    Snapshot reads have no stable coordinates: their content hash is one more part.
    """
    return blake2b(_CANONICAL.encode(parts), digest_size=16).hexdigest()


def canonical(value: object) -> str:
    """Canonical JSON text of a decoded value: of key values, the text of the key."""
    return _CANONICAL.encode(value).decode()
