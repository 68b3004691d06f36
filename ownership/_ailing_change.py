"""What is to be said about a change of owner that is under way. Decides nothing about ownership, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ownership._ailing_owner import Case
from ownership._bystander import look_at, way_on
from ownership._finding import Fact, Finding, FindingCode, Severity
from ownership._models import OwnerRecord
from ownership._paths import shown
from ownership._process import printable
from ownership._request import Asker
from ownership._verdict import Verdict


def ailments_of_change(case: Case) -> Iterator[Finding]:
    """Whether the owner has closed the resource and lives on, and whether it was asked to go."""
    record = case.examined.record
    if record is not None and record.is_closed and case.examined.verdict is Verdict.LIVE:
        yield _closed(case, record)
    if case.asker is not None:
        yield _requested(case, case.asker)


def _closed(case: Case, record: OwnerRecord) -> Finding:
    what = f"its owner, pid {record.pid}, has closed it and has not ended yet: everybody else waits for that"
    facts: dict[str, Fact] = {"reason": printable(record.reason)} if record.reason else {}
    if record.updated_at:
        facts["closed_at"] = f"{record.updated_at:%Y-%m-%dT%H:%M:%S.%fZ}"
    advice = f"nothing, unless it takes long: see then why that process does not end, or end it ({_stop(case)})"
    return case.found(FindingCode.CLOSED, Severity.NOTE, what, advice, case.subject.command("wait"), facts)


def _requested(case: Case, asker: Asker) -> Finding:
    """A request; not one that stands for long, or for nobody, harms anybody."""
    one, verdict = asker.record, asker.judgement.verdict
    facts: dict[str, Fact] = {
        "request": shown(case.subject.file("request")),
        "asker_pid": one.pid,
        "asker_start_id": printable(one.start_id),
        "request_token": one.token,
    }
    facts |= {"asker_command": printable(one.command)} if one.command else {}
    facts |= {"request_reason": printable(one.reason)} if one.reason else {}
    facts |= {"requested_at": f"{one.acquired_at:%Y-%m-%dT%H:%M:%S.%fZ}"} if one.acquired_at else {}
    who, withdraw = f"pid {one.pid}", case.subject.command("break", "--token", str(one.token))
    if not asker.stands:
        what = f"{who} asked its owner to go, and does not any more: {asker.judgement.reason}"
        advice = "nothing is blocked: whoever acquires next removes the request, and this does so now"
        return case.found(FindingCode.LEFTOVER_REQUEST, Severity.NOTE, what, advice, withdraw, facts)
    what = f"{who} has asked its owner to go, and alone may acquire it then: {asker.judgement.reason}"
    if verdict is Verdict.LIVE:
        advice = "nothing: it stops the owner once it has had its time, and then owns; this withdraws the request: "
        advice += f"{who} gives up then, and the owner goes on"
        return case.found(FindingCode.REQUESTED, Severity.NOTE, what, advice, withdraw, facts)
    seen = look_at(case.processes, one.pid) if verdict is Verdict.STOPPED else None
    way = way_on(case.processes, seen) if seen is not None else None
    if way is not None:
        advice = f"{who} {way.what}, and everybody else is refused once the owner has gone: {way.advice}; or {withdraw}"
        return case.found(FindingCode.REQUESTED, Severity.PROBLEM, what, advice, way.remedy, facts | way.facts)
    advice = "everybody else is refused once the owner has gone; if you know that nobody asks, withdraw the request"
    return case.found(FindingCode.REQUESTED, Severity.PROBLEM, what, advice, withdraw, facts)


def _stop(case: Case) -> str:
    return case.subject.command("stop")
