"""The directories that records are in: which there are, and which of them somebody cannot use. Reading only."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ownership._ailing_files import OUR_FILES
from ownership._errors import UnsafeDirectoryError
from ownership._finding import Fact, Finding, FindingCode, Severity
from ownership._location import account_name, locate, locate_registry, pin_registry
from ownership._paths import DIRECTORY, StrPath, quoted, shown, spelled_path
from ownership._sharing import is_allowed, joining, writers
from ownership._system import euid, may

_NAME = re.compile(rf"{re.escape(DIRECTORY)}(?:-(\d+))?")
_OUR_FILES = (*OUR_FILES, ".gitignore")
_MOUNT = "its mount is read-only, or it has the immutable attribute: remount it, or use a registry elsewhere"
_SHARE = "or share a registry between the accounts (registry=, --registry)"


class Premises(NamedTuple):
    """One directory: a lock directory, a registry, or (never usable for records) the one that lock directories are in.

    :ivar usable: its records can be looked at from here
    """

    path: str
    findings: tuple[Finding, ...]
    usable: bool


def survey(directory: StrPath, *, registry: bool) -> Iterator[Premises]:
    """Every directory to look at, with what is wrong with it.

    :raises OSError: *directory* itself is missing, or no directory
    :raises ValueError: it is empty, or holds NUL
    """
    if registry:
        yield _registry(pin_registry(directory) or "")
        return
    path = os.path.realpath(spelled_path(directory, "directory"))
    found = os.stat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    single = _NAME.fullmatch(os.path.basename(path)) is not None
    parent = os.path.dirname(path) if single else path
    above = os.stat(parent)
    paths = [path] if single else _lock_paths(path)
    refused = _refused(parent, above)
    if refused is not None and os.fspath(refused.resource) not in paths:
        yield Premises(parent, (refused,), False)
    for one in paths:
        try:
            faults = {fault.code: fault for fault in _faults(one, above)}
            if refused is not None and os.fspath(refused.resource) == one:
                faults.setdefault(refused.code, refused)
            looked = _looked_into(one, parent, list(faults.values()))
        except FileNotFoundError:  # it went while we were looking
            continue
        yield Premises(one, *looked)


def _lock_paths(parent: str) -> list[str]:
    """Everything in *parent* that is called like a lock directory, whatever it is."""
    try:
        names = os.listdir(parent)
    except PermissionError:  # may be searched all the same
        names = [DIRECTORY, f"{DIRECTORY}-{euid()}"]
    paths = [f"{parent.rstrip('/')}/{name}" for name in sorted(names) if _NAME.fullmatch(name)]
    return [path for path in paths if os.path.lexists(path)]


def _registry(path: str) -> Premises:
    try:
        locate_registry(path)
    except UnsafeDirectoryError as error:
        found = os.lstat(path)
        link = stat.S_ISLNK(found.st_mode)
        remedy = f"leasectl doctor --registry {quoted(os.path.realpath(path))}" if link else error.hint
        fault = _fault(FindingCode.UNSAFE_DIRECTORY, path, found, str(error), error.hint, remedy)
        return Premises(path, (fault,), False)
    if not may(path, os.R_OK | os.X_OK):
        what = "this account may not read the registry"
        return Premises(path, (_shut(FindingCode.UNREADABLE, path, what, os.R_OK | os.X_OK),), False)
    if not may(path, os.W_OK):
        what = "this account may not write in the registry, so it can acquire nothing there"
        return Premises(path, (_shut(FindingCode.UNWRITABLE_DIRECTORY, path, what, os.W_OK),), True)
    return Premises(path, (), True)


def _shut(code: FindingCode, path: str, what: str, bits: int) -> Finding:
    """A registry that this account may not use, by its mode or else by its mount."""
    found = os.stat(path)
    if is_allowed(found, bits):
        return _fault(code, path, found, what, _MOUNT, f"findmnt -T {quoted(path)}; lsattr -d {quoted(path)}")
    who, join = writers(found), joining(found, bits)
    advice = f"only {who} may: become a member of its group, which holds from the next login on"
    if not join:
        advice = f"only {who} may: use such an account, or let a group share it (chgrp, chmod g+rwx)"
    remedy = join or f"sudo -u '#{found.st_uid}' leasectl doctor --registry {quoted(path)}"
    return _fault(code, path, found, what, advice, remedy, writers=who)


def _refused(parent: str, above: os.stat_result) -> Finding | None:
    """Why this account could not acquire anything in *parent*, if its lock directory or *parent* itself is why."""
    try:
        location = locate(parent, above)
    except UnsafeDirectoryError as error:
        path = error.resource or parent
        advice = "anybody could replace files there; chmod +t instead if every account is to use it"
        return _fault(FindingCode.UNSAFE_DIRECTORY, path, os.lstat(path), str(error), advice, error.hint)
    except PermissionError as error:
        return _kept_out(parent, str(error.filename or parent), error)
    if location.facts is None:
        return None if may(parent, os.W_OK | os.X_OK) else _unmakable(parent, above)
    return None if may(location.path, os.W_OK) else _unwritable(location.path)


def _kept_out(parent: str, path: str, error: PermissionError) -> Finding | None:
    try:
        found = os.lstat(path)
    except OSError:
        what = f"{shown(path)}: {error.strerror}"
        facts: dict[str, Fact] = {"errno": errno.errorcode.get(error.errno or 0, ""), "path": shown(path)}
        advice, remedy = "a directory above may not be searched by this account", f"namei -l {quoted(path)}"
        return Finding(FindingCode.UNREADABLE, Severity.PROBLEM, Path(path), what, facts, advice, remedy, True)
    what = (
        f"the lock directory belongs to {account_name(found.st_uid)}: {account_name(euid())} can acquire nothing here"
    )
    advice = f"look, and acquire, as that account, {_SHARE}"
    remedy = f"sudo -u '#{found.st_uid}' leasectl doctor {quoted(parent)}"
    return _fault(FindingCode.FOREIGN_ACCOUNT_DIRECTORY, path, found, what, advice, remedy)


def _unwritable(path: str) -> Finding:
    found = os.lstat(path)
    what = "nothing can be acquired here: its own account may not write in it"
    if stat.S_IMODE(found.st_mode) & 0o700 != 0o700:
        advice, remedy = "give it the mode that it is made with", f"chmod u+rwx {quoted(path)}"
    else:
        advice, remedy = _MOUNT, f"findmnt -T {quoted(path)}; lsattr -d {quoted(path)}"
    return _fault(FindingCode.UNWRITABLE_DIRECTORY, path, found, what, advice, remedy)


def _unmakable(path: str, found: os.stat_result) -> Finding:
    """A directory without a lock directory, in which this account may not make one."""
    who = writers(found)
    what = (
        f"nothing can be acquired here by {account_name(euid())}: there is no lock directory, and it may not make one"
    )
    advice, remedy = _MOUNT, f"findmnt -T {quoted(path)}; lsattr -d {quoted(path)}"
    if not is_allowed(found, os.W_OK | os.X_OK):
        advice = f"only {who} may write here: acquire as such an account, {_SHARE}"
        remedy = f"sudo -u '#{found.st_uid}' leasectl doctor {quoted(path)}"
        if join := joining(found, os.W_OK | os.X_OK):
            advice, remedy = f"{advice}; or become a member of its group, which holds from the next login on", join
    fault = _fault(FindingCode.UNWRITABLE_DIRECTORY, path, found, what, advice, remedy, writers=who)
    return replace(fault, unusable=False)  # there is nothing here yet that could be used


# -- whoever looks


def _faults(path: str, above: os.stat_result) -> Iterator[Finding]:
    """What keeps the account out for which the lock directory at *path* is, whichever account looks."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        kind = "a symlink" if stat.S_ISLNK(found.st_mode) else "not a directory"
        what = f"the lock directory is {kind}, made by {account_name(found.st_uid)}: nobody acquires through it"
        yield _fault(
            FindingCode.UNSAFE_DIRECTORY, path, found, what, "find out why, then remove it", f"rm -i {quoted(path)}"
        )
        return
    if found.st_mode & stat.S_IWOTH:
        what = (
            f"every account may replace records in it (mode {stat.S_IMODE(found.st_mode):04o}): nobody acquires there"
        )
        advice = "look at what is in it before you trust it"
        yield _fault(FindingCode.UNSAFE_DIRECTORY, path, found, what, advice, f"chmod o-w {quoted(path)}")
    rightful = _rightful(path, above)
    if rightful is not None and found.st_uid != rightful:
        yield _misowned(path, found, rightful)


def _rightful(path: str, above: os.stat_result) -> int | None:
    """The account that has to own it, or is kept out of where it acquires; ``None`` if any may."""
    named = _NAME.fullmatch(os.path.basename(path))
    if named is not None and named[1] is not None:
        return int(named[1])
    return None if above.st_mode & stat.S_ISVTX or above.st_uid == 0 else above.st_uid


def _misowned(path: str, found: os.stat_result, rightful: int) -> Finding:
    who = account_name(rightful)
    what = (
        f"it belongs to {account_name(found.st_uid)}, so {who}, whose directory it is in or is named after, is refused"
    )
    if _is_of_ours(path):
        advice, remedy = f"give it to that account, {_SHARE}", f"chown -R {rightful} {quoted(path)}"
    else:  # whoever may rename it here would be given what is in it
        advice, remedy = (
            "it holds other files than ours: find out what it is; chown it only then",
            f"ls -la {quoted(path)}",
        )
    return _fault(FindingCode.FOREIGN_ACCOUNT_DIRECTORY, path, found, what, advice, remedy, rightful_owner=who)


def _is_of_ours(path: str) -> bool:
    """Whether nothing but files of ours is in it, as far as can be seen."""
    try:
        with os.scandir(path) as entries:
            return all(entry.name.endswith(_OUR_FILES) and entry.is_file(follow_symlinks=False) for entry in entries)
    except OSError:
        return True  # what may not be listed here, its owner vouches for


def _looked_into(path: str, parent: str, faults: list[Finding]) -> tuple[tuple[Finding, ...], bool]:
    """*faults*, and one more if it cannot be looked into; and whether it can."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        return tuple(faults), False
    if may(path, os.R_OK | os.X_OK):
        return tuple(faults), True
    if found.st_uid == euid():
        what = f"its own account may not look into it (mode {stat.S_IMODE(found.st_mode):04o})"
        advice = "give it the mode that it is made with; the next acquire does that too"
        remedy = f"chmod u+rwx {quoted(path)}"
        faults.append(_fault(FindingCode.UNREADABLE, path, found, what, advice, remedy))
    elif not faults:
        what = f"it belongs to {account_name(found.st_uid)} alone: what is in it was not looked at"
        remedy = f"sudo leasectl doctor {quoted(parent)}"
        code, note = FindingCode.FOREIGN_ACCOUNT_DIRECTORY, Severity.NOTE
        faults.append(
            Finding(code, note, Path(path), what, _facts(path, found), "look as root, or as that account", remedy)
        )
    return tuple(faults), False


def _facts(path: str, found: os.stat_result) -> dict[str, Fact]:
    return {
        "path": shown(path),
        "owner": account_name(found.st_uid),
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "seen_by": account_name(euid()),
    }


def _fault(
    code: FindingCode, path: str, found: os.stat_result, what: str, advice: str, remedy: str, **facts: Fact
) -> Finding:
    evidence = {**_facts(path, found), **facts}
    return Finding(code, Severity.PROBLEM, Path(path), what, evidence, advice, remedy, unusable=True)
