"""What a new record of ours says."""

from __future__ import annotations

from typing import Any

from ownership._models import MAX_TOKEN, LeaseTerms, OwnerRecord
from ownership._paths import Resource
from ownership._process import Identity
from ownership._record import Template
from ownership._station import Place

_KEPT = 64  # templates; most processes own the same few things again and again
_templates: dict[tuple[object, ...], Template] = {}


def draft(
    place: Place, resource: Resource, me: Identity, labels: dict[str, str], terms: LeaseTerms | None = None
) -> Template:
    """The record of this process for *resource*, but for token and times."""
    device = place.directory.descriptor.device
    key: tuple[object, ...] = (resource.path, me.instance_id, device)
    if labels:
        key += tuple(labels.items())
    if terms is not None:
        key += (terms.ttl, terms.auto_renew)
    template = _templates.get(key)
    if template is None:
        record = OwnerRecord(
            resource=resource.shown, token=1, device=device, labels=labels, lease=terms, **template_of(me)
        )
        template = Template(record)
        if len(_templates) >= _KEPT:
            _templates.clear()
        _templates[key] = template
    return template


def template_of(me: Identity) -> dict[str, Any]:
    """The fields by which a record names this process."""
    return {
        "pid": me.pid,
        "start_id": me.start_id,
        "instance_id": me.instance_id,
        "boot_id": me.boot_id,
        "pid_namespace": me.pid_namespace,
        "host": me.host,
        "command": me.command,
    }


def new_token(place: Place, resource: Resource, remembered: int, judged: int, wall_ns: int) -> int:
    """Greater than every token the guard or the judged record knows; the wall clock bridges a lost guard."""
    wall = wall_ns // 1000 if wall_ns // 1000 < MAX_TOKEN else 0  # a clock that nobody has set
    token = max(remembered + 1, judged + 1, wall, 1)
    if token > MAX_TOKEN:
        raise place.directory.invalid(f"{resource.name}.guard", f"no token greater than {token - 1} below 2^53")
    return token
