"""The guard: a short mutex around read, decide and write, and the memory that outlives every owner.

An OS lock on ``NAME.guard``, a file we never unlink; it is compared with its path after locking all the same. The lock
is filelock's ``lock_descriptor`` on a descriptor opened here without following links (``FileLock`` follows them).
Threads of one process exclude each other by the same lock, each on its own descriptor.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TypeVar

from ownership import _fork
from ownership._directory import LockDirectory
from ownership._errors import GuardTimeoutError, UnsupportedFilesystemError, explained
from ownership._flag import Alarm
from ownership._fork import Descriptor
from ownership._models import NO_GUARD_STATE, GuardState
from ownership._paths import Resource, quoted, shown
from ownership._process import exists, is_zombie
from ownership._system import UNSUPPORTED

_Result = TypeVar("_Result")

PATIENCE = 1.0  # seconds that any operation waits for a guard
_KEPT = 64  # guards whose descriptor stays open between two uses


class Busy(Exception):
    """Somebody else is inside, and the caller does not want to wait."""


class Interrupting(Exception):
    """This very thread is inside the guard already: a signal handler or finaliser interrupted it."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def told(self) -> GuardTimeoutError:
        """The error for a call that cannot be put off."""
        return self._guard.timeout(os.getpid(), within=True)


class Guard:
    """The guard of one resource in one lock directory; one object per process.

    :ivar record_name: the owner record beside it
    :ivar record_path: where the path leads to that
    :ivar afterwards: what an interrupting call of the same thread left to do once the guard is free; must not raise
    """

    def __init__(self, directory: LockDirectory, resource: Resource) -> None:
        self.directory = directory
        self.resource = resource
        self.filename = f"{resource.name}.guard"
        self.path = directory.file(self.filename)
        self.record_name = f"{resource.name}.json"
        self.record_path = directory.file(self.record_name)
        self.afterwards: list[Callable[[], object]] = []
        self.inside: set[int] = set()  # threads
        self.waiting: dict[int, Alarm] = {}  # threads that wait to be inside, in the order in which they came
        self.spare: dict[None, Descriptor] = {}  # at most one: taken and put back in single steps
        self.memory: tuple[bytes | None, GuardState] = (b"", NO_GUARD_STATE)  # read or written last, and what it means
        self.inode = 0  # of the file that it was written into
        self.ragged = False  # something that says nothing follows what is written

    def close_spare(self) -> None:
        if (descriptor := self.spare.pop(None, None)) is not None:
            descriptor.close()

    def let_go(self) -> None:
        """Keep no more than has to be kept: it is held, and others are used."""
        self.close_spare()
        _, state = self.memory
        self.memory = None, state

    def __del__(self) -> None:
        if "spare" in self.__dict__:  # else its construction was interrupted
            self.close_spare()

    def catch_up(self) -> None:
        """Do what was put off until the guard is free."""
        while self.afterwards:
            self.afterwards.pop()()

    def timeout(self, holder: int | None, *, within: bool = False) -> GuardTimeoutError:
        """The error for *holder*; *within*: it is this very thread."""
        who, hint = f"pid {holder}", f"try again; if pid {holder} is stopped: kill -CONT {holder}, or end it"
        if holder is None:
            who, hint = "a process this system does not name", "try again"
        elif within:
            who = f"this very thread (pid {holder})"
            hint = "do it when the critical section, or the call that a handler interrupts, is over"
        elif holder == os.getpid():
            who = f"this process itself (pid {holder}), by another thread or section"
            hint = "try again when its critical section is over; keep such sections short"
        elif not exists(holder) or is_zombie(holder):
            who = f"pid {holder}, which has ended; a process that it forked keeps the lock"
            hint = f"find the process that has it open, and end it: fuser -v {quoted(self.path)}"
        return GuardTimeoutError(
            f"{self.resource.shown}: its guard {shown(self.path)} is busy, held by {who}; "
            "nobody could decide who owns it",
            resource=self.resource.path,
            holder=holder,
            hint=hint,
        )

    def told(self, error: OSError) -> Exception:
        """*error* with path and remedy."""
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            return self.directory.invalid(self.filename, "not a regular file")
        if error.errno in UNSUPPORTED:
            return UnsupportedFilesystemError(
                f"{shown(self.path)}: this filesystem has no working flock(2) ({error.strerror})",
                resource=self.resource.path,
                hint="use registry=DIR on a local filesystem, for instance below /run",
            )
        return explained(error, self.path, self.directory.remedy(self.filename, error))


# the last used ones, oldest first: they keep their descriptor and the bytes last read. Changed in single steps, without
# a lock, since a signal handler or a finaliser may come here at any moment
recent: OrderedDict[Guard, None] = OrderedDict()


def remember(guard: Guard) -> None:
    """*guard*, not among the recent ones, was used."""
    recent[guard] = None
    while len(recent) > _KEPT:
        try:
            oldest, _ = recent.popitem(last=False)
        except KeyError:  # another thread was faster
            return
        oldest.let_go()


def forget_guards(directory: LockDirectory) -> None:
    """Close what is kept open of *directory*."""
    for guard in [guard for guard in list(recent) if guard.directory is directory]:
        recent.pop(guard, None)
        guard.close_spare()


def forget_guards_but(directories: Collection[LockDirectory]) -> None:
    """Close what is kept open of any directory but these."""
    for guard in [guard for guard in list(recent) if guard.directory not in directories]:
        recent.pop(guard, None)
        guard.close_spare()


_fork.in_child(recent.clear)
