"""The handle of whoever drives a task: the only object whose word about it counts."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, NoReturn, Self

from leases._change import Change
from leases._driving import task_of
from leases._ledger import Ledger
from leases._roster_lines import FINISHED, GIVEN_UP, RUNNING, Lines, State, checked_status
from leases._task import FAILED, Task
from leases._task_errors import TaskLostError
from ownership import Judgement, OwnershipError, Verdict

_KEEP: Any = object()
_INTERRUPTIONS = (KeyboardInterrupt, SystemExit, GeneratorExit)  # also one that is an Exception as well


class TaskClaim:
    """The handle of a task that this process drives.

    Guaranteed: what it says has survived a loss of power when the call returns, and nobody else's word about the task
    counts until this process has ended or gives it up. Once another one has taken it over, nothing that this one says
    counts any more: it raises. Methods may be called from any thread. A forked child's copy is inert.

    Not guaranteed: that dropping the handle ends anything: the task is driven as long as this process lives;
    :meth:`Roster.driven` gives it back.

    As a context manager: a block that ends by itself finishes the task as ``done``, one that an exception leaves as
    ``failed: `` with its type and what it says (``Task.failed``), and one that is interrupted (KeyboardInterrupt,
    SystemExit, cancellation) gives it up. The exception leaves unchanged. If not even that can be written, it stays
    ours.

    :ivar name: of the task
    :ivar token: greater than that of every earlier driver
    :ivar before: the task as the one before left it, if it was lost
    """

    def __init__(self, ledger: Ledger, state: State, before: Task | None = None) -> None:
        self._ledger = ledger
        self._by = state.by
        self._process = os.getpid()
        self._ended = False
        self.name = state.task
        self.token = state.token
        self.before = before

    def update(self, status: str | None = None, *, data: Any = _KEEP) -> None:
        """Say how it goes on; what is left out stays as it is.

        :param status: at most 1024 characters
        :param data: anything that JSON can say in 64 KiB; what the next driver finds if this one dies
        :raises TaskLostError: it is not ours any more
        :raises RuntimeError: it is finished, or given up
        :raises ValueError: what cannot be recorded
        :raises AlreadyOwnedError: the roster could not be changed in time
        :raises OSError: it cannot be written; nothing was said then, or it may not survive a loss of power
        """
        self._say(RUNNING, status, data)

    def finish(self, status: str = "done", *, data: Any = _KEEP) -> None:
        """Say that it is over, for good. Once more does nothing. Parameters and errors are those of :meth:`update`."""
        self._say(FINISHED, status, data)
        self._ended = True

    def give_up(self, reason: str = "") -> None:
        """Let it be lost while this process goes on: whoever claims it next drives it. Once more does nothing.

        :param reason: becomes its status, unless it is empty
        :raises TaskLostError: it is not ours any more
        :raises RuntimeError: it is finished
        """
        self._say(GIVEN_UP, reason or None, _KEEP)
        self._ended = True

    def verify(self) -> None:
        """Make sure, by looking, that it is still ours.

        :raises TaskLostError: it is not
        :raises RuntimeError: it is finished, or given up
        :raises OSError: it cannot be told at the moment; nothing is lost by that
        """
        me = self._by if self._process == os.getpid() else ""
        self._require(self._ledger.read() or Lines(), me, RUNNING)

    def _say(self, kind: str, status: str | None, data: Any) -> None:
        if status is not None:
            checked_status(status)

        def decide(change: Change) -> State:
            known = self._require(change.view, change.me.instance_id, kind)
            if known.state == kind != RUNNING:
                return known
            return known._replace(
                state=kind,
                status=known.status if status is None else status,
                data=known.data if data is _KEEP else data,
                at=change.now,
            )

        self._ledger.change(self.name, decide)

    def _require(self, lines: Lines, me: str, kind: str) -> State:
        """Its state, if it is ours to say *kind* about it."""
        known = lines.get(self.name)
        if known is None:
            raise self._lost("the roster does not have it any more", "record-missing", None)
        if self._by != me:
            raise self._lost("it belongs to our parent process", "forked", self._as_task(lines, known))
        if (known.token, known.by) != (self.token, self._by):
            task = self._as_task(lines, known)
            raise self._lost(f"{task.driver} took it over, token {task.token}", "owner-replaced", task)
        if known.state != RUNNING and known.state != kind:
            ended = "is finished" if known.state == FINISHED else "was given up"
            raise RuntimeError(f"{self._ledger.path}: task {self.name!r} {ended}: there is nothing more to be said")
        return known

    def _as_task(self, lines: Lines, state: State) -> Task:
        return task_of(lines, state, Judgement(Verdict.UNKNOWN, "its driver was not looked at"))

    def _lost(self, fact: str, reason: str, task: Task | None) -> TaskLostError:
        return TaskLostError(
            f"{self._ledger.path}: task {self.name!r} is not ours (our token {self.token}): {fact}",
            reason=reason,
            resource=self._ledger.path,
            task=task,
            hint="stop working on it; what was done may have to be undone",
        )

    def __enter__(self) -> Self:
        self.verify()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        try:
            if error is None:
                self.finish()
            elif isinstance(error, Exception) and not isinstance(error, _INTERRUPTIONS):
                self._fail(error)
            else:
                self.give_up(_shown(f"interrupted: {type(error).__name__}"))
        except (OSError, OwnershipError, RuntimeError, ValueError):
            if error is None:  # the body's own exception is not masked
                raise

    def _fail(self, error: Exception) -> None:
        told = f"{FAILED}{type(error).__name__}"
        try:
            words = str(error)
            told = f"{told}: {words}" if words else told
        except Exception:  # its own words raise, or are none: its name has to do
            pass
        finally:  # also if a signal handler raised meanwhile
            self.finish(_shown(told))

    def __reduce__(self) -> NoReturn:
        raise TypeError("the handle of a task cannot be copied or pickled: another process claims the task itself")

    def __repr__(self) -> str:
        return f"<TaskClaim {self.name!r} of {self._ledger.path}, token {self.token}>"


def _shown(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:1000]
