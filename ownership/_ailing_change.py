"""What is to be said about a change of owner that is under way. Decides nothing about ownership, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ownership._ailing_owner import Case
from ownership._finding import Fact, Finding, FindingCode, Severity
from ownership._models import OwnerRecord
from ownership._process import printable
from ownership._verdict import Verdict


def ailments_of_change(case: Case) -> Iterator[Finding]:
    """That the owner has closed the resource and lives on; nothing if nobody is about to leave or to come."""
    record = case.examined.record
    if record is not None and record.is_closed and case.examined.verdict is Verdict.LIVE:
        yield _closed(case, record)


def _closed(case: Case, record: OwnerRecord) -> Finding:
    what = f"its owner, pid {record.pid}, has closed it and has not ended yet: everybody else waits for that"
    facts: dict[str, Fact] = {"reason": printable(record.reason)} if record.reason else {}
    if record.updated_at:
        facts["closed_at"] = f"{record.updated_at:%Y-%m-%dT%H:%M:%S.%fZ}"
    advice = f"nothing, unless it takes long: see then why that process does not end, or end it ({_stop(case)})"
    return case.found(FindingCode.CLOSED, Severity.NOTE, what, advice, case.subject.command("wait"), facts)


def _stop(case: Case) -> str:
    return case.subject.command("stop")
