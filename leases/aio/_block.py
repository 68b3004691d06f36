"""The body of an ``async with``: cancelled once what it stands on is lost, and one typed error leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from contextlib import suppress
from weakref import ref

from ownership import OwnershipLostError

_LOST = "what it stands on was lost"  # by which our cancellations are told from those of others
_MEANWHILE = "meanwhile: "
_STANDING = "_leases_standing"  # of a group of errors: the resources of the blocks that it has left


class Block:
    """One body, in the task that entered it. It is ended as :func:`asyncio.timeout` ends one."""

    _cancelling = 0  # cancellations of the task from before
    _cancelled = False  # by us
    _handled = 0  # cancellations that had come since, and were over when we cancelled it

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        # weakly: whoever is to tell of the loss holds us, and must not keep a task that was dropped from ending
        self._task: ref[asyncio.Task[object]] | None = None
        self._over = False

    def lose(self, _loss: object = None) -> None:
        """It is lost: cancel the body, if there is one. From any thread; returns at once."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there is no body any more
                loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        task = self._entered_by()
        if task is not None and not self._over and not self._cancelled:
            since = task.cancelling() - self._cancelling
            self._handled = max(0, since - 1 if _is_being_cancelled(task) else since)
            self._cancelled = True
            task.cancel(_LOST)

    def _entered_by(self) -> asyncio.Task[object] | None:
        return None if self._task is None else self._task()

    def enter(self) -> None:
        """:raises RuntimeError: it was entered before, or not by a task"""
        if self._task is not None:
            raise RuntimeError("it is entered once: acquire it again")
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("async with needs a running task")
        self._task, self._cancelling = ref(task), task.cancelling()
        self._loop = asyncio.get_running_loop()

    def leave(self, error: BaseException | None, loss: OwnershipLostError | None) -> BaseException | None:
        """The body is over with *error*; what is to leave instead, ``None`` for that.

        A body that ends by itself although all is lost gets the loss too: what it did last may have been in vain. One
        that was cancelled from outside stays cancelled; what it raised of its own stays, with a note.

        :param loss: known by now, whether or not we were told of it
        """
        self.abandon()
        task, outside = self._entered_by(), False
        ours, others = _cancellations(error)
        handled = max(0, self._handled - max(0, ours - 1))  # those for the loss of what is around it are not over
        if task is not None and self._cancelled:
            left = task.uncancel() - self._cancelling
            handled = min(handled, left)  # a timeout takes its own back
            outside = left > handled or (handled > 0 and others > 0)
        if loss is None:
            return None
        if error is None:
            return asyncio.CancelledError() if outside or _is_being_cancelled(asyncio.current_task()) else loss
        if isinstance(error, asyncio.CancelledError) and self._cancelled and not outside:
            return loss
        if not isinstance(error, BaseExceptionGroup):
            if not _says(error, {loss.resource}):
                error.add_note(f"{_MEANWHILE}{loss}")
            return None
        standing = {loss.resource, *_standing(error)}
        if _says(error, standing):  # a group of tasks may have been told one by one
            for other in _notes(error):
                loss.add_note(other)
            return loss
        error.__dict__[_STANDING] = standing
        error.add_note(f"{_MEANWHILE}{loss}")
        return None

    def abandon(self) -> None:
        """There is no body any more."""
        self._over = True
        self._loop = None


def _is_being_cancelled(task: asyncio.Task[object] | None) -> bool:
    """Whether a cancellation is on its way into *task*.

    That it was cancelled is not enough to know: before Python 3.13 a task group whose tasks fail while it is left does
    that to its task, handles it, and leaves the count as it is.
    """
    if task is None or getattr(task, "_must_cancel", False):
        return task is not None
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


def _says(error: BaseException, resources: Container[object]) -> bool:
    """Whether *error* is the loss of those resources and nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(_says(one, resources) for one in error.exceptions)
    return isinstance(error, OwnershipLostError) and error.resource in resources


def _standing(error: BaseException) -> set[object]:
    """The resources whose blocks *error* has left before: their losses are told with those of blocks around them."""
    found: set[object] = set(error.__dict__.get(_STANDING, ()))
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        found |= _standing(one)
    return found


def _notes(error: BaseException) -> list[str]:
    """What was noted of the losses of blocks that *error* has left before."""
    found = [note for note in getattr(error, "__notes__", ()) if note.startswith(_MEANWHILE)]
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        found += _notes(one)
    return found
