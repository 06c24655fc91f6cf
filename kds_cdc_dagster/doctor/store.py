"""The object store: a probe of everything the intake rests on, and what the bucket deletes by itself."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator

from kds_cdc_dagster.doctor.finding import Finding, Notes
from kds_cdc_dagster.errors import ObjectExists, SettingsError
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster.wiring import Pipeline

NOTE = Notes("store")
PROBES = "probe/"


def look(parts: Pipeline) -> Iterator[Finding]:
    """Raises SettingsError (bucket, rights) and TransientError."""
    yield from probed(parts.store)
    if parts.settings.store == "s3":
        yield from _bucket(parts)


def probed(store: ObjectStore) -> Iterator[Finding]:
    """Create twice, read, list, swap, delete: on an object of our own."""
    key = f"{PROBES}{secrets.token_hex(8)}"
    store.create(key, b"first")
    try:
        store.create(key, b"second")
    except ObjectExists:
        pass
    else:
        yield NOTE.error(
            "a create-only put overwrote an object: two workers could overwrite each other's segments",
            "a store that honours If-None-Match (S3 does; some emulators and gateways do not)",
        )
    try:
        wrong = [what for what, is_right in _answers(store, key) if not is_right]
    finally:
        store.delete([key])
    for what in wrong:
        yield NOTE.error(f"the store does not {what}", "a store that is consistent after each put, as S3 is")
    yield NOTE.ok(f"{store.uri('')}: puts, conditional puts, reads, lists and deletes")


def _answers(store: ObjectStore, key: str) -> Iterator[tuple[str, bool]]:
    before = store.get(key)
    yield "give back what was put", before == b"first"
    yield "list an object right after its put", key in [info.key for info in store.scan(PROBES)]
    yield "swap on a matching etag", store.swap(key, b"third", expected=before)
    yield "refuse a swap of something else", not store.swap(key, b"fourth", expected=b"first")


def _bucket(parts: Pipeline) -> Iterator[Finding]:
    from kds_cdc_dagster.adapters.s3_bucket import bucket_setup

    s = parts.settings
    try:
        found = bucket_setup(s.s3_bucket, endpoint_url=s.aws_endpoint_url, region=s.aws_region)
    except SettingsError as error:
        yield NOTE.warn(f"versioning and lifecycle are not known: {error.what}", error.hint)
        return
    never = math.inf
    kept_days = {"journal": s.journal_days, "index": s.journal_days, "batches": s.journal_days, "raw": s.raw_days}
    kept_days |= {"parked": never, "epochs": never, "lineage-holds": never, "exports": never, "checkpoints": never}
    for expiry in found.expiries:
        for folder, days in kept_days.items():
            prefix = f"{s.pipeline}/{folder}/"
            is_hit = prefix.startswith(expiry.prefix) or expiry.prefix.startswith(prefix)
            if is_hit and expiry.days < days:
                needed = "for good" if days == never else f"{days:g} days"
                yield NOTE.error(
                    f"lifecycle rule {expiry.rule or 'without id'} deletes {prefix} after {expiry.days:g} days; "
                    f"it is needed {needed}",
                    "take the pipeline's prefix out of the rule: `prune` removes what is no longer needed",
                )
    if found.is_versioned and not found.removes_old_versions:
        yield NOTE.warn(
            "versioning is on and nothing removes old versions: what is pruned is paid for ever",
            "a lifecycle rule with NoncurrentVersionExpiration",
        )
    elif not found.is_versioned:
        yield NOTE.info("versioning is off: what somebody deletes by hand is gone")
