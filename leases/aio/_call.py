"""A call that blocks, made by a thread and awaited by a task that may be cancelled: nothing is lost on the way."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from leases.aio._clock import BreakableClock
from leases.aio._worker import NoThread, Worker, hire
from ownership import OwnershipError

_Result = TypeVar("_Result")

# calls of one loop that are made at once, those that wait for an owner not counted: threads that all want to run
# keep the loop from running
_AT_ONCE = 4
_LONG = 0.05  # seconds after which a call counts as one that waits: for a guard, a disk, a peer
_GLANCE = 0.05  # seconds between looks of a task that was cancelled
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()
log = logging.getLogger("leases")


async def run(
    act: Callable[[], _Result],
    *,
    undo: Callable[[_Result], object] | None = None,
    clock: BreakableClock | None = None,
    worker: Worker | None = None,
    last: bool = False,
) -> _Result:
    """What *act* returns or raises, called in another thread.

    A cancellation ends it once *act* is over: broken off if it waits by *clock*, its result given to *undo*. Without a
    *clock* it is called here if no thread is to be had.

    :param undo: takes back what *act* has done, also in another thread
    :param clock: what *act* waits by
    :param worker: who calls it; else anybody, but only a few at a time
    :param last: it lets something go, and is called although the task was cancelled before its turn came
    """
    if worker is not None:
        making = _made(act, undo, clock, worker)
        del worker  # whose thread lives as long as anybody has it: no kept exception does
        return await making
    try:
        slot = await _slots_here().take()
    except asyncio.CancelledError:
        if last:
            with suppress(OSError, OwnershipError):  # whoever looks after it goes on trying
                await _hired(act, undo, clock, Slot())
        raise
    return await _hired(act, undo, clock, slot)


async def _hired(
    act: Callable[[], _Result], undo: Callable[[_Result], object] | None, clock: BreakableClock | None, slot: Slot
) -> _Result:
    waits = asyncio.get_running_loop().call_later(_LONG, slot.free)
    try:
        if clock is not None:
            clock.waiting = slot.free_from_thread
        try:
            worker = hire()
        except NoThread:
            if clock is not None:
                raise
            return act()  # it may take a moment, and must be done
        try:
            return await _made(act, undo, clock, worker)
        finally:
            worker.dismiss()
            del worker
    finally:
        waits.cancel()
        slot.free()


async def _made(
    act: Callable[[], _Result],
    undo: Callable[[_Result], object] | None,
    clock: BreakableClock | None,
    worker: Worker,
) -> _Result:
    call = Call(act, undo, clock)
    try:
        worker.put(call)
        interruption = await call.over()
        if interruption is not None:
            taking_back = Call(call.take_back, None, None)
            worker.put(taking_back)
            await taking_back.over()
            raise interruption
    except BaseException:
        call.abandon(worker)
        raise
    finally:
        del worker  # as above
    return call.outcome()


class Slot:
    """The right to make one of the few calls at a time; given back when it is dropped, at the latest."""

    queue: Slots | None = None

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def free(self) -> None:
        """Let another one be made; again, this does nothing."""
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.give()

    def free_from_thread(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits for it
            self._loop.call_soon_threadsafe(self.free)

    def __del__(self) -> None:
        if self.queue is not None:
            self.free_from_thread()


class Slots:
    """Those of one loop, which it does not keep alive. First come, first served."""

    def __init__(self) -> None:
        self._free = _AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> Slot:
        slot = Slot()
        if self._free > 0:
            self._free -= 1
            slot.queue = self  # with no call in between, no signal handler is either
            return slot
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # given to us at the very moment at which we were cancelled
                self.give()
            else:
                turn.cancel()
            raise
        slot.queue = self
        return slot

    def give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _slots_here() -> Slots:
    loop = asyncio.get_running_loop()
    slots = _slots.get(loop)
    if slots is None:
        slots = _slots[loop] = Slots()
    return slots


class Call(Generic[_Result]):
    """One call, put to a worker by the running loop."""

    _value: Any = None
    _error: BaseException | None = None
    _finished = False
    _owed = False  # *act* has done something, and nobody has got its result yet

    def __init__(
        self,
        act: Callable[[], _Result],
        undo: Callable[[_Result], object] | None,
        clock: BreakableClock | None,
    ) -> None:
        self._act: Callable[[], _Result] | None = act
        self._undo = undo
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        if clock is not None:
            clock.unwanted = self._loop.is_closed
        self._fate: dict[None, str] = {}  # whoever is first, the thread or the task, says what becomes of the result

    # -- in the thread

    def __call__(self) -> None:
        act, self._act = self._act, None
        try:
            assert act is not None
            self._value = act()
            self._owed = True
        except BaseException as error:
            self._error = error
        del act
        if self._clock is not None:
            self._clock.settle()
        self._finished = True
        if self._fate.setdefault(None, "over") == "over":
            try:
                self._loop.call_soon_threadsafe(self._done.set_result, None)
                return
            except RuntimeError:  # the loop is closed, and the task with it
                pass
        self.take_back()

    def take_back(self) -> None:
        """Undo what it has done, unless somebody has got the result."""
        value, self._value, self._error = self._value, None, None
        owed, self._owed = self._owed, False
        if owed and self._undo is not None:
            try:
                self._undo(value)
            except (OSError, OwnershipError) as error:  # whoever looks after it goes on trying
                log.warning("what a task that was cancelled had acquired is still to be released: %s", error)

    # -- in the loop

    async def over(self) -> asyncio.CancelledError | None:
        """Wait until it is over, cancelled or not; the first cancellation meanwhile."""
        interruption: asyncio.CancelledError | None = None
        while not self._finished:
            try:
                if interruption is None:
                    await asyncio.shield(self._done)
                else:  # looking, too: an exception of a signal handler may have kept the loop from telling us
                    await asyncio.wait([self._done], timeout=_GLANCE)
            except asyncio.CancelledError as error:
                interruption = interruption or error
                if self._clock is not None:
                    self._clock.break_off()
        return interruption

    def abandon(self, worker: Worker) -> None:
        """Nobody waits for it any more; *worker*, who makes it, is to take it back, or has just done so."""
        if self._clock is not None:
            self._clock.break_off()
        if self._fate.setdefault(None, "abandoned") == "over":
            worker.put(self.take_back)

    def outcome(self) -> _Result:
        """What it returned or raised."""
        self._owed = False
        value, error = self._value, self._error
        self._value = self._error = None
        if error is None:
            return value  # type: ignore[no-any-return]
        try:
            raise error
        finally:
            del error, self  # no circle through the frames of the error
