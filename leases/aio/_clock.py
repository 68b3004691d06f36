"""A clock whose waits can be broken off: how a thread that waits for an owner learns that nobody wants it any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_SLICE = 0.05  # seconds from the end of the caller's interest to the end of the wait, at most


class BrokenOff(BaseException):
    """The wait is over since its result is not wanted any more. No error: nobody is to handle it on its way out."""


class SystemClock:
    """The clock of this machine."""

    monotonic = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)

    def wait(self, seconds: float, poller: Callable[[float], bool] | None = None) -> bool:
        """See :class:`BreakableClock`."""
        if poller is not None:
            return poller(seconds)
        time.sleep(seconds)
        return False


class BreakableClock:
    """The time of another clock; a wait raises :class:`BrokenOff`, once, after :meth:`break_off`.

    Once only, so that cleaning up may wait. It is kept by what was acquired, and is then as good as the other one.

    :param clock: a clock, ``None`` for that of this machine
    :ivar waiting: called when the first wait begins; from the thread that waits
    :ivar unwanted: asked while it waits: whether nobody can want the result any more
    """

    def __init__(self, clock: Any = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self.monotonic: Callable[[], float] = self._clock.monotonic
        self.wall_ns: Callable[[], int] = self._clock.wall_ns
        self.waiting: Callable[[], object] | None = None
        self.unwanted: Callable[[], bool] = bool
        self._broken = False
        self._settled = False

    def break_off(self) -> None:
        """End the wait that lasts, or the next one. From any thread; returns at once."""
        self._broken = True

    def settle(self) -> None:
        """Waits are not to be broken off any more."""
        self._settled = True
        self.waiting = None

    def wait(self, seconds: float, poller: Callable[[float], bool] | None = None) -> bool:
        """Wait at most *seconds*; true when *poller* became ready first."""
        if self._settled:
            return bool(self._clock.wait(seconds, poller))
        if (waiting := self.waiting) is not None:
            self.waiting = None
            waiting()
        until = self.monotonic() + seconds
        left = seconds
        while True:
            if self._broken or self.unwanted():
                self._settled = True
                raise BrokenOff
            if self._clock.wait(min(left, _SLICE), poller):
                return True
            left = until - self.monotonic()
            if left <= 0:
                return False
