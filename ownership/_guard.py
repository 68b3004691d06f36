"""The guard: a short mutex around read, decide and write, and the memory that outlives every owner.

An OS lock on ``NAME.guard`` between processes, an inner lock between the threads of one. The file is never unlinked by
us, so whoever locks it locks the same file; it is compared with its path after locking all the same, since others
unlink files. The lock itself is filelock's ``lock_descriptor`` on a descriptor opened here without following links:
``FileLock`` opens by path, follows symlinks, and costs the whole budget of an acquire by itself.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from filelock import lock_descriptor

from ownership import _fork
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._directory import LockDirectory
from ownership._errors import GuardTimeoutError, UnsupportedFilesystemError, explained
from ownership._fork import Descriptor
from ownership._paths import shown
from ownership._record import MAX_GUARD_BYTES, NO_GUARD_STATE, GuardState, decode_guard, encode_guard
from ownership._system import NO_FOLLOW, UNSUPPORTED, euid

_Result = TypeVar("_Result")

PATIENCE = 1.0  # seconds that any operation waits for a guard
_FIRST_DELAY, _LONGEST_DELAY = 0.0002, 0.01


class GuardChanged(Exception):
    """The path does not lead to the locked guard or to the pinned directory any more: start again."""


class Interrupting(Exception):
    """This very thread is inside the guard already: a signal handler or finaliser interrupted it."""


class Guard:
    """The guard of one resource in one lock directory; one object per process.

    :ivar afterwards: what an interrupting call of the same thread left to do once the guard is free; must not raise
    """

    def __init__(self, directory: LockDirectory, name: str) -> None:
        self.directory = directory
        self.name = name
        self.filename = f"{name}.guard"
        self._path = directory.file(self.filename)
        self._inner = threading.RLock()
        self._busy = False  # told apart from re-entering the inner lock: see enter()
        self._descriptor = Descriptor()
        self._raw = b""
        self.afterwards: list[Callable[[], object]] = []
        self._state = NO_GUARD_STATE

    def held(self, deadline: float, clock: Clock = SYSTEM_CLOCK) -> _Hold:
        """``with guard.held(deadline):`` — inside, nobody else decides about this resource.

        :param deadline: on *clock*; in the past: one attempt
        :raises GuardTimeoutError: busy until then
        :raises GuardChanged: directory or guard were replaced meanwhile; pin the directory again
        :raises Interrupting: this thread is inside already
        """
        return _Hold(self, deadline, clock)

    # -- locking

    def _enter(self, deadline: float, clock: Clock) -> None:
        if not self._inner.acquire(timeout=min(max(0.0, deadline - clock.monotonic()), threading.TIMEOUT_MAX)):
            raise self._timeout(os.getpid())
        if self._busy:
            self._inner.release()
            raise Interrupting
        # A handler that interrupts here finds _busy unset, runs its own operation to the end, and we go on after it.
        try:
            self._busy = True
            self._lock(deadline, clock)
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        try:
            self._descriptor.close()  # the last close of this open file unlocks it
        finally:
            self._busy = False
            self._inner.release()
        while self.afterwards:
            self.afterwards.pop()()

    def _lock(self, deadline: float, clock: Clock) -> None:
        delay = _FIRST_DELAY
        while not self._attempt():
            if clock.monotonic() >= deadline:
                raise self._timeout(holder_of(self._descriptor))
            clock.wait(delay * (0.5 + random.random()))
            delay = min(delay * 2, _LONGEST_DELAY)
        if not self.is_at_path():
            raise GuardChanged

    def is_at_path(self) -> bool:
        """Whether directory and guard at the path are those that are pinned and locked."""
        try:
            current = os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if (current.st_ino, current.st_dev) != (self._descriptor.inode, self._descriptor.device):
            return False
        # one link, and found at the path: then the directory at the path is the pinned one
        return current.st_nlink == 1 or self.directory.is_at_path()

    def busy_with_us(self) -> GuardTimeoutError:
        """The error for a call that interrupted this very thread inside the guard."""
        return self._timeout(os.getpid())

    def _attempt(self) -> bool:
        """Open it unless it is open, and try to lock it; no fork in between."""
        try:
            with _fork.gate:
                if not self._descriptor.intact():
                    self._descriptor.close()
                    self._check(self._open())
                return lock_descriptor(self._descriptor.number, blocking=False)
        except FileNotFoundError:
            raise GuardChanged from None
        except OSError as error:
            raise self._explained(error) from None

    def _open(self) -> os.stat_result:
        flags, fd = os.O_RDWR | NO_FOLLOW, self.directory.fd
        try:
            return self._descriptor.open(self.filename, flags, dir_fd=fd)
        except FileNotFoundError:
            pass
        try:
            mode = self.directory.location.file_mode
            self._descriptor.open(self.filename, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=fd)
            return self.directory.own(self._descriptor.number)
        except FileExistsError:  # another process was first
            return self._descriptor.open(self.filename, flags, dir_fd=fd)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise self.directory.invalid(self.filename, "not a regular file")
        if found.st_size > MAX_GUARD_BYTES:
            raise self.directory.invalid(self.filename, f"too large ({found.st_size} bytes) for a guard")
        if found.st_nlink > 1 and self.directory.location.account and euid() == 0:
            raise self.directory.invalid(self.filename, "a hard link to a file of another account's choice")

    def _explained(self, error: OSError) -> Exception:
        path = self._path
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            return self.directory.invalid(self.filename, "not a regular file")
        if error.errno in UNSUPPORTED:
            return UnsupportedFilesystemError(
                f"{shown(path)}: this filesystem has no working flock(2) ({error.strerror})",
                resource=path,
                hint="use registry=DIR on a local filesystem, for instance below /run",
            )
        if isinstance(error, ValueError | PermissionError) and getattr(error, "message", None):
            return error
        return explained(error, path, self.directory.remedy(self.filename, error))

    def _timeout(self, holder: int | None) -> GuardTimeoutError:
        path = shown(self._path)
        who = f"pid {holder}" if holder else "a process this system does not name"
        return GuardTimeoutError(
            f"{path}: busy, held by {who}; nobody could decide who owns it",
            resource=path,
            holder=holder,
            hint=f"try again; if pid {holder} is stopped: kill -CONT {holder}, or end it" if holder else "try again",
        )

    # -- what it remembers; only while held

    def read(self, resource: str) -> GuardState:
        raw = os.pread(self._descriptor.number, MAX_GUARD_BYTES, 0)
        if raw != self._raw or not raw:
            self._state = decode_guard(raw, resource)
            self._raw = raw
        return self._state

    def write(self, state: GuardState) -> None:
        """:raises OSError: with path and hint; the old content stays whole"""
        raw = encode_guard(state)
        try:
            if os.pwrite(self._descriptor.number, raw, 0) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._explained(error) from None
        self._raw, self._state = raw, state


class _Hold:
    """The guard as held; the only way in and out."""

    __slots__ = ("_clock", "_deadline", "_guard")

    def __init__(self, guard: Guard, deadline: float, clock: Clock) -> None:
        self._guard, self._deadline, self._clock = guard, deadline, clock

    def __enter__(self) -> Guard:
        self._guard._enter(self._deadline, self._clock)
        return self._guard

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._guard._leave()


def locked(
    guards: Sequence[Guard], deadline: float, clock: Clock, action: Callable[[], _Result], index: int = 0
) -> _Result:
    """Run *action* with all *guards* held; everybody locks them in the order of the canonical paths."""
    if index == len(guards):
        return action()
    try:
        with guards[index].held(deadline, clock):
            return locked(guards, deadline, clock, action, index + 1)
    except Interrupting:
        raise guards[index].busy_with_us() from None


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


def peek(directory: LockDirectory, name: str, resource: str) -> GuardState:
    """What the guard remembers, read without it: for reports. Unreadable counts as nothing."""
    found = directory.read(f"{name}.guard", MAX_GUARD_BYTES)
    return NO_GUARD_STATE if found is None else decode_guard(found[0], resource)
