"""What one look at a resource showed, for programs and for people."""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

from leases._quoting import argument
from leases.commands._output import json_text, printable, shown
from ownership import (
    AlreadyOwnedError,
    Inspection,
    LeaseTerms,
    OwnerIdentity,
    OwnerRecord,
    Previous,
    StopRequest,
    Verdict,
)

_WORDS = {Verdict.FREE: "free: nobody owns it"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def as_data(one: Inspection, registry: str | None = None) -> dict[str, Any]:
    """*one* as JSON: the record stands in it as in its file."""
    record, owner, previous = one.record, one.owner, one.previous
    return {
        "resource": shown(one.resource),
        "verdict": one.verdict.value,
        "reason": one.reason,
        "token": one.token,
        "pid": owner.pid if owner else None,
        "start_id": owner.start_id if owner else None,
        "instance_id": owner.instance_id if owner else None,
        "record": record.model_dump(mode="json") if record else None,
        "malformed": one.malformed,
        "previous": previous.model_dump(mode="json") if previous else None,
        "request": _request_data(one.request) if one.request else None,
        "remedy": remedy(one, registry),
    }


def as_text(one: Inspection, registry: str | None = None) -> str:
    """*one* as lines of name and value; what is not known is left out."""
    lines = {
        "resource": shown(one.resource),
        "verdict": _WORDS.get(one.verdict, one.verdict.value),
        "reason": one.reason if one.verdict is not Verdict.FREE or one.missing else None,
        **(_identity(one.owner, one.elsewhere) if one.owner else {}),
        **(_record(one.record, one.expires_in) if one.record else {}),
        "last token" if one.verdict is Verdict.FREE else "token": str(one.token) if one.token else None,
        "previous": _ending(one.previous) if one.previous else None,
        "request": _request(one.request) if one.request else None,
        "remedy": remedy(one, registry),
    }
    return "\n".join(f"{name:<12} {printable(value)}" for name, value in lines.items() if value)


def _identity(owner: OwnerIdentity, elsewhere: str) -> dict[str, str]:
    pid = f"{owner.pid} of {elsewhere}" if elsewhere else str(owner.pid)
    return {"pid": pid, "start id": owner.start_id, "instance": owner.instance_id}


def _record(record: OwnerRecord, left: float | None) -> dict[str, str | None]:
    return {
        "host": record.host,
        "command": record.command,
        "since": f"{_time(record.acquired_at)} ({age(record)} ago)" if record.acquired_at else None,
        "phase": record.phase,
        "endpoint": record.endpoint,
        "lease": _terms(record.lease, left) if record.lease else None,
        "labels": ", ".join(f"{key}={value}" for key, value in record.labels.items()),
        "data": json_text(record.data, ascii_only=False) if record.data else None,
    }


def _time(moment: dt.datetime) -> str:
    return f"{moment.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _terms(lease: LeaseTerms, left: float | None) -> str:
    text = f"ttl {lease.ttl:g} s, renewed {'automatically' if lease.auto_renew else 'by hand'}"
    if left is None:
        return text
    return f"{text}, {f'runs out in {left:.1f} s unless it is' if left > 0 else f'ran out {-left:.1f} s ago'}"


def lease_of(one: Inspection) -> str:
    """How long its lease holds, and of how long; ``-`` without one."""
    lease = one.record.lease if one.record is not None else None
    if lease is None:
        return "-"
    return f"{lease.ttl:g} s" if one.expires_in is None else f"{max(one.expires_in, 0.0):.0f} of {lease.ttl:g} s"


def _ending(previous: Previous) -> str:
    text: str = "found dead" if previous.how == "died" else previous.how
    if previous.at:
        text += f" at {_time(previous.at)}"
    return text + (f": {previous.reason}" if previous.reason else "")


def _request(request: StopRequest) -> str:
    text = f"pid {request.pid}" + (f" ({request.command})" if request.command else "")
    text += " asks the owner to go" if request.stands else " asked the owner to go, and does not any more"
    if request.since:
        text += f" since {_time(request.since)}"
    if request.verdict is not Verdict.LIVE:
        text += f"; it is {request.verdict.value}"
    return text + (f": {request.reason}" if request.reason else "")


def _request_data(request: StopRequest) -> dict[str, Any]:
    return {
        "pid": request.pid,
        "start_id": request.identity.start_id,
        "instance_id": request.identity.instance_id,
        "command": request.command,
        "host": request.host,
        "labels": dict(request.labels),
        "reason": request.reason,
        "since": _time(request.since) if request.since else None,
        "token": request.token,
        "verdict": request.verdict.value,
        "stands": request.stands,
    }


def age(record: OwnerRecord, now: dt.datetime | None = None) -> str:
    """How long ago *record* was acquired, by the wall clock, in one unit; ``-`` if it does not say."""
    if record.acquired_at is None:
        return "-"
    seconds = max(0, int(((now or dt.datetime.now(dt.UTC)) - record.acquired_at).total_seconds()))
    size, unit = next(one for one in _UNITS if seconds >= one[0] or one[0] == 1)
    return f"{seconds // size} {unit}"


def is_unclaimed(one: Inspection) -> bool:
    """A record that says nothing, of nobody: unless a live owner's keeper mends it within a second, it may go."""
    return one.malformed is not None and one.owner is None


def remedy(one: Inspection, registry: str | None = None) -> str:
    """What to do about this owner: removal only where its end is proven, breaking only where nobody can tell."""
    path = argument(one.resource, registry)
    single = "--resource " if os.path.isdir(one.resource) else ""  # else it would mean whatever is in it
    match one.verdict:
        case Verdict.FREE:
            return ""
        case Verdict.LIVE:
            return f"leasectl wait {path} returns when nobody holds it"
        case Verdict.STOPPED if one.owner is not None:
            return f"kill -CONT {one.owner.pid} lets it go on; leasectl wait {path} returns when nobody holds it"
        case Verdict.GONE | Verdict.ZOMBIE | Verdict.REUSED | Verdict.EXPIRED:
            return f"the next acquire takes over by itself; leasectl reclaim {single}{path} removes the record now"
        case _ if is_unclaimed(one):
            return (
                f"the next acquire takes over, after a second at most; leasectl reclaim {single}{path} removes it now"
            )
        case _:
            return f"if you know that its owner is gone: leasectl break {path} --token {one.token}"


def _named(one: Inspection) -> str:
    if one.owner is None:
        return "an unknown process"
    return f"pid {one.owner.pid} of {one.elsewhere}" if one.elsewhere else f"pid {one.owner.pid}"


def refusal(one: Inspection, registry: str | None = None, *, fact: str = "", hint: str = "") -> AlreadyOwnedError:
    """The error for a resource that is held, from a look that changed nothing.

    :param fact: one more
    :param hint: instead of :func:`remedy`
    """
    record, owner = one.record, one.owner
    who = _named(one)
    if record:
        who += f" ({record.command}) on {record.host}"
    known = f"; token {one.token}" if owner else ""
    return AlreadyOwnedError(
        f"{shown(one.resource)} is held by {who}: {one.verdict.value}, {one.reason}{fact}{known}",
        resource=one.resource,
        record=record,
        owner=owner,
        verdict=one.verdict,
        reason=one.reason,
        hint=hint or remedy(one, registry),
    )
