"""``leasectl list``."""

from __future__ import annotations

import os
import stat
from typing import Any

import click

from leases.commands._command import brief
from leases.commands._facts import age, as_data, lease_of
from leases.commands._failure import described, exit_code, facts, located
from leases.commands._options import PATH, arguments, common, mistaken, sources
from leases.commands._output import is_terminal, printable, say, shown, write, write_json
from ownership import Inspection, RecordError, Verdict, inspect_all

_COLUMNS = ("resource", "verdict", "pid", "age", "token", "phase", "command")
_RULED = 500  # rows up to which a table is drawn on a terminal; drawing thousands takes seconds


@click.command("list")
@click.argument("directories", type=PATH, nargs=-1, metavar="[DIR]...")
@common
def command(directories: tuple[str, ...], registry: str | None, as_json: bool) -> int:
    """List the owners of everything directly in DIR.

    DIR is the current directory by default; several can be given. Changes nothing. COMMAND is shortened, --json has
    the whole; on a terminal, rows are cut at its edge. LEASE is there if any holds: the seconds until somebody may
    take over unless it is renewed, of how many.

    With --registry: every owner in the registry, or only those of something directly in DIR. A record that cannot be
    read is listed with its error; a directory that cannot be listed does not keep the others from being listed. What
    another account keeps to itself in a sticky directory, where each has its own, is no failure.

    \b
    Exit status:
       0  everything was listed, and be it nothing
       1  a directory cannot be listed (missing, for instance)
       2  usage
      65  a record or a lock directory cannot be used
    """
    rows: list[Inspection] = []
    failures: list[tuple[str, OSError]] = []
    where = None if registry is None else os.path.abspath(registry)
    codes = [0]
    for source, wanted in sources(directories, registry):
        try:
            with arguments():
                found = inspect_all(source, registry=registry is not None)
                rows += [one for one in found if wanted is None or one.resource.parent in wanted]
        except OSError as error:
            error = mistaken(error, source)
            failures.append((shown(source), error))
            codes.append(exit_code(error, where))
    codes += [exit_code(one.error, where) for one in rows if one.error is not None and not _is_anothers(one)]
    if as_json:
        _write_json(rows, failures, registry, where)
    else:
        _write_table(rows)
        if not rows and not failures:
            say("nobody owns anything here")
        for source_shown, failure in failures:
            say(located(source_shown, failure), described(failure)[1])
    return max(codes)


def _is_anothers(one: Inspection) -> bool:
    """The lock directory of another account in a sticky directory, where each has its own: that is as it should be."""
    if not isinstance(one.error, PermissionError) or isinstance(one.error, RecordError):
        return False
    path = one.resource
    try:
        sticky = path.parent.stat().st_mode & stat.S_ISVTX
        return bool(sticky) and path.name.startswith(".leases") and path.lstat().st_uid != os.geteuid()
    except OSError:
        return False


def _write_json(
    rows: list[Inspection], failures: list[tuple[str, OSError]], registry: str | None, where: str | None
) -> None:
    told: list[dict[str, Any]] = [
        as_data(one, registry)
        if one.error is None
        else {**facts(one.error, exit_code(one.error, where)), "resource": shown(one.resource), "verdict": None}
        for one in rows
    ]
    told += [{"directory": where, **facts(error, exit_code(error, where))} for where, error in failures]
    write_json(told)


def _write_table(rows: list[Inspection]) -> None:
    if not rows:
        return
    columns: tuple[str, ...] = _COLUMNS
    cells = [_cells(one) for one in rows]
    if any(lease_of(one) != "-" and one.verdict is not Verdict.EXPIRED for one in rows):
        at = columns.index("phase")
        columns = (*columns[:at], "lease", *columns[at:])
        cells = [(*row[:at], lease_of(one), *row[at:]) for one, row in zip(rows, cells, strict=True)]
    if is_terminal() and len(cells) <= _RULED:
        _draw(columns, cells)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    widths[-1] = 0
    for row in (tuple(name.upper() for name in columns), *cells):
        write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cells(one: Inspection) -> tuple[str, ...]:
    resource = printable(shown(one.resource))
    if one.error is not None:
        return resource, "unusable", "-", "-", "-", "-", printable(described(one.error)[0])
    pid, token, record = str(one.owner.pid) if one.owner else "-", str(one.token), one.record
    if record is None:
        return resource, one.verdict.value, pid, "-", token, "-", printable(one.reason)
    command = printable(brief(record.command))
    return resource, one.verdict.value, pid, age(record), token, printable(record.phase), command


def _draw(columns: tuple[str, ...], cells: list[tuple[str, ...]]) -> None:
    from rich.console import Console  # heavy, and only people on a terminal look at tables

    from leases.commands._table import Layout, table

    console = Console()
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    console.print(table(Layout(columns, "verdict", "command"), rows, console.width))
