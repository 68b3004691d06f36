"""``leasectl replace``."""

from __future__ import annotations

import click

from leases._gate import Gate
from leases.commands._failure import report
from leases.commands._options import PATH, arguments, common, seconds
from leases.commands._output import say, shown, write, write_json
from leases.commands.run import Run, attended, given, labelled, let_go
from ownership import AlreadyOwnedError, ContentionError, replace


def _if_given(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else seconds(endless=False)(ctx, param, value)


@click.command("replace", cls=Run, short_help="Ask the owner of PATH to go, stop it, and own PATH in its place.")
@click.argument("path", type=PATH)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, callback=given, metavar="[-- CMD...]")
@click.option("--reason", default="", metavar="TEXT", help="Shown to the owner, and to whoever is refused meanwhile.")
@click.option(
    "--grace",
    callback=seconds(endless=False),
    default="0.5",
    show_default=True,
    metavar="SECONDS",
    help="Time for the owner to go by itself, and again between TERM and KILL.",
)
@click.option(
    "--timeout",
    callback=_if_given,
    metavar="SECONDS",
    help="When to give up, signalled or not; by default what twice --grace and KILL take.",
)
@click.option("--conflict-exit-code", type=click.IntRange(0, 255), metavar="N", help="Exit code instead of 75.")
@click.option(
    "--label", "labels", callback=labelled, multiple=True, metavar="K=V", help="A fact for whoever is refused."
)
@click.option("--gate", type=PATH, metavar="GATE", help="Only while the gate GATE, in the same directory, is open.")
@common
def command(
    path: str,
    cmd: tuple[str, ...],
    reason: str,
    grace: float,
    timeout: float | None,
    conflict_exit_code: int | None,
    labels: dict[str, str],
    gate: str | None,
    registry: str | None,
    as_json: bool,
) -> int:
    """Ask the owner of PATH to go, stop it if it does not, and own PATH in its place while CMD runs.

    The owner finds who asks and why (claim.stop_request). It has the time of --grace to let go by itself; then it gets
    TERM and, after the time of --grace again, KILL, like by stop. Meanwhile nobody else acquires PATH; of several that
    replace, the first one does. If nobody owns PATH, this is run. CMD is attended as by run.

    Without CMD, PATH is released as soon as it is owned: its owner has gone, and what it left is cleared.

    \b
    Exit status: CMD's own, 128 + N if signal N ended it, 0 without CMD; or
       1  failed: somebody survived KILL, may not be signalled by this account, a missing directory
       2  usage
      65  the record or its directory cannot be used
      75  somebody else replaces the owner already, it cannot be stopped from here, or not in time, or the
          gate is closed (--conflict-exit-code changes it)
      76  PATH was lost while CMD ran
     126  CMD cannot be executed
     127  CMD was not found
    """
    try:
        with arguments():
            asked = None if gate is None else Gate(gate, registry=registry)
            claim = replace(
                path,
                reason=reason,
                grace=grace,
                timeout=timeout,
                registry=registry,
                labels=labels,
                gate=asked,
                on_wait=_announce,
            )
    except ContentionError as error:
        return report(error, as_json=as_json, code=conflict_exit_code)
    with let_go(claim):
        if cmd:
            return attended(claim, cmd, max(grace, 5.0), as_json=as_json)
        token = claim.token
    if as_json:
        write_json({"resource": shown(claim.path), "token": token, "replaced": True})
    else:
        write(f"{shown(claim.path)} is free: nobody owns it any more")
    return 0


def _announce(error: AlreadyOwnedError) -> None:
    say(f"asking its owner to go: {error}")
