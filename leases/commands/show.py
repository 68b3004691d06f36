"""``leasectl show``."""

from __future__ import annotations

import click

from leases.commands._facts import as_data, as_text
from leases.commands._options import PATH, arguments, common
from leases.commands._output import write, write_json
from ownership import Verdict, inspect

EXIT_CODES = {
    Verdict.LIVE: 0,
    Verdict.FREE: 10,
    Verdict.STOPPED: 11,
    Verdict.GONE: 12,
    Verdict.ZOMBIE: 13,
    Verdict.REUSED: 14,
    Verdict.EXPIRED: 15,
    Verdict.UNKNOWN: 16,
}


@click.command("show")
@click.argument("path", type=PATH)
@common
def command(path: str, registry: str | None, as_json: bool) -> int:
    """Show who owns PATH and whether it still lives.

    Also how that is known, since when, and what to do about it. Changes nothing.

    \b
    Exit status:
       0  live: its owner runs
       1  failed: the registry does not exist, for instance
       2  usage
      10  nobody owns it, also if its directory does not exist
      11  stopped: its owner is stopped, and still owns
      12  gone: no such process
      13  zombie: its owner has exited and is not reaped
      14  reused: the owner's pid belongs to another process
      15  expired: its lease ran out
      16  unknown: cannot be told, which counts as held
      65  the record or its directory cannot be used
    Owners with 12 to 15 are evicted by whoever acquires PATH next.
    """
    with arguments():
        one = inspect(path, registry=registry)
    if as_json:
        write_json(as_data(one, registry))
    else:
        write(as_text(one, registry))
    return EXIT_CODES[one.verdict]
