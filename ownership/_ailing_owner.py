"""What is wrong with an owner: from the verdict on it to findings. Decides nothing about ownership, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ownership._ailing_files import NEWER
from ownership._bystander import HALTED, Bystander, look_at, way_on
from ownership._examine import Examined
from ownership._finding import Fact, Finding, FindingCode, Severity, Subject
from ownership._models import VERSION, GuardState, Malformed, OwnerIdentity, OwnerRecord
from ownership._paths import shown
from ownership._process import Comparison, Identity, ProcessState, ProcessTable, compare_start_ids, printable
from ownership._request import Asker
from ownership._verdict import Verdict, WitnessState, same_namespace

NOTHING_BLOCKED = "nothing is blocked: the next acquire takes over by itself; this removes the record now"
_BREAK = "if you know that its owner is gone, break its claim; a live one is told only when it looks"


class Case(NamedTuple):
    """What one look at a resource showed.

    :ivar remembered: what its guard remembers
    :ivar witness: what its owner's witness says, where it was asked
    :ivar asker: who asks its owner to go
    """

    subject: Subject
    examined: Examined
    remembered: GuardState
    processes: ProcessTable
    witness: WitnessState | None = None
    asker: Asker | None = None

    @property
    def token(self) -> int:
        return self.examined.record.token if self.examined.record else self.remembered.token

    @property
    def break_(self) -> str:
        return self.subject.command("break", "--token", str(self.token))

    def found(
        self,
        code: FindingCode,
        severity: Severity,
        what: str,
        advice: str,
        remedy: str,
        facts: dict[str, Fact] | None = None,
        *,
        unusable: bool = False,
    ) -> Finding:
        evidence = {**_identity(self.examined.owner, self.token), **(facts or {})}
        return Finding(code, severity, self.subject.path, printable_line(what), evidence, advice, remedy, unusable)


def ailments_of_owner(case: Case) -> Iterator[Finding]:
    """Everything that is wrong with the owner of one resource; nothing if it is healthy, or nobody owns it."""
    examined, owner = case.examined, case.examined.owner
    if examined.malformed is not None:
        yield _malformed(case, examined.malformed)
    elif owner is None:
        return
    elif examined.record is None:
        yield _record_lost(case, owner)
    else:
        diagnose = _BY_VERDICT.get(examined.verdict)
        found = diagnose(case, owner) if diagnose else None
        if found is not None:
            yield found
        if examined.record.version > VERSION:
            yield _newer(case, examined.record)
        yield from _unseen_elsewhere(case)


def _identity(owner: OwnerIdentity | None, token: int) -> dict[str, Fact]:
    if owner is None:
        return {"token": token} if token else {}
    told: dict[str, Fact] = {
        "pid": owner.pid,
        "start_id": printable(owner.start_id),
        "instance_id": owner.instance_id,
        "token": token,
    }
    if isinstance(owner, OwnerRecord):
        told |= {"command": printable(owner.command)} if owner.command else {}
        told |= {"host": printable(owner.host)} if owner.host else {}
        told |= {"since": f"{owner.acquired_at:%Y-%m-%dT%H:%M:%S.%fZ}"} if owner.acquired_at else {}
    return told


def _look(case: Case, owner: OwnerIdentity) -> Bystander | None:
    """Its process, where its number means the same process for it and for us, and no other has it by now."""
    if not same_namespace(owner, case.processes.current()):
        return None
    seen = look_at(case.processes, owner.pid)
    stranger = seen.start_id is not None and compare_start_ids(owner.start_id, seen.start_id) is Comparison.DIFFERENT
    return None if stranger else seen


def _state(seen: Bystander | None) -> dict[str, Fact]:
    if seen is None:
        return {}
    return {name: fact for name, fact in seen.facts().items() if name in ("state", "state_source")}


# -- by verdict


def _gone(case: Case, owner: OwnerIdentity) -> Finding:
    facts = _elsewhere(owner, case.processes.current())
    what = f"its owner is gone: {case.examined.judgement.reason}"
    return case.found(FindingCode.GONE, Severity.NOTE, what, NOTHING_BLOCKED, case.subject.reclaim, facts)


def _zombie(case: Case, owner: OwnerIdentity) -> Finding:
    seen = _look(case, owner)
    number = seen.around.parent if seen and seen.around else None
    facts, remedy = _state(seen), case.subject.reclaim
    if number is None:
        what = f"its owner, pid {owner.pid}, has exited, and its parent has not reaped it"
        return case.found(FindingCode.ZOMBIE, Severity.NOTE, what, NOTHING_BLOCKED, remedy, facts)
    parent = look_at(case.processes, number)
    way, duty = way_on(case.processes, parent), f"{parent.named} has to reap it (wait(2)), or to end"
    if way is not None:
        duty, remedy = f"its parent {way.what} and cannot reap it: {way.advice}", way.remedy
    elif number == 1:
        duty += "; a container whose pid 1 does not: start it with an init (docker run --init)"
    what = f"its owner, pid {owner.pid}, has exited, and its parent, {parent.named}, has not reaped it"
    facts |= {**parent.facts("parent_"), **(way.facts if way else {})}
    blocked = NOTHING_BLOCKED if way is None else "nothing is blocked: the next acquire takes over by itself"
    return case.found(FindingCode.ZOMBIE, Severity.NOTE, what, f"{duty}; {blocked}", remedy, facts)


def _reused(case: Case, owner: OwnerIdentity) -> Finding:
    seen = look_at(case.processes, owner.pid)
    facts: dict[str, Fact] = {}
    if seen.command:
        facts["runs_now"] = seen.command
    if seen.start_id:
        facts["start_id_now"] = seen.start_id
    runs = f", {seen.command}" if seen.command else ""
    what = f"its owner is gone, and its number, pid {owner.pid}, belongs to another process now{runs}"
    advice = f"never signal that process by what the record says; {NOTHING_BLOCKED}"
    return case.found(FindingCode.REUSED, Severity.NOTE, what, advice, case.subject.reclaim, facts)


def _expired(case: Case, owner: OwnerIdentity) -> Finding:
    seen, record = _look(case, owner), case.examined.record
    facts = _state(seen)
    if record is not None and record.lease is not None:
        facts |= {"ttl": record.lease.ttl, "renewal": "automatic" if record.lease.auto_renew else "by hand"}
    what = f"its owner has not renewed its lease and may be at work without it: {case.examined.judgement.reason}"
    way = way_on(case.processes, seen) if seen else None
    advice = "the next acquire evicts it, and this does so now; it is told when it looks"
    if way is not None:
        advice += f"; pid {owner.pid} {way.what}: {way.advice}"
        facts |= way.facts
    return case.found(FindingCode.EXPIRED, Severity.PROBLEM, what, advice, case.subject.reclaim, facts)


_HALTED_CODES = {
    ProcessState.STOPPED: FindingCode.STOPPED,
    ProcessState.TRACED: FindingCode.TRACED,
    ProcessState.FROZEN: FindingCode.FROZEN,
}


def _stopped(case: Case, owner: OwnerIdentity) -> Finding | None:
    seen = _look(case, owner)
    way = way_on(case.processes, seen) if seen else None
    if seen is None or way is None:
        return None  # it goes on by now
    what = f"its owner, pid {owner.pid}, {way.what}; it still owns, so everybody else is refused"
    facts = {**_state(seen), **way.facts}
    return case.found(_HALTED_CODES[seen.state], Severity.PROBLEM, what, way.advice, way.remedy, facts)


def _unknown(case: Case, owner: OwnerIdentity) -> Finding:
    me = case.processes.current()
    facts = _elsewhere(owner, me)
    code = FindingCode.UNKNOWN
    if "our_boot_id" in facts:
        code = FindingCode.FOREIGN_BOOT
    elif "our_pid_namespace" in facts:
        code = FindingCode.FOREIGN_NAMESPACE
    if case.witness is not None:
        facts["witness"] = case.witness.value
    what = f"whether its owner lives cannot be told, which counts as held: {case.examined.judgement.reason}"
    where = "look from its own pid namespace; " if code is FindingCode.FOREIGN_NAMESPACE else ""
    return case.found(code, Severity.PROBLEM, what, where + _BREAK, case.break_, facts | _state(_look(case, owner)))


_BY_VERDICT: dict[Verdict, Callable[[Case, OwnerIdentity], Finding | None]] = {
    Verdict.GONE: _gone,
    Verdict.ZOMBIE: _zombie,
    Verdict.REUSED: _reused,
    Verdict.EXPIRED: _expired,
    Verdict.STOPPED: _stopped,
    Verdict.UNKNOWN: _unknown,
}


def _elsewhere(owner: OwnerIdentity, me: Identity) -> dict[str, Fact]:
    """How its boot or pid namespace differs from ours, where both are known."""
    if owner.boot_id is not None and me.boot_id is not None and owner.boot_id != me.boot_id:
        return {"boot_id": printable(owner.boot_id), "our_boot_id": me.boot_id}
    if None not in (owner.pid_namespace, me.pid_namespace) and owner.pid_namespace != me.pid_namespace:
        return {"pid_namespace": str(owner.pid_namespace), "our_pid_namespace": str(me.pid_namespace)}
    return {}


# -- records and witnesses that are not as they should be


def _record_lost(case: Case, owner: OwnerIdentity) -> Finding:
    seen = _look(case, owner)
    way = way_on(case.processes, seen) if seen and seen.state in HALTED else None
    what = f"its record is not there, but its owner has not let go: {case.examined.judgement.reason}"
    facts: dict[str, Fact] = {"guard": shown(case.subject.file("guard")), **_state(seen)}
    if way is not None:
        advice = f"pid {owner.pid} {way.what}; once it goes on its keeper puts the record back: {way.advice}"
        return case.found(FindingCode.RECORD_LOST, Severity.PROBLEM, what, advice, way.remedy, facts | way.facts)
    advice = (
        "everybody else is refused, and its keeper has not put the record back (it may have run another program since, "
        f"or may not write here any more): wait until it ends, or end it; {_BREAK}"
    )
    return case.found(FindingCode.RECORD_LOST, Severity.PROBLEM, what, advice, case.break_, facts)


def _malformed(case: Case, malformed: Malformed) -> Finding:
    examined, owner = case.examined, case.examined.owner
    seen = _look(case, owner) if owner is not None else None
    facts: dict[str, Fact] = {"record": shown(case.subject.file("json")), "fault": printable(malformed.fault)}
    facts |= {"head": printable(malformed.head), **_state(seen)}
    what = f"its record cannot be read as one: {examined.judgement.reason}"
    if examined.unsettled or examined.verdict.may_be_evicted:
        later = ", after a second at most" if examined.unsettled else ""
        advice = f"nobody is known to live who made it: the next acquire takes over{later}; this removes it now"
        return case.found(FindingCode.MALFORMED, Severity.NOTE, what, advice, case.subject.reclaim, facts)
    way = way_on(case.processes, seen) if seen is not None else None
    if owner is not None and way is not None:
        advice = f"pid {owner.pid} {way.what}; once it goes on its keeper puts the record right: {way.advice}"
        return case.found(FindingCode.MALFORMED, Severity.PROBLEM, what, advice, way.remedy, facts | way.facts)
    advice = f"its owner's keeper puts it right if it can, and has not; {_BREAK}"
    return case.found(FindingCode.MALFORMED, Severity.PROBLEM, what, advice, case.break_, facts)


def _newer(case: Case, record: OwnerRecord) -> Finding:
    what = f"its record is of version {record.version}, this library knows {VERSION} and reads only who owns"
    facts: dict[str, Fact] = {"record_version": record.version, "known_version": VERSION}
    advice = "its lease, if it has one, is not seen from here"
    return case.found(FindingCode.NEWER_RECORD, Severity.NOTE, what, advice, NEWER, facts)


def _unseen_elsewhere(case: Case) -> Iterator[Finding]:
    """A live owner that other pid namespaces cannot tell from a dead one."""
    owner = case.examined.owner
    if owner is None or case.examined.verdict not in (Verdict.LIVE, Verdict.STOPPED):
        return
    facts: dict[str, Fact] = {"witness": shown(f"{case.subject.directory}/{owner.instance_id}.alive")}
    facts["witness_state"] = case.witness.value if case.witness else ""
    why = "its keeper does not run: it has run another program since without keep_across_exec(), or it is stopped"
    advice = f"{why}; harmless where everybody is in one pid namespace, else let it end and acquire anew"
    if case.witness is WitnessState.MISSING:
        what = f"its owner, pid {owner.pid}, lives, but its witness is missing: other pid namespaces cannot judge it"
        yield case.found(FindingCode.WITNESS_MISSING, Severity.NOTE, what, advice, case.subject.command("wait"), facts)
    elif case.witness is WitnessState.FREE:
        what = f"its owner, pid {owner.pid}, lives, but its witness is free: other pid namespaces take it for dead"
        yield case.found(FindingCode.WITNESS_FREE, Severity.PROBLEM, what, advice, case.subject.command("wait"), facts)


def printable_line(text: str) -> str:
    """*text* on one line, whatever is in it, and as long as it is."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)  # no codec: imported at first use
