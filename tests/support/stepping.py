"""Cancelling a task at its N-th await, at the moment at which it suspends or at that at which it would go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class Stepped:
    """Awaits *coroutine*, and has the task that does so cancelled once.

    :param number: at which suspension, from 1
    :param late: not at once, but when what is awaited there has just come
    :ivar suspensions: so far
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, *, late: bool) -> None:
        self._coroutine = coroutine
        self._number = number
        self._late = late
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        send, value = self._coroutine.send, None
        while True:
            try:
                awaited = send(value)
            except StopIteration as done:
                return done.value
            self.suspensions += 1
            if self.suspensions == self._number:
                if self._late and awaited is not None:
                    awaited.add_done_callback(lambda _: task.cancel())  # before the task's own is called
                else:
                    loop.call_soon(task.cancel)
            try:
                send, value = self._coroutine.send, (yield awaited)
            except BaseException as error:
                send, value = self._coroutine.throw, error


async def cancelled_at(coroutine: Coroutine[Any, Any, Any], number: int, *, late: bool) -> bool:
    """Whether *coroutine* got as far as its suspension *number*; it was cancelled there, and that is how it ended."""
    stepped = Stepped(coroutine, number, late=late)

    async def body() -> None:
        await stepped

    task = asyncio.create_task(body())
    await asyncio.wait([task])
    if stepped.suspensions < number:
        task.result()
        return False
    assert task.cancelled(), task.exception()
    return True
