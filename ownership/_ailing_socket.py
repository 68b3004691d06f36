"""What is wrong with a resource that is a socket: whether it is found, and who answers. Changes nothing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from ownership._ailing_owner import Case
from ownership._bystander import look_at
from ownership._finding import Fact, Finding, FindingCode, Severity
from ownership._models import OwnerRecord
from ownership._paths import quoted, shown
from ownership._process import ProcessTable, listeners_at, peer_facts
from ownership._sockets._address import unix_endpoint
from ownership._sockets._dial import Answer, dial
from ownership._verdict import Verdict, same_namespace


def ailments_of_socket(case: Case) -> Iterator[Finding]:
    """Whether the socket of an owner is found and answers, and whether somebody answers who is no owner.

    A socket that is found is connected to, and the connection closed at once.
    """
    path, record = case.subject.resource.path, case.examined.record
    serves = record is not None and record.endpoint == unix_endpoint(path) and not record.is_closed
    kind, verdict = _kind(path), case.examined.verdict
    try:
        if serves and record is not None and verdict is Verdict.LIVE and kind is not None:
            yield from _of_living(case, record, kind)
        elif kind == "socket" and (verdict is Verdict.FREE or verdict.is_dead):
            yield from _of_nobody(case)
    except OSError:  # out of descriptors: who answers cannot be told
        return


def _kind(path: str) -> str | None:
    """What is at *path*: ``socket``, something else, nothing (empty); ``None`` if that cannot be told."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return None
    return "socket" if stat.S_ISSOCK(mode) else "something else"


def _of_living(case: Case, record: OwnerRecord, kind: str) -> Iterator[Finding]:
    path, who = case.subject.resource.path, f"its owner, pid {record.pid}"
    facts: dict[str, Fact] = {"socket": shown(path)}
    if kind != "socket":
        there = "is gone" if not kind else "leads to something that is no socket"
        what = f"{who}, lives, but the path of its socket {there}: no client finds it, and nobody else may serve"
        advice = "it puts the path back if it calls rebind(); else start it anew: its clients are lost then"
        remedy = case.subject.command("stop") if not kind else f"ls -l {quoted(path)}"
        yield case.found(FindingCode.SOCKET_MISSING, Severity.PROBLEM, what, advice, remedy, facts)
        return
    answer = dial(path)
    pid = _answering(answer)
    if answer.is_full or answer.error == errno.ECONNREFUSED:
        facts["answer"] = answer.words
        what = f"{who}, lives, but does not answer at its socket: {answer.words}"
        advice = "see what it does; if it hangs, end it: whoever acquires next takes over"
        yield case.found(FindingCode.SOCKET_MUTE, Severity.PROBLEM, what, advice, case.subject.command("stop"), facts)
    elif pid and pid != record.pid and same_namespace(record, case.processes.current()):
        yield _hidden(case, pid, f"{who}, lives, but another process answers at its socket")


def _of_nobody(case: Case) -> Iterator[Finding]:
    path = case.subject.resource.path
    answer = dial(path)
    pid = _answering(answer)
    if answer.connected or answer.is_full:
        number = pid or next(iter(listeners_at(path)), 0)
        yield _hidden(case, number, "nobody owns it by the records, but somebody listens at its socket")
    elif answer.error == errno.ECONNREFUSED:
        what = "its socket was left behind by an owner that is gone: whoever connects is refused"
        advice = "nothing is blocked: whoever listens there next removes it"
        remedy = f"rm -i {quoted(path)}"
        facts: dict[str, Fact] = {"socket": shown(path)}
        yield case.found(FindingCode.STALE_SOCKET, Severity.NOTE, what, advice, remedy, facts)


def _hidden(case: Case, pid: int, what: str) -> Finding:
    path = case.subject.resource.path
    facts: dict[str, Fact] = {"socket": shown(path), **_facts_of(pid, case.processes)}
    named = look_at(case.processes, pid).named if pid > 0 else "a process that is not to be seen from here"
    advice = f"{named} listens there without a record, so listen() refuses to take its place: end it by hand"
    return case.found(FindingCode.HIDDEN_LISTENER, Severity.PROBLEM, what, advice, f"ss -xlp src {quoted(path)}", facts)


def _facts_of(pid: int, processes: ProcessTable) -> dict[str, Fact]:
    if pid <= 0:
        return {}
    return {"listener_pid": pid, "listener_command": look_at(processes, pid).command or ""}


def _answering(answer: Answer) -> int:
    """The pid of whoever took the connection, which is closed; 0 if nobody did, or it cannot be told."""
    if answer.connection is None:
        return 0
    with answer.connection as connection:
        try:
            return peer_facts(connection).pid
        except OSError:
            return 0
