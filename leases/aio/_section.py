"""Critical sections of asynchronous code: a thread of its own holds the guard for as long as the body lasts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import TypeVar
from weakref import ref

from leases._lease import Lease
from leases.aio._call import run
from leases.aio._clock import BreakableClock
from leases.aio._worker import Worker, hire
from ownership import GuardTimeoutError

_Result = TypeVar("_Result")
_SLICE = 0.05  # seconds from a cancellation to the end of the wait for the guard, at most


class Turns:
    """Those of the tasks that share *lease*: one at a time is inside, first come, first served."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._lock = asyncio.Lock()

    def section(self) -> Section | None:
        """The one that this task is inside, or the task that started it."""
        sections = (one() for one in _inside.get())
        return next((one for one in sections if one is not None and one.turns is self and one.is_open), None)

    async def take(self, timeout: float | None) -> None:
        """:raises GuardTimeoutError: another task was inside for *timeout* seconds"""
        if not self._lock.locked():
            await self._lock.acquire()  # which does not suspend
            return
        try:
            async with asyncio.timeout(timeout):
                await self._lock.acquire()
        except TimeoutError:
            raise GuardTimeoutError(
                f"{self.lease.path}: another task of this process was in its critical section for {timeout:g} s",
                resource=self.lease.path,
                holder=os.getpid(),
                hint="keep critical sections short, or wait longer (timeout=)",
            ) from None

    def give(self) -> None:
        self._lock.release()

    async def run(self, act: Callable[[], _Result]) -> _Result:
        """*act*, by the thread that holds the guard if this task is inside; else by any."""
        section = self.section()
        return await run(act, worker=None if section is None else section.worker)


class Section:
    """``async with lease.critical()``.

    :ivar worker: the thread inside
    """

    worker: Worker | None = None
    _has_turn = False

    def __init__(self, turns: Turns, timeout: float | None) -> None:
        self.turns = turns
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._outer: Section | None = None
        self._open = self._has_turn = False
        self._sections: list[AbstractContextManager[None]] = []

    async def __aenter__(self) -> None:
        self._outer = outer = self.turns.section()
        if outer is not None:
            self.worker = outer.worker
            await self._enter()
            return
        await self.turns.take(self._timeout)
        self._has_turn = True
        try:
            self.worker = hire()
            await self._enter()
        except BaseException:
            self._end()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the guard is held for it: not once that around it was left, by the task that had started this one."""
        return self._open and (self._outer is None or self._outer.is_open)

    async def _enter(self) -> None:
        clock = BreakableClock()
        attempt = partial(self._attempt, clock)
        await run(attempt, undo=lambda _: self._leave(), clock=clock, worker=self.worker)
        self._open = True
        _inside.set((*_inside.get(), ref(self)))

    def _attempt(self, clock: BreakableClock) -> None:
        """In the thread: wait for the guard, until that is broken off."""
        deadline = None if self._timeout is None else clock.monotonic() + self._timeout
        while True:
            left = _SLICE if deadline is None else deadline - clock.monotonic()
            section = self.turns.lease.critical(max(0.0, min(left, _SLICE)))
            try:
                section.__enter__()
            except GuardTimeoutError:
                if left <= _SLICE and deadline is not None:
                    raise
                clock.wait(0.0)
            else:
                self._sections.append(section)
                return

    def _leave(self) -> None:
        _leave(self._sections)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            was_open, self._open = self.is_open, False
            _inside.set(tuple(one for one in _inside.get() if one() is not self))
            if was_open and kind is not GeneratorExit:  # after which nothing can be awaited
                await run(self._leave, worker=self.worker)
        finally:
            self._end()

    def _end(self) -> None:
        self._open = False
        if self._has_turn:
            if self.worker is not None:
                self.worker.put(self._leave)
            self._has_turn = False
            self.turns.give()
            if self.worker is not None:
                self.worker.dismiss()

    def __del__(self) -> None:  # a signal handler may have raised where nothing could catch that
        if self._has_turn:
            if self.worker is not None:
                self.worker.put(partial(_leave, self._sections))
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.turns.give)


def _leave(sections: list[AbstractContextManager[None]]) -> None:
    while sections:
        sections.pop().__exit__(None, None, None)


# weakly: a section that is left in no other way is left when it is dropped
_inside: ContextVar[tuple[ref[Section], ...]] = ContextVar("inside", default=())
