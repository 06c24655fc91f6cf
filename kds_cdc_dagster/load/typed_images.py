"""Row images of recorded bodies: the part of each message that holds the row, parsed once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec

from kds_cdc_dagster.core.change import Op
from kds_cdc_dagster.core.contracts.body import BodyReader, MockMessage, Refused, RowMessage

EMPTY: Mapping[str, Any] = {}


class _Images(msgspec.Struct, gc=False):
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET
    primary_key: Any = None


class _Wrapped(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: _Images


_BARE = msgspec.json.Decoder(_Images, float_hook=Decimal)
_WRAPPED = msgspec.json.Decoder(_Wrapped, float_hook=Decimal)
_ANY_FORM = BodyReader(Decimal)
_PRIVATE = 0xF0000
"""First of 65,534 characters that mean nothing."""
_WHOLE_OPS = frozenset({Op.CREATE.value, Op.UPDATE.value, Op.READ.value})


class WholeImages:
    """Reads the images of bare envelopes that have an entity's columns, all of them and no others; of deletes the key.

    Nearly all rows are such, and no dict is made for them: a third of the time of typing a row.
    """

    def __init__(self, columns: Sequence[str], key: Collection[str], floats: Collection[str] = ()) -> None:
        """`floats`: columns whose numbers end as doubles, and need not be exact decimals on the way."""
        row = [
            (f"c{place}", float | int | None if name in floats else Any, msgspec.field(name=name))
            for place, name in enumerate(columns)
        ]
        deleted = [
            (f"c{place}", Any, msgspec.field(name=name)) if name in key else _unread(place)
            for place, name in enumerate(columns)
        ]
        whole = _reader("after", msgspec.defstruct("Row", row, forbid_unknown_fields=True, gc=False))
        of_delete = _reader("before", msgspec.defstruct("Deleted", deleted, kw_only=True, gc=False))
        self._row_of = dict.fromkeys(_WHOLE_OPS, whole) | {Op.DELETE.value: of_delete}

    def read(self, ops: Sequence[str], bodies: Sequence[bytes]) -> list[tuple[Any, ...] | None]:
        """Of each body the values in the columns' order; None for another kind, which `read_image` may read."""
        row_of, astuple = self._row_of, msgspec.structs.astuple
        found: list[tuple[Any, ...] | None] = []
        for op, body in zip(ops, bodies, strict=True):
            values = None
            if op in row_of and body.startswith(b'{"before"'):
                try:
                    decode, image = row_of[op]
                    values = astuple(image(decode(body)))
                except (msgspec.MsgspecError, RecursionError, ArithmeticError):
                    values = None
            found.append(values)
        return found


def _reader(image: str, row: type[msgspec.Struct]) -> tuple[Callable[[bytes], Any], Callable[[Any], Any]]:
    """Decoder of bodies, and what takes the image of that name from the decoded."""
    # A mock message, whose key fields belong to the row, has a primary_key: any value of it is refused.
    fields: Any = [(image, row), ("primary_key", msgspec.UnsetType, msgspec.UNSET)]
    images = msgspec.defstruct("Images", fields, gc=False)
    return msgspec.json.Decoder(images, float_hook=Decimal).decode, attrgetter(image)


def _unread(place: int) -> tuple[str, Any, Any]:
    """A field that is always null: no column has a private character's name, and one that had could only be null."""
    return f"c{place}", None, msgspec.field(default=None, name=chr(_PRIVATE + place))


class Image(msgspec.Struct, gc=False):
    """The row of a message, and the wrapper's schema where it had one."""

    row: Mapping[str, Any]
    schema: bytes | None = None


def read_image(body: bytes, op: str) -> Image | None:
    """The row image that counts for `op`: after, or before of a delete; empty for a truncate.

    None where the body has none (it was accepted by other code than this).
    """
    if op == Op.TRUNCATE:
        return Image(EMPTY)
    try:
        images, schema = _images(body)
        if images.before is msgspec.UNSET and images.after is msgspec.UNSET:
            images, schema = _other_form(body)
    except (msgspec.MsgspecError, Refused, RecursionError, ArithmeticError):
        return None
    row = images.before if op == Op.DELETE else images.after
    if isinstance(images.primary_key, dict):  # the mock's, which an absent old row does not repeat
        row = {**(row or {}), **images.primary_key}
    return Image(row, schema) if isinstance(row, dict) else None


def _images(body: bytes) -> tuple[_Images, bytes | None]:
    if body.startswith(b'{"schema"'):
        try:
            wrapped = _WRAPPED.decode(body)
        except msgspec.ValidationError:
            return _Images(), None
        return wrapped.payload, bytes(wrapped.schema)
    return _BARE.decode(body), None


def _other_form(body: bytes) -> tuple[_Images, bytes | None]:
    message = _ANY_FORM.read(body)
    if isinstance(message, RowMessage):
        return _Images(message.before, message.after), message.schema
    if isinstance(message, MockMessage):
        return msgspec.convert(message.fields, _Images), None
    return _Images(None, None), None
