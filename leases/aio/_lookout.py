"""One thread that polls what the threads of many calls wait for: while nothing happens they cost nothing."""

from __future__ import annotations

import _thread
import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

ROUND = 0.05  # seconds after which descriptors that were added are polled, at most


class Lookout:
    """Tells whoever waits that one of its descriptors is readable, once. Hints only: who is told looks for itself.

    A descriptor may be closed at any moment, and its number stand for something else.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._mutex = threading.Lock()
        self._posts: dict[Callable[[], object], Sequence[int]] = {}
        self._changes = 0
        self._runs = False

    def add(self, tell: Callable[[], object], descriptors: Sequence[int]) -> bool:
        """Have *tell* called once one of *descriptors* is readable; again, after that, or it changes nothing.

        :returns: false if no thread can be started
        """
        with self._mutex:
            if self._posts.get(tell) == descriptors:
                return True
            self._posts[tell] = descriptors
            self._changes += 1
            if not self._runs:
                try:
                    _thread.start_new_thread(self._run, ())
                except RuntimeError:
                    del self._posts[tell]
                    return False
                self._runs = True
        return True

    def drop(self, tell: Callable[[], object]) -> None:
        """Call it no more. Whether it was added or not."""
        with self._mutex:
            if self._posts.pop(tell, None) is not None:
                self._changes += 1

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the program's own threads
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        known, poll, posts = -1, select.poll(), dict[Any, Sequence[int]]()
        while True:
            with self._mutex:
                if not self._posts:
                    self._runs = False
                    return
                changes = self._changes
                if known != changes:
                    posts = dict(self._posts)
            if known != changes:
                known, poll = changes, select.poll()
                for number in {number for numbers in posts.values() for number in numbers}:
                    poll.register(number, select.POLLIN)
            ready = {number for number, _ in poll.poll(ROUND * 1000)}
            for tell in [tell for tell, numbers in posts.items() if not ready.isdisjoint(numbers)] if ready else ():
                self.drop(tell)
                tell()


LOOKOUT = Lookout()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOOKOUT._reset)  # a forked child does not have its thread
