"""``leasectl break``."""

from __future__ import annotations

import click

from leases.commands._facts import as_data
from leases.commands._failure import require_directory
from leases.commands._options import PATH, arguments, common
from leases.commands._output import printable, say, shown, write, write_json
from ownership import Inspection, Verdict, break_claim


@click.command("break")
@click.argument("path", type=PATH)
@click.option(
    "--token",
    type=click.INT,
    required=True,
    metavar="N",
    help="The token of the owner, or of a request, as shown by show.",
)
@common
def command(path: str, token: int, registry: str | None, as_json: bool) -> int:
    """Evict the owner of PATH by your decision.

    Whether it lives or not: it learns of it, but may work on until then. The token says which owner is meant, so
    that a later one is never hit. With the token of a request to go (leasectl replace), which show prints, the request
    is withdrawn instead: whoever asked gives up with 75, and the owner goes on.

    \b
    Exit status:
       0  it owns no more, also if nobody owned PATH; or the request is withdrawn
       1  failed: the directory of PATH does not exist, for instance
       2  usage
      65  the record or its directory cannot be used
      75  owned by another token: nothing was changed
    """
    with arguments():
        one = break_claim(path, token=token, registry=registry)
    require_directory(one)
    broken = one.verdict is not Verdict.FREE and not one.withdrawn
    if as_json:
        write_json({**as_data(one, registry), "broken": broken, "withdrawn": one.withdrawn})
    elif one.withdrawn:
        write(f"withdrawn: {printable(_withdrawn(one))}")
    elif broken:
        who = f"pid {one.record.pid} ({one.record.command})" if one.record else "its owner"
        write(f"broken: {shown(one.resource)} was owned by {who} by token {token}: {one.verdict.value}, {one.reason}")
    else:
        say(f"nobody owns {shown(one.resource)}, nothing to break")
    return 0


def _withdrawn(one: Inspection) -> str:
    request = one.request
    who = f"pid {request.pid}" + (f" ({request.command})" if request.command else "") if request else "somebody"
    owner = f"the owner, pid {one.owner.pid}, goes on" if one.owner is not None else "nobody owns it"
    return f"the request of {who} for {shown(one.resource)}; {owner}"
