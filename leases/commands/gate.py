"""``leasectl gate``."""

from __future__ import annotations

import signal
from typing import Any

import click

from leases._gate import Gate, is_closing
from leases.commands._child import TICK, Held, attend, loss_of
from leases.commands._facts import as_data, as_text
from leases.commands._failure import CommandError, facts, require_directory
from leases.commands._options import PATH, arguments, common, seconds
from leases.commands._output import flush, printable, say, shown, write, write_json
from leases.commands._signals import Inbox, inbox, is_ignored
from ownership import Inspection, LossError, Verdict, break_claim

_CLOSED = 75
_ENDING = frozenset(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)


@click.group("gate")
def command() -> None:
    """Keep everybody new out of a directory, while those inside shut down.

    A gate is a name in the directory that it rules: beside PATH for 'leasectl run --gate', acquire(gate=). While it is
    closed, whoever asks it acquires nothing there; owners that are inside stay. It opens by itself when its closer
    ends; one that nobody ever closed is open. Every command takes --json and --registry DIR.

    \b
    Exit status:
       0  done; of show: open        75  closed by another; of show: closed
       1  no gate, no directory      76  opened while it was to be closed
       2  usage                          close returns what its CMD returned
      65  record unusable
    """


@command.command("close")
@click.argument("path", type=PATH)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@click.option("--reason", default="", metavar="TEXT", help="What whoever is refused is told.")
@click.option(
    "--ttl",
    callback=seconds(endless=False, least=1),
    default="5.0",
    show_default=True,
    metavar="SECONDS",
    help="If leasectl is paused for longer, the gate opens.",
)
@click.option(
    "--timeout",
    callback=seconds(endless=True),
    default="1.0",
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each who is just about to own something, or 'forever'.",
)
@click.option(
    "--grace",
    callback=seconds(endless=False),
    default="5.0",
    show_default=True,
    metavar="SECONDS",
    help="Time between TERM and KILL for CMD when the gate is lost.",
)
@common
def close(
    path: str,
    cmd: tuple[str, ...],
    reason: str,
    ttl: float,
    timeout: float | None,
    grace: float,
    registry: str | None,
    as_json: bool,
) -> int:
    """Close the gate PATH while CMD runs; without CMD until TERM, INT, HUP or QUIT.

    Once it is closed, 'leasectl list' shows everybody who is inside. That it is closed is said on stderr. A
    signal that whoever started leasectl has it ignore (nohup, for instance) does not open it.

    \b
    Exit status: CMD's own; without CMD, or instead
       0  it was closed until it was to be opened
       1  failed: the directory of PATH does not exist, for instance
       2  usage
      65  the record or its directory cannot be used
      75  another one has closed it, or somebody sits in a guard: it was not closed by us
      76  it was opened by somebody else, or leasectl was paused for too long: somebody may have got in
    """
    with arguments():
        gate = Gate(path, ttl, registry=registry)
    with inbox() as signals, _closed(gate, reason, timeout):
        say(f"gate {shown(gate.path)} is closed")
        code, loss = attend(cmd, gate, signals, grace) if cmd else (0, _wait(gate, signals))
    if loss is None:
        return code
    if as_json:
        write_json(facts(loss, loss.exit_code))
    elif not cmd:
        say(str(loss), loss.hint)
    return loss.exit_code


def _closed(gate: Gate, reason: str, timeout: float | None) -> Gate:
    with arguments():  # a reason that no record can hold
        return gate.close(reason, timeout=timeout)


def _wait(gate: Held, signals: Inbox) -> LossError | None:
    """Until a signal asks to open it, or it is lost: why."""
    flush()
    while (loss := loss_of(gate)) is None:
        received = signals.next(TICK)
        if received is not None and received.number in _ENDING and not is_ignored(received.number):
            return None
    return loss


@command.command("open")
@click.argument("path", type=PATH)
@common
def open_(path: str, registry: str | None, as_json: bool) -> int:
    """Open the gate PATH by your decision, whoever has closed it: its closer is told.

    \b
    Exit status:
       0  it is open, also if it was before, or was never closed
       1  PATH is owned by somebody who has not closed it as a gate; or its directory does not exist
       2  usage
      65  the record or its directory cannot be used
      75  another one has closed it meanwhile
    """
    with arguments():
        gate = Gate(path, registry=registry)
        found = gate.inspect()
        require_directory(found)
        opened = is_closing(found)
        if opened:
            _require_gate(found)
            found = break_claim(path, token=found.token, registry=registry)
            opened = found.verdict is not Verdict.FREE
    if as_json:
        write_json({**_data(found, registry), "closed": False, "opened": opened})
    elif opened:
        who = f"pid {found.owner.pid}" if found.owner is not None else "somebody"
        write(f"gate {shown(found.resource)} is open; it was closed by {who}: {found.verdict.value}, {found.reason}")
    else:
        say(f"gate {shown(found.resource)} is open already")
    return 0


def _require_gate(found: Inspection) -> None:
    """:raises CommandError: it is an owner that would be broken, not a gate"""
    if found.record is None or found.record.labels.get("gate") != "closed":
        who = f"pid {found.owner.pid}" if found.owner is not None else "an unknown process"
        what = f"{shown(found.resource)} is no gate that was closed: {who} owns it ({found.verdict.value})"
        raise CommandError(what, 1, f"see leasectl show; to evict that owner: leasectl break --token {found.token}")


@command.command("show")
@click.argument("path", type=PATH)
@common
def show(path: str, registry: str | None, as_json: bool) -> int:
    """Show whether the gate PATH is open, or who has closed it, since when and why. Changes nothing.

    \b
    Exit status:
       0  open, also if nobody ever closed it
       1  failed: the directory of PATH does not exist, for instance
       2  usage
      65  the record or its directory cannot be used
      75  closed
    """
    with arguments():
        gate = Gate(path, registry=registry)
        found = gate.inspect()
    require_directory(found)
    data, closed = _data(found, registry), is_closing(found)
    if as_json:
        write_json({**data, "closed": closed})
    else:
        write(f"{'gate':<12} {'closed' if closed else 'open'}")
        if closed and data["why"]:
            write(f"{'why':<12} {printable(data['why'])}")
        write(as_text(found, registry))
    return _CLOSED if closed else 0


def _data(found: Inspection, registry: str | None) -> dict[str, Any]:
    why = found.record.labels.get("reason") if found.record is not None else None
    return {**as_data(found, registry), "why": why}
