"""``leasectl wait``."""

from __future__ import annotations

import click

import ownership
from leases.commands._facts import as_data
from leases.commands._failure import require_directory
from leases.commands._options import PATH, arguments, common, seconds
from leases.commands._output import say, shown, write, write_json
from ownership import AlreadyOwnedError


@click.command("wait")
@click.argument("path", type=PATH)
@click.option(
    "--timeout",
    callback=seconds(endless=True),
    default="forever",
    show_default=True,
    metavar="SECONDS",
    help="How long to wait, or 'forever'.",
)
@common
def command(path: str, timeout: float | None, registry: str | None, as_json: bool) -> int:
    """Wait until nobody holds PATH. Acquires nothing, so somebody else may be faster, and changes nothing.

    An owner that is provably gone, or whose lease ran out, does not hold it.

    \b
    Exit status:
       0  nobody holds it
       1  failed: the directory of PATH does not exist, for instance
       2  usage
      65  the record or its directory cannot be used
      75  still held when the time was over
    """
    waited = []

    def on_wait(error: AlreadyOwnedError) -> None:
        waited.append(error)
        announce(error)

    with arguments():
        one = ownership.wait(path, timeout=timeout, registry=registry, on_wait=on_wait)
    if not waited:  # else its owner took the directory away
        require_directory(one)
    if as_json:
        write_json(as_data(one, registry))
    else:
        write(f"{shown(one.resource)}: {one.verdict.value}, {one.reason}")
    return 0


def announce(error: AlreadyOwnedError) -> None:
    """Said once for each owner that is waited for."""
    say(f"waiting: {error}")
