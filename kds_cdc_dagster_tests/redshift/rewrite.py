"""Redshift SQL as PostgreSQL takes it, made as weak (keys) and as strict (bytes of VARCHAR) as Redshift is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kds_cdc_dagster_tests.redshift.tokens import Token, closing, join, normal, split, top_level
from kds_cdc_dagster_tests.redshift.wire import Refused

BYTES_CHECK = "redshift_bytes_"
"""Name prefix of the check that counts a VARCHAR's bytes."""
KEY_CHECK = "redshift_key_"
"""Name prefix of the check that remains of a primary key: its columns are NOT NULL, and nothing more."""
_VARCHAR_BYTES_MAX = 65535
_DEFAULT_VARCHAR = ("varchar", "(", "256", ")")
_RENAMED = {"nvl": "coalesce", "len": "length"}
_HIDDEN = ["information_schema", ".", "columns"]
_SETTINGS = {"query_group", "wlm_query_slot_count", "enable_case_sensitive_identifier", "json_parse_dedup_attributes"}
_CREATE_TABLE = re.compile(r"^create (?:local )?(?:temp |temporary )?table (?:if not exists )?")
_ALTER_TYPE = re.compile(r"^alter table ([\w.]+) alter column (\w+) type (?:varchar|character varying) \( (\w+) \)$")


def rewritten(parts: Sequence[Token]) -> str:
    """The statement for PostgreSQL."""
    text = normal(parts)
    common = list(_common(parts))
    if _CREATE_TABLE.match(text):
        return _create_table(common)
    if text.startswith("alter table") and " add column " in text:
        at = next(i for i, part in enumerate(common) if part.text == "column") + 1
        return join([*common[:at], *_column(common[at:])])
    if text.startswith("create") and text.endswith(" with no schema binding"):
        return join(common[:-4])
    if text.startswith("set ") and common[1].text in _SETTINGS:
        return join([common[0], *_words("rs", "."), *common[1:]])
    return join(common)


def literal_columns(parts: Sequence[Token]) -> tuple[str, dict[str, int]]:
    """Table of a CREATE TABLE AS, and its columns that are bare literals: they get just the literal's width."""
    text = normal(parts)
    if not (match := _CREATE_TABLE.match(text)) or " as select " not in text:
        return "", {}
    found = {
        name.text: max(len(value.text.encode()) - 2, 1)
        for value, word, name in zip(parts, parts[1:], parts[2:], strict=False)
        if value.kind == "text" and word.text == "as"
    }
    return text[match.end() :].split()[0], found


def replaced_view(parts: Sequence[Token]) -> str:
    """Name of the late-binding view that the statement makes; empty if it does nothing of the kind."""
    match = re.match(r"create (?:or replace )?view ([\w.]+) as .* with no schema binding$", normal(parts), re.DOTALL)
    return match[1] if match else ""


def widened(parts: Sequence[Token]) -> tuple[str, str, int] | None:
    """(table, column, bytes) of an ALTER COLUMN TYPE VARCHAR(n)."""
    match = _ALTER_TYPE.match(normal(parts))
    return (match[1], match[2], _VARCHAR_BYTES_MAX if match[3] == "max" else int(match[3])) if match else None


def widening(table: str, column: str, size_bytes: int) -> str:
    """PostgreSQL's statement for it, with the byte check renewed."""
    check = f'"{BYTES_CHECK}{column}"'
    return (
        f"alter table {table} drop constraint if exists {check}, alter column {column} type varchar({size_bytes}), "
        f"add constraint {check} check (octet_length({column}) <= {size_bytes})"
    )


def _words(*texts: str) -> list[Token]:
    return [Token("word", text) for text in texts]


def _common(parts: Sequence[Token]) -> Iterator[Token]:
    """Functions and casts that have other names, or other widths, there."""
    for at, part in enumerate(parts):
        if [p.text for p in parts[at : at + 3]] == _HIDDEN:
            yield Token("word", "public")  # our view of that name: without late-binding views
            continue
        after = parts[at + 1].text if at + 1 < len(parts) else ""
        before = parts[at - 1].text if at else ""
        is_type = before == "::" or (before == "as" and after in {")", "("} and _in_cast(parts, at))
        if part.kind == "word" and part.text in _RENAMED and after == "(":
            yield Token("word", _RENAMED[part.text])
        elif part.kind == "word" and part.text == "sysdate":
            yield from _words("getdate", "(", ")")
        elif part.text == "max" and before == "(" and after == ")" and parts[at - 2].text in {"varchar", "varying"}:
            yield Token("number", str(_VARCHAR_BYTES_MAX))
        elif is_type:
            yield from _type(part, after)
        else:
            yield part


def _in_cast(parts: Sequence[Token], at: int) -> bool:
    depth = 0
    for index in range(at, 0, -1):
        depth += {")": 1, "(": -1}.get(parts[index].text, 0)
        if depth < 0:
            return parts[index - 1].text == "cast"
    return False


def _type(part: Token, after: str) -> list[Token]:
    """A type name; VARCHAR and TEXT without a length have 256 bytes, casts to them cut."""
    match part.text:
        case "super":
            return _words("jsonb")
        case "varbyte" | "varbinary":
            return _words("bytea")
        case "text" | "varchar" | "bpchar" | "nvarchar" if after != "(":
            return _words(*_DEFAULT_VARCHAR)
        case "nvarchar":
            return _words("varchar")
        case _:
            return [part]


def _create_table(parts: list[Token]) -> str:
    """Column definitions rewritten, attributes of distribution and sorting dropped, the query of a CTAS kept."""
    query_at = next((i for i, part in enumerate(parts) if part.text == "as" and _outside(parts, i)), len(parts))
    head, query = parts[:query_at], parts[query_at:]
    opening = next((i for i, part in enumerate(head) if part.text == "("), None)
    name_end = len(_CREATE_TABLE.match(normal(parts))[0].split()) + 1  # type: ignore[index]
    while name_end < len(head) and head[name_end].text == ".":
        name_end += 2
    if opening != name_end:
        return join([*head[:name_end], *query])
    inside = head[opening + 1 : closing(head, opening)]
    columns = [joined for element in split(inside) if (joined := _element(element))]
    return f"{join(head[:opening])} ( {' , '.join(join(column) for column in columns)} ) {join(query)}"


def _outside(parts: Sequence[Token], at: int) -> bool:
    return sum({"(": 1, ")": -1}.get(part.text, 0) for part in parts[:at]) == 0


def _element(element: list[Token]) -> list[Token]:
    """A column or a table constraint; empty for one that Redshift only notes."""
    text = normal(element)
    if match := re.match(r"(?:constraint \w+ )?(primary key|unique|foreign key)", text):
        if match[1] != "primary key":
            return []
        keys = [part.text for part in element if part.kind in {"word", "name"}][-text.count(",") - 1 :]
        check = " and ".join(f"{key} is not null" for key in keys)
        return _words(f'constraint "{KEY_CHECK}" check ( {check} )')
    # The byte checks stand for the columns' widths, which LIKE copies.
    return [*element, *_words("including constraints")] if text.startswith("like ") else _column(element)


def _column(column: list[Token]) -> list[Token]:
    """`name type attributes`, with what Redshift adds taken away and the byte check put in."""
    name, kind, *rest = column
    after = rest[0].text if rest else ""
    typed = _type(kind, after)
    if kind.text == "character" and after == "varying":
        typed, rest = _words("varchar"), rest[1:]
    if typed == _words("bytea") and rest and rest[0].text == "(":
        rest = rest[closing(rest, 0) + 1 :]
    width = typed[2].text if len(typed) > 1 else rest[1].text if typed[0].text == "varchar" else ""
    if width and int(width) > _VARCHAR_BYTES_MAX:
        raise Refused("22023", "length for type character varying cannot exceed 65535")
    at = closing(rest, 0) + 1 if rest and rest[0].text == "(" else 0
    check = f' constraint "{BYTES_CHECK}{name.text}" check ( octet_length ( {name.text} ) <= {width} )' if width else ""
    return [name, *typed, *rest[:at], *_words(check), *_attributes(rest[at:])]


def _attributes(attributes: Iterable[Token]) -> list[Token]:
    text = join(attributes)
    text = re.sub(r"\b(?:encode \w+|distkey|sortkey|unique)\b", "", text)
    text = re.sub(r"\bprimary key\b", "not null", text)
    text = re.sub(r"\breferences [\w.]+(?: \( \w+ \))?", "", text)
    text = re.sub(r"(?:generated by default as )?identity \( (\d+) , (\d+) \)", _identity, text)
    return _words(text)


def _identity(match: re.Match[str]) -> str:
    how = "by default" if match[0].startswith("generated") else "always"
    return f"generated {how} as identity ( start {match[1]} increment {match[2]} )"


def is_simple_select(parts: Sequence[Token]) -> bool:
    """Whether an UNLOAD's query has no LIMIT of its own (a nested one is allowed)."""
    return not re.search(r"\blimit\b", top_level(parts))
