"""``leasectl schema``."""

from __future__ import annotations

import json

import click

import ownership
from leases.commands._options import common
from leases.commands._output import write


@click.command("schema")
@common
def command(registry: str | None, as_json: bool) -> int:
    """Print the JSON schema of an owner record. --json and --registry change nothing here.

    \b
    Exit status:
       0  done
    """
    write(json.dumps(ownership.schema(), indent=2))
    return 0
