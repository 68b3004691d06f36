"""Who holds an OS lock."""

from __future__ import annotations

import os

from ownership._fork import Descriptor


def holder_of(descriptor: Descriptor) -> int | None:
    """The pid that holds a flock(2) on this file, where ``/proc/locks`` names it (proc_locks(5))."""
    device = f"{os.major(descriptor.device):02x}:{os.minor(descriptor.device):02x}:{descriptor.inode}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            lines = [line.split() for line in locks if " FLOCK " in line]
    except OSError:
        return None
    for fields in lines:
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == device and fields[4].isdigit():
            return int(fields[4]) or None
    return None
