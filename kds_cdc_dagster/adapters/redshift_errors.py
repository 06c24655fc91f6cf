"""What the driver's errors mean: repeat the transaction, or tell whom.

Source of the texts: facts gathered from AWS's guide and public issues; redshift_connector maps every server
error to ProgrammingError and lets socket errors through as OSError.
"""

from __future__ import annotations

import re
import struct
from enum import Enum
from typing import Any

from kds_cdc_dagster.errors import KdsCdcError, LoadRefused, SettingsError


class Cause(Enum):
    """Why a transaction has to be repeated as a whole; the value is what is told when it was in vain."""

    CYCLE = "transactions of others always win"
    TIMEOUT = "statements exceed the statement timeout"
    CONNECTION = "the connection is lost or cannot be made"
    STORAGE = "S3 asks to slow down"


class Setback(KdsCdcError):
    """Nothing was committed, or nobody knows; repeating the whole transaction settles it."""

    def __init__(self, cause: Cause, **facts: object) -> None:
        self.cause = cause
        super().__init__(cause.value, hint="", **facts)


class CopyRefused(LoadRefused):
    """COPY refused an artifact; the place of the fault can be asked for after the rollback."""


_CYCLE_CODES = {"40001", "40P01", "23505", "42710", "42P06", "42P07"}
"""Serialisation, deadlock; and what CREATE … IF NOT EXISTS says when another session was first (keys of
tables are never enforced, so 23505 is about the catalog)."""
_CYCLE_TEXTS = re.compile(
    r"^1023$|\b1018\b|serializable isolation violation|conflict with concurrent transaction"
    r"|dropped by concurrent transaction|could not open relation with oid|deadlock detected",
    re.IGNORECASE,
)
_TIMEOUT_CODE, _LOGIN_CODES = "57014", {"28000", "28P01", "3D000"}
_GONE_CODES = {"57P01", "57P02", "57P03", "08000", "08003", "08006"}
_DENIED_STATUS = range(400, 429)
_STORAGE_TEXTS = re.compile(r"S3ServiceException.*Status (?:5\d\d|429)|SlowDown|InternalError", re.IGNORECASE)
_NAMES_ONLY = {"0A", "25", "2B", "3F", "42"}
"""Classes of errors that quote names of tables and columns, never values: unsupported, transaction, dependency,
schema, syntax and access."""
_QUOTED = re.compile(r"""(['"]).*?\1""", re.DOTALL)
_CONTEXT = re.compile(r"code:\s+(\d+)\s+context:\s+(.*?)(?:\n|$)", re.DOTALL)


def connection_errors() -> tuple[type[BaseException], ...]:
    """What the driver raises, wrapped or not. `struct.error`: half a message before the line broke."""
    from botocore.exceptions import BotoCoreError, ClientError
    from redshift_connector.error import Error

    return (Error, OSError, struct.error, BotoCoreError, ClientError)


def translated(error: BaseException, doing: str) -> KdsCdcError:
    """The error of this package for an error of the driver. `doing` names the statement's kind and table."""
    fields: dict[str, Any] = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    code, message = str(fields.get("C", "")), str(fields.get("M", ""))
    if not fields:
        return _without_fields(error, doing)
    if code in _LOGIN_CODES:
        return SettingsError("Redshift refused the login", code=code, hint="KDS_CDC_REDSHIFT_*")
    if cause := _cause(code, message):
        return Setback(cause, doing=doing, code=code)
    kind = CopyRefused if doing.startswith("COPY") else LoadRefused
    return kind("Redshift refused a statement", doing=doing, code=code, message=_told(fields))


def _without_fields(error: BaseException, doing: str) -> KdsCdcError:
    """Socket and client errors; what the driver itself refuses (too many parameters, wrong types) is ours."""
    from redshift_connector.error import DataError, NotSupportedError

    if isinstance(error, (DataError, NotSupportedError)):
        return LoadRefused("the Redshift driver refused a statement", doing=doing, kind=type(error).__name__)
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status in _DENIED_STATUS:
        return SettingsError("no IAM credentials for Redshift", cause=str(error), hint="KDS_CDC_REDSHIFT_IAM")
    # Texts of sockets and of the driver: they hold no row data.
    return Setback(Cause.CONNECTION, doing=doing, error=f"{type(error).__name__}: {error}")


def _cause(code: str, message: str) -> Cause | None:
    if code in _CYCLE_CODES or _CYCLE_TEXTS.search(message):
        return Cause.CYCLE
    if code == _TIMEOUT_CODE:
        return Cause.TIMEOUT
    if code in _GONE_CODES:
        return Cause.CONNECTION
    return Cause.STORAGE if _STORAGE_TEXTS.search(message) else None


def _told(fields: dict[str, Any]) -> str:
    """Message and Spectrum's code and context, in one line."""
    text = str(fields["M"])
    if match := _CONTEXT.search(str(fields.get("D", ""))):
        text += f" ({match[1]}: {match[2]})"
    return text if str(fields["C"])[:2] in _NAMES_ONLY else without_values(text)


def without_values(text: str) -> str:
    """Cut out what is quoted: it may be row data."""
    return _QUOTED.sub("…", text)
