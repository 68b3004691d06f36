"""Who drives the tasks of a roster: what is known of each, and what has become of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from leases._change import Change
from leases._roster_lines import FINISHED, GIVEN_UP, RUNNING, Lines, State
from leases._seat import Seats
from leases._task import Task, TaskState
from leases._task_errors import TaskTakenError
from ownership import (
    InvalidRecordError,
    Judgement,
    OwnerIdentity,
    UnsupportedRecordError,
    Verdict,
    inspect,
    judge_owner,
)


class Coroner:
    """Judges the drivers of one roster, each once, before the lines that it is to be applied to are read.

    What a driver wrote is there to be read once it is found dead. So of a task that is unfinished in lines read *after*
    that, no more is to come; of lines read before, nothing can be said.
    """

    def __init__(self, path: str, registry: str | None, seams: dict[str, Any]) -> None:
        self._path, self._registry, self._seams = path, registry, seams
        self._seats = Seats(path, registry, seams)
        self.judgements: dict[str, Judgement] = {}

    def judge(self, lines: Lines, by: str) -> Judgement:
        """What has become of the driver *by* by now; doubt is ``unknown``."""
        found = self._judged(lines, by)
        self.judgements[by] = found
        return found

    def _judged(self, lines: Lines, by: str) -> Judgement:
        owner = identity(lines, by)
        if owner is None:
            return Judgement(Verdict.UNKNOWN, f"the roster does not say who {by[:64]} is")
        found = judge_owner(owner, beside=self._path, registry=self._registry, **self._seams)
        if found.verdict.is_dead:
            return found
        return self._seats.proof(lines.drivers[by], owner, found) or found

    def judge_all(self, lines: Lines) -> bool:
        """Judge every driver of something unfinished that was not judged yet; whether there was one."""
        known = self.judgements
        new = {line["by"] for line in list(lines.tasks.values()) if line["state"] == RUNNING} - known.keys()
        for by in new:
            self.judge(lines, by)
        return bool(new)

    def task(self, lines: Lines, state: State) -> Task:
        """*state* as seen by whoever asks."""
        return task_of(lines, state, self.judgements.get(state.by))

    def tasks(self, lines: Lines) -> Iterator[Task]:
        """Every task, as seen by whoever asks."""
        known: dict[tuple[str, str], Any] = {}  # by driver and state: many tasks have few drivers
        for line in list(lines.tasks.values()):
            by, kind = line["by"], line["state"]
            facts = known.get((by, kind))
            if facts is None:
                facts = known[(by, kind)] = _facts(lines, by, kind, self.judgements.get(by))
            state, owner, driver, verdict, reason = facts
            yield Task(
                line["task"],
                state,
                line.get("status", ""),
                line.get("data"),
                line["token"],
                owner,
                driver,
                verdict,
                reason,
                line["since"],
                line["at"],
            )


def coroner_of(path: str, registry: str | None, seams: dict[str, Any]) -> Coroner:
    """Whoever looks at the roster at *path* for one call.

    :raises UnsafeDirectoryError: the registry is none; nothing would be known of drivers elsewhere
    :raises OSError: it is not there, or cannot be looked at
    """
    if registry is not None:
        try:
            inspect(path, registry=registry, **seams)
        except (InvalidRecordError, UnsupportedRecordError):  # of whoever changes the roster: nothing about reading it
            pass
    return Coroner(path, registry, seams)


def identity(lines: Lines, by: str) -> OwnerIdentity | None:
    """The driver *by*, ``None`` if the roster does not say who that is."""
    known = lines.drivers.get(by)
    try:
        found = None if known is None else OwnerIdentity.model_validate(known)
    except ValidationError:
        return None
    return found if found is None or found.instance_id == by else None


def task_of(lines: Lines, state: State, judgement: Judgement | None) -> Task:
    """The task of *state*.

    :param judgement: on its driver, made before *state* was read; without one whether it lives cannot be told
    """
    kind, owner, driver, verdict, reason = _facts(lines, state.by, state.state, judgement)
    return Task(
        state.task, kind, state.status, state.data, state.token, owner, driver, verdict, reason, state.since, state.at
    )


def _facts(
    lines: Lines, by: str, kind: str, judgement: Judgement | None
) -> tuple[TaskState, OwnerIdentity | None, str, Verdict | None, str]:
    """What is the same for every task of one driver in one state."""
    owner, driver = identity(lines, by), _described(lines.drivers.get(by))
    if kind == FINISHED:
        return "finished", owner, driver, None, "its driver said so"
    if kind == GIVEN_UP:
        return "lost", owner, driver, None, "its driver gave it up"
    if judgement is None:
        judgement = Judgement(Verdict.UNKNOWN, "its driver was not looked at")
    return "lost" if judgement.verdict.is_dead else "running", owner, driver, judgement.verdict, judgement.reason


def _described(driver: dict[str, Any] | None) -> str:
    """A driver for people: rosters are written by others."""
    if driver is None:
        return "an unknown process"
    text = f"pid {driver.get('pid')}"
    for word, name in (("({})", "command"), ("on {}", "host")):
        told = driver.get(name)
        if isinstance(told, str) and told:
            text += " " + word.format(told)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def taken(path: str, task: Task) -> TaskTakenError:
    """Why *task* is not to be had."""
    if task.state == "finished":
        what, hint = f"is finished ({task.status})" if task.status else "is finished", "what is finished stays so"
    elif task.state == "lost":
        what, hint = f"was begun by {task.driver}, and is lost: {task.reason}", "claim_lost() takes it over"
    else:
        what, hint = f"is driven by {task.driver}", "follow() tells how it ends"
        what += f" since {task.since:%Y-%m-%dT%H:%M:%S.%fZ}: {task.verdict}, {task.reason}"
    start = f"; start id {task.owner.start_id}; instance {task.owner.instance_id}" if task.owner else ""
    text = f"{path}: task {task.name!r} {what}{start}; token {task.token}"
    return TaskTakenError(text, resource=path, task=task, hint=hint)


def looked_at(change: Change, coroner: Coroner, name: str) -> tuple[State | None, Task | None]:
    """The state of the task *name* by lines that were read after its driver was judged; under the lock."""
    state = change.view.get(name)
    while state is not None:
        if state.state in (FINISHED, GIVEN_UP):
            return state, coroner.task(change.view, state)
        known = coroner.judgements.get(state.by)
        if known is not None and known.verdict.is_dead:  # which it stays, and these lines were read after that
            return state, coroner.task(change.view, state)
        coroner.judge(change.view, state.by)
        again = change.reread().get(name)
        if again is not None and again.by == state.by:
            return again, coroner.task(change.view, again)
        state = again
    return None, None
