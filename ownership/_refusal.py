"""Why a resource cannot be had, in words: who, since when, how that is known, and the way out."""

from __future__ import annotations

from ownership._errors import AlreadyOwnedError
from ownership._examine import Examined
from ownership._models import OwnerIdentity, OwnerRecord
from ownership._paths import Resource, argument_of, quoted, shown
from ownership._process import printable
from ownership._station import Place
from ownership._verdict import HELD_HERE, Verdict


def describe(owner: OwnerIdentity | None, elsewhere: str = "") -> str:
    """Who that is, since when, for messages.

    :param elsewhere: whose pids its pid is one of, if not ours
    """
    if owner is None:
        return "an unknown process"
    text = f"pid {owner.pid} of {elsewhere}" if elsewhere else f"pid {owner.pid}"
    if not isinstance(owner, OwnerRecord):
        return text
    if owner.command:
        text += f" ({printable(owner.command)})"
    if owner.host:
        text += f" on {printable(owner.host)}"
    if owner.acquired_at:
        text += f" since {owner.acquired_at:%Y-%m-%dT%H:%M:%S.%fZ}"
    if owner.labels:
        text += " [" + printable(", ".join(f"{key}={value}" for key, value in owner.labels.items())) + "]"
    return text


def refusal(resource: Resource, examined: Examined, place: Place) -> AlreadyOwnedError:
    """Why *resource* cannot be had, with every fact and the way out."""
    owner, judgement = examined.owner, examined.judgement
    facts = ""
    if isinstance(owner, OwnerRecord):
        if judgement.reason == HELD_HERE:  # which of our handles
            facts += f", instance {owner.instance_id}"
        facts += f"; token {owner.token}"
        if owner.lease is not None:
            left = examined.ends_in
            facts += f"; lease of {owner.lease.ttl:g} s"
            facts += "" if left is None else f", which holds {max(left, 0.0):.1f} s unless renewed"
    who = describe(owner, judgement.elsewhere)
    held = "held by" if examined.request is None else "about to be acquired by the one who asked for it,"
    return AlreadyOwnedError(
        f"{resource.shown} is {held} {who}: {judgement.verdict.value}, {judgement.reason}{facts}",
        resource=resource.path,
        record=examined.record,
        owner=owner,
        verdict=judgement.verdict,
        reason=judgement.reason,
        hint=_remedy(resource, examined, place),
    )


def argument(resource: Resource, place: Place) -> str:
    """How a command line names *resource*: to be pasted as it is."""
    return argument_of(resource.path, place.directory.path if place.directory.location.whole else None)


def _remedy(resource: Resource, examined: Examined, place: Place) -> str:
    owner = examined.owner
    path = argument(resource, place)
    if examined.request is not None:
        doubt = f"if you know that it will not: leasectl break {path} --token {examined.request.token} withdraws that"
        return f"wait for it (timeout=, leasectl wait {path}); {doubt}"
    if examined.verdict is Verdict.STOPPED and owner:
        freed = quoted(resource.path)
        return f"kill -CONT {owner.pid} lets it go on, ending it frees {freed}; or wait: leasectl wait {path}"
    if examined.unsettled:
        return "acquire it: unless a live owner's keeper mends the record within a second, it is reclaimed"
    if examined.judgement.reason == HELD_HERE:
        return f"this process owns it already: use that claim, or release it first; see leasectl show {path}"
    if examined.verdict is Verdict.LIVE:
        end = "end it where it runs" if examined.judgement.elsewhere else "end that process"
        return f"wait for it (timeout=, leasectl wait {path}) or {end}"
    if isinstance(owner, OwnerRecord):
        return f"if you know that the owner is gone: leasectl break {path} --token {owner.token}"
    record = shown(place.directory.file(f"{resource.name}.json"))
    return f"leasectl show {path}; its keeper repairs the record {record} within a second if it can"
