"""Threads for calls that block: one each, taken from those that rest, since starting one costs more than a call."""

from __future__ import annotations

import errno
import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias
from weakref import ref

_LINGER = 2.0  # seconds that a thread waits for its next call before it ends
_RESTING = 8  # threads that wait at most
log = logging.getLogger("leases")


class NoThread(OSError):
    """No thread can be started."""


class Worker:
    """One thread, which makes the calls that it is given one after the other; it ends when this is dropped.

    :raises NoThread: it cannot be started
    """

    def __init__(self) -> None:
        self._calls: Calls = queue.SimpleQueue()
        try:
            threading.Thread(target=_work, args=(self._calls,), name="leases-aio", daemon=True).start()
        except RuntimeError as error:
            raise NoThread(errno.EAGAIN, f"a thread for a call that blocks cannot be started: {error}") from None

    def put(self, call: Callable[[], object]) -> None:
        """Have *call*, which must not raise, called. From any thread; returns at once."""
        self._calls.put(call)

    def dismiss(self) -> None:
        """Once it has done what it was given, anybody may hire it. To be called once."""
        self._calls.put(self)

    def __del__(self) -> None:
        if "_calls" in self.__dict__:
            self._calls.put(None)


Calls: TypeAlias = "queue.SimpleQueue[Callable[[], object] | Worker | None]"
_resting: dict[Worker, bool] = {}  # taken and put back in single steps


def hire() -> Worker:
    """A worker that nobody else has.

    :raises NoThread: there is none, and none can be started
    """
    try:
        return _resting.popitem()[0]
    except KeyError:
        return Worker()


def _work(calls: Calls) -> None:
    """The thread. It blocks no signal: what is started by what it calls would inherit that."""
    rested: ref[Worker] | None = None  # once it was dismissed
    while True:
        try:
            call = calls.get(timeout=_LINGER)
        except queue.Empty:
            if rested is not None and _is_free(rested):
                rested = None  # it ends with its worker: whoever has that still may give it something to do
            continue
        if call is None:  # which the garbage collector may say of one that somebody has got hold of again
            if rested is None or _is_free(rested):
                return
        elif isinstance(call, Worker):
            rested = None
            if len(_resting) < _RESTING:
                rested = ref(call)
                _resting[call] = True
        else:
            try:
                call()
            except BaseException:  # it must not: whoever waits for it waits in vain
                log.exception("a call failed: %r", call)
        del call  # nothing is kept alive by a thread that rests


def _is_free(rested: ref[Worker]) -> bool:
    """Whether nobody has that worker, nor can hire it from now on."""
    worker = rested()
    return worker is None or _resting.pop(worker, False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resting.clear)  # a forked child has none of these threads
