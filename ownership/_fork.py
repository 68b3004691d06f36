"""Descriptors that outlive a call, and what becomes of them in a forked child.

A lock belongs to the open file, which a forked child shares: the child *closes* our descriptors and never unlocks. No
fork runs while one of our threads is between opening and locking (``gate``), so that the child can know them all.
Not covered: processes forked by C code that runs no Python afterwards and never execs.
"""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType

from ownership._errors import explained

resource: ModuleType | None
try:
    import resource  # now, since a child that is forked while another thread imports it would wait for ever
except ImportError:
    resource = None

gate = threading.RLock()  # also of places and heartbeats: see there
held: set[Descriptor] = set()
_in_child: list[Callable[[], None]] = []
_installed = False
_MANY = 256


class Descriptor:
    """A descriptor with the file it stood for, since the program around us may close it and reuse its number."""

    __slots__ = ("device", "inode", "number", "numbers")

    def __init__(self) -> None:
        self.numbers: list[int] = []  # empty or one; filled in one step that no signal handler can split
        self.number = -1
        self.device = self.inode = 0

    def open(self, path: str, flags: int, mode: int = 0o600, dir_fd: int | None = None) -> os.stat_result:
        """Open *path* and remember which file that is. Call with ``gate`` held if it is going to be locked."""
        held.add(self)
        self.numbers.extend(map(partial(os.open, dir_fd=dir_fd), (path,), (flags,), (mode,)))
        self.number = self.numbers[0]
        try:
            found = os.fstat(self.number)
        except OSError as error:
            self.close()
            raise explained(error, path) from None
        self.device, self.inode = found.st_dev, found.st_ino
        return found

    def adopt(self, number: int) -> None:
        """Take over an inherited descriptor."""
        found = os.fstat(number)
        self.device, self.inode = found.st_dev, found.st_ino
        self.numbers.append(number)
        self.number = number
        held.add(self)

    def take(self, number: int) -> None:
        """Take over a descriptor that was opened just now. If it cannot be looked at it is closed."""
        try:
            self.adopt(number)
        except OSError:
            os.close(number)
            raise

    def intact(self) -> bool:
        """Whether the number still stands for the file that was opened."""
        if self.number < 0:
            return False
        try:
            found = os.fstat(self.number)
        except OSError as error:
            return error.errno != errno.EBADF  # only that one says that it was closed
        return found.st_ino == self.inode and found.st_dev == self.device

    def forget(self) -> None:
        """It was closed by the program around us, and its number may stand for another file by now."""
        self.numbers.clear()
        self.close()

    def close(self, *, intact: bool = False) -> None:
        """Close it if it is still ours; a number that the program reuses is left alone. Never raises.

        :param intact: it was looked at just now
        """
        if self.numbers and (intact or self.inode == 0 or self.intact()):  # 0: interrupted before it was looked at
            try:  # taken and closed in one step: no other thread closes it too, no signal handler comes in between
                list(map(os.close, map(self.numbers.pop, (0,))))
            except (OSError, IndexError):
                pass
        self.numbers.clear()
        self.number = -1
        self.device = self.inode = 0
        held.discard(self)


@functools.cache
def room() -> int:
    """How many of the descriptors that the process may have we hold at most before none is kept only to save time."""
    if resource is None:
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY if soft == resource.RLIM_INFINITY else min(_MANY, soft // 8)


def may_hold() -> bool:
    """Whether we hold less than half of the descriptors that the process may have."""
    if resource is None:
        return True
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return bool(soft == resource.RLIM_INFINITY or len(held) * 2 < soft)


def in_child(callback: Callable[[], None]) -> None:
    """Run *callback* in every forked child, after our descriptors were closed there."""
    _in_child.append(callback)


def install() -> None:
    """Hook into :func:`os.fork`, once, when the first lock directory is opened."""
    global _installed
    if not _installed:
        _installed = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_child)


def _before() -> None:
    gate.acquire()


def _after() -> None:
    gate.release()


def _child() -> None:
    global gate
    gate = threading.RLock()
    for descriptor in list(held):
        descriptor.close()
    for callback in _in_child:
        callback()
