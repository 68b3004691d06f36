"""``leasectl stop``."""

from __future__ import annotations

import os
from typing import Any

import click

import ownership
from leases.commands._facts import as_data, refusal, remedy
from leases.commands._failure import FAILED, facts, report, require_directory
from leases.commands._options import PATH, arguments, common, seconds
from leases.commands._output import printable, say, shown, write, write_json
from ownership import (
    AlreadyOwnedError,
    Inspection,
    OwnerIdentity,
    OwnerRef,
    StopReport,
    StopTimeoutError,
    Verdict,
    inspect,
)


@click.command("stop")
@click.argument("path", type=PATH)
@click.option(
    "--grace",
    callback=seconds(endless=False),
    default="0.5",
    show_default=True,
    metavar="SECONDS",
    help="Time between TERM and KILL.",
)
@common
def command(path: str, grace: float, registry: str | None, as_json: bool) -> int:
    """End the owner of PATH: TERM, the time of --grace, KILL.

    If the owner leads its process group, the whole group: done when the owner is gone and nobody of the group lives.
    Otherwise its process alone. Only that very process and its group are signalled, never whoever has got its number
    since. What is stopped by a signal is continued after TERM. Children that left the group are not covered.

    Changes no file: the record of an owner that was killed stays, and the next acquire takes over. An owner whose
    record was deleted is found by the guard of PATH.

    \b
    Exit status:
       0  its owner is gone, also if nobody owned PATH or its owner had gone before
       1  somebody is left, or may not be signalled by this account; or failed: the directory
          of PATH does not exist, for instance
       2  usage
      65  the record or its directory cannot be used
      75  nothing was signalled: the owner is of another boot or pid namespace, is pid 1,
          or it cannot be told who that is
    """
    with arguments():
        one = inspect(path, registry=registry)
        require_directory(one)
        if one.verdict is Verdict.FREE:
            return _nobody(one, registry, as_json)
        try:
            done = ownership.stop(_owner(one, registry), grace)
        except AlreadyOwnedError:
            if one.verdict.is_dead:  # proven by its witness, from another pid namespace
                return _nobody(one, registry, as_json)
            if one.running is not None and one.elsewhere:
                raise _out_of_reach(one, registry) from None
            raise
        except (StopTimeoutError, PermissionError) as error:
            return _failed(error, one, as_json)
    if not done.signalled:
        return _nobody(one, registry, as_json)
    if as_json:
        write_json({**as_data(one, registry), "remedy": "", "stopped": True, **_as_data(done)})
    else:
        record = one.record
        who = f"pid {_pid(one)}" + (f" ({printable(record.command)})" if record and record.command else "")
        what = "and its group are gone" if done.scope == "group" else "is gone"
        write(f"stopped {shown(one.resource)}: {who} {what} after {done.took:.2f} s")
        _write_signals(done)
    return 0


def _owner(one: Inspection, registry: str | None) -> OwnerRef | OwnerIdentity:
    """The owner that was found, whatever its record calls the resource.

    :raises AlreadyOwnedError: nobody knows who it is
    """
    where = None if registry is None else os.path.abspath(registry)
    if one.record is not None:
        return OwnerRef.of(os.fspath(one.resource), one.record, where)
    if one.owner is None:
        raise refusal(one, registry)
    if one.token < 1:
        return one.owner
    return OwnerRef(resource=os.fspath(one.resource), registry=where, token=one.token, owner=one.owner)


def _out_of_reach(one: Inspection, registry: str | None) -> AlreadyOwnedError:
    """It lives, as its witness says, but no process there has a number here."""
    fact = "; it is out of reach from here, nothing was signalled"
    return refusal(one, registry, fact=fact, hint=f"end it where it runs; {remedy(one, registry)}")


def _pid(one: Inspection) -> int | None:
    return one.owner.pid if one.owner else None


def _nobody(one: Inspection, registry: str | None, as_json: bool) -> int:
    """Nobody is there to be stopped, which is no failure; and nothing to tidy up here."""
    if as_json:
        nothing = StopReport("process", (), (), True, 0.0)
        write_json({**as_data(one, registry), "stopped": False, **_as_data(nothing), "scope": None})
    elif one.verdict is Verdict.FREE:
        say(f"nobody owns {shown(one.resource)}, nobody to stop")
    else:
        fact = f"{one.verdict.value}, {one.reason}" if one.verdict.is_dead else "it has just ended by itself"
        say(f"nobody to stop: {shown(one.resource)}: pid {_pid(one)}: {fact}", remedy(one, registry))
    return 0


def _failed(error: StopTimeoutError | PermissionError, one: Inspection, as_json: bool) -> int:
    """What was sent all the same, and who is left."""
    done = error.report if isinstance(error, StopTimeoutError) else None
    if as_json:
        told = {**facts(error, FAILED), "pid": _pid(one), "stopped": False}
        write_json({**told, **(_as_data(done) if done else {"signalled": [], "gone": False})})
    else:
        if done is not None:
            _write_signals(done)
            for left in done.survivors:
                write(f"  left: pid {left.pid}  {left.state}  {printable(left.command or '-')}")
        report(error, as_json=False)
    return FAILED


def _write_signals(done: StopReport) -> None:
    for one in done.signalled:
        write(f"  {one.when:%Y-%m-%dT%H:%M:%S.%fZ}  {one.signal}  {one.target} {one.number}")


def _as_data(done: StopReport) -> dict[str, Any]:
    return {
        "scope": done.scope,
        "signalled": [
            {
                "when": f"{one.when:%Y-%m-%dT%H:%M:%S.%fZ}",
                "after": one.after,
                "signal": one.signal,
                "target": one.target,
                "number": one.number,
            }
            for one in done.signalled
        ],
        "survivors": [
            {"pid": one.pid, "start_id": one.start_id, "state": one.state, "command": one.command}
            for one in done.survivors
        ],
        "gone": done.gone,
        "took": done.took,
    }
