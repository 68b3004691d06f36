"""A piece of asynchronous code that is cancelled when what it stands on is lost; one typed error leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Scope:
    """The body of an ``async with``, in the task that entered it. Works as :func:`asyncio.timeout` does.

    :param error: makes the error that is to leave
    """

    def __init__(self, error: Callable[[], Exception]) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("async with needs a running task")
        self._error = error
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._cancelling = task.cancelling()
        self._lost = self._cancelled = self._left = False

    def end(self) -> None:
        """It is lost: cancel the body. From any thread; returns at once."""
        self._lost = True
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: there is no body any more
            pass

    def _cancel(self) -> None:
        if not self._left and not self._cancelled:
            self._cancelled = self._task.cancel()

    async def leave(self, error: BaseException | None) -> None:
        """The body is over with *error*; raises what is to leave instead, if anything is.

        A body that ends by itself although all is lost gets the error too: what it did last may have been in vain.
        """
        self._left = True
        if not self._lost:
            return
        outside = 0
        if self._cancelled:
            await self._absorb(error)
            outside = self._task.uncancel() - self._cancelling
        if isinstance(error, asyncio.CancelledError) or error is None:
            if outside == 0:
                raise self._error() from error
            if error is None:
                raise asyncio.CancelledError

    def abandon(self) -> None:
        """There is no body after all."""
        self._left = True

    async def _absorb(self, error: BaseException | None) -> None:
        """If our cancellation was asked for and not delivered, it must not hit what comes after the body."""
        if not isinstance(error, asyncio.CancelledError):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
