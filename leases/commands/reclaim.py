"""``leasectl reclaim``."""

from __future__ import annotations

import os
from typing import Any

import click

import ownership
from leases.commands._facts import as_data, is_unclaimed, refusal
from leases.commands._failure import described, exit_code, facts, require_directory
from leases.commands._options import PATH, arguments, common
from leases.commands._output import say, shown, write, write_json
from ownership import Inspection, Verdict


@click.command("reclaim")
@click.argument("path", type=PATH, required=False, metavar="[PATH|DIR]")
@click.option("--dry-run", is_flag=True, help="Change nothing, say what would be done.")
@click.option("--resource", "single", is_flag=True, help="PATH is a resource although it is a directory.")
@common
def command(path: str | None, dry_run: bool, single: bool, registry: str | None, as_json: bool) -> int:
    """Remove the records of owners that are provably gone.

    Or whose lease ran out. Nobody else that may be alive is touched.

    A directory means everything directly in it; --resource takes it as the one resource it may be itself. Without an
    argument: the current directory, with --registry everything in the registry. With --registry and PATH: that one
    resource. An acquire does this by itself for the resource it wants.

    \b
    Exit status:
       0  done, also if there was nothing to do
       1  failed: the directory of PATH does not exist, for instance
       2  usage
      65  a record or its directory cannot be used
      75  PATH is held (in a directory held resources are left alone, which is no failure)
    """
    if path is not None and (single or registry is not None or not os.path.isdir(path)):
        return _reclaim_one(path, dry_run, registry, as_json)
    return _reclaim_all(registry or path or ".", dry_run, registry, as_json)


def _reclaim_one(path: str, dry_run: bool, registry: str | None, as_json: bool) -> int:
    with arguments():
        one = ownership.inspect(path, registry=registry) if dry_run else ownership.reclaim(path, registry=registry)
    require_directory(one)
    free = one.verdict is Verdict.FREE
    if dry_run and not free and not one.verdict.may_be_evicted and not is_unclaimed(one):
        raise refusal(one, registry)
    if as_json:
        write_json({**as_data(one, registry), "reclaimed": not free and not dry_run})
    elif not free:
        write(_line(one, dry_run))
    else:
        say(f"nobody owns {shown(one.resource)}")
    return 0


def _reclaim_all(directory: str, dry_run: bool, registry: str | None, as_json: bool) -> int:
    where = None if registry is None else os.path.abspath(registry)
    told: list[dict[str, Any]] = []
    counts, codes = {"done": 0, "left": 0, "failed": 0}, [0]
    with arguments():
        for one, removable in ownership.reclaim_all(directory, registry=registry is not None, dry_run=dry_run):
            counts["failed" if one.error else "done" if removable else "left"] += 1
            if one.error is not None:
                codes.append(exit_code(one.error, where))
            if as_json:
                told.append(_as_data(one, removable and not dry_run, registry))
            elif one.error is not None:
                message, hint = described(one.error)
                say(message, hint)
            elif removable:
                write(_line(one, dry_run))
    if as_json:
        write_json(told)
    else:
        say(f"{counts['done']} {'would be ' if dry_run else ''}reclaimed, {counts['left']} held{_failed(counts)}")
    return max(codes)


def _as_data(one: Inspection, removed: bool, registry: str | None) -> dict[str, Any]:
    if one.error is not None:
        return {**facts(one.error, exit_code(one.error)), "resource": shown(one.resource), "reclaimed": False}
    return {**as_data(one, registry), "reclaimed": removed}


def _line(one: Inspection, dry_run: bool) -> str:
    who = f" pid {one.owner.pid}" if one.owner else ""
    return (
        f"{'would reclaim' if dry_run else 'reclaimed'} {shown(one.resource)}:{who} {one.verdict.value}, {one.reason}"
    )


def _failed(counts: dict[str, int]) -> str:
    return f", {counts['failed']} could not be looked at" if counts["failed"] else ""
