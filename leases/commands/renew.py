"""``leasectl renew``."""

from __future__ import annotations

import os

import click

from leases.commands._facts import as_data
from leases.commands._failure import CommandError
from leases.commands._options import PATH, arguments, common
from leases.commands._output import say, shown, write, write_json
from ownership import Fence, OwnerRef, inspect, renew

_GONE = 3.0  # seconds after which record and guard are gone for good


@click.command("renew")
@click.argument("path", type=PATH, required=False)
@common
def command(path: str | None, registry: str | None, as_json: bool) -> int:
    """Renew the lease that this command works under.

    For a CMD that has to prove its progress: leasectl run --ttl 30 --no-auto-renew PATH -- CMD, and CMD, or whatever it
    starts, calls leasectl renew after each step. When it does not for 30 s, another may take PATH, and CMD gets TERM.
    The owner is the one in the variable LEASES_OWNER, which leasectl run sets; PATH, if it is given, must be what that
    owns.

    \b
    Exit status:
       0  renewed, or its owner renews it by itself
       1  failed: it cannot be told or renewed at the moment
       2  usage: LEASES_OWNER is not set, or about another PATH
      65  the record or its directory cannot be used
      75  another process sat inside the guard
      76  it is not that owner's any more
    """
    ref = _owner(path, registry)
    try:
        held = renew(ref)
    except RuntimeError as error:  # of another time namespace
        raise CommandError(str(error), 1, "run leasectl renew where its owner runs") from None
    if not held:
        with Fence(ref) as fence:
            fence.wait(_GONE)
            fence.check()
    one = inspect(ref.path, registry=ref.registry)
    lease = one.record.lease if one.record is not None else None
    by_hand = lease is not None and not lease.auto_renew
    if as_json:
        write_json({**as_data(one, ref.registry), "renewed": by_hand, "expires_in": one.expires_in})
    elif by_hand:
        left = "" if one.expires_in is None else f", runs out in {one.expires_in:.1f} s unless it is renewed again"
        write(f"renewed: {shown(ref.path)}{left}")
    else:
        say(f"{shown(ref.path)} is still its owner's, pid {ref.owner.pid}, who does not need to have it renewed")
    return 0


def _owner(path: str | None, registry: str | None) -> OwnerRef:
    context = click.get_current_context()
    try:
        with arguments():
            ref = OwnerRef.from_env()
            if registry is not None and os.path.realpath(registry) != ref.registry:
                raise click.UsageError(f"LEASES_OWNER is about {_where(ref)}, not about {shown(registry)}", context)
            if path is None or inspect(path, registry=registry or ref.registry).resource == ref.path:
                return ref
    except LookupError as error:
        fact = str(error).partition("; start it by")[0]
        hint = "start it by leasectl run --ttl SECONDS --no-auto-renew PATH -- CMD"
        raise click.UsageError(f"{fact}; {hint}", context) from None
    raise click.UsageError(f"LEASES_OWNER is about {shown(ref.path)}, not about {shown(path)}", context)


def _where(ref: OwnerRef) -> str:
    return "no registry" if ref.registry is None else f"the registry {shown(ref.registry)}"
