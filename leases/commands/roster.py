"""``leasectl roster``."""

from __future__ import annotations

import errno
import os
from typing import Any

import click

from leases._roster import Roster
from leases._task import Restored, Task
from leases.commands._options import PATH, arguments, common
from leases.commands._output import printable, short, shown, write, write_json

_LOST = 12


@click.group("roster")
def command() -> None:
    """Look at the tasks of a session, each with the process that drives it. Changes nothing.

    Every command takes --json and --registry DIR.

    \b
    Exit status:
       0  done; of lost: nothing is lost
       1  there is no file at PATH, or no registry
       2  usage
      12  of lost: something is
      65  PATH is no roster, DIR no registry, or either cannot be read
    """


@command.command("show")
@click.argument("path", type=PATH)
@click.option("--all", "everything", is_flag=True, help="Finished tasks too, which --json lists anyway.")
@common
def show(path: str, everything: bool, registry: str | None, as_json: bool) -> int:
    """Show the unfinished tasks of the roster PATH: who drives each, and whether that one lives.

    A task is lost if its driver is gone, a zombie, or its number another process's, or gave it up. --json lists every
    task.

    \b
    Exit status:
       0  done
       1  there is no file at PATH, or no registry
       2  usage
      65  PATH is no roster, DIR no registry, or either cannot be read
    """
    roster, found = _look(path, registry)
    if as_json:
        write_json(_data(roster, found, (*found.running, *found.lost, *found.finished)))
        return 0
    for one in (*found.lost, *found.running, *(found.finished if everything else ())):
        write(_line(one))
    write(f"{len(found.running)} running, {len(found.lost)} lost, {len(found.finished)} finished")
    return 0


@command.command("lost")
@click.argument("path", type=PATH)
@common
def lost(path: str, registry: str | None, as_json: bool) -> int:
    """List the lost tasks of the roster PATH, a line each.

    \b
    Exit status:
       0  nothing is lost
       1  there is no file at PATH, or no registry
       2  usage
      12  something is
      65  PATH is no roster, DIR no registry, or either cannot be read
    """
    roster, found = _look(path, registry)
    if as_json:
        write_json(_data(roster, found, found.lost))
    else:
        for one in found.lost:
            write(_line(one))
    return _LOST if found.lost else 0


def _look(path: str, registry: str | None) -> tuple[Roster, Restored]:
    with arguments():
        roster = Roster(path, registry=registry)
        found = roster.restore()
    if not any(found) and not os.path.lexists(roster.path):  # more likely misspelled than a session without tasks
        missing = FileNotFoundError(errno.ENOENT, "there is no roster", roster.path)
        if os.path.isdir(roster.path.parent):
            missing.hint = "the first start() makes it; else check the spelling"  # type: ignore[attr-defined]
        raise missing
    return roster, found


def _data(roster: Roster, found: Restored, tasks: tuple[Task, ...]) -> dict[str, Any]:
    counts = {name: len(getattr(found, name)) for name in Restored._fields}
    return {"roster": shown(roster.path), **counts, "tasks": [_task(one) for one in tasks]}


def _task(one: Task) -> dict[str, Any]:
    owner = one.owner
    return {
        "task": one.name,
        "state": one.state,
        "status": one.status,
        "data": one.data,
        "token": one.token,
        "pid": owner.pid if owner else None,
        "start_id": owner.start_id if owner else None,
        "instance_id": owner.instance_id if owner else None,
        "driver": one.driver,
        "verdict": one.verdict.value if one.verdict else None,
        "reason": one.reason,
        "since": f"{one.since:%Y-%m-%dT%H:%M:%S.%fZ}",
        "updated": f"{one.updated:%Y-%m-%dT%H:%M:%S.%fZ}",
    }


def _line(one: Task) -> str:
    status = f" ({short(one.status)})" if one.status else ""
    verdict = f"{one.verdict.value}, " if one.verdict else ""
    by = "driven by" if one.state == "running" else "last driven by"
    return printable(
        f"{one.name}: {one.state}{status}, {verdict}{one.reason}; {by} {one.driver} "
        f"since {one.since:%Y-%m-%dT%H:%M:%SZ}, token {one.token}"
    )
