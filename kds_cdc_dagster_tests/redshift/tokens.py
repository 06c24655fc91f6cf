"""SQL text as tokens: words and names folded to lower case (as Redshift does, quoted ones too), literals kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>'(?:[^'\\]|''|\\.)*')
      | (?P<name>"(?:[^"]|"")*")
      | (?P<word>[^\W\d][\w$]*)
      | (?P<number>\d+(?:\.\d+)?)
      | (?P<parameter>\$\d+)
      | (?P<sign>::|<=|>=|<>|!=|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """Kind (text, name, word, number, parameter, sign) and folded text."""

    kind: str
    text: str


def tokens(sql: str) -> list[Token]:
    """Tokens of a statement, without space, comments and a final semicolon."""
    found = list(_read(sql))
    while found and found[-1].text == ";":
        found.pop()
    return found


def _read(sql: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or "sign"
        if kind != "space":
            yield Token(kind, match[0] if kind == "text" else match[0].lower())


def join(parts: Iterable[Token]) -> str:
    """SQL text again. Redshift reads a backslash in a literal as an escape, PostgreSQL only in E'…'."""
    words = (f"E{part.text}" if part.kind == "text" and "\\" in part.text else part.text for part in parts)
    return " ".join(words).replace(" . ", ".")


def normal(parts: Iterable[Token]) -> str:
    """One-line form for patterns: single spaces, dots tight, literals as '?', names without quotes."""
    words = {"text": "'?'"}
    return " ".join(words.get(p.kind, p.text.strip('"') if p.kind == "name" else p.text) for p in parts).replace(
        " . ", "."
    )


def literal(token: Token) -> str:
    """Value of a text literal."""
    return token.text[1:-1].replace("''", "'")


def closing(parts: Sequence[Token], start: int) -> int:
    """Index of the parenthesis that closes the one at `start`."""
    depth = 0
    for index in range(start, len(parts)):
        depth += {"(": 1, ")": -1}.get(parts[index].text, 0)
        if depth == 0:
            return index
    return len(parts)


def split(parts: Sequence[Token], separator: str = ",") -> list[list[Token]]:
    """Split at separators outside parentheses."""
    pieces: list[list[Token]] = [[]]
    depth = 0
    for part in parts:
        depth += {"(": 1, ")": -1}.get(part.text, 0)
        if part.text == separator and depth == 0:
            pieces.append([])
        else:
            pieces[-1].append(part)
    return pieces


def top_level(parts: Sequence[Token]) -> str:
    """Normal form of what stands outside all parentheses."""
    kept = []
    depth = 0
    for part in parts:
        depth -= part.text == ")"
        if depth == 0:
            kept.append(part)
        depth += part.text == "("
    return normal(kept)
