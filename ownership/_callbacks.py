"""The second thread: it runs what others want to be called when something ends, so that none can delay the keeper."""

from __future__ import annotations

import atexit
import errno
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ownership import _fork
from ownership._flag import Flag
from ownership._log import log, tell

_LAST = 1.0  # seconds that a program which ends waits for the calls that are due
_STUCK = 1.0  # seconds after which a callback that does not return is left behind with its thread, and others go on


class Callbacks:
    """Calls one after the other, in a thread that is started when the first is registered.

    One that raises is logged. One that does not return keeps its thread; the others go on in another.
    """

    def __init__(self) -> None:
        self._mutex: Any = threading.RLock()  # a signal handler may come here too
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._since: float | None = None  # when the present call began
        self._patience = _STUCK

    def prepare(self) -> None:
        """Have the thread, before anything can happen that it is needed for.

        :raises OSError: it cannot be started
        """
        handled = sys.exc_info()[1]  # by our caller
        with self._mutex:
            if self._thread is None:
                try:
                    self._start()
                    atexit.register(_finish, os.getpid())
                except RuntimeError as error:
                    raised = error.__context__  # perhaps by a signal handler: Thread.start() made it another
                    if raised is not None and raised is not handled:
                        raise raised from None
                    raise OSError(errno.ENOMEM, f"the thread for callbacks cannot be started: {error}") from None

    def put(self, callback: Callable[[], object]) -> None:
        """Have *callback* called soon, once. From any thread, also inside a signal handler."""
        self._waiting.put(callback)

    def finish(self) -> None:
        """Have everything called that is due by now; not for ever."""
        if self._thread is not None:
            done = Flag()
            self.put(done.set)
            done.wait(_LAST)

    def relieve(self) -> None:
        """If a call does not return while others wait: go on with those. For the keeper, every tick."""
        since = self._since
        if since is not None and self.pending and time.monotonic() - since >= self._patience:
            with self._mutex:
                try:
                    self._start()
                    self._patience = 0.0  # the next one may be of the same kind
                except RuntimeError as error:
                    tell(log.warning, "callbacks are waiting for one that does not return: %s", error)

    @property
    def pending(self) -> bool:
        """Whether any is still to be called."""
        return not self._waiting.empty()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="ownership-callbacks", daemon=True)
        before, self._thread, self._since = self._thread, thread, None
        try:
            thread.start()
        except BaseException:
            self._thread = before
            raise

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the program's own threads, unless a callback runs
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        me = threading.current_thread()
        while self._thread is me:
            callback = self._waiting.get()
            if self._thread is not me:  # another one has taken over while we were away
                self._waiting.put(callback)
                return
            self._since = time.monotonic()
            try:
                callback()
            except BaseException:  # SystemExit too: it would end the thread, not the program
                tell(log.exception, "a callback failed: %r", callback)
            if self._thread is me:
                self._since, self._patience = None, _STUCK


CALLBACKS = Callbacks()


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A callback, called with the signal mask of the thread that registered it: what it starts inherits that."""

    callback: Callable[..., object]
    mask: frozenset[int]

    def __call__(self, *arguments: object) -> object:
        if not hasattr(signal, "pthread_sigmask"):
            return self.callback(*arguments)
        before = signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        try:
            return self.callback(*arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __repr__(self) -> str:
        return repr(self.callback)


def prepared(callback: Callable[..., object]) -> Prepared:
    """*callback* as it is to be called on the second thread, which is there from now on.

    :raises OSError: that cannot be started
    """
    CALLBACKS.prepare()
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if hasattr(signal, "pthread_sigmask") else ()
    return Prepared(callback, frozenset(masked))


def call(callback: Callable[..., object], *arguments: object) -> None:
    """Have *callback* called with *arguments* on the second thread."""
    CALLBACKS.put(partial(callback, *arguments))


def _finish(process: int) -> None:
    """Exit hook: whoever ends because of what it was to be told of is told all the same."""
    if os.getpid() == process:
        CALLBACKS.finish()


def _child() -> None:
    CALLBACKS.__init__()  # type: ignore[misc]


_fork.in_child(_child)
