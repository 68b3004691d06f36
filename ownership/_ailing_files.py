"""What is wrong with the files of a lock directory, apart from what they say about owners. Reading only."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ownership._bystander import look_at, way_on
from ownership._errors import InvalidRecordError, UnsupportedRecordError
from ownership._finding import Fact, Finding, FindingCode, Severity, Subject, reclaim_all
from ownership._location import account_name
from ownership._paths import quoted, shown
from ownership._pinned import PinnedDirectory, Signature
from ownership._process import LockedFile, ProcessTable, locked_file, printable
from ownership._system import euid, may

OUR_FILES = (".json", ".guard", ".alive", ".request", ".new")
NEWER = "install a newer version of leases"
_NAMED = 3  # files that a finding about many names


# -- one file that cannot be used


def unusable_file(subject: Subject, suffix: str, error: Exception) -> Finding:
    """What *error*, met at the record or guard of a resource, means."""
    path = subject.file(suffix)
    if isinstance(error, UnsupportedRecordError):
        what = f"its record is of a newer format, which counts as held: {error}"
        advice = "whoever wrote it uses a newer version: upgrade this library, or stop that program"
        return _unusable(FindingCode.NEWER_RECORD, subject.path, path, what, advice, NEWER)
    if isinstance(error, InvalidRecordError):
        code = FindingCode.INVALID_GUARD if suffix == "guard" else FindingCode.INVALID_RECORD
        which = suffix if suffix in ("guard", "request") else "record"
        what = f"its {which} is no file of ours, and is never removed by us: {error}"
        advice = "find out who made it; remove it once nobody uses the resource"
        flags = "-ri" if os.path.isdir(path) and not os.path.islink(path) else "-i"
        head: dict[str, Fact] = {"head": printable(error.head)} if error.head else {}
        return _unusable(code, subject.path, path, what, advice, f"rm {flags} {quoted(path)}", head)
    return unreadable(subject.path, path, error)


def unreadable(about: Path, path: str, error: Exception) -> Finding:
    """A file or directory that cannot be read, for a reason that the system gives."""
    number = error.errno if isinstance(error, OSError) else None
    where = os.fsdecode(error.filename) if isinstance(error, OSError) and error.filename else path
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    facts: dict[str, Fact] = {"errno": errno.errorcode.get(number or 0, str(number))} if number else {}
    advice, remedy = getattr(error, "hint", "") or "find out why", f"ls -ld {quoted(where)}"
    if number in (errno.EACCES, errno.EPERM):
        remedy = _readable(where)
    elif number == errno.EIO:
        remedy = "dmesg --level=err,crit | tail"
    what = f"it cannot be read, which says nothing about its owner: {shown(where)}: {reason}"
    return _unusable(FindingCode.UNREADABLE, about, where, what, advice, remedy, facts)


def _readable(path: str) -> str:
    """The command that makes a file readable that should be, or reads it as somebody who may."""
    directory = os.path.dirname(path)
    try:
        ours, found = os.stat(directory).st_uid == euid(), os.lstat(path)
    except OSError:
        return f"namei -l {quoted(path)}"
    if not ours:
        return f"sudo leasectl doctor {quoted(directory)}"
    if found.st_uid != euid():
        return f"chown {euid()} {quoted(path)}"
    if stat.S_IMODE(found.st_mode) & 0o600 != 0o600:
        return f"chmod u+rw {quoted(path)}"
    return f"lsattr {quoted(path)}; findmnt -T {quoted(path)}"


def locked_out(subject: Subject) -> Finding | None:
    """A guard of this account's own that it may not open, as whoever acquires must; its directory is usable."""
    path = subject.file("guard")
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if found.st_uid != euid() or may(path, os.R_OK | os.W_OK):
        return None
    if stat.S_IMODE(found.st_mode) & 0o600 == 0o600 and not may(subject.directory, os.W_OK):
        return None  # told of the directory
    what = "its own account may not open its guard, as whoever acquires or releases must"
    advice = "give it the mode that it is made with, or take the immutable attribute away"
    return _unusable(FindingCode.UNREADABLE, subject.path, path, what, advice, _readable(path))


def _unusable(
    code: FindingCode,
    about: Path,
    path: str,
    what: str,
    advice: str,
    remedy: str,
    facts: Mapping[str, Fact] | None = None,
) -> Finding:
    evidence: dict[str, Fact] = {"path": shown(path), **_file_facts(path), **(facts or {})}
    return Finding(code, Severity.PROBLEM, about, what, evidence, advice, remedy, unusable=True)


def _file_facts(path: str) -> dict[str, Fact]:
    try:
        found = os.lstat(path)
    except OSError:
        return {}
    return {"owner": account_name(found.st_uid), "mode": f"{stat.S_IMODE(found.st_mode):04o}"}


# -- many files


def foreign_files(directory: PinnedDirectory, names: Collection[str]) -> Iterator[Finding]:
    """Files that the account whose lock directory it is cannot use, because they belong to another one."""
    owner = os.fstat(directory.fd).st_uid
    if owner == 0:  # may use whatever there is
        return
    ours = sorted(name for name in names if name.endswith(OUR_FILES))
    found = [name for name in ours if _owner_of(directory, name) not in (owner, None)]
    if found:
        who, path = account_name(owner), directory.path
        what = f"{_count(found)} in the lock directory of {who} belong to another account, so it is refused there"
        facts: dict[str, Fact] = {"path": shown(path), "files": len(found), "first": _first(found)}
        facts["belong_to"] = account_name(_owner_of(directory, found[0]) or 0)
        advice = "give them to the account whose directory it is; as root, nothing that has another name elsewhere"
        remedy = f"find {quoted(path)} -type f ! -user {owner} -links 1 -exec chown {owner} {{}} +"
        code = FindingCode.FOREIGN_ACCOUNT_FILES
        yield Finding(code, Severity.PROBLEM, Path(path), what, facts, advice, remedy, unusable=True)


def _owner_of(directory: PinnedDirectory, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_uid
    except OSError:
        return None


def leftovers(
    path: str, registry: str | None, witnesses: Collection[str], temporaries: Collection[str]
) -> Iterator[Finding]:
    """What dead processes left in the lock directory at *path*."""
    advice = "harmless: the next acquire that finds an owner dead removes some, and this all of them"
    for code, names, kind in (
        (FindingCode.LEFTOVER_WITNESS, witnesses, "witness"),
        (FindingCode.LEFTOVER_TEMPORARY, temporaries, "temporary file"),
    ):
        if names:
            what = f"{_count(names, kind)} of dead processes, which no record names"
            facts: dict[str, Fact] = {"path": shown(path), "files": len(names), "first": _first(sorted(names))}
            yield Finding(code, Severity.NOTE, Path(path), what, facts, advice, reclaim_all(path, registry))


def _count(names: Collection[str], kind: str = "file") -> str:
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{len(names)} {kind if len(names) == 1 else plural}"


def _first(names: list[str]) -> list[str]:
    return [shown(name) for name in names[:_NAMED]]


# -- guards that are held


class Held(NamedTuple):
    """A guard that somebody holds: who, and the file as it was then."""

    pid: int
    signature: Signature


def guards_held(signatures: Mapping[str, Signature | None], holders: Mapping[LockedFile, int]) -> dict[str, Held]:
    """Which of the guards are locked, and by whom."""
    return {
        stem: Held(pid, signature)
        for stem, signature in signatures.items()
        if signature is not None and (pid := holders.get(locked_file(*signature[:2])))
    }


def still_held(before: Mapping[str, Held], now: Mapping[str, Held]) -> dict[str, Held]:
    """Which of them the same process still holds, and for all that is known within the same operation.

    An operation that changes anything writes into the guard, so one with another signature is another's or goes on.
    """
    return {stem: held for stem, held in before.items() if now.get(stem) == held}


def held_for_long(subject: Subject, pid: int, seconds: float, processes: ProcessTable) -> Finding:
    """A guard that *pid* was seen to hold for *seconds*: meanwhile nobody can decide anything about the resource."""
    holder = look_at(processes, pid)
    guard = quoted(subject.file("guard"))
    facts: dict[str, Fact] = {
        "guard": shown(subject.file("guard")),
        **holder.facts("holder_"),
        "seen_for": f"{seconds:.1f} s",
    }
    way = way_on(processes, holder)
    what = (
        f"its guard has been held by {holder.named} for {seconds:.1f} s at least: nobody else can acquire or release it"
    )
    if way is not None:
        what, facts = f"{what}; that process {way.what}", facts | way.facts
        advice, remedy = f"{way.advice}; ending it frees the guard too", way.remedy
    elif holder.exists is False or holder.doing == "zombie":
        what += "; that process has ended, one that it forked keeps the lock"
        advice, remedy = "find the process that has it open, and end it", f"fuser -v {guard}"
    else:
        advice = "it may be slow, or hang on a filesystem: find out what it does; ending it frees the guard"
        remedy = f"ps -o pid,stat,wchan:20,lstart,args -p {pid}; fuser -v {guard}"
    return Finding(FindingCode.GUARD_HELD, Severity.PROBLEM, subject.path, what, facts, advice, remedy)
