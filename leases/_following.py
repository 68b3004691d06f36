"""The end of a task, to be waited for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from leases._arguments import checked_timeout
from leases._caller import Inheriting
from leases._task import Task
from leases._task_errors import TaskTimeoutError

_PATIENCE = 1.0  # seconds that the last look may take


class Following:
    """The end of one task, to be waited for; made by :meth:`Roster.follow`.

    Guaranteed: it ends once: as what the driver wrote last (``finished``), or as ``lost`` if that one died without
    finishing it, or gave it up. A driver that cannot be looked at is waited for. If another process takes the task over
    before its loss was seen, that one is followed. An end that is told has survived a loss of power.

    Use :meth:`wait`, ``await`` it, or pass a callback to ``follow``. It goes on until the end, or until :meth:`cancel`,
    also if nobody has it any more. In a forked child it never ends.

    :ivar last: the task as it ended, or as it was seen last
    :ivar last_error: what kept the last look from being complete, ``None`` once one is again
    """

    def __init__(
        self,
        path: str,
        task: Task,
        callback: Callable[[Task], object] | None,
        leave: Callable[[Following], object],
        look: Callable[[], object],
    ) -> None:
        self._path = path
        self.callback = None if callback is None else Inheriting(callback)
        self._leave, self._look = leave, look
        self._cancelled = False
        self.stands: bool | None = None  # False: follow() raised; None: neither that nor returned so far
        self._process = os.getpid()
        self._over = False
        self._listeners: list[Callable[[], object]] = []
        self._glances: list[Callable[[], object]] = []  # of whoever waits for one more look, each taken out once
        self.last: Task = task
        self.last_error: Exception | None = None

    @property
    def name(self) -> str:
        """Of the task."""
        return self.last.name

    @property
    def ended(self) -> bool:
        """Whether the task has."""
        return self._over and not self._cancelled

    def wait(self, timeout: float | None = None) -> Task:
        """Wait for the end of the task; the task as it ended.

        :param timeout: seconds, ``None`` for ever. When they are over it is looked at once more: 0 is one look
        :raises TaskTimeoutError: it had not ended by then; it is followed on
        :raises ValueError: *timeout* is no number of seconds
        :raises RuntimeError: called in a forked child, or it was cancelled
        """
        timeout = checked_timeout(timeout)
        if self._process != os.getpid():
            raise RuntimeError(f"{self._path}: follow {self.name!r} anew in a forked child")
        lock = threading.Lock()  # no Event: a signal handler that raises inside one may leave it locked for ever
        lock.acquire()
        seconds = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        try:
            self._listeners.append(lock.release)
            if not self._over and not lock.acquire(timeout=seconds) and not self._has_ended_now():
                raise self._too_late(timeout)
        finally:
            self._forget(lock.release)
        return self._result()

    def _has_ended_now(self) -> bool:
        """By a look that begins after this call; not if that takes long, on a disk that hangs for instance."""
        lock = threading.Lock()
        lock.acquire()
        self._glances.append(lock.release)
        if not self._over:
            self._look()
            lock.acquire(timeout=_PATIENCE)
        return self._over

    def glances(self) -> list[Callable[[], object]]:
        """Who is to be told when the look that begins now is over."""
        found: list[Callable[[], object]] = []
        while self._glances:
            found.append(self._glances.pop())
        return found

    def _forget(self, listener: Callable[[], object]) -> None:
        try:
            self._listeners.remove(listener)
        except ValueError:
            pass

    def _too_late(self, timeout: float | None) -> TaskTimeoutError:
        one = self.last
        return TaskTimeoutError(
            f"{self._path}: task {one.name!r} has not ended within {timeout:g} s; it is driven by {one.driver}",
            resource=self._path,
            task=one,
            hint="wait longer; if its driver hangs, end that: the task is lost then",
        )

    def cancel(self) -> None:
        """Follow it no more; nothing if it has ended. Whoever waits for it gets a RuntimeError."""
        if self._leave(self):
            self._cancelled = True
            self._settle()

    def _result(self) -> Task:
        if self._cancelled:
            raise RuntimeError(f"{self._path}: task {self.name!r} is not followed any more")
        return self.last

    def __await__(self) -> Generator[Any, None, Task]:
        import asyncio  # heavy, and only its users come here

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(None)

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

        try:
            self._listeners.append(tell)
            if self._over:
                tell()
            yield from future
        finally:
            self._forget(tell)
        return self._result()

    def end(self, task: Task, put: Callable[[Callable[[], object]], object]) -> None:
        """It ended as *task*.

        :param put: has the callback called; a program that ends because somebody waited calls it too
        """
        self.last = task
        self._over = True
        if self.callback is not None:
            put(partial(self.callback, task))
        self._settle()

    def _settle(self) -> None:
        self._over = True
        for listener in [*self._listeners, *self.glances()]:
            listener()

    def __repr__(self) -> str:
        return f"<Following {self.name!r} {self.last.state if self.ended else 'not ended'}>"
