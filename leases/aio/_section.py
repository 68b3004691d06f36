"""Critical sections of asynchronous code: a thread of its own holds the guard for as long as the body lasts."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from leases._lease import Lease
from leases.aio._call import run
from leases.aio._clock import BreakableClock
from leases.aio._worker import Worker, hire
from ownership import GuardTimeoutError

_Result = TypeVar("_Result")
_SLICE = 0.05  # seconds from a cancellation to the end of the wait for the guard, at most


def deadline_of(timeout: float | None, clock: BreakableClock) -> float:
    """Until when a turn, and then the guard, are waited for together."""
    return math.inf if timeout is None else clock.monotonic() + timeout


def patiently(act: Callable[[float], _Result], deadline: float, clock: BreakableClock) -> _Result:
    """In a thread: *act*, given the seconds to wait for the guard; again and again, until that is broken off.

    :raises GuardTimeoutError: somebody else was inside until *deadline*
    """
    while True:
        left = deadline - clock.monotonic()
        try:
            return act(max(0.0, min(left, _SLICE)))
        except GuardTimeoutError:
            if left <= _SLICE:
                raise
        clock.wait(0.0)


class Turns:
    """Those of the tasks of one loop that share *lease*: one at a time is inside, first come, first served."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        # weakly, both: a lock that somebody has waited for has its loop; nobody has one that is not in use
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[asyncio.Lock]] = WeakKeyDictionary()

    def _lock(self) -> asyncio.Lock:
        """That of the running loop: tasks of other loops meet us at the guard, as other threads do."""
        loop = asyncio.get_running_loop()
        known = self._locks.get(loop)
        lock = None if known is None else known()
        if lock is None:
            lock = asyncio.Lock()
            self._locks[loop] = ref(lock)
        return lock

    def section(self) -> Section | None:
        """The one that this task is inside, or the task of this loop that started it."""
        sections = (one() for one in _inside.get())
        return next((one for one in sections if one is not None and one.turns is self and one.lets_in), None)

    async def take(self, timeout: float | None) -> asyncio.Lock:
        """The turn, to be released.

        :raises GuardTimeoutError: another task was inside for *timeout* seconds
        """
        lock = self._lock()
        try:
            async with asyncio.timeout(timeout):
                await lock.acquire()
        except TimeoutError:
            raise GuardTimeoutError(
                f"{self.lease.path}: another task of this process was in its critical section for {timeout:g} s",
                resource=self.lease.path,
                holder=os.getpid(),
                hint="keep critical sections short, or wait longer (timeout=)",
            ) from None
        return lock

    async def run(
        self, act: Callable[[], _Result], clock: BreakableClock | None = None, *, last: bool = False
    ) -> _Result:
        """*act*, which waits by *clock*, by the thread that holds the guard if this task is inside; else by any."""
        section = self.section()
        return await run(act, clock=clock, worker=None if section is None else section.worker, last=last)


class Room:
    """The guard, held by a thread of its own until the last of those inside has left.

    Whoever was let in by a task that was inside stays in when that one leaves: its body goes on.

    :param turn: released when nobody is left, or this is dropped
    :param member: whoever opens it
    :ivar loop: whose tasks may be inside
    :ivar members: who is inside
    """

    worker: Worker | None = None

    def __init__(self, turn: asyncio.Lock, member: object) -> None:
        self._turn = turn
        self.loop = asyncio.get_running_loop()
        self.members = {member}
        self.sections: list[AbstractContextManager[None]] = []
        self.worker = hire()

    def undo(self, section: AbstractContextManager[None]) -> None:
        """In the thread: whoever was entering does not want to any more."""
        self.sections.remove(section)
        section.__exit__(None, None, None)

    def empty(self) -> None:
        """In the thread: let go of the guard."""
        while self.sections:
            self.sections.pop().__exit__(None, None, None)

    def leave(self, member: object) -> None:
        """In the loop: *member* is inside no more; again, this does nothing."""
        if self._is_last(member):
            self._turn.release()
            worker, self.worker = self.worker, None
            if worker is not None:
                worker.dismiss()

    def forget(self, member: object) -> None:
        """From any thread: *member* was dropped, and cannot leave by itself."""
        if self._is_last(member):
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._turn.release)

    def _is_last(self, member: object) -> bool:
        if member not in self.members:
            return False
        self.members.discard(member)
        if not self.members and self.worker is not None:
            self.worker.put(self.empty)
        return not self.members

    def __del__(self) -> None:
        for member in tuple(self.__dict__.get("members", ())):
            self.forget(member)


class Section:
    """``async with lease.critical()``.

    :ivar is_open: it is inside
    """

    _room: Room | None = None
    is_open = False

    def __init__(self, turns: Turns, timeout: float | None) -> None:
        self.turns = turns
        self._timeout = timeout
        self._member = object()
        self._used: dict[None, object] = {}  # by one ``async with`` at a time: whoever is first

    @property
    def lets_in(self) -> bool:
        """Whether a task of the running loop that was started inside it may enter it too."""
        room = self._room
        return self.is_open and room is not None and room.loop is asyncio.get_running_loop()

    @property
    def worker(self) -> Worker | None:
        """The thread inside."""
        return None if self._room is None else self._room.worker

    async def __aenter__(self) -> None:
        me = object()
        if self._used.setdefault(None, me) is not me:
            raise RuntimeError(f"this section of {self.turns.lease.path} is entered already: call critical() again")
        try:
            outer = self.turns.section()
            room = None if outer is None else outer._room
            clock = BreakableClock()
            deadline = deadline_of(self._timeout, clock)
            if room is None:
                room = Room(await self.turns.take(self._timeout), self._member)
            room.members.add(self._member)
            self._room = room
            await self._enter(room, deadline, clock)
        except BaseException:
            self._end()
            raise

    async def _enter(self, room: Room, deadline: float, clock: BreakableClock) -> None:
        attempt = partial(patiently, partial(self._attempt, room), deadline, clock)
        await run(attempt, undo=room.undo, clock=clock, worker=room.worker)
        self.is_open = True
        _inside.set((*_open(), ref(self)))

    def _attempt(self, room: Room, timeout: float) -> AbstractContextManager[None]:
        section = self.turns.lease.critical(timeout)
        section.__enter__()
        room.sections.append(section)
        return section

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        room, self.is_open = self._room, False
        try:
            _inside.set(_open())
            alone = room is not None and room.members == {self._member}
            if room is not None and alone and kind is not GeneratorExit:  # after which nothing can be awaited
                await run(room.empty, worker=room.worker)
        finally:
            self._end()

    def _end(self) -> None:
        self.is_open = False
        room, self._room = self._room, None
        if room is not None:
            room.leave(self._member)
        self._used.clear()

    def __del__(self) -> None:  # a signal handler may have raised where nothing could catch that
        if self._room is not None:
            self._room.forget(self._member)


# weakly: a section that is left in no other way is left when it is dropped
_inside: ContextVar[tuple[ref[Section], ...]] = ContextVar("inside", default=())


def _open() -> tuple[ref[Section], ...]:
    """Those that may let somebody in: what tasks inherit from each other does not grow."""
    return tuple(one for one in _inside.get() if (section := one()) is not None and section.is_open)
