"""What to do about an error of the system on a file of ours."""

from __future__ import annotations

import errno
import os

from ownership._location import account_name
from ownership._paths import quoted
from ownership._sharing import owner_name, way_into
from ownership._system import euid

_SIMPLE = {
    errno.ENOSPC: "free disk space or inodes",
    errno.EDQUOT: "free disk space or inodes, or raise the quota",
    errno.EMFILE: "raise the limit of open files, or close some",
    errno.ENFILE: "raise the limit of open files, or close some",
    errno.EROFS: "remount it read-write, or use a registry on a writable filesystem",
    errno.EIO: "the device fails: see the kernel log",
}


def remedy_of(error: OSError, directory: int, path: str, filename: str, *, shared: bool = False) -> str:
    """The remedy in a sentence; empty if none is known.

    :param directory: open descriptor of the lock directory at *path* that holds *filename*
    :param shared: it is a registry, whose files belong to its group, whoever made them
    """
    full = quoted(f"{path}/{filename}")
    if error.errno in (errno.EISDIR, errno.ENOTEMPTY):
        return f"a directory is in the way: find out who made it, then remove {full}"
    if error.errno not in (errno.EACCES, errno.EPERM):
        return _SIMPLE.get(error.errno or 0, "")
    if shared and (way := way_into(path)):
        return way
    try:
        owner = os.stat(filename, dir_fd=directory, follow_symlinks=False).st_uid
    except OSError:
        other = _owner_of(path)
        if not shared and other is not None and other != euid():
            return f"run it as {owner_name(other)} (its owner), or share a registry between the accounts"
        return f"check the mode and attributes (lsattr -d) of {quoted(path)}, and whether its mount is read-only"
    if owner != euid() and shared:
        return (
            f"it lacks the group or mode of its registry: chgrp --reference={quoted(path)} {full} && chmod g+rw {full}"
        )
    if owner != euid():
        return f"it belongs to {account_name(owner)}: chown {euid()} {full}, or run as that account"
    return "check its attributes (lsattr), and whether its mount is read-only"


def _owner_of(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None
