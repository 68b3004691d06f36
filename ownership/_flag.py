"""Events that no exception of a signal handler can leave locked.

``threading.Event`` takes a lock in Python code: a handler that raises right there leaves it locked for everybody. These
are made of single steps of the interpreter.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections import deque

_STEP = 0.5  # seconds after which a sleeper looks again, should whoever set the flag have been interrupted


class Flag(threading.Event):
    """An event that is set once and never cleared."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._sleepers: deque[_thread.LockType] = deque()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        while self._sleepers:
            try:
                self._sleepers.pop().release()
            except (IndexError, RuntimeError):  # another thread was faster
                pass

    def clear(self) -> None:
        """What was lost is lost."""
        raise RuntimeError("this event is never cleared")

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_set:
            left = _STEP if deadline is None else min(_STEP, deadline - time.monotonic())
            if left <= 0:
                break
            sleeper = _thread.allocate_lock()
            sleeper.acquire()
            self._sleepers.append(sleeper)
            if not self._is_set and not sleeper.acquire(timeout=left):
                try:
                    self._sleepers.remove(sleeper)
                except ValueError:
                    pass
        return self._is_set


class Alarm:
    """What one thread sleeps on and any other wakes it by. An alarm that nobody slept on is kept for the next sleep."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake it."""
        try:
            self._lock.release()
        except RuntimeError:  # it is set already
            pass

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it is set, at most *timeout* seconds; whether it was. It is not set any more then."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    def __call__(self, seconds: float) -> bool:
        """Wait as clocks have it done."""
        return self.wait(seconds)
