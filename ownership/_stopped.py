"""What a contender does about an owner that it waits for and that is stopped."""

from __future__ import annotations

import math
from collections.abc import Callable

from ownership._clock import Clock
from ownership._examine import Examined
from ownership._frozen import CONFIRMATIONS, INTERVAL, Freeze, Step, look_at, resume
from ownership._paths import Resource
from ownership._process import ProcessTable
from ownership._verdict import Verdict

WAYS = ("wait", "resume", "evict")


def checked_way(way: str) -> str:
    """*way* if it is one."""
    if way not in WAYS:
        raise ValueError(f"on_stopped must be one of {', '.join(map(repr, WAYS))}, got {way!r}")
    return way


class Stopped:
    """Lets the owner go on, once, or evicts it once it was found stopped three times, two seconds apart.

    A slow owner is never touched, nor is one that a tracer holds.

    :param evict: breaks the claim of a resource by its token, if its owner is still stopped
    """

    def __init__(
        self, way: str, evict: Callable[[Resource, int], object], clock: Clock, processes: ProcessTable
    ) -> None:
        self._resumes = way == "resume"
        self._evict = evict
        self._clock = clock
        self._processes = processes
        self._owner: tuple[str, str, int] | None = None
        self._freeze = Freeze(CONFIRMATIONS, resumes=self._resumes)
        self._next = math.inf

    def saw(self, resource: Resource, examined: Examined) -> None:
        """The waiter has looked at *resource*."""
        record, now = examined.record, self._clock.monotonic()
        if record is None:
            self._owner, self._next = None, math.inf
            return
        owner = (resource.path, record.instance_id, record.token)
        if owner != self._owner:
            self._owner, self._freeze, self._next = owner, Freeze(CONFIRMATIONS, resumes=self._resumes), now
        if now < self._next:
            return
        self._next = now + INTERVAL
        stopped, activity = look_at(self._processes, record)
        step = self._freeze.found(stopped=stopped and examined.verdict is Verdict.STOPPED, activity=activity)
        if step is Step.RESUME:
            resume(self._processes, record)
        elif step is Step.GIVE_UP and not self._resumes:
            self._evict(resource, record.token)

    def due_in(self) -> float:
        """Seconds until another look is wanted."""
        return max(0.0, self._next - self._clock.monotonic())
