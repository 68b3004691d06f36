"""The guard: a short mutex around read, decide and write, and the memory that outlives every owner.

An OS lock on ``NAME.guard``, a file we never unlink; it is compared with its path after locking all the same. The lock
is filelock's ``lock_descriptor`` on a descriptor opened here without following links (``FileLock`` follows them).
Threads of one process exclude each other by the same lock, each on its own descriptor.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from filelock import lock_descriptor

from ownership import _fork
from ownership._clock import Clock
from ownership._directory import LockDirectory
from ownership._errors import GuardTimeoutError, UnsupportedFilesystemError, explained
from ownership._fork import Descriptor
from ownership._models import NO_GUARD_STATE, GuardState
from ownership._paths import Resource, shown
from ownership._pinned import DirectoryChanged
from ownership._process import lock_holder
from ownership._record import MAX_GUARD_BYTES, decode_guard, encode_guard
from ownership._system import NO_FOLLOW, UNSUPPORTED, euid, unlock

_Result = TypeVar("_Result")

PATIENCE = 1.0  # seconds that any operation waits for a guard
_KEPT = 64  # guards whose descriptor stays open between two uses
_NONE = (None,)
_SHORT = 0.001  # seconds within which what was open is taken to be open still
_FIRST_DELAY, _LONGEST_DELAY = 0.0002, 0.01


class Busy(Exception):
    """Somebody else is inside, and the caller does not want to wait."""


class Interrupting(Exception):
    """This very thread is inside the guard already: a signal handler or finaliser interrupted it."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def told(self) -> GuardTimeoutError:
        """The error for a call that cannot be put off."""
        return self._guard.timeout(os.getpid())


class Guard:
    """The guard of one resource in one lock directory; one object per process.

    :ivar afterwards: what an interrupting call of the same thread left to do once the guard is free; must not raise
    """

    def __init__(self, directory: LockDirectory, resource: Resource) -> None:
        self.directory = directory
        self.resource = resource
        self.filename = f"{resource.name}.guard"
        self.path = directory.file(self.filename)
        self.afterwards: list[Callable[[], object]] = []
        self.inside: set[int] = set()  # threads
        self.spare: dict[None, Descriptor] = {}  # at most one: taken and put back in single steps
        self.memory = (b"", NO_GUARD_STATE)  # what was read or written last, and what it means
        self.inode = 0  # of the file that it was written into

    def close_spare(self) -> None:
        if (descriptor := self.spare.pop(None, None)) is not None:
            descriptor.close()

    def __del__(self) -> None:
        self.close_spare()

    def timeout(self, holder: int | None) -> GuardTimeoutError:
        who = f"pid {holder}" if holder else "a process this system does not name"
        return GuardTimeoutError(
            f"{self.resource.shown}: its guard {shown(self.path)} is busy, held by {who}; "
            "nobody could decide who owns it",
            resource=self.resource.path,
            holder=holder,
            hint=f"try again; if pid {holder} is stopped: kill -CONT {holder}, or end it" if holder else "try again",
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


class Hold:
    """The guard as held by one call."""

    __slots__ = ("_descriptor", "_guard", "_since", "_taken", "_thread")
    _descriptor: Descriptor

    def __init__(self, guard: Guard, thread: int) -> None:
        self._guard = guard
        self._thread = thread
        self._taken: list[Descriptor | None] = []
        self._since = 0.0

    # -- in and out

    def enter(self, deadline: float, clock: Clock, patient: bool) -> None:
        guard = self._guard
        guard.inside.add(self._thread)
        self._taken.extend(map(guard.spare.pop, _NONE, _NONE))  # one step: no signal handler loses it
        self._descriptor = self._taken[0] or Descriptor()
        self._taken[0] = self._descriptor
        if not self._attempt():
            if not patient:
                raise Busy
            self._wait(deadline, clock)
        if not self.is_at_path():
            self._descriptor.close()
            raise DirectoryChanged
        self._since = time.monotonic()

    def _wait(self, deadline: float, clock: Clock) -> None:
        delay = _FIRST_DELAY
        while not self._attempt():
            if clock.monotonic() >= deadline:
                raise self._guard.timeout(lock_holder(self._descriptor.device, self._descriptor.inode))
            clock.wait(delay * (0.5 + random.random()))
            delay = min(delay * 2, _LONGEST_DELAY)

    def leave(self) -> None:
        """Unlock, explicitly: a process forked by C code may share the open file, and closing ours would not do."""
        guard = self._guard
        for descriptor in self._taken:
            if descriptor is None or descriptor.number < 0:
                continue
            if time.monotonic() - self._since > _SHORT and not descriptor.intact():  # closed, and so unlocked, under us
                descriptor.close()
                continue
            try:
                unlock(descriptor.number)
            except OSError:
                descriptor.close()
            if not _fork.has_room() or guard.spare.setdefault(None, descriptor) is not descriptor:
                descriptor.close()
        guard.inside.discard(self._thread)
        if guard not in _recent:
            _remember(guard)

    def _attempt(self) -> bool:
        """Open it unless it is open, and try to lock it; no fork in between."""
        descriptor = self._descriptor
        try:
            if descriptor.intact():  # known to fork already
                return lock_descriptor(descriptor.number, blocking=False)
            with _fork.gate:
                descriptor.close()
                self._guard.directory.ensure_open()
                self._open()
                return lock_descriptor(descriptor.number, blocking=False)
        except FileNotFoundError:
            raise DirectoryChanged from None
        except OSError as error:
            raise (error if hasattr(error, "exit_code") else self._guard.told(error)) from None

    def _open(self) -> None:
        guard, descriptor = self._guard, self._descriptor
        flags, fd, filename = os.O_RDWR | NO_FOLLOW, guard.directory.fd, guard.filename
        try:
            found = descriptor.open(filename, flags, dir_fd=fd)
        except FileNotFoundError:
            try:  # it appears with mode and owner as they are to be, whenever we may die
                guard.directory.publish(filename, b"", f"{filename}.{os.urandom(16).hex()}.new")
            except FileExistsError:  # another process was first
                pass
            found = descriptor.open(filename, flags, dir_fd=fd)
        try:
            self._check(found)
        except BaseException:
            descriptor.close()
            raise

    def _check(self, found: os.stat_result) -> None:
        directory, filename = self._guard.directory, self._guard.filename
        if not stat.S_ISREG(found.st_mode):
            raise directory.invalid(filename, "not a regular file")
        if found.st_size > MAX_GUARD_BYTES:
            raise directory.invalid(filename, f"too large ({found.st_size} bytes) for a guard")
        if found.st_nlink > 1 and directory.location.account and euid() == 0:
            raise directory.invalid(filename, "a hard link to a file of another account's choice")

    # -- while inside

    def is_at_path(self) -> bool:
        """Whether directory and guard at the path are those that are pinned and locked."""
        try:
            current = os.lstat(self._guard.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._guard.told(error) from None
        if (current.st_ino, current.st_dev) != (self._descriptor.inode, self._descriptor.device):
            return False
        # one link, and found at the path: then the directory at the path is the pinned one
        return current.st_nlink == 1 or self._guard.directory.is_at_path()

    def read(self) -> GuardState:
        """What the guard remembers."""
        try:
            raw = os.pread(self._descriptor.number, MAX_GUARD_BYTES, 0)
        except OSError as error:
            raise self._guard.told(error) from None
        known, state = self._guard.memory
        if raw != known:
            state = decode_guard(raw, self._guard.resource.path)
            self._guard.memory = raw, state
        return state

    def recall(self, token: int) -> GuardState:
        """What we wrote when we drew *token*, if into this very file; else what the guard remembers.

        While that owner's record is there, whoever wrote since died before doing what it was about to do.
        """
        _, state = self._guard.memory
        if state.token == token and self._guard.inode == self._descriptor.inode:
            return state
        return self.read()

    def write(self, state: GuardState) -> None:
        """:raises OSError: with path and hint; the old content stays whole"""
        raw = encode_guard(state)
        try:
            if os.pwrite(self._descriptor.number, raw, 0) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._guard.told(error) from None
        self._guard.memory = raw, state
        self._guard.inode = self._descriptor.inode


_recent: dict[Guard, None] = {}  # the last used ones, oldest first: they keep descriptor and memory
_mutex = threading.Lock()


def _remember(guard: Guard) -> None:
    _recent[guard] = None
    if len(_recent) > _KEPT:
        with _mutex:
            oldest = next(iter(_recent), guard)
            _recent.pop(oldest, None)
        oldest.close_spare()


def forget_guards(directory: LockDirectory) -> None:
    """Close what is kept open of *directory*."""
    for guard in [guard for guard in list(_recent) if guard.directory is directory]:
        _recent.pop(guard, None)
        guard.close_spare()


def _child() -> None:
    global _mutex
    _mutex = threading.Lock()
    _recent.clear()


_fork.in_child(_child)
