"""The rounds of all fences of a process: each looked at once per interval, and at once when its owner seems to end."""

from __future__ import annotations

import math
import select
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from ownership._bell import Bell
from ownership._flag import Alarm
from ownership._log import log, tell


class Watchman(Protocol):
    """Something that looks at a process every now and then."""

    last_error: Exception | None

    @property
    def handle(self) -> int:
        """A descriptor that becomes readable when a look is called for, -1 without one."""
        ...

    @property
    def over(self) -> bool:
        """Nothing is left to be looked at; a look then closes what is open."""
        ...

    def look(self, *, hinted: bool = False) -> None:
        """Look now.

        :param hinted: the handle has become readable
        """
        ...


class Patrol:
    """Every watchman of this process is sent by one thread, whatever their number.

    :param wake: set when there is something new to look after
    """

    def __init__(self, wake: Alarm) -> None:
        self._wake = wake
        self._bell = Bell()
        self._mutex: Any = threading.RLock()  # a signal handler may come here too
        self._intervals: dict[Watchman, float] = {}
        self._due: dict[Watchman, float] = {}
        self._leaving: deque[Watchman] = deque()

    def __len__(self) -> int:
        return len(self._intervals) + len(self._leaving)

    def add(self, watchman: Watchman, interval: float) -> None:
        """Send *watchman* every *interval* seconds. Those of one interval are sent together."""
        with self._mutex:
            self._intervals[watchman] = interval
            self._due[watchman] = _next(time.monotonic(), interval)
        self._bell.ring()

    def dismiss(self, watchman: Watchman) -> None:
        """It is over: have it look for the last time, soon."""
        self._leaving.append(watchman)
        self._bell.ring()
        self._wake.set()

    def _remove(self, watchman: Watchman) -> None:
        with self._mutex:
            self._intervals.pop(watchman, None)
            self._due.pop(watchman, None)

    def wait(self, until: float) -> None:
        """Until then, look at whatever is due or seems to have ended.

        :param until: seconds of ``time.monotonic``
        """
        while True:
            now = time.monotonic()
            self._walk(now)
            with self._mutex:
                left = min(until, *self._due.values()) - time.monotonic() if self._due else until - time.monotonic()
            if until <= now:
                return
            self._watch(max(0.0, left))

    def _walk(self, now: float) -> None:
        while self._leaving:
            self._look(self._leaving.popleft(), hinted=False)
        with self._mutex:
            due = [watchman for watchman, at in self._due.items() if at <= now]
        for watchman in due:
            self._look(watchman, hinted=False)
            with self._mutex:
                if watchman in self._intervals:
                    self._due[watchman] = _next(time.monotonic(), self._intervals[watchman])

    def _watch(self, seconds: float) -> None:
        """Wait; whoever's owner seems to have ended meanwhile is looked at, once until its next round."""
        if self._intervals:
            self._bell.hang()  # before it is seen who is there: whoever comes later rings
        with self._mutex:
            handles: dict[int, list[Watchman]] = {}
            for watchman in self._intervals:
                if (handle := watchman.handle) >= 0:
                    handles.setdefault(handle, []).append(watchman)
        if not handles:
            self._bell.take_down()
            self._wake.wait(seconds)
            return
        bell = self._bell.number
        deadline = time.monotonic() + seconds
        poll = select.poll()
        for handle in (*handles, *([bell] if bell >= 0 else [])):
            poll.register(handle, select.POLLIN)
        while ready := self._poll(poll, handles, deadline):
            for handle in ready:
                if handle == bell:
                    return  # somebody has come
                poll.unregister(handle)
                for watchman in handles.pop(handle):
                    self._look(watchman, hinted=True)

    def _poll(self, poll: select.poll, handles: Iterable[int], deadline: float) -> list[int]:
        """What is ready, at the latest at *deadline*; nothing then."""
        left = max(0.0, deadline - time.monotonic())
        try:
            return [number for number, _ in poll.poll(left * 1000)]
        except OSError as error:  # more than RLIMIT_NOFILE allows by now (poll(2)): each by itself, once a round
            ready = [number for number in handles if _is_ready(number)]
            if not ready:
                tell(log.debug, "fences cannot be waited for together: %s", error)
                self._wake.wait(left)
            return ready

    def _look(self, watchman: Watchman, *, hinted: bool) -> None:
        try:
            watchman.look(hinted=hinted)
        except Exception as error:  # one must not keep the others from being looked at
            watchman.last_error = error
            tell(log.exception, "%r goes on after an error", watchman)
        if watchman.over:
            self._remove(watchman)


def _next(now: float, interval: float) -> float:
    """The next moment of a grid that all of one interval share."""
    return (math.floor(now / interval) + 1) * interval


def _is_ready(number: int) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLIN)
    try:
        return bool(poll.poll(0))
    except OSError:
        return False
