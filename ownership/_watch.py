"""Being woken: when a process has ended, when a file has changed. Hints only; whoever is woken looks for itself."""

from __future__ import annotations

import os
import select
import sys
from typing import Any

_IN_ATTRIB, _IN_DELETE_SELF, _IN_MOVE_SELF, _IN_MODIFY = 0x4, 0x400, 0x800, 0x2
_IN_DONT_FOLLOW = 0x02000000
_CHANGES = _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_MODIFY | _IN_DONT_FOLLOW
_HAS_INOTIFY = sys.platform.startswith("linux")


class Watch:
    """Waits for any of a few things. What cannot be watched for is left to the caller's own polling.

    :param notify: use inotify(7) where the system has it
    """

    def __init__(self, *, notify: bool = _HAS_INOTIFY) -> None:
        self._notify = notify
        self._files: int | None = None
        self._handle: int | None = None

    def process(self, handle: int | None) -> bool:
        """Wake when *handle* (a pidfd, ours from now on) polls readable; true if that can be had."""
        self._handle = handle
        return handle is not None

    def forget_process(self) -> None:
        """The handle woke us and the process is not over: do not wake for it again."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def file(self, path: str) -> bool:
        """Wake when the file at *path* is changed, renamed or unlinked; true if that can be had."""
        if not self._notify:
            return False
        libc = _libc()
        if self._files is None:
            number = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            if number < 0:  # too many instances or descriptors: the caller polls
                return False
            self._files = number
        return bool(libc.inotify_add_watch(self._files, os.fsencode(path), _CHANGES) >= 0)

    def wait(self, seconds: float) -> bool:
        """Whether something happened within *seconds*."""
        poll = select.poll()
        for number in (self._handle, self._files):
            if number is not None:
                poll.register(number, select.POLLIN)
        ready = poll.poll(max(0.0, seconds) * 1000)
        if self._files is not None and any(number == self._files for number, _ in ready):
            self._drain()
        return bool(ready)

    def _drain(self) -> None:
        assert self._files is not None
        try:
            while os.read(self._files, 65536):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        for number in (self._handle, self._files):
            if number is not None:
                os.close(number)
        self._handle = self._files = None


_library: Any = None


def _libc() -> Any:
    global _library
    if _library is None:
        import ctypes  # only who waits needs it

        _library = ctypes.CDLL(None, use_errno=True)
    return _library
