"""``leasectl ensure``."""

from __future__ import annotations

import click

import ownership
from leases.commands._facts import as_data
from leases.commands._options import PATH, arguments, common, seconds
from leases.commands._output import printable, say, shown, write, write_json
from leases.commands._signals import ends_reported
from leases.commands.run import Run, given
from ownership import PeerError, Running, inspect, verify_peer


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        name, equals, wanted = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"must be NAME=VALUE, got {value!r}", ctx, param)
        found[name] = wanted
    return found


@click.command("ensure", cls=Run, short_help="See that somebody answers at SOCKET; if nobody does, start CMD.")
@click.argument("socket", type=PATH)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, callback=given, metavar="[-- CMD...]")
@click.option(
    "--timeout",
    callback=seconds(endless=True),
    default="10",
    show_default=True,
    metavar="SECONDS",
    help="For everything together, or 'forever'.",
)
@click.option(
    "--match",
    multiple=True,
    callback=_pairs,
    metavar="NAME=VALUE",
    help="What has to stand in the owner's data, as text. May be repeated.",
)
@click.option(
    "--on-mismatch",
    type=click.Choice(["raise", "use", "replace"]),
    default="raise",
    show_default=True,
    help="What to do about an owner that it does not stand in.",
)
@click.option(
    "--grace",
    callback=seconds(endless=False),
    default="1",
    show_default=True,
    metavar="SECONDS",
    help="Time for an owner that is replaced to go by itself, and again between TERM and KILL.",
)
@common
def command(
    socket: str,
    cmd: tuple[str, ...],
    timeout: float | None,
    match: dict[str, str],
    on_mismatch: str,
    grace: float,
    registry: str | None,
    as_json: bool,
) -> int:
    """See that somebody answers at SOCKET, and start CMD if nobody does: once, however many ask at the same time.

    CMD has to own SOCKET and to listen there (ownership.listen). It goes on by itself, in a session of its own; what
    it writes to stderr goes to a file in the lock directory, of which the last lines are shown if it ends early.
    Without CMD nobody is started.

    \b
    Exit status:
       0  it answers
       1  what was started ended, or does not answer in time; or it died three times within
          a minute; or nobody answers, and nobody was to be started
       2  usage
      65  the record or its directory cannot be used
      75  its owner does not match
    """
    with arguments(), ends_reported():
        connection = ownership.ensure(
            socket,
            cmd or None,
            timeout,
            match=match,
            on_mismatch=on_mismatch,  # type: ignore[arg-type]
            registry=registry,
            grace=grace,
        )
    with connection:
        try:
            who: Running | None = verify_peer(connection, socket, registry=registry)
        except (PeerError, OSError) as error:
            who = None
            say(f"who that is cannot be told: {error}")
    one = inspect(socket, registry=registry)
    if as_json:
        write_json({**as_data(one, registry), "answers": True, "verified": who is not None})
    elif who is not None:
        told = f" ({printable(who.record.command)})" if who.record.command else ""
        write(f"{shown(one.resource)}: pid {who.record.pid}{told} answers")
    else:
        write(f"{shown(one.resource)}: answers, though no record says who that is")
    return 0
