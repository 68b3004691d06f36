"""The roster: the tasks of a session, each with the identity of the process that drives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from os import fspath
from pathlib import Path
from typing import Any

from leases._arguments import checked_path, checked_registry, checked_timeout
from leases._change import Change, Decide
from leases._driving import Coroner, coroner_of, looked_at, taken
from leases._follower import Follower
from leases._following import Following
from leases._lease import StrPath
from leases._ledger import Ledger
from leases._roster_lines import GIVEN_UP, RUNNING, Lines, State, checked_name, checked_status
from leases._roster_view import uncollected
from leases._task import Restored, Task
from leases._task_claim import TaskClaim
from ownership import OwnershipError

_MANY = 10_000
_ROUNDS = 64  # reads after each of which somebody new was driving


class Roster:
    """The tasks of a session in one file, each with the identity of its driver and a status that only that one writes.

    Guaranteed: a task is driven by one process at a time; it is ``lost`` only on proof that this process has ended
    (gone, a zombie, its number reused), or by its own word. What it said counts until then, and nothing that a
    displaced one says later does. What a call has recorded when it returns survives a loss of power; a crash at any
    instruction leaves a roster that everybody can read and change. Reading never writes.

    Not guaranteed: anything against programs that write the file by other means, or when it is deleted; that a lost
    driver's work was not done, only that it did not say so. From another pid namespace or boot a driver is judged by
    its seat, ``PATH.driver-N``, which it owns while it drives, as any owner is; if nothing can be told (a cleaner
    took the witness of a dead one) the task counts as running until somebody breaks that seat.

    Any number of processes and threads may use one roster. Changes are made one at a time, while the path is owned by
    whoever makes one: own another path for as long as the session lasts.

    :param path: of the file, made by the first task; its directory must exist
    :param registry: the shared registry, for rosters that several accounts use
    :param timeout: seconds to wait for others' changes, ``None`` for ever
    :param seams: ``clock=`` and ``processes=``, for tests
    """

    def __init__(
        self, path: StrPath, *, registry: StrPath | None = None, timeout: float | None = 30.0, **seams: Any
    ) -> None:
        canonical = os.path.realpath(checked_path(path, "path"))
        shared = checked_registry(registry)
        self._ledger = Ledger(canonical, shared, checked_timeout(timeout), seams)
        self._follower = Follower(self._ledger, canonical, shared, seams)
        self._coroner: Callable[[], Coroner] = lambda: coroner_of(canonical, shared, seams)

    @property
    def path(self) -> Path:
        """The canonical path, pinned when this was made."""
        return Path(self._ledger.path)

    # -- reading

    def restore(self) -> Restored:
        """Every task, by what has become of it: running (left alone), lost, finished. Empty if there is no roster.

        Guaranteed: none that is driven by a process that lives, is stopped, or cannot be looked at counts as lost; none
        that was finished before its driver ended does either.

        :raises RecordError: what is at the path is no roster
        :raises OSError: it cannot be read, or its directory or registry is not there
        :raises UnsafeDirectoryError: what is to be the registry is none
        """
        coroner, view = self._coroner(), self._ledger.read(sync=True)
        for _ in range(_ROUNDS):
            if view is None:
                return Restored((), (), ())
            if not coroner.judge_all(view):
                break
            view = self._ledger.read(sync=True)
        assert view is not None
        running: list[Task] = []
        lost: list[Task] = []
        finished: list[Task] = []
        lists = {"running": running, "lost": lost, "finished": finished}
        tasks = coroner.tasks(view)
        for task in uncollected(len(view.tasks) > _MANY, lambda: list(tasks)):
            lists[task.state].append(task)
        return Restored(tuple(running), tuple(lost), tuple(finished))

    def task(self, name: str) -> Task:
        """One task, by what has become of it.

        :raises LookupError: the roster does not have it
        """
        return self._looked_at(checked_name(name), self._coroner(), sync=True)

    def _looked_at(self, name: str, coroner: Coroner, *, sync: bool = False) -> Task:
        while True:
            view = self._ledger.read(sync=sync) or Lines()
            state = view.get(name)
            if state is None:
                raise LookupError(f"{self.path}: no task {name!r}")
            if state.state != RUNNING or state.by in coroner.judgements:
                return coroner.task(view, state)
            coroner.judge(view, state.by)

    # -- driving

    def start(self, name: str, status: str = "", *, data: Any = None) -> TaskClaim:
        """Drive a new task.

        A call that raises leaves nothing that is driven by us, unless not even that can be written (:meth:`driven`).

        :param name: that no task of this roster has, 512 characters at most
        :param status: what is said about it at first
        :param data: anything that JSON can say, 64 KiB at most
        :raises TaskTakenError: there is such a task already, whatever has become of it
        :raises AlreadyOwnedError: others were changing the roster all the time
        :raises RecordError: what is at the path is no roster
        :raises OSError: it cannot be written
        :raises ValueError: what cannot be recorded
        """
        checked_name(name), checked_status(status)
        coroner, view = self._coroner(), self._ledger.read()
        if view is not None and name in view.tasks:  # a name is used once: no need to wait for others' changes
            raise taken(self._ledger.path, self._looked_at(name, coroner))

        def decide(change: Change) -> State:
            known, task = looked_at(change, coroner, name)
            if known is not None and task is not None:
                raise taken(self._ledger.path, task)
            return State(name, change.token, change.me.instance_id, RUNNING, status, data, change.now, change.now)

        return self._begun(name, decide)

    def claim_lost(self, task: Task | str) -> TaskClaim:
        """Drive a lost task on, from what was last said about it. Of many who try exactly one does.

        A call that raises leaves nothing that is driven by us, unless not even that can be written (:meth:`driven`).

        :param task: or its name
        :returns: its handle; ``before`` is what the one before left
        :raises TaskTakenError: it is not lost: it is driven, by whoever was faster for instance, or finished
        :raises LookupError: the roster does not have it
        :raises AlreadyOwnedError: others were changing the roster all the time
        :raises OSError: it cannot be written
        """
        name = checked_name(task.name if isinstance(task, Task) else task)
        coroner = self._coroner()
        found = self._looked_at(name, coroner)
        if found.state != "lost":  # so that who comes late waits for nobody
            raise taken(self._ledger.path, found)
        before: list[Task] = []

        def decide(change: Change) -> State:
            known, found = looked_at(change, coroner, name)
            if known is None or found is None:
                raise LookupError(f"{self.path}: no task {name!r}")
            if found.state != "lost":
                raise taken(self._ledger.path, found)
            before[:] = [found]
            return known._replace(
                token=change.token, by=change.me.instance_id, state=RUNNING, since=change.now, at=change.now
            )

        return self._begun(name, decide, before)

    def driven(self, name: str) -> TaskClaim:
        """The handle of a task that this process drives already, whoever dropped the one it had.

        :raises TaskTakenError: it does not drive it
        :raises LookupError: the roster does not have it
        """
        found: list[State] = []

        def decide(change: Change) -> State:
            state = change.view.get(checked_name(name))
            if state is None:
                raise LookupError(f"{self.path}: no task {name!r}")
            if state.by != change.me.instance_id or state.state != RUNNING:
                raise taken(self._ledger.path, self.task(name))
            found[:] = [state]
            return state

        self._ledger.change(name, decide)
        return TaskClaim(self._ledger, found[0])

    def _begun(self, name: str, decide: Decide, before: Sequence[Task] = ()) -> TaskClaim:
        """The handle of what *decide* begins, or nothing of it: what was written nevertheless is given up."""
        tried: list[State] = []

        def noted(change: Change) -> State:
            tried.append(decide(change))
            return tried[-1]

        try:
            state = self._ledger.change(name, noted)
            self._follower.wake()
            return TaskClaim(self._ledger, state, before[0] if before else None)
        except BaseException:
            for one in tried:
                self._undo(name, one)
            raise

    def _undo(self, name: str, tried: State) -> None:
        def decide(change: Change) -> State:
            known = change.view.get(name)
            if known is None or (known.token, known.by, known.state) != (tried.token, tried.by, RUNNING):
                raise LookupError(name)
            return known._replace(state=GIVEN_UP, at=change.now)

        try:
            view = self._ledger.read()
            if view is not None and name in view.tasks:
                self._ledger.change(name, decide)
        except (OSError, OwnershipError, LookupError, RuntimeError):
            pass  # nothing of it is there; or it stays ours, see driven()

    # -- following

    def follow(self, task: Task | str, callback: Callable[[Task], object] | None = None) -> Following:
        """Follow a task to its end: what its driver writes, or that it died without a word.

        :param task: or its name
        :param callback: called once with the task as it ended, on a thread for callbacks; never if this call raises.
            One that raises is logged, one that blocks keeps that thread, and the others go on in another
        :returns: what can be waited for, also by ``await``
        :raises LookupError: the roster does not have it
        :raises OSError: the roster cannot be read, or a thread cannot be started
        """
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be callable, got {callback!r}")
        name = checked_name(task.name if isinstance(task, Task) else task)
        view = self._ledger.read() or Lines()
        state = view.get(name)
        if state is None:
            raise LookupError(f"{self.path}: no task {name!r}")
        now = self._coroner().task(view, state)
        one = Following(self._ledger.path, now, callback, self._follower.leave, self._follower.wake)
        try:
            self._follower.add(one, state)
            one.stands = True  # the last step, as the other is the first: no signal handler comes between
            return one
        except BaseException:
            one.stands = False
            raise

    def wait(self, task: Task | str, timeout: float | None = None) -> Task:
        """Wait for the end of a task; the task as it ended. See :meth:`follow`.

        :param timeout: seconds, ``None`` for ever; 0 is one look
        :raises TaskTimeoutError: it had not ended by then
        """
        timeout = checked_timeout(timeout)
        following = self.follow(task)
        try:
            return following.wait(timeout)
        finally:
            following.cancel()

    # -- the file

    def compact(self) -> None:
        """Replace the file by one that has a line for each task. It happens by itself when most of it is superseded.

        :raises FileNotFoundError: there is no roster
        """
        self._ledger.compact()

    def __repr__(self) -> str:
        return f"Roster({fspath(self.path)!r})"
