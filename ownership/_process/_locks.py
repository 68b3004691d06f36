"""Who holds an OS lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeAlias

LockedFile: TypeAlias = tuple[str, int]


def locked_file(device_number: int, inode: int) -> LockedFile:
    """How :func:`lock_holders` names the file with this device and inode."""
    return f"{os.major(device_number):02x}:{os.minor(device_number):02x}", inode


def lock_holder(device_number: int, inode: int) -> int | None:
    """The pid that holds a flock(2) on this file, where ``/proc/locks`` names it (proc_locks(5))."""
    return lock_holders().get(locked_file(device_number, inode))


def lock_holders() -> dict[LockedFile, int]:
    """The pid behind each flock(2) that is held, read without touching a file; empty where ``/proc/locks`` is not.

    Not guaranteed: locks of processes that our pid namespace does not show, nor that a pid still holds what it locked:
    a child that it forked may, the lock belongs to the open file.
    """
    found: dict[LockedFile, int] = {}
    for file, _, pid in _flocks():
        found.setdefault(file, pid)
    return found


def lock_sharers() -> dict[LockedFile, set[int]]:
    """The pids behind each shared flock(2), with the limits of :func:`lock_holders`."""
    found: dict[LockedFile, set[int]] = {}
    for file, kind, pid in _flocks():
        if kind == "READ":
            found.setdefault(file, set()).add(pid)
    return found


def _flocks() -> Iterator[tuple[LockedFile, str, int]]:
    try:
        with open("/proc/locks", encoding="utf-8", errors="replace") as locks:
            lines = [line.split() for line in locks if " FLOCK " in line]
    except OSError:
        return
    for fields in lines:
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[4].isdigit():  # a waiter's line has an arrow there
            device, _, inode = fields[5].rpartition(":")
            if int(fields[4]) and inode.isdigit():
                yield (device, int(inode)), fields[3], int(fields[4])
