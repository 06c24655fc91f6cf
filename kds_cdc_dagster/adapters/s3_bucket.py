"""How a bucket is set up, as far as it decides what becomes of our objects: versioning and lifecycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kds_cdc_dagster.errors import SettingsError, TransientError

_UNSET = {"NoSuchLifecycleConfiguration"}


@dataclass(frozen=True, slots=True)
class Expiry:
    """A lifecycle rule that removes current objects under a prefix of the bucket."""

    rule: str
    prefix: str
    days: float
    """After their making; 0 for a rule that names a date."""


@dataclass(frozen=True, slots=True)
class BucketSetup:
    """What the bucket does by itself."""

    is_versioned: bool
    expiries: tuple[Expiry, ...]
    removes_old_versions: bool


def bucket_setup(bucket: str, *, endpoint_url: str = "", region: str = "") -> BucketSetup:
    """Read it. Raises SettingsError (not there, not allowed, not reached), TransientError."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    s3 = boto3.client("s3", endpoint_url=endpoint_url or None, region_name=region or None)
    try:
        versioning = s3.get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled"
        rules = _rules(s3, bucket)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        hint = "the bucket's name and region; s3:GetBucketVersioning, s3:GetLifecycleConfiguration"
        raise SettingsError("the bucket's setup cannot be read", bucket=bucket, code=code, hint=hint) from error
    except BotoCoreError as error:
        raise TransientError("S3 does not answer", bucket=bucket, cause=type(error).__name__) from error
    active = [rule for rule in rules if rule.get("Status") == "Enabled"]
    return BucketSetup(
        versioning,
        tuple(_expiry(rule) for rule in active if _expires(rule)),
        any("NoncurrentVersionExpiration" in rule for rule in active),
    )


def _rules(s3: Any, bucket: str) -> list[Mapping[str, Any]]:
    from botocore.exceptions import ClientError

    try:
        return list(s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"])
    except ClientError as error:
        if error.response["Error"]["Code"] in _UNSET:
            return []
        raise


def _expires(rule: Mapping[str, Any]) -> bool:
    """Objects of ours carry no tags: a rule for tagged ones is not about them."""
    chosen = rule.get("Filter") or {}
    is_tagged = "Tag" in chosen or bool((chosen.get("And") or {}).get("Tags"))
    return not is_tagged and bool({"Days", "Date"} & (rule.get("Expiration") or {}).keys())


def _expiry(rule: Mapping[str, Any]) -> Expiry:
    chosen = rule.get("Filter") or {}
    prefix = rule.get("Prefix") or chosen.get("Prefix") or (chosen.get("And") or {}).get("Prefix") or ""
    return Expiry(str(rule.get("ID", "")), prefix, float(rule["Expiration"].get("Days", 0)))
