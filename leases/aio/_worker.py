"""Threads for calls that block: one each, taken from those that rest, since starting one costs more than a call."""

from __future__ import annotations

import errno
import os
import queue
import signal
import threading
from collections.abc import Callable

_LINGER = 2.0  # seconds that a thread waits for its next call before it ends
_RESTING = 8  # threads that wait at most
_resting: dict[Worker, bool] = {}  # taken and put back in single steps


class Worker:
    """One thread, which makes the calls that it is given one after the other.

    :raises OSError: it cannot be started
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        try:
            threading.Thread(target=self._run, name="leases-aio", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.ENOMEM, f"a thread for a call that blocks cannot be started: {error}") from None

    def put(self, call: Callable[[], object]) -> None:
        """Have *call*, which must not raise, called. From any thread; returns at once."""
        self._calls.put(call)

    def dismiss(self) -> None:
        """Once it has done what it was given, anybody may hire it."""
        self._calls.put(None)

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the program's own threads
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            try:
                call = self._calls.get(timeout=_LINGER)
            except queue.Empty:
                if _resting.pop(self, False):
                    return
                continue  # hired, and not told yet what to do
            if call is not None:
                call()
                del call  # nothing is to be kept alive by a thread that rests
            elif len(_resting) < _RESTING:
                _resting[self] = True
            else:
                return


def hire() -> Worker:
    """A worker that nobody else has.

    :raises OSError: there is none, and none can be started
    """
    try:
        return _resting.popitem()[0]
    except KeyError:
        return Worker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resting.clear)  # a forked child has none of these threads
