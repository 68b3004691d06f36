"""The rounds of all fences of a process: each looked at once per interval, and at once when its owner seems to end."""

from __future__ import annotations

import logging
import math
import select
import threading
import time

from ownership._sentry import Sentry

log = logging.getLogger("ownership")


class Patrol:
    """Every sentry of this process, looked at by one thread, whatever their number."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._intervals: dict[Sentry, float] = {}
        self._due: dict[Sentry, float] = {}

    def __len__(self) -> int:
        return len(self._intervals)

    def add(self, sentry: Sentry, interval: float) -> None:
        """Look at *sentry* every *interval* seconds. Those of one interval are looked at together."""
        with self._mutex:
            self._intervals[sentry] = interval
            self._due[sentry] = _next(time.monotonic(), interval)

    def remove(self, sentry: Sentry) -> None:
        with self._mutex:
            self._intervals.pop(sentry, None)
            self._due.pop(sentry, None)

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
        with self._mutex:
            due = [sentry for sentry, at in self._due.items() if at <= now]
        for sentry in due:
            self._look(sentry, hinted=False)
            with self._mutex:
                if sentry in self._intervals:
                    self._due[sentry] = _next(time.monotonic(), self._intervals[sentry])

    def _watch(self, seconds: float) -> None:
        """Wait; whoever's owner seems to have ended meanwhile is looked at, once until its next round."""
        with self._mutex:
            handles = {sentry.handle: sentry for sentry in self._intervals if sentry.handle >= 0}
        if not handles:
            time.sleep(seconds)
            return
        deadline = time.monotonic() + seconds
        poll = select.poll()
        for handle in handles:
            poll.register(handle, select.POLLIN)
        while handles:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            for handle, _ in ready:
                poll.unregister(handle)
                self._look(handles.pop(handle), hinted=True)
            if not ready:
                return
        time.sleep(max(0.0, deadline - time.monotonic()))

    def _look(self, sentry: Sentry, *, hinted: bool) -> None:
        try:
            sentry.look(hinted=hinted)
        except Exception as error:  # one must not keep the others from being looked at
            sentry.last_error = error
            log.exception("a fence goes on after an error about %s", sentry.resource.shown)
        if sentry.loss is not None or sentry.closed:
            self.remove(sentry)


def _next(now: float, interval: float) -> float:
    """The next moment of a grid that all of one interval share."""
    return (math.floor(now / interval) + 1) * interval
