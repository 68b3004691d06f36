"""Being woken: when a process has ended, when a file has changed. Hints only; whoever is woken looks for itself."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable

from ownership import _inotify
from ownership._system import NO_FOLLOW, lock_shared

_CHANGES = _inotify.ATTRIB | _inotify.DELETE_SELF | _inotify.MOVE_SELF | _inotify.MODIFY | _inotify.DONT_FOLLOW
_HAS_INOTIFY = sys.platform.startswith("linux")


class Watch:
    """Waits for any of a few things. What cannot be watched for is left to the caller's own polling.

    :param notify: use inotify(7) where the system has it
    :ivar process_woke: it was the handle of the process that ended the last wait
    """

    process_woke = False

    def __init__(self, *, notify: bool = _HAS_INOTIFY) -> None:
        self._notify = notify
        self._files: list[int] = []  # filled and emptied in steps that no signal handler splits
        self._marks: frozenset[bytes] | None = None
        self._claimed = False
        self._handles: list[int] = []
        self._queued: list[int] = []
        self._stood_for: dict[int, tuple[int, int] | None] = {}

    def process(self, opening: Callable[[], int | None]) -> bool:
        """Wake when what *opening* gives (a pidfd) polls readable; true if that can be had."""
        self._handles.extend(number for number in map(_call, (opening,)) if number is not None)
        self._note(self._handles)
        return bool(self._handles)

    def _note(self, numbers: list[int]) -> None:
        """Remember what a number stands for: the program around us may close it and reuse it."""
        self._stood_for.update((number, _file_of(number)) for number in numbers)

    @property
    def handle(self) -> int | None:
        """The descriptor of the process that is watched, ours to close."""
        return self._handles[0] if self._handles else None

    def forget_process(self) -> None:
        """The handle woke us and the process is not over: do not wake for it again."""
        self._close(self._handles)

    def file(self, path: str) -> bool:
        """Wake when the file at *path* is changed, renamed or unlinked; true if that can be had."""
        if not self._notify:
            return False
        opener = _inotify.opener()
        if opener is None:
            return False
        if self._files and not self._is_ours():
            self._files.clear()
        if not self._files:
            self._marks, self._claimed = None, False
            self._files.extend(map(opener, (_inotify.FLAGS,)))
            if self._files[0] < 0:  # too many instances or descriptors: the caller polls
                self._files.clear()
                return False
            self._claimed = _inotify.claim(self._files[0])
        if _inotify.add(self._files[0], path, _CHANGES) < 0:
            return False
        self._marks = _inotify.marks(self._files[0])
        return True

    def queue(self, path: str) -> None:
        """Let others see that somebody waits for the file at *path* to go: a shared lock on it; best effort.

        Nobody else locks such files, so it is in nobody's way.
        """
        self._close(self._queued)
        try:
            self._queued.extend(map(os.open, (path,), (os.O_RDONLY | NO_FOLLOW,)))
            self._note(self._queued)
            lock_shared(self._queued[0])
        except OSError:
            pass

    def leave_queue(self) -> None:
        """Wait for it no more. While a file that is watched stays open, closing the watch takes milliseconds."""
        self._close(self._queued)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What polls readable when something happens; if there are none, nothing is noticed."""
        return (*self._handles, *self._files)

    def __call__(self, seconds: float) -> bool:
        """Whether something happened within *seconds*."""
        numbers = self.descriptors
        if not numbers:  # as always on Windows, which has no poll(2)
            time.sleep(max(0.0, seconds))
            self.process_woke = False
            return False
        poll = select.poll()
        for number in numbers:
            poll.register(number, select.POLLIN)
        ready = poll.poll(max(0.0, seconds) * 1000)
        self.process_woke = any(number in self._handles for number, _ in ready)
        if any(number in self._files for number, _ in ready):
            self._drain()
        return bool(ready)

    def _drain(self) -> None:
        if not self._is_ours():
            self._files.clear()
            return
        try:
            while os.read(self._files[0], 65536):
                pass
        except BlockingIOError:
            pass

    def _is_ours(self) -> bool:
        """Whether the number stands for our instance: of its watches some may have ended, none can have come."""
        if self._claimed and not _inotify.is_claimed(self._files[0]):
            return False
        if self._marks is None:  # it cannot be told here
            return True
        found = _inotify.marks(self._files[0])
        if found is None:  # out of descriptors, perhaps: then its mark says enough
            return self._claimed and _inotify.is_instance(self._files[0])
        return found <= self._marks

    def close(self) -> None:
        self._close(self._handles)
        self._close(self._queued)
        if self._files and not self._is_ours():
            self._files.clear()
        self._close(self._files)

    def _close(self, numbers: list[int]) -> None:
        if numbers:
            known = self._stood_for.pop(numbers[0], None)
            try:
                if known is None or known == _file_of(numbers[0]):
                    os.close(numbers[0])
            except OSError:  # the program around us did it
                pass
            numbers.clear()

    def __del__(self) -> None:  # an exception of a signal handler may have kept close() from beginning
        if "_stood_for" in self.__dict__ and not sys.is_finalizing():  # or even the construction from ending
            self.close()


def _file_of(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _call(opening: Callable[[], int | None]) -> int | None:
    return opening()
