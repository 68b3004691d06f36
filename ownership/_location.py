"""Where the records of a resource are: its lock directory, safe to use and ours, or a shared registry."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple, TypeAlias

from ownership._errors import UnsafeDirectoryError, explained
from ownership._paths import DIRECTORY, Facts, StrPath, facts_of, path_error, quoted, shown, spelled_path
from ownership._system import account, euid

Account: TypeAlias = tuple[int, int]


class Location(NamedTuple):
    """A lock directory as found, or as it is to be made.

    :ivar facts: device, inode, mode and uid, ``None`` if it is not there yet
    :ivar account: uid and gid that what is made there is given to, ``None``: whoever makes it keeps it
    :ivar heir: uid and gid that the directory itself is to be given to, as long as nothing is in it
    :ivar file_mode: mode of files made there
    :ivar whole: a registry: its files are named by whole paths
    """

    path: str
    facts: Facts | None
    account: Account | None = None
    heir: Account | None = None
    file_mode: int = 0o600
    whole: bool = False


def locate(parent: str, above: os.stat_result | None = None, *, looking: bool = False) -> Location:
    """Where the records of resources in *parent* are: the first lock directory there that is ours, or the one to make.

    :param above: what ``stat`` of *parent* said just now, if it was asked
    :param looking: only to look who owns: nothing needs to be given to whoever looks
    :raises UnsafeDirectoryError: other accounts could tamper with it
    :raises PermissionError: it belongs to another account; the hint is the exact ``chown``, unless *looking* at what
        is the other's by right
    :raises OSError: *parent* is missing, no directory, or cannot be searched
    """
    above = above or _stat_directory(parent)
    sticky = bool(above.st_mode & stat.S_ISVTX)
    if above.st_mode & stat.S_IWOTH and not sticky:
        raise UnsafeDirectoryError(
            f"{shown(parent)}: every account may replace files in it (mode {stat.S_IMODE(above.st_mode):04o})",
            resource=parent,
            hint=f"chmod o-w {quoted(parent)}",
        )
    user = euid()
    for name in (DIRECTORY, f"{DIRECTORY}-{user}"):
        path = f"{parent.rstrip('/')}/{name}"
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise path_error(error, path) from None
        ours = found.st_uid == user or (user == 0 and found.st_uid == above.st_uid)
        if not ours and sticky and name == DIRECTORY:
            continue
        rightful = name != DIRECTORY or above.st_uid == user
        return _usable(path, found, above, ours, takes=rightful, looking=looking)
    made = f"{DIRECTORY}-{user}" if sticky else DIRECTORY
    return Location(f"{parent.rstrip('/')}/{made}", None, heir=_heir(above, sticky))


def _stat_directory(path: str) -> os.stat_result:
    try:
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        raise path_error(error, path) from None
    return found


def _heir(above: os.stat_result, sticky: bool) -> Account | None:
    """Root gives what it makes in another account's directory to that account: one ``sudo`` run locks nobody out."""
    return (above.st_uid, above.st_gid) if euid() == 0 and above.st_uid != 0 and not sticky else None


def _usable(
    path: str, found: os.stat_result, above: os.stat_result, ours: bool, *, takes: bool, looking: bool
) -> Location:
    refuse_stand_in(path, found)
    if not ours:
        owners = f"{account_name(found.st_uid)}, not to {account_name(euid())}"
        entry = account(found.st_uid)
        who, take = entry[0] if entry else account_name(found.st_uid), f"chown -R {euid()} {quoted(path)}"
        hint = take if takes else f"run it as {who} (its owner)"
        hint += ", or share a registry between the accounts"
        if not (takes or looking):  # where it is: whatever they own by it would be ours then
            hint += f"; or, if {who} owns nothing by it any more, {take}"
        raise explained(PermissionError(errno.EACCES, f"the lock directory belongs to {owners}"), path, hint)
    refuse_writable(path, found)
    if found.st_uid != 0 and euid() == 0:
        return Location(path, facts_of(found), account=(found.st_uid, found.st_gid))
    heir = _heir(above, bool(above.st_mode & stat.S_ISVTX)) if found.st_uid == 0 else None
    return Location(path, facts_of(found), heir=heir)


def refuse_stand_in(path: str, found: os.stat_result) -> None:
    """:raises UnsafeDirectoryError: it has the name of a lock directory, and is none"""
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        what = "a symlink" if stat.S_ISLNK(found.st_mode) else "not a directory"
        raise UnsafeDirectoryError(
            f"{shown(path)}: the lock directory is {what}, made by {account_name(found.st_uid)}",
            resource=path,
            hint=f"find out why, then remove {quoted(path)}",
        )


def refuse_writable(path: str, found: os.stat_result) -> None:
    """:raises UnsafeDirectoryError: every account may replace what is in it"""
    if found.st_mode & stat.S_IWOTH:
        raise UnsafeDirectoryError(
            f"{shown(path)}: every account may write in it (mode {stat.S_IMODE(found.st_mode):04o})",
            resource=path,
            hint=f"chmod o-w {quoted(path)}",
        )


def pin_registry(registry: StrPath | None) -> str | None:
    """The path of a registry as it is now: symlinks above it resolved, itself not followed."""
    if registry is None:
        return None
    spelled = os.path.abspath(spelled_path(registry, "registry"))
    return os.path.join(os.path.realpath(os.path.dirname(spelled)), os.path.basename(spelled))


def locate_registry(path: str) -> Location:
    """The shared registry at *path*, which must exist; its files get its group and its mode without execute bits.

    :raises UnsafeDirectoryError: a symlink, writable by others, or sticky (nobody could replace another's files)
    :raises OSError: missing or not to be searched
    """
    try:
        found = os.lstat(path)
    except OSError as error:
        raise path_error(error, path) from None
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeDirectoryError(
            f"{quoted(path)}: a registry must not be a symlink", resource=path, hint="pass the directory it leads to"
        )
    if not stat.S_ISDIR(found.st_mode):
        raise path_error(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), path)
    refuse_writable(path, found)
    if found.st_mode & stat.S_ISVTX:
        raise UnsafeDirectoryError(
            f"{shown(path)}: a registry must not be sticky, accounts could not replace each other's records",
            resource=path,
            hint=f"chmod -t {quoted(path)}",
        )
    uid = found.st_uid if euid() == 0 else -1
    return Location(path, facts_of(found), account=(uid, found.st_gid), file_mode=found.st_mode & 0o666, whole=True)


def account_name(uid: int) -> str:
    """*uid* for people: number and name where there is one."""
    entry = account(uid)
    return f"uid {uid} ({entry[0]})" if entry else f"uid {uid}"
