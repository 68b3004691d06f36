"""``leasectl watch``."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Protocol

import click

from leases.commands._changes import JsonLog, TextLog
from leases.commands._failure import INTERRUPTED
from leases.commands._options import PATH, arguments, common, mistaken, seconds
from leases.commands._output import OutputError, is_terminal, say
from leases.commands._watched import Picture, Watched


class Display(Protocol):
    """Where it is shown."""

    def show(self, now: Picture) -> None: ...

    def close(self) -> None: ...


@click.command("watch", short_help="Watch the owners of everything directly in DIR.")
@click.argument("directories", type=PATH, nargs=-1, metavar="[DIR]...")
@click.option(
    "--interval",
    callback=seconds(endless=False, least=0.1),
    default="1.0",
    show_default=True,
    metavar="SECONDS",
    help="How long to wait between two looks.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N looks.")
@common
def command(
    directories: tuple[str, ...], interval: float, count: int | None, registry: str | None, as_json: bool
) -> int:
    """Watch the owners of everything directly in DIR: who, in what state, and how many wait.

    DIR is the current directory by default; several can be given. Changes nothing. With --registry: every owner in the
    registry, or only those of something directly in DIR.

    On a terminal: a table, drawn anew at every look; it stays when the command ends. Otherwise: a line a change, with
    its moment (UTC), a sign, the resource, and what is so or was so; first what there is.

    \b
      + it has a record now            ~ something changed: name, old -> new
      - it has none any more           ! a directory cannot be looked at, or can be again

    With --json: a document a line; the first has "change": "state" and all "resources", the others are "added",
    "changed" (with the names of what "changed", and "before"), "removed", or, of a directory, "failed", "recovered".

    Files and ended processes are seen at every look; an owner that was stopped, or that nobody reaps, within 5 s.
    A directory that fails later is shown with its error and watched on.

    \b
    Exit status:
       0  N looks were made
       1  a directory cannot be looked at when it starts (missing, for instance), or nobody reads stdout any more
       2  usage
      65  the registry, or a lock directory that was named itself, cannot be used when it starts
     130  Ctrl-C
    """
    try:
        with arguments():
            watched = Watched(directories, registry)
        first = watched.look()
        for source, error in first.failures.items():
            raise mistaken(error, watched.spelled(source))
        with contextlib.closing(_display(as_json, registry)) as display:
            if not first.rows and isinstance(display, TextLog):
                say("nobody owns anything here")
            follow(first, watched.look, display, lambda: _pause(interval), count)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def follow(
    first: Picture, look: Callable[[], Picture], display: Display, pause: Callable[[], object], count: int | None
) -> None:
    """Show *first*, and what *look* finds after every *pause*; *count* pictures in all."""
    display.show(first)
    shown = 1
    while shown != count:
        pause()
        display.show(look())
        shown += 1


def _draws(as_json: bool) -> bool:
    return not as_json and is_terminal() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _display(as_json: bool, registry: str | None) -> Display:
    if as_json:
        return JsonLog(registry)
    if not _draws(as_json):
        return TextLog()
    from leases.commands._board import Board  # rich is heavy, and only people on a terminal look at tables

    return Board()


def _pause(seconds: float) -> None:
    """Wait, a day at most, unless whoever reads stdout goes away meanwhile.

    :raises OutputError: nobody reads it any more, or there is none
    """
    if sys.stdout is None:
        raise OutputError("nobody reads it") from BrokenPipeError()
    seconds = min(seconds, 86400.0)  # poll(2) takes no more than some weeks
    try:
        poller, number = select.poll(), sys.stdout.fileno()
    except (AttributeError, ValueError, OSError):  # a system without poll(2), or no stdout
        time.sleep(seconds)
        return
    poller.register(number, 0)  # errors and hang-ups are told all the same
    if poller.poll(seconds * 1000):
        raise OutputError("nobody reads it any more") from BrokenPipeError()
