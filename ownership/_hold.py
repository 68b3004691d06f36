"""A guard as held by one call: in, what may be done inside, and out again whatever happens."""

from __future__ import annotations

import errno
import os
import random
import stat
import time
from typing import Any

from filelock import lock_descriptor

from ownership import _fork
from ownership._clock import Clock
from ownership._flag import Alarm
from ownership._fork import Descriptor
from ownership._guard import PATIENCE, Busy, Guard, recent, remember
from ownership._models import GuardState
from ownership._pinned import DirectoryChanged
from ownership._process import lock_holder
from ownership._record import GUARD_TEXT_BYTES, MAX_GUARD_BYTES, REQUESTED, decode_guard, encode_guard
from ownership._system import NO_FOLLOW, euid, lock_again, unlock

_NONE = (None,)
_SHORT = 0.001  # seconds within which what was open is taken to be open still
_FIRST_DELAY, _LONGEST_DELAY, _LONGEST_DELAY_LATER = 0.0002, 0.002, 0.01
_NOT_FIRST = 0.05  # seconds until one whose turn it is not tries all the same: a first one may be in a signal handler
_GIVES_WAY = 0.9  # how often one that does not wait leaves it to those that do; for the same reason not always


class Hold:
    """The guard as held by one call."""

    __slots__ = ("_descriptor", "_since", "_taken", "_thread", "guard")
    _descriptor: Descriptor

    def __init__(self, guard: Guard, thread: int) -> None:
        self.guard = guard
        self._thread = thread
        self._taken: list[Any] = []  # at most one descriptor; ``None`` before it is made
        self._since = 0.0

    # -- in and out

    def enter(self, deadline: float, clock: Clock, patient: bool, anywhere: bool = False) -> None:
        guard = self.guard
        guard.inside.add(self._thread)
        self._taken.extend(map(guard.spare.pop, _NONE, _NONE))  # one step: no signal handler loses it
        self._taken[0] = self._descriptor = self._taken[0] or Descriptor()
        if (guard.waiting and (patient or random.random() < _GIVES_WAY)) or not self._attempt():
            if not patient:
                raise Busy
            self._wait(deadline, clock, anywhere)
        self._require_path(anywhere)
        self._since = time.monotonic()

    def ensure(self) -> None:
        """Still hold it.

        :raises GuardTimeoutError: the program around us had closed it, and somebody else is inside by now
        :raises DirectoryChanged: directory or guard at the path are others
        """
        if not self._attempt():
            raise self.guard.timeout(lock_holder(self._descriptor.device, self._descriptor.inode))
        if not self.is_at_path():
            raise DirectoryChanged

    def _require_path(self, anywhere: bool) -> None:
        if not anywhere and not self.is_at_path():
            self._descriptor.close()
            raise DirectoryChanged

    def _wait(self, deadline: float, clock: Clock, anywhere: bool) -> None:
        """Threads of this process take turns, and are woken for theirs; other processes are met by trying often."""
        delay, line, began = _FIRST_DELAY, self.guard.waiting, clock.monotonic()
        alarm = line[self._thread] = Alarm()
        while True:
            left = deadline - (now := clock.monotonic())
            if left > 0:
                is_first = list(line)[:1] == [self._thread]
                pause = delay * (0.5 + random.random()) if is_first else _NOT_FIRST * max(1.0, len(line) / 8)
                clock.wait(min(pause, left), alarm)
                delay = min(delay * 2, _LONGEST_DELAY if now - began < PATIENCE else _LONGEST_DELAY_LATER)
            if self._attempt():
                line.pop(self._thread, None)
                return
            self._require_path(anywhere)  # whoever is inside of what is not there any more keeps nobody waiting
            if left <= 0:
                raise self.guard.timeout(lock_holder(self._descriptor.device, self._descriptor.inode))

    def leave(self) -> None:
        """Unlock, explicitly: a process forked by C code may share the open file, and closing ours would not do.

        May be repeated: what was given back, another thread may be using by then, and is not touched again.
        """
        guard = self.guard
        try:
            descriptor = self._taken[0] if self._taken else None
            if descriptor is not None:
                if self._unlock(descriptor) and len(_fork.held) < _fork.room():
                    # from us to the guard in one step
                    (kept,) = map(guard.spare.setdefault, _NONE, map(self._taken.pop, (0,)))
                    if kept is not descriptor:
                        descriptor.close()
                else:
                    descriptor.close()
        except RecursionError:  # no stack is left for another call of Python; closing it unlocks it
            for taken in self._taken:
                list(map(os.close, map(taken.numbers.pop, (0,) * len(taken.numbers))))
                taken.number = -1
            raise
        finally:
            guard.inside.discard(self._thread)
            guard.waiting.pop(self._thread, None)
            if self._since and guard.waiting:
                for alarm in list(guard.waiting.values())[:1]:
                    alarm.set()
        if guard not in recent:
            remember(guard)

    def _unlock(self, descriptor: Descriptor) -> bool:
        """Whether it is open still, and unlocked."""
        number = descriptor.number
        if number < 0 or not (time.monotonic() - self._since < _SHORT or descriptor.intact()):
            return False  # closed, and so unlocked, under us
        try:
            unlock(number)
        except OSError:
            return False
        return True

    def _attempt(self) -> bool:
        """Open it unless it is open, and try to lock it; no fork in between."""
        descriptor = self._descriptor
        try:
            if descriptor.intact():  # known to fork already
                return lock_again(descriptor.number)
            with _fork.gate:
                descriptor.close()
                self.guard.directory.ensure_open()
                self._open()
                return lock_descriptor(descriptor.number, blocking=False)
        except FileNotFoundError:
            raise DirectoryChanged from None
        except OSError as error:
            if not self.guard.directory.is_at_path():  # a deleted directory answers with all kinds of errors
                raise DirectoryChanged from None
            raise (error if hasattr(error, "exit_code") else self.guard.told(error)) from None

    def _open(self) -> None:
        guard, descriptor = self.guard, self._descriptor
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
        directory, filename = self.guard.directory, self.guard.filename
        if not stat.S_ISREG(found.st_mode):
            raise directory.invalid(filename, "not a regular file")
        if found.st_size > MAX_GUARD_BYTES:
            raise directory.invalid(filename, f"too large ({found.st_size} bytes) for a guard")
        if found.st_nlink > 1 and directory.location.account and euid() == 0:
            raise directory.invalid(filename, "a hard link to a file of another account's choice")

    # -- while inside

    @property
    def file(self) -> tuple[int, int]:
        """Device and inode of the guard that is locked."""
        return self._descriptor.device, self._descriptor.inode

    def is_at_path(self) -> bool:
        """Whether directory and guard at the path are those that are pinned and locked."""
        try:
            current = os.lstat(self.guard.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self.guard.told(error) from None
        locked = self._descriptor
        return (
            current.st_ino == locked.inode
            and current.st_dev == locked.device
            # one link, and found at the path: then the directory at the path is the pinned one
            and (current.st_nlink == 1 or self.guard.directory.is_at_path())
        )

    def read(self) -> GuardState:
        """What the guard remembers."""
        try:
            raw = os.pread(self._descriptor.number, MAX_GUARD_BYTES, 0)
        except OSError as error:
            raise self.guard.told(error) from None
        known, state = self.guard.memory
        if raw != known:
            state = decode_guard(raw, self.guard.resource.path)
            self.guard.memory = raw, state
            self.guard.ragged = len(raw) > GUARD_TEXT_BYTES and not state.requested
        return state

    def recall(self, token: int) -> GuardState:
        """What we wrote when we drew *token*, if into this very file; else what the guard remembers.

        While that owner's record is there, whoever wrote since died before doing what it was about to do.
        """
        _, state = self.guard.memory
        if state.token == token and self.guard.inode == self._descriptor.inode:
            return state
        return self.read()

    def write(self, state: GuardState) -> None:
        """Let the guard remember *state*; its mark stays as it is.

        :raises OSError: with path and hint; the old content stays whole
        """
        guard, descriptor, raw = self.guard, self._descriptor, encode_guard(state)
        try:
            if os.pwrite(descriptor.number, raw, 0) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise guard.told(error) from None
        if state.requested:
            state = state._replace(requested=False)  # as *raw* by itself says
        guard.memory = raw, state
        guard.inode = descriptor.inode
        if guard.ragged:
            self.clear_mark()

    def mark(self) -> None:
        """Let whoever finds nobody owning look whether somebody asks."""
        try:
            if os.pwrite(self._descriptor.number, REQUESTED, GUARD_TEXT_BYTES) != len(REQUESTED):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self.guard.told(error) from None

    def clear_mark(self) -> None:
        """Nobody asks; to be called only where the mark was seen."""
        try:
            os.ftruncate(self._descriptor.number, GUARD_TEXT_BYTES)
            self.guard.ragged = False
        except OSError as error:
            raise self.guard.told(error) from None
