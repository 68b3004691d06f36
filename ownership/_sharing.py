"""Who may use a directory by its owner, group and mode, and what lets this account in. For messages only."""

from __future__ import annotations

import os
import stat

from ownership._location import account_name
from ownership._paths import quoted
from ownership._system import account, euid, group, in_group


def writers(found: os.stat_result) -> str:
    """Who may write in it, besides root: by the mode, no other list is read."""
    names = [account_name(found.st_uid)]
    if found.st_mode & stat.S_IWGRP:
        names.append(f"members of group {group_name(found.st_gid)}")
    return " and ".join(names)


def is_allowed(found: os.stat_result, bits: int) -> bool:
    """Whether its mode lets this account do that (``os.R_OK | ...``)."""
    user = euid()
    shift = 6 if found.st_uid == user else 3 if in_group(found.st_gid) else 0
    return user == 0 or stat.S_IMODE(found.st_mode) >> shift & bits == bits


def joining(found: os.stat_result, bits: int = 0) -> str:
    """The command that makes this account a member of its group, if that is what it lacks; else nothing.

    Nobody is ever told to join the group of root.

    :param bits: what the group must be allowed to do (``os.W_OK | ...``); 0: anything that others are not
    """
    mode = stat.S_IMODE(found.st_mode)
    gains = mode >> 3 & 7 & ~(mode & 7)
    if euid() in (0, found.st_uid) or found.st_gid == 0 or in_group(found.st_gid) or not gains or bits & ~(mode >> 3):
        return ""
    entry = account(euid())
    if entry is None:
        return f"be a member of group {group_name(found.st_gid)}"
    return f"usermod -aG {quoted(group_name(found.st_gid))} {quoted(entry[0])}"


def group_name(gid: int) -> str:
    return group(gid) or str(gid)


def owner_name(uid: int) -> str:
    """The name of *uid* alone, if it has one."""
    entry = account(uid)
    return entry[0] if entry else account_name(uid)


def way_into(path: str) -> str:
    """What lets this account use the registry at *path*, in a sentence; nothing if its mode does not keep it out."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    if is_allowed(found, os.R_OK | os.W_OK | os.X_OK):
        return ""
    if join := joining(found):
        return f"only {writers(found)} may: as root, {join}; it holds from the next login on"
    share = f"chgrp GROUP {quoted(path)} && chmod g+rwx {quoted(path)}"
    return (
        f"only {writers(found)} may: run it as {owner_name(found.st_uid)}, or let a group share the registry ({share})"
    )
