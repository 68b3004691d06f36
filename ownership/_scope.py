"""A piece of asynchronous code that is cancelled when what it stands on is lost; one typed error leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LOST = "what it stands on was lost"  # by which such cancellations are told from those of others


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
        self._handled = 0  # cancellations that had come since, and were over when we cancelled it
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
            since = self._task.cancelling() - self._cancelling
            self._handled = max(0, since - 1 if _is_being_cancelled(self._task) else since)
            self._cancelled = self._task.cancel(_LOST)

    async def leave(self, error: BaseException | None) -> None:
        """The body is over with *error*; raises what is to leave instead, if anything is.

        A body that ends by itself although all is lost gets the error too: what it did last may have been in vain.
        """
        self._left = True
        if not self._lost:
            return
        outside = False
        if self._cancelled:
            await self._absorb(error)
            ours, others = _cancellations(error)
            handled = max(0, self._handled - max(0, ours - 1))  # those for the loss of what is around it are not over
            left = self._task.uncancel() - self._cancelling
            handled = min(handled, left)  # a timeout takes its own back
            outside = left > handled or (handled > 0 and others > 0)
        if isinstance(error, asyncio.CancelledError) or error is None:
            if not outside:
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


def _is_being_cancelled(task: asyncio.Task[object]) -> bool:
    """Whether a cancellation is on its way into *task*.

    That it was cancelled is not enough to know: before Python 3.13 a task group whose tasks fail while it is left does
    that to its task, handles it, and leaves the count as it is.
    """
    if getattr(task, "_must_cancel", False):
        return True
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None or waiter.done():
        return waiter is not None and bool(waiter.cancelled())
    if isinstance(waiter, asyncio.Task):
        return waiter.cancelling() > 0
    return type(waiter) is not asyncio.Future and bool(getattr(waiter, "_cancel_requested", True))


def _cancellations(error: BaseException | None) -> tuple[int, int]:
    """How many cancellations for a loss, and by others, *error* comes from: each while the one before was handled."""
    ours = others = 0
    chain = error if isinstance(error, asyncio.CancelledError) else None
    while chain is not None:
        if isinstance(chain, asyncio.CancelledError):
            ours += chain.args[:1] == (_LOST,)
            others += chain.args[:1] != (_LOST,)
        chain = chain.__context__  # type: ignore[assignment]
    return ours, others
