"""Start ids: opaque text that tells a process from every other that ever had its number, and how two compare.

``linux:<boot id>:<start ticks>:<time namespace>:<pidfd inode>``, an empty field is unknown; ``psutil:<creation time>``.

* The inode of a pidfd (pidfs, Linux 6.9) is unique for the boot and the same in every namespace, so it alone decides.
* The ticks are field 22 of ``/proc/<pid>/stat`` (proc_pid_stat(5)), 10 ms wide and shifted by the *reader's* time
  namespace (time_namespaces(7)): they decide only within one time namespace.
* Neither means anything on another boot.
"""

from __future__ import annotations

import enum
import functools
from typing import NamedTuple

_LINUX = "linux"
_PSUTIL = "psutil"


class Comparison(enum.Enum):
    """Whether two start ids are of one process. ``UNKNOWN`` is proof of nothing."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


class LinuxStartId(NamedTuple):
    """The parts of a Linux start id; ``None`` is unknown.

    :ivar boot_id: boot id of the kernel
    :ivar ticks: start time since boot in clock ticks, as the reader saw it
    :ivar time_namespace: inode of the reader's time namespace, ``"none"`` on a kernel without any
    :ivar inode: inode of a pidfd of the process, where pidfds have inodes of their own
    """

    boot_id: str | None = None
    ticks: int | None = None
    time_namespace: int | str | None = None
    inode: int | None = None

    def __str__(self) -> str:
        fields = (self.boot_id, self.ticks, self.time_namespace, self.inode)
        return ":".join([_LINUX, *("" if field is None else str(field) for field in fields)])


def psutil_start_id(creation_time: float) -> str:
    """The start id of a process known by its creation time only (seconds since the epoch, to the last bit)."""
    return f"{_PSUTIL}:{creation_time!r}"


@functools.lru_cache(maxsize=256)  # a crowd of waiters compares the same few again and again
def parse_linux_start_id(text: str) -> LinuxStartId | None:
    """Take *text* apart; ``None`` when it is not a Linux start id."""
    source, _, rest = text.partition(":")
    fields = rest.split(":")
    if source != _LINUX or len(fields) != 4:
        return None
    boot_id, ticks, time_namespace, inode = fields
    if not all(_is_number(field) for field in (ticks, inode) if field):
        return None
    if time_namespace and time_namespace != "none" and not _is_number(time_namespace):
        return None
    return LinuxStartId(
        boot_id=boot_id or None,
        ticks=int(ticks) if ticks else None,
        time_namespace=int(time_namespace) if _is_number(time_namespace) else time_namespace or None,
        inode=int(inode) if inode else None,
    )


def compare_start_ids(a: str, b: str) -> Comparison:
    """Whether *a* and *b* are start ids of one process.

    ``SAME`` and ``DIFFERENT`` are answers, ``UNKNOWN`` is the lack of one: ids of different sources or boots, parts
    that are missing, text that cannot be read. Not guaranteed: that two processes whose ids carry no inode and that
    had the same number within one clock tick (10 ms) are told apart.
    """
    source_a, source_b = a.partition(":")[0], b.partition(":")[0]
    if source_a != source_b:
        return Comparison.UNKNOWN
    if source_a == _LINUX:
        return _compare_linux(parse_linux_start_id(a), parse_linux_start_id(b))
    if source_a == _PSUTIL:
        return _compare_known(_creation_time(a), _creation_time(b))
    return Comparison.UNKNOWN


def _compare_linux(a: LinuxStartId | None, b: LinuxStartId | None) -> Comparison:
    if a is None or b is None or _compare_known(a.boot_id, b.boot_id) is not Comparison.SAME:
        return Comparison.UNKNOWN
    if a.inode is not None and b.inode is not None:
        return _compare_known(a.inode, b.inode)
    if _compare_known(a.time_namespace, b.time_namespace) is not Comparison.SAME:
        return Comparison.UNKNOWN
    return _compare_known(a.ticks, b.ticks)


def _compare_known(a: object, b: object) -> Comparison:
    if a is None or b is None:
        return Comparison.UNKNOWN
    return Comparison.SAME if a == b else Comparison.DIFFERENT


def _creation_time(text: str) -> float | None:
    try:
        seconds = float(text.partition(":")[2])
    except ValueError:
        return None
    return seconds if 0.0 < seconds < float("inf") else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
