"""Who holds an OS lock."""

from __future__ import annotations

import os


def lock_holder(device_number: int, inode: int) -> int | None:
    """The pid that holds a flock(2) on this file, where ``/proc/locks`` names it (proc_locks(5))."""
    device = f"{os.major(device_number):02x}:{os.minor(device_number):02x}:{inode}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            lines = [line.split() for line in locks if " FLOCK " in line]
    except OSError:
        return None
    for fields in lines:
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == device and fields[4].isdigit():
            return int(fields[4]) or None
    return None
