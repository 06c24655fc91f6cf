"""Row images as structs whose fields are a table's columns in canonical order.

Encoded, such a struct gives the bytes that the canonical form of the image's dict has, and nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

COLUMNS_MAX = 4_096
"""Columns remembered of a table: what no database lets a table have. A row with yet others is not read here."""

_dict_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def as_written(number: str) -> msgspec.Raw:
    """Keeps a number's own digits: 1.50 and 1.5 are not the same text to a hash."""
    return msgspec.Raw(number.encode())


class Rows:
    """Reads the images of one table. Columns that the catalogue does not list are learned when they come.

    `words`: columns whose values are looked up, so that they must be text, whole numbers or null.
    """

    def __init__(self, columns: Iterable[str], words: Iterable[str]) -> None:
        self._words = frozenset(words)
        self._attributes: dict[str, str] = {}
        self._decode = self._learned(columns)

    def read(self, image: msgspec.Raw) -> Any:
        """The row, None for null. Raises MsgspecError for an image of another kind, ValueError for odd names."""
        try:
            return self._decode(image)
        except msgspec.ValidationError:
            strange = _dict_of(image).keys() - self._attributes.keys()
            if not strange or len(self._attributes) + len(strange) > COLUMNS_MAX:
                raise
            self._decode = self._learned(sorted(strange))
            return self._decode(image)

    def getter(self, names: Iterable[str]) -> Callable[[Any], Any]:
        """Function from a row to the values of columns that the catalogue has: a tuple if there are several."""
        attributes = [self._attributes[name] for name in names]
        return attrgetter(*attributes) if attributes else lambda _row: ()

    def _learned(self, names: Iterable[str]) -> Callable[[msgspec.Raw], Any]:
        """A decoder that knows these columns, too. Attributes keep their names: getters outlive it."""
        known = dict(self._attributes)
        for name in names:
            if not name.isprintable() or '"' in name or "\\" in name:
                raise ValueError("a column's name would have to be escaped")
            known[name] = f"c{len(known)}"
        word: Any = str | int | None
        fields = [
            (known[name], word if name in self._words else Any, msgspec.field(default=msgspec.UNSET, name=name))
            for name in sorted(known)
        ]
        row: Any = msgspec.defstruct("Row", fields, forbid_unknown_fields=True, gc=False)
        decoder: Any = msgspec.json.Decoder(row | None, float_hook=as_written)
        self._attributes = known
        return decoder.decode  # type: ignore[no-any-return]
