"""Trying, waiting and starting until somebody serves."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from ownership._clock import Clock
from ownership._errors import AlreadyOwnedError, explained
from ownership._inspect import find, inspect, wait
from ownership._inspection import Inspection, Running
from ownership._owning import acquire
from ownership._paths import Resource, quoted, resolve
from ownership._place import existing
from ownership._process import ProcessTable
from ownership._replacing import replace
from ownership._sockets._deaths import refuse_crash_loop
from ownership._sockets._dial import Answer, dial
from ownership._sockets._errors import UnreachableError
from ownership._sockets._order import Connect, Order
from ownership._sockets._peer import verify_peer
from ownership._sockets._start import LABEL, SUFFIX, Logs, Starting, failure_of, in_the_way, is_starting, late_start
from ownership._verdict import Verdict

_QUICK, _SLOW, _SLICE = 0.001, 0.05, 0.25  # seconds between attempts: at first, at most; while another one starts
_STOPPING = 15.0  # seconds that replace() takes at the most, beyond twice its grace
_NOT_YET = (ConnectionError, FileNotFoundError, TimeoutError, BlockingIOError)


class Ensuring:
    """One call.

    :ivar before: the last token of a start before ours: one that fails after that has failed for us too
    :ivar unfit: an owner that does not match and is to be replaced
    """

    before: int | None = None
    unfit: Running | None = None
    fresh = False
    _last: Exception | Answer | None = None

    def __init__(
        self,
        resource: Resource,
        registry: str | None,
        order: Order,
        timeout: float,
        clock: Clock,
        processes: ProcessTable,
    ) -> None:
        self._resource = resource
        self._registry = registry
        self._order = order
        self._timeout = timeout
        self._clock = clock
        self._processes = processes
        self._deadline = clock.monotonic() + timeout
        self._start = resource.path + SUFFIX
        self._pause = _QUICK

    def run(self) -> Any:
        while (reached := self._attempt()) is None:
            seen = self._look()
            if (self.unfit is None and not _may_be_served_anew(seen)) or self._order.command is None:
                self._rest(seen)
            elif (reached := self._start_or_follow(self._order.command)) is not None:
                return reached
        return reached

    def _look(self) -> Inspection:
        """Who owns it; whoever starts nobody need not be allowed to know."""
        try:
            return self._inspect(self._resource.path)
        except PermissionError as error:
            if self._order.command is not None:
                raise
            return Inspection(Path(self._resource.path), Verdict.UNKNOWN, str(error))

    def _inspect(self, path: str) -> Inspection:
        return inspect(path, registry=self._registry, clock=self._clock, processes=self._processes)

    def _find(self) -> Running | None:
        return find(self._resource.path, registry=self._registry, clock=self._clock, processes=self._processes)

    def _left(self) -> float:
        return self._deadline - self._clock.monotonic()

    def _rest(self, seen: Inspection) -> None:
        """A moment, longer each time: whoever owns it is about to answer, or to end.

        :raises UnreachableError: the time is over
        """
        left = self._left()
        if left <= 0:
            raise self._unreachable(seen)
        self._clock.wait(min(self._pause, left))
        self._pause = min(self._pause * 1.5, _SLOW)

    # -- reaching

    def _attempt(self) -> Any:
        """What was asked for, ``None`` if it is not to be had now."""
        self.unfit = None
        if self._order.connect is not None:
            return self._attempt_their_way(self._order.connect)
        running = self._find() if self._order.match else None
        if running is not None and running.endpoint and not self._is_fit(running):
            return None  # whom we do not want we do not bother
        answer = dial(self._resource.path)
        if answer.connection is None:
            self._last = answer
            if not answer.is_nobody and not answer.is_full:
                raise explained(OSError(answer.error, os.strerror(answer.error)), self._resource.path)
            return None
        if not self._order.match:
            return answer.connection
        kept = False
        try:
            running = verify_peer(
                answer.connection, self._resource.path, registry=self._registry, processes=self._processes
            )
            kept = self._is_fit(running)
        finally:
            if not kept:
                answer.connection.close()
        return answer.connection if kept else None

    def _attempt_their_way(self, theirs: Connect) -> Any:
        running = self._find()
        if running is None or (self._order.match and running.endpoint is None) or not self._is_fit(running):
            return None
        try:
            return theirs(running)
        except _NOT_YET as error:
            self._last = error
            return None

    def _is_fit(self, running: Running) -> bool:
        """Whether the owner is what was asked for; if it is not and is to be replaced, it is remembered."""
        wanted, data = self._order.match, running.data
        unfit = {name: value for name, value in wanted.items() if name not in data or data[name] != value}
        if not unfit or self._order.on_mismatch == "use":
            return True
        if self._order.on_mismatch == "replace" and not self.fresh and self._left() > 0:
            self.unfit = running
            return False
        told = ", ".join(f"{name} is {data.get(name)!r}, not {value!r}" for name, value in unfit.items())
        raise AlreadyOwnedError(
            f"{self._resource.shown} is served by pid {running.record.pid}, which does not match: {told}",
            resource=self._resource.path,
            record=running.record,
            verdict=running.verdict,
            reason=f"its data does not match: {told}",
            hint="use it all the same (on_mismatch='use'), replace it ('replace', with a timeout= in which it can go), "
            "or end it first",
        )

    def _unreachable(self, seen: Inspection) -> UnreachableError:
        last = self._last
        how = (
            last.words
            if isinstance(last, Answer)
            else str(last)
            if last is not None
            else "it has told no way to reach it (endpoint)"
        )
        if seen.owner is not None and not seen.verdict.may_be_evicted:
            where = quoted(self._resource.parent) if self._registry is None else f"--registry {quoted(self._registry)}"
            who = f"pid {seen.owner.pid} owns it ({seen.verdict.value}: {seen.reason}), but does not answer: {how}"
            hint = f"see what pid {seen.owner.pid} does; leasectl doctor {where}"
        else:
            who, hint = f"nobody serves it ({seen.verdict.value}: {seen.reason}): {how}", "start its server"
        waited = f" (waited {self._timeout:g} s)" if self._timeout else ""
        number = last.error if isinstance(last, Answer) else getattr(last, "errno", None)
        told = f"{self._resource.shown}: {who}{waited}"
        return UnreachableError(
            told, resource=self._resource.path, record=seen.record, hint=hint, **({"errno": number} if number else {})
        )

    # -- starting

    def _start_or_follow(self, command: list[str]) -> Any:
        """Start, or wait a while for whoever starts already."""
        seen = self._inspect(self._start)
        if self.before is None:
            self.before = seen.token - (seen.verdict is not Verdict.FREE)
        if failure := failure_of(self._resource, seen, self.before, self._logs()):
            raise failure
        if seen.record is not None and (not seen.verdict.may_be_evicted or self._comes(seen)):
            self._follow(seen)
            return None
        try:
            claim = acquire(
                self._start,
                registry=self._registry,
                labels={LABEL: self._resource.shown},
                gate=self._order.gate,  # asked inside the guard: whoever closes it finds us in the records
                clock=self._clock,
                processes=self._processes,
            )
        except AlreadyOwnedError:
            self._rest(seen)
            return None
        with contextlib.ExitStack() as unless_started:
            unless_started.callback(claim.release)
            if (reached := self._attempt()) is not None:  # somebody may just have been started
                return reached
            if self.unfit is None:
                seen = self._inspect(self._resource.path)
                if not _may_be_served_anew(seen):
                    return None
                refuse_crash_loop(self._resource, self._registry, seen, self._processes.current().boot_id)
            else:
                self._end()
            self.fresh = True
            order = self._order
            starting = Starting(
                claim, self._resource, command, order.environ, order.folder, self._clock, self._processes
            )
            unless_started.pop_all()  # it keeps the claim while what it starts may still come
            return starting.run(self._attempt, self._is_owned, self._deadline)

    def _end(self) -> None:
        """Have it go, and its resource free: whoever we start is to own it.

        :raises AcquireTimeoutError: it had not gone when the time was over
        """
        left, longest = self._left(), 2 * self._order.grace + _STOPPING
        replace(
            self._resource.path,
            reason=f"replaced by one with {', '.join(f'{name}={value}' for name, value in self._order.match.items())}",
            grace=self._order.grace,
            timeout=round(left, 3) if left < longest else None,
            registry=self._registry,
            clock=self._clock,
            processes=self._processes,
        ).release("replaced")

    def _is_owned(self) -> bool:
        return not _may_be_served_anew(self._inspect(self._resource.path))

    def _comes(self, seen: Inspection) -> bool:
        """Whoever started is gone, but what it started is not."""
        return seen.record is not None and is_starting(seen.record.data, self._processes)

    def _follow(self, seen: Inspection) -> None:
        left = self._left()
        if left <= 0:
            logs = self._logs()
            log = logs.path(seen.token) if logs is not None else ""
            raise late_start(self._resource, seen, log) or in_the_way(self._resource, seen)
        if seen.verdict.may_be_evicted:
            self._clock.wait(min(_SLOW, left))
            return
        try:
            wait(
                self._start,
                timeout=min(_SLICE, left),
                registry=self._registry,
                clock=self._clock,
                processes=self._processes,
            )
        except AlreadyOwnedError:
            pass

    def _logs(self) -> Logs | None:
        start = resolve(self._start, whole=self._registry is not None)
        place = existing(start, self._registry)
        return Logs(place.directory.path, start.name) if place is not None else None


def _may_be_served_anew(seen: Inspection) -> bool:
    nobody = seen.malformed is not None and seen.owner is None  # else whoever published last may live, and mends it
    return seen.verdict is Verdict.FREE or seen.verdict.may_be_evicted or nobody
