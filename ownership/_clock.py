"""Time as a parameter: whoever waits or stamps takes a clock, so tests move time instead of waiting for it."""

from __future__ import annotations

import time
from typing import Protocol


class Poller(Protocol):
    """Something that can be waited on: true as soon as it is ready, false after *seconds*.

    It may have ``descriptors``: a clock may poll those itself, and call it once one of them is readable.
    """

    def __call__(self, seconds: float) -> bool: ...


class Clock(Protocol):
    """The three things this library asks of time."""

    def monotonic(self) -> float:
        """Seconds that never go back, for waits and deadlines."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, for tokens and for people; never evidence."""
        ...

    def wait(self, seconds: float, poller: Poller | None = None) -> bool:
        """Wait at most *seconds*; true when *poller* became ready first."""
        ...


class SystemClock:
    """The clock of this machine."""

    monotonic = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)

    def wait(self, seconds: float, poller: Poller | None = None) -> bool:
        if poller is not None:
            return poller(seconds)
        time.sleep(seconds)
        return False


SYSTEM_CLOCK = SystemClock()
