"""A clock whose waits can be broken off: how a thread that waits for an owner learns that nobody wants it any more."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

from leases.aio._lookout import LOOKOUT, ROUND

_SLICE = ROUND  # seconds from the end of the caller's interest to the end of the wait, at most
_REST = 2.0  # seconds between looks whether anybody can be interested still


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
        self._is_real = clock is None
        self.monotonic: Callable[[], float] = self._clock.monotonic
        self.wall_ns: Callable[[], int] = self._clock.wall_ns
        self.waiting: Callable[[], object] | None = None
        self.unwanted: Callable[[], bool] = bool
        self._broken = False
        self._settled = False
        self._stirred: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._watched: Sequence[int] = ()
        self._told_from = 0.0

    def break_off(self) -> None:
        """End the wait that lasts, or the next one. From any thread; returns at once."""
        self._broken = True
        self._stir()

    def _stir(self) -> None:
        self._stirred.put(None)

    def settle(self) -> None:
        """Waits are not to be broken off any more."""
        self._settled = True
        self.waiting = None
        LOOKOUT.drop(self._stir)

    def wait(self, seconds: float, poller: Callable[[float], bool] | None = None) -> bool:
        """Wait at most *seconds*; true when *poller* became ready first."""
        if self._settled:
            return bool(self._clock.wait(seconds, poller))
        if (waiting := self.waiting) is not None:
            self.waiting = None
            waiting()
        until, left = self.monotonic() + seconds, seconds
        while True:
            if self._broken or self.unwanted():
                self.settle()
                raise BrokenOff
            if not self._is_told(poller, left):
                if self._clock.wait(min(left, _SLICE), poller):
                    return True
            elif self._was_stirred(min(left, _REST)) and poller is not None and poller(0.0):
                return True
            left = until - self.monotonic()
            if left <= 0:
                return False

    def _is_told(self, poller: Callable[[float], bool] | None, left: float) -> bool:
        """Whether we need not look ourselves for *left* seconds: the lookout does by now."""
        if not self._is_real or poller is None:
            return self._is_real
        descriptors = getattr(poller, "descriptors", None)
        if not descriptors:  # nothing is noticed before the time is over; or it cannot be told what is
            return descriptors is not None
        if descriptors != self._watched:
            if left <= _SLICE or not LOOKOUT.add(self._stir, descriptors):
                return False
            self._watched, self._told_from = descriptors, self.monotonic() + ROUND
        return self.monotonic() >= self._told_from

    def _was_stirred(self, seconds: float) -> bool:
        try:
            self._stirred.get(timeout=seconds)
        except queue.Empty:
            return False
        self._watched = ()  # the lookout tells once
        return True
