"""A clock that moves only when told to, or when somebody waits on it."""

from __future__ import annotations

import time

from ownership._clock import Poller


class FakeClock:
    """Time for tests: ``wait`` returns almost at once and moves the clock by what it was asked to.

    Not guaranteed: anything about other processes; they live in real time.

    :ivar waits: every wait so far, in seconds
    """

    def __init__(self, monotonic: float = 1000.0, wall_ns: int = 1_764_430_000_000_000_000) -> None:
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self._monotonic

    def wall_ns(self) -> int:
        return self._wall_ns

    def wait(self, seconds: float, poller: Poller | None = None) -> bool:
        self.waits.append(seconds)
        time.sleep(0.0005)  # a turn for other threads and processes, which live in real time
        if poller is not None and poller(0.0):
            return True
        self.advance(seconds)
        return False

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._monotonic += seconds
        self._wall_ns += int(seconds * 1e9)

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, in either direction."""
        self._wall_ns += int(seconds * 1e9)
