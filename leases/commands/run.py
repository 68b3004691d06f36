"""``leasectl run``."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Iterator
from typing import NoReturn

import click

from leases._gate import Gate
from leases.commands._child import attend, cannot_run
from leases.commands._failure import facts, report
from leases.commands._options import PATH, arguments, common, seconds
from leases.commands._output import flush, say, short, write_json
from leases.commands._signals import inbox
from leases.commands.wait import announce
from ownership import Claim, ContentionError, OwnerRef, OwnershipError, StopRequest, acquire, inspect


def labelled(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read ``key=value``, any number of them."""
    labels: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"must be key=value, got {value!r}", ctx, param)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise click.BadParameter(f"must be UTF-8, got {value!r}", ctx, param) from None
        labels[key] = text
    return labels


def given(ctx: click.Context, param: click.Parameter, cmd: tuple[str, ...]) -> tuple[str, ...]:
    if cmd and not cmd[0]:
        raise click.BadParameter("must not be empty", ctx, param)
    return cmd


class Run(click.Command):
    """Its options end at ``--``, which is easily forgotten."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        marked = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not marked:
                error.hint = f"put -- before CMD: leasectl {self.name} PATH -- CMD..."  # type: ignore[attr-defined]
            raise


@click.command("run", cls=Run)
@click.argument("path", type=PATH)
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, callback=given, metavar="-- CMD...")
@click.option(
    "--exec",
    "become",
    is_flag=True,
    help="CMD replaces leasectl and is the owner itself. Not with --ttl, unless --no-auto-renew is given too.",
)
@click.option(
    "--timeout",
    callback=seconds(endless=True),
    default="0",
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the present owner, or 'forever'.",
)
@click.option(
    "--grace",
    callback=seconds(endless=False),
    default="5.0",
    show_default=True,
    metavar="SECONDS",
    help="Time between TERM and KILL when PATH is lost.",
)
@click.option("--conflict-exit-code", type=click.IntRange(0, 255), metavar="N", help="Exit code instead of 75.")
@click.option(
    "--label", "labels", callback=labelled, multiple=True, metavar="K=V", help="A fact for whoever is refused."
)
@click.option(
    "--ttl",
    callback=seconds(endless=False, least=1),
    metavar="SECONDS",
    help="A lease: if leasectl is paused for longer, another may take PATH.",
)
@click.option(
    "--auto-renew/--no-auto-renew",
    default=True,
    help="With --ttl: leasectl renews, or CMD has to, by leasectl renew.",
)
@click.option("--gate", type=PATH, metavar="GATE", help="Only while the gate GATE, in the same directory, is open.")
@click.option("--also", type=PATH, multiple=True, metavar="PATH", help="Own this too: all or nothing.")
@common
def command(
    path: str,
    cmd: tuple[str, ...],
    become: bool,
    timeout: float | None,
    grace: float,
    conflict_exit_code: int | None,
    labels: dict[str, str],
    ttl: float | None,
    auto_renew: bool,
    gate: str | None,
    also: tuple[str, ...],
    registry: str | None,
    as_json: bool,
) -> int:
    """Own PATH while CMD runs.

    The record names leasectl, and CMD cannot outlive it: if leasectl is killed, the kernel kills CMD (Linux). TERM,
    INT, HUP, QUIT, USR1 and USR2 are passed on to CMD. PATH is released after CMD has ended. If PATH is lost
    meanwhile (by leasectl break, for instance), CMD gets TERM, and KILL after the time of --grace. When somebody asks
    the owner to go (leasectl replace), CMD gets TERM.

    Not covered: descendants that outlive CMD, and a CMD that changes its account (sudo, su, setpriv, set-user-ID
    programs), which the kernel then unties from leasectl. Use --exec for those: CMD replaces leasectl, keeps its pid,
    and owns PATH until it ends. Nothing watches PATH then.

    With --ttl PATH may go to another once leasectl was paused for that long. CMD, which was not, then runs beside the
    new owner until leasectl goes on, and ends it. With --no-auto-renew PATH may go once CMD has not called leasectl
    renew for that long, by which it proves that it gets on.

    --json writes JSON only for errors; what CMD writes is on the same stdout.

    \b
    Exit status: CMD's own, 128 + N if signal N ended it; or
       1  failed: a missing directory, for instance
       2  usage
      65  the record or its directory cannot be used
      75  held by another, also after waiting, or the gate is closed (--conflict-exit-code changes it)
      76  PATH was lost while CMD ran
     126  CMD cannot be executed
     127  CMD was not found
    """
    if not auto_renew and (ttl is None or also):
        why = "needs --ttl" if ttl is None else "and --also exclude each other: leasectl renew renews one resource"
        raise click.UsageError(f"--no-auto-renew {why}", click.get_current_context())
    if become and ttl is not None and auto_renew:
        why = "nothing would renew it; or let CMD do it, by leasectl renew: --no-auto-renew"
        raise click.UsageError(f"--ttl and --exec exclude each other: {why}", click.get_current_context())
    try:
        with arguments():
            asked = None if gate is None else Gate(gate, registry=registry)
            claim = acquire(
                path,
                timeout=timeout,
                also=also,
                registry=registry,
                labels=labels,
                ttl=ttl,
                auto_renew=auto_renew,
                gate=asked,
                on_wait=announce,
            )
    except ContentionError as error:
        return report(error, as_json=as_json, code=conflict_exit_code)
    with let_go(claim):
        if become:
            _replace_us(claim, cmd)
        return attended(claim, cmd, grace, as_json=as_json)


def attended(claim: Claim, cmd: tuple[str, ...], grace: float, *, as_json: bool) -> int:
    """Run *cmd* as the owner and release *claim* when it has ended; the exit code.

    :param grace: seconds between TERM and KILL when *claim* is lost
    """
    lease = claim.record.lease
    held = claim if lease is None or lease.auto_renew else _RenewedByCmd(claim)
    with inbox() as signals, let_go(claim):  # while signals are held back: CMD's exit code is to be returned
        code, loss = attend(cmd, held, signals, grace)
    if loss is None:
        return code
    if as_json:
        write_json(facts(loss, loss.exit_code))
    return loss.exit_code


class _RenewedByCmd:
    """A claim that CMD renews: looked at without renewing it, which ``claim.verify()`` does when it is late."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    @property
    def ref(self) -> OwnerRef:
        return self._claim.ref

    @property
    def stop_request(self) -> StopRequest | None:
        return self._claim.stop_request

    def verify(self) -> None:
        owner = inspect(self._claim.path, registry=self.ref.registry).owner
        if owner is None or owner.instance_id != self.ref.owner.instance_id:
            self._claim.verify()


@contextlib.contextmanager
def let_go(claim: Claim) -> Iterator[None]:
    """Release *claim* at the end. What stands in the way does not change the exit code: our own end frees it."""
    try:
        yield
    finally:
        try:
            claim.release()
        except (OSError, OwnershipError) as error:
            say(f"not released, the next acquire takes over: {error}")


def _replace_us(claim: Claim, cmd: tuple[str, ...]) -> NoReturn:
    claim.keep_across_exec(command=short(shlex.join(cmd)))
    flush()
    with _system_defaults():
        try:
            os.execvpe(cmd[0], cmd, {**os.environ, **claim.ref.to_env()})
        except OSError as error:
            raise cannot_run(cmd, error if error.filename is not None else _named(error, cmd[0])) from error


def _named(error: OSError, name: str) -> OSError:
    return type(error)(error.errno, error.strerror, name)


@contextlib.contextmanager
def _system_defaults() -> Iterator[None]:
    """Undo what Python itself ignores: exec passes it on."""
    ignored = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
