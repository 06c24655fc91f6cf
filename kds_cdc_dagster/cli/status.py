"""`kds-cdc status`: what waits, what is held, what is quarantined, what is curated. Works beside a run."""

from __future__ import annotations

import json
from typing import Any

import click

from kds_cdc_dagster.cli.counts import curated_rows, quarantine_rows
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.intake import offers
from kds_cdc_dagster.journal import claims, epochs, outbox
from kds_cdc_dagster.journal.logs import Tail, sealed_slot
from kds_cdc_dagster.wiring import Pipeline, pipeline

LISTED_MAX = 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def status(as_json: bool) -> None:
    """Show queue, streams, open batches, outbox, quarantine and curated counts."""
    parts = pipeline()
    found = collect(parts)
    parts.close()
    click.echo(json.dumps(found, indent=2) if as_json else _text(found))


def collect(parts: Pipeline) -> dict[str, Any]:
    """Everything the command shows, as a document."""
    return {
        "pipeline": parts.settings.pipeline,
        "profile": parts.settings.profile,
        "home": str(parts.settings.home),
        "queue": _tried(lambda: _queue(parts)),
        "state": _tried(lambda: _state(parts)),
        "sources": _sources(parts),
        "open_logs": _open_logs(parts),
        "outbox": _outbox(parts),
        "quarantine": _tried(lambda: quarantine_rows(parts)),
        "curated_rows": _tried(lambda: curated_rows(parts)),
    }


def _tried(look: Any) -> Any:
    """One part that is away must not hide the others."""
    try:
        return look()
    except TransientError as error:
        return {"unavailable": str(error)}


def _queue(parts: Pipeline) -> dict[str, Any]:
    depth = parts.inbox.depth()
    return {
        "visible": depth.visible,
        "in_flight": depth.in_flight,
        "dead_letter": depth.dead_letter,
        "oldest_age_seconds": None if depth.oldest_age_seconds is None else round(depth.oldest_age_seconds, 1),
        "locked_groups": _locked_groups(parts),
    }


def _locked_groups(parts: Pipeline) -> list[dict[str, Any]] | None:
    """Groups that wait for messages in flight; None where the queue does not tell (SQS)."""
    if parts.settings.queue != "local":
        return None
    from kds_cdc_dagster.adapters.local_inbox import LocalQueue

    queue, now = parts.inbox, parts.clock.now()
    locked = queue.locked_groups(limit=LISTED_MAX) if isinstance(queue, LocalQueue) else []
    return [
        {
            "group": one.group_id,
            "in_flight": one.in_flight,
            "waiting": one.waiting,
            "unlocked_in_seconds": round(max(0.0, one.locked_until - now), 1),
        }
        for one in locked
    ]


def _state(parts: Pipeline) -> dict[str, Any]:
    records = list(parts.state.streams())
    held = [record for record in records if record.hold]
    return {
        "is_ready": parts.state.life() is not None,
        "streams": len(records),
        "held": [
            {"source": record.source, "stream": record.stream, "reason": record.hold} for record in held[:LISTED_MAX]
        ],
        "held_streams": len(held),
    }


def _sources(parts: Pipeline) -> list[dict[str, Any]]:
    found = []
    for source in parts.catalogue.sources:
        epoch = epochs.current(parts.store, source.id)
        found.append({"source": source.id, "epoch": epoch.number, "hold": epoch.hold})
    return found


def _open_logs(parts: Pipeline) -> list[dict[str, Any]]:
    """Logs with the segments of batches that are not sealed yet."""
    found = []
    for heartbeat in claims.open_claims(parts.store):
        tail = Tail(parts.store, heartbeat.claim, sealed_slot(parts.store, heartbeat.claim, heartbeat.sealed_slot))
        age = parts.clock.now() - heartbeat.seen_at
        found.append(
            {"claim": heartbeat.claim, "unsealed_segments": len(tail.slots), "last_seen_seconds_ago": round(age, 1)}
        )
    return found


def _outbox(parts: Pipeline) -> dict[str, Any]:
    waiting = list(outbox.waiting(parts.store))
    failed = list(offers.failures(parts.store))
    return {
        "waiting": len(waiting),
        "oldest": waiting[:LISTED_MAX],
        "failed": [{"batch": failure.batch, "reason": failure.reason} for failure in failed[:LISTED_MAX]],
    }


def _text(found: dict[str, Any]) -> str:
    lines = [f"pipeline {found['pipeline']} ({found['profile']}) in {found['home']}"]
    queue = dict(found["queue"])
    locked = queue.pop("locked_groups", None) or []
    lines += [f"queue: {_pairs(queue)}"]
    lines += [
        f"  locked {one['group']}: {one['in_flight']} in flight, {one['waiting']} wait, {one['unlocked_in_seconds']} s"
        for one in locked
    ]
    if queue.get("dead_letter"):
        lines.append("  look at dead letters with: kds-cdc dead-letters")
    state = found["state"]
    if "unavailable" in state:
        lines.append(f"state: UNAVAILABLE, nothing is accepted: {state['unavailable']}")
    else:
        ready = "ready" if state["is_ready"] else "not ready: rebuilt at the next tick"
        lines.append(f"state: {ready}, {state['streams']} streams, {state['held_streams']} held")
        lines += [f"  held {h['source']} {h['stream']}: {h['reason']}" for h in state["held"]]
    for source in found["sources"]:
        if source["hold"]:
            lines.append(f"  source {source['source']} HELD in epoch {source['epoch']}: {source['hold']}")
            lines.append(f"    open the next epoch with: kds-cdc open-epoch {source['source']}")
    unsealed = sum(log["unsealed_segments"] for log in found["open_logs"])
    lines.append(f"open batches: {unsealed} unsealed segments in {len(found['open_logs'])} logs")
    box = found["outbox"]
    lines.append(f"outbox: {box['waiting']} batches wait for a load, {len(box['failed'])} failed")
    lines += [f"  FAILED {f['batch']}: {f['reason']}" for f in box["failed"]]
    lines.append(f"quarantine: {_pairs(found['quarantine']) or 'empty'}")
    lines.append(f"curated rows: {_pairs(found['curated_rows'])}")
    return "\n".join(lines)


def _pairs(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
