"""The clauses after COPY … FROM and UNLOAD … TO: read into a dict, anything else is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kds_cdc_dagster_tests.redshift.tokens import Token, closing, literal
from kds_cdc_dagster_tests.redshift.wire import Refused

FLAG, TEXT, WORD, SIZE, COLUMNS = "flag", "text", "word", "size", "columns"
CREDENTIALS = {"iam_role": TEXT, "credentials": TEXT, "access_key_id": TEXT, "secret_access_key": TEXT}


def options(parts: Sequence[Token], known: Mapping[str, str], command: str) -> dict[str, str]:
    """Name -> value of each clause. Raises Refused for one that the command does not have for Parquet."""
    found: dict[str, str] = {}
    at = 0
    while at < len(parts):
        name = parts[at].text
        if name == "format":
            at = _format(parts, at)
            found["format"] = "parquet"
            continue
        if name not in known:
            raise Refused("0A000", f"{name.upper()} argument is not supported for PARQUET based {command}")
        found[name], at = _value(parts, at + 1, known[name])
    if "format" not in found:
        raise Refused("0A000", "the stand-in knows FORMAT AS PARQUET only")
    return found


def _format(parts: Sequence[Token], at: int) -> int:
    words = [part.text for part in parts[at + 1 : at + 3]]
    at += 2 if words[:1] == ["as"] else 1
    if at >= len(parts) or parts[at].text != "parquet":
        raise Refused("0A000", "the stand-in knows FORMAT AS PARQUET only")
    return at + 1


def _value(parts: Sequence[Token], at: int, form: str) -> tuple[str, int]:
    part = parts[at] if at < len(parts) else Token("sign", "")
    if part.text == "as":
        return _value(parts, at + 1, form)
    if form == FLAG:
        has_word = part.text in {"on", "off", "true", "false"}
        return (part.text, at + 1) if has_word else ("on", at)
    if form == COLUMNS:
        end = closing(parts, at)
        is_included = end + 1 < len(parts) and parts[end + 1].text == "include"
        names = ",".join(piece.text.strip('"') for piece in parts[at + 1 : end] if piece.text != ",")
        return names + (" include" if is_included else ""), end + 1 + is_included
    if form == SIZE:
        has_unit = at + 1 < len(parts) and parts[at + 1].text in {"mb", "gb"}
        return part.text, at + 1 + has_unit
    if part.kind == "text":
        return literal(part), at + 1
    if part.text == "default":
        return "default", at + 1
    raise Refused("42601", f'syntax error at or near "{part.text}"')
