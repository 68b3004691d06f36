"""Being woken: when a process has ended, when a file has changed. Hints only; whoever is woken looks for itself."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

from ownership import _inotify
from ownership._system import NO_FOLLOW, lock_shared

_CHANGES = _inotify.ATTRIB | _inotify.DELETE_SELF | _inotify.MOVE_SELF | _inotify.MODIFY | _inotify.DONT_FOLLOW
_HAS_INOTIFY = sys.platform.startswith("linux")


class Watch:
    """Waits for any of a few things. What cannot be watched for is left to the caller's own polling.

    :param notify: use inotify(7) where the system has it
    """

    def __init__(self, *, notify: bool = _HAS_INOTIFY) -> None:
        self._notify = notify
        self._files: list[int] = []  # filled and emptied in steps that no signal handler splits
        self._handles: list[int] = []
        self._queued: list[int] = []

    def process(self, opening: Callable[[], int | None]) -> bool:
        """Wake when what *opening* gives (a pidfd) polls readable; true if that can be had."""
        self._handles.extend(number for number in map(_call, (opening,)) if number is not None)
        return bool(self._handles)

    @property
    def handle(self) -> int | None:
        """The descriptor of the process that is watched, ours to close."""
        return self._handles[0] if self._handles else None

    def forget_process(self) -> None:
        """The handle woke us and the process is not over: do not wake for it again."""
        _close(self._handles)

    def file(self, path: str) -> bool:
        """Wake when the file at *path* is changed, renamed or unlinked; true if that can be had."""
        if not self._notify:
            return False
        opener = _inotify.opener()
        if opener is None:
            return False
        if not self._files:
            self._files.extend(map(opener, (_inotify.FLAGS,)))
            if self._files[0] < 0:  # too many instances or descriptors: the caller polls
                self._files.clear()
                return False
        return _inotify.add(self._files[0], path, _CHANGES) >= 0

    def queue(self, path: str) -> None:
        """Let others see that somebody waits for the file at *path* to go: a shared lock on it; best effort.

        Nobody else locks such files, so it is in nobody's way.
        """
        _close(self._queued)
        try:
            self._queued.extend(map(os.open, (path,), (os.O_RDONLY | NO_FOLLOW,)))
            lock_shared(self._queued[0])
        except OSError:
            pass

    def wait(self, seconds: float) -> bool:
        """Whether something happened within *seconds*."""
        poll = select.poll()
        for number in self._handles + self._files:
            poll.register(number, select.POLLIN)
        ready = poll.poll(max(0.0, seconds) * 1000)
        if any(number in self._files for number, _ in ready):
            self._drain()
        return bool(ready)

    def _drain(self) -> None:
        try:
            while os.read(self._files[0], 65536):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        _close(self._handles)
        _close(self._files)
        _close(self._queued)

    def __del__(self) -> None:  # an exception of a signal handler may have kept close() from beginning
        self.close()


def _close(numbers: list[int]) -> None:
    if numbers:
        try:
            os.close(numbers[0])
        except OSError:  # the program around us did it
            pass
        numbers.clear()


def _call(opening: Callable[[], int | None]) -> int | None:
    return opening()
