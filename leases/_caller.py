"""Callbacks are called in threads of their own, so that none keeps anybody else's end from being seen."""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable

_STUCK = 1.0  # seconds after which a call that does not return keeps its thread, and the others go on in another
_LAST = 1.0  # seconds that a program which ends waits for the calls that are due
_log = logging.getLogger("leases")
_open: set[Caller] = set()  # those that have something to call, or are calling


class Inheriting:
    """*callback*, to be called with the signal mask of this thread: what it starts inherits that."""

    def __init__(self, callback: Callable[..., object]) -> None:
        self._callback = callback
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if hasattr(signal, "pthread_sigmask") else None

    def __call__(self, *arguments: object) -> object:
        if self._mask is None:
            return self._callback(*arguments)
        before = signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            return self._callback(*arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __repr__(self) -> str:
        return repr(self._callback)


class Caller:
    """Calls what it is given, each once, one after the other, in a thread that is there as long as there is something.

    One that raises is logged. One that does not return keeps its thread; the others go on in another. Only one thread
    gives it something, and relieves it.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._mutex = threading.Lock()
        self._due: deque[Callable[[], object]] = deque()
        self._runner: object | None = None  # whose thread goes on with what is due
        self._since: float | None = None  # when its present call began
        self._patience = _STUCK

    @property
    def pending(self) -> bool:
        """Whether any is still to be called."""
        return bool(self._due)

    def put(self, call: Callable[[], object]) -> None:
        """Have *call* called, once, from the next :meth:`relieve` on."""
        _register()
        with self._mutex:
            _open.add(self)
            self._due.append(call)

    def relieve(self) -> None:
        """See that what is due is called; to be repeated while something is :attr:`pending`."""
        with self._mutex:
            since, me = self._since, object()
            if not self._due or (self._runner and (since is None or time.monotonic() - since < self._patience)):
                return
            try:
                _thread.start_new_thread(self._run, (me,))
            except RuntimeError as error:  # another time
                _log.warning("callbacks wait: a thread cannot be started: %s", error)
                return
            if self._runner:
                self._patience = 0.0  # the next one may be of the same kind
            self._runner, self._since = me, None

    def _run(self, me: object) -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the program's own threads, unless a call runs
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while call := self._next(me):
            try:
                call()
            except BaseException:  # SystemExit too: it would end the thread, not the program
                _log.exception("a callback failed: %r", call)
            with self._mutex:
                if self._runner is me:
                    self._since, self._patience = None, _STUCK

    def _next(self, me: object) -> Callable[[], object] | None:
        with self._mutex:
            if self._runner is not me:  # another one has taken over while we were away
                return None
            if not self._due:
                self._runner = None
                _open.discard(self)
                return None
            self._since = time.monotonic()
            return self._due.popleft()

    @property
    def is_ours(self) -> bool:
        """Whether it is not a copy of a parent's."""
        return self._process == os.getpid()


def _finish() -> None:
    """Exit hook: what is due when a program ends is called all the same; not for ever."""
    until = time.monotonic() + _LAST
    while any(one.is_ours for one in tuple(_open)) and time.monotonic() < until:
        time.sleep(0.005)


_registered: list[Callable[[], None]] = []


def _register() -> None:
    if not _registered:
        _registered.append(atexit.register(_finish))
