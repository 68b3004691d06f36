"""Following tasks to their end: what their drivers write, or that they died without a word."""

from __future__ import annotations

import _thread
import errno
import logging
import os
import signal
import threading
import time
from typing import Any

from leases._caller import Caller
from leases._driving import Coroner, identity, task_of
from leases._following import Following
from leases._ledger import Ledger
from leases._roster_lines import RUNNING, State
from leases._roster_view import View
from leases._task import Task
from ownership import Judgement, OwnershipError, OwnerWatch, Verdict

_TICK = 0.25  # seconds between two looks at the file
_SOON = 0.002  # the same while follow() is about to return
_SURE = 5.0  # seconds between two looks at a driver whose end would wake us
_log = logging.getLogger("leases")


class Follower:
    """Follows every task of one roster that somebody wants to know the end of, in one thread while there are any."""

    def __init__(self, ledger: Ledger, path: str, registry: str | None, seams: dict[str, Any]) -> None:
        self._ledger = ledger
        self._coroner = Coroner(path, registry, seams)
        self._processes = seams.get("processes")
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._mutex: Any = threading.RLock()
        self._watch = OwnerWatch(processes=self._processes)
        self._watched: dict[str, Any] = {}
        self._due: dict[str, float] = {}
        self._hinted: set[str] = set()  # those who seem to have ended: nothing wakes us again if that was premature
        self._followed: list[Following] = []
        self._states: dict[str, State] = {}
        self._seen: View | None = None
        self._runner: object | None = None  # whose thread runs, if one does
        self._caller = Caller()

    def add(self, one: Following, state: State) -> None:
        """Follow *one* from now on.

        :raises OSError: a thread cannot be started
        """
        if self._process != os.getpid():
            self._reset()
        with self._mutex:
            idle = self._runner is None
            try:
                self._states.setdefault(one.name, state)
                self._followed.append(one)
                if idle:
                    self._runner = object()
                    _thread.start_new_thread(self._run, (self._runner,))  # one step: no signal handler splits it
            except BaseException as error:
                if idle:
                    self._runner = None  # if it was started after all, it ends by that
                self._followed[:] = [other for other in self._followed if other is not one]
                if isinstance(error, RuntimeError):
                    told = f"a thread to follow tasks cannot be started: {error}"
                    raise OSError(errno.ENOMEM, told, self._ledger.path) from None
                raise
        self._watch.wake()

    def leave(self, one: Following) -> bool:
        """Follow *one* no more; whether it was followed, and has not ended."""
        if self._process != os.getpid():
            return False
        with self._mutex:
            if one not in self._followed:
                return False
            self._followed.remove(one)
        self._watch.wake()
        return True

    def wake(self) -> None:
        """The roster has changed."""
        if self._followed and self._process == os.getpid():
            self._watch.wake()

    def _run(self, me: object) -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the program's own threads
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        hints: frozenset[str] = frozenset()
        while True:
            with self._mutex:
                if self._runner is not me:
                    return
                if not self._followed and not self._caller.pending:
                    self._watch.close()
                    self._watched.clear()
                    self._due.clear()
                    self._hinted.clear()
                    self._states.clear()
                    self._seen = None
                    self._runner = None
                    return
            try:
                self._caller.relieve()
                self._look(hints)
                hints = self._watch.wait(_SOON if self._is_being_added() else _TICK)
            except (OSError, OwnershipError) as error:  # nothing ends by that
                for one in list(self._followed):
                    one.last_error = error
                time.sleep(_TICK)
            except Exception:
                _log.exception("%s: following goes on after an error", self._ledger.path)
                time.sleep(_TICK)

    def _look(self, hints: frozenset[str]) -> None:
        """One look at every task: at its driver first, at its lines second."""
        told = [tell for one in list(self._followed) for tell in one.glances()]
        try:
            self._look_at_all(hints)
        finally:
            for tell in told:
                tell()

    def _look_at_all(self, hints: frozenset[str]) -> None:
        view = self._seen = self._ledger.read() or self._seen  # of one that was deleted what was seen last stands
        open_ = {by for name in self._names() if (by := self._driver(view, name))}
        dead = {by: judgement for by in open_ if view and (judgement := self._judged(view, by, hints)).verdict.is_dead}
        if dead:
            view = self._seen = self._ledger.read() or self._seen
        ends: list[tuple[Following, Task]] = []
        for one in list(self._followed):
            task = self._ended(view, one, dead)
            one.last_error = None
            if one.stands is False:
                self.leave(one)
            elif task is not None and one.stands:
                ends.append((one, task))
        if ends:
            self._ledger.read(sync=True)
            self._tell(ends)
        for by in set(self._watched) - open_:
            self._watch.discard(self._watched.pop(by))
            self._due.pop(by, None)
            self._hinted.discard(by)
            self._coroner.judgements.pop(by, None)

    def _is_being_added(self) -> bool:
        return any(one.stands is None for one in list(self._followed))

    def _names(self) -> set[str]:
        return {one.name for one in list(self._followed)}

    def _driver(self, view: View | None, name: str) -> str:
        """Who is to be looked at for the task *name*; nobody if it has ended by its own word."""
        state = view.get(name) if view is not None else None
        if state is not None:
            self._states[name] = state
        state = self._states[name]
        return state.by if state.state == RUNNING else ""

    def _judged(self, view: View, by: str, hints: frozenset[str]) -> Judgement:
        """What has become of a driver; looked at when that may have changed."""
        now = time.monotonic()
        self._hinted |= hints
        known = self._coroner.judgements.get(by)
        if known is not None and by not in hints and now < self._due.get(by, 0.0):
            return known
        watched = False
        owner = identity(view, by)
        if owner is not None:
            self._watched.setdefault(by, owner)
            watched = self._watch.add(owner)
        self._due[by] = now + (_SURE if watched and by not in self._hinted else 0.0)
        return self._coroner.judge(view, by)

    def _ended(self, view: View | None, one: Following, dead: dict[str, Judgement]) -> Task | None:
        """The task as it ended, ``None`` if it has not."""
        if view is None:
            return None
        state = view.get(one.name)
        if state is None:
            return None
        if state.state == RUNNING and state.by not in dead:
            judgement = self._coroner.judgements.get(state.by) or Judgement(Verdict.UNKNOWN, "not looked at yet")
            one.last = task_of(view, state, judgement if not judgement.verdict.is_dead else None)
            return None
        return task_of(view, state, dead.get(state.by))

    def _tell(self, ends: list[tuple[Following, Task]]) -> None:
        for one, task in ends:
            if not self.leave(one):  # cancelled meanwhile
                continue
            one.end(task, self._caller.put)
            self._caller.relieve()
