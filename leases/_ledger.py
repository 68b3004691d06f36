"""A roster as this process reads and changes it: every change is made while the roster's path is owned."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import ownership
from leases._change import Attempt, Change, Deadline, Decide, DoesNotCount
from leases._roster_draft import discard_prepared
from leases._roster_file import OpenRoster, TakenAway, created, opened, prepared, put, settled, told
from leases._roster_lines import RUNNING, State, head, read_back
from leases._roster_view import View
from leases._seat import Seats
from leases._short_write import short_write
from ownership import Claim, InvalidRecordError, OwnershipError, OwnershipLostError

_ATTEMPTS = 16
_MUCH = 1 << 20  # superseded bytes, beside as many as stand: a new file is worth its while
_LITTLE = 1 << 14  # the same, where there is little room


class Ledger:
    """The roster at one path. One per :class:`Roster`; threads take turns."""

    def __init__(self, path: str, registry: str | None, timeout: float | None, seams: dict[str, Any]) -> None:
        self.path, self.registry = path, registry
        self._timeout = timeout
        self._seams = seams
        self._seats = Seats(path, registry, seams)
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._turn: Any = threading.RLock()  # of changes, which may have to wait for other processes
        self._mutex: Any = threading.RLock()  # of what was read; a signal handler may come here too
        self._changing = False
        self._begun: list[Attempt] = []
        self._doubtful = False
        self._view: View | None = None

    def _here(self) -> None:
        if self._process != os.getpid():  # forked: another thread may have held what we have a copy of
            self._reset()

    @property
    def now(self) -> float:
        clock = self._seams.get("clock")
        return round((time.time_ns() if clock is None else clock.wall_ns()) / 1e9, 6)

    def _deadline(self) -> Deadline:
        clock = self._seams.get("clock")
        return Deadline(self._timeout, time.monotonic if clock is None else clock.monotonic)

    # -- reading

    def read(self, *, sync: bool = False) -> View | None:
        """What the roster says; ``None`` if there is none.

        :param sync: make sure that all of it outlives a loss of power
        """
        self._here()
        with self._mutex:
            if not sync and self._is_unchanged():
                return self._view
            try:
                with opened(self.path) as file:
                    view = self._refreshed(file)
                    if sync:
                        file.sync()
                    return view
            except FileNotFoundError:
                self._view = None
                if not os.path.isdir(os.path.dirname(self.path)):  # misspelled, rather than a roster without tasks
                    raise
                return None

    def _is_unchanged(self) -> bool:
        view = self._view
        if view is None or view.torn:  # a torn line may be cut and written over, to the same size, in one tick
            return False
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == view.identity and (found.st_size, found.st_mtime_ns) == view.changed

    def _refreshed(self, file: OpenRoster) -> View:
        view, self._view = self._view, None  # whatever interrupts us leaves nothing half read
        try:
            if view is not None and view.is_of(file):
                view.read(file)
                self._view = view
                return view
        except ValueError:  # cut from outside, and written again
            pass
        view = View(file)
        try:
            view.read(file)
        except ValueError as error:
            raise InvalidRecordError(
                f"{self.path}: {error}",
                resource=self.path,
                hint="it was damaged: take that line out by hand, with nobody running",
            ) from None
        self._view = view
        return view

    # -- changing

    def change(self, task: str, decide: Decide) -> State:
        """Append the state that *decide* makes of a task, and have it on the disk.

        :raises AlreadyOwnedError: somebody else was changing the roster all the time
        :raises OSError: it cannot be written, or may not outlive a loss of power
        """
        state = self._run(Attempt(task, decide, self._deadline()), self._written)
        assert state is not None
        if state.state != RUNNING:
            self._seats.drives(task, False)
        return state

    def compact(self) -> None:
        """Replace the file by one without superseded lines.

        :raises FileNotFoundError: there is none
        """
        self._run(Attempt("", None, self._deadline()), self._compacted)

    def _run(self, attempt: Attempt, act: Callable[[Claim, Attempt], State | None]) -> State | None:
        self._here()
        try:
            try:
                with self._turn:  # held by others no longer than they may wait: then our time may be over, too
                    self._begin(attempt)
                    try:
                        self._changing = True
                        state = self._carried_out(attempt, act)
                    finally:
                        self._changing = False
                    self._begun.clear()
                self._sync(attempt.files[-1])
                return state
            finally:
                attempt.end()
        except BaseException:
            attempt.end()  # again: a signal handler may have raised on the way out
            raise

    def _begin(self, attempt: Attempt) -> None:
        if self._changing:
            raise RuntimeError(f"{self.path}: a signal handler cannot change the roster that it interrupts a change of")
        for left in self._begun:  # by handlers that raised one after the other
            left.end()
        self._begun[:] = [attempt]

    def _sync(self, file: OpenRoster) -> None:
        try:
            file.sync()
        except OSError:
            self._doubtful = True  # the next fsync of that file may say nothing of what this one lost: fsync(2)
            raise

    def _carried_out(self, attempt: Attempt, act: Callable[[Claim, Attempt], State | None]) -> State | None:
        for _ in range(_ATTEMPTS):
            claim = self._acquired(attempt)
            attempt.claims.append(claim)
            try:
                with self._mutex:
                    state = act(claim, attempt)
                claim.verify()
                return state
            except (
                DoesNotCount,
                TakenAway,
                OwnershipLostError,
                FileExistsError,
            ):  # broken meanwhile: look what became of it
                continue
            finally:
                attempt.let_go()
        raise OSError(errno.EAGAIN, "it keeps being changed from outside", self.path)

    def _acquired(self, attempt: Attempt) -> Claim:
        return ownership.acquire(
            self.path,
            timeout=attempt.left,
            registry=self.registry,
            labels={"roster": "is being changed"},
            **self._seams,
        )

    def _written(self, claim: Claim, attempt: Attempt) -> State:
        """Append it, and see that it counts."""
        file, view = self._opened(attempt), self._view
        assert attempt.decide is not None
        assert view is not None
        if self._doubtful:
            view = self._rewritten(view, attempt)
            file = attempt.files[-1]
        if attempt.written is not None and view.get(attempt.task) == attempt.written:
            return attempt.written
        change = Change(view, claim, self.now, lambda: self._refreshed(file), self._seats)
        decided = attempt.decide(change)
        if change.view.get(attempt.task) == decided:
            return decided
        lines = change.lines(decided)
        state = read_back(lines)
        if change.view.torn:
            with attempt.critical():
                file.cut(change.view.offset)
        attempt.written = state
        self._append(file, lines, change.view, attempt)
        if self._refreshed(file).get(state.task) != state:
            raise DoesNotCount
        self._tidy(attempt)
        return state

    def _opened(self, attempt: Attempt) -> OpenRoster:
        try:
            file = opened(self.path, writing=True, forks=attempt.forks)
        except FileNotFoundError:
            if attempt.decide is None:
                raise
            created(self.path, head(time.time_ns(), 0), self.registry, attempt.claims[-1].token)
            file = opened(self.path, writing=True, forks=attempt.forks)
        attempt.files.append(file)
        self._refreshed(file)
        return file

    def _append(self, file: OpenRoster, lines: bytes, view: View, attempt: Attempt) -> None:
        count = file.append(lines)
        if count != len(lines):
            whole = lines[:count].rfind(b"\n") + 1  # a whole line may have been read by others
            with attempt.critical():
                file.cut(view.offset + whole)
            raise told(short_write(view.offset + len(lines)), self.path)

    # -- being rid of what is superseded

    def _compacted(self, _: Claim, attempt: Attempt) -> None:
        self._opened(attempt)
        assert self._view is not None
        self._rewritten(self._view, attempt)

    def _tidy(self, attempt: Attempt) -> None:
        view = self._view
        try:
            if view is not None and self._is_worth_it(view, attempt.files[-1]):
                self._rewritten(view, attempt)
        except (OSError, OwnershipError, TakenAway):  # what was to be written is written; another time
            pass

    def _is_worth_it(self, view: View, file: OpenRoster) -> bool:
        """Whether a new file would be much shorter; where there is little room, while there is still enough for it."""
        spare = view.superseded - view.standing
        return spare > _LITTLE and (spare > _MUCH or spare > file.room() > view.standing)

    def _rewritten(self, view: View, attempt: Attempt) -> View:
        """In its critical section nobody can evict us: what others append is not lost."""
        token = attempt.claims[-1].token
        try:
            temporary = prepared(self.path, view.whole(time.time_ns()), token)
            with attempt.critical():
                put(self.path, temporary, attempt.forks)
        except BaseException as error:
            discard_prepared(self.path, token)
            if isinstance(error, OSError) and error.filename is None:
                raise told(error, self.path) from None
            raise
        settled(self.path)
        self._doubtful = False
        file = opened(self.path, writing=True, forks=attempt.forks)
        attempt.files.append(file)
        return self._refreshed(file)
