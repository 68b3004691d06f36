"""What one look at a resource showed, as a value."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ownership._examine import FREE, Examined
from ownership._models import NO_GUARD_STATE, GuardState, Malformed, OwnerIdentity, OwnerRecord, Previous
from ownership._paths import Resource, shown, state_home
from ownership._ref import OwnerRef
from ownership._request import StopRequest
from ownership._verdict import Verdict


@dataclass(frozen=True, slots=True)
class Running:
    """An owner that lives, as others see it."""

    record: OwnerRecord
    ref: OwnerRef
    verdict: Verdict

    @property
    def endpoint(self) -> str | None:
        """Where it said it can be reached."""
        return self.record.endpoint

    @property
    def data(self) -> dict[str, Any]:
        return self.record.data

    @property
    def phase(self) -> str:
        return self.record.phase


@dataclass(frozen=True, slots=True)
class Inspection:
    """One look at a resource: a fact about a moment that is over.

    :ivar resource: canonical path
    :ivar verdict: ``free`` if nobody owns it
    :ivar reason: the fact behind the verdict, in words
    :ivar record: the owner's record, ``None`` if there is none or it cannot be read as one
    :ivar owner: the owner's identity: the record, or for one that cannot be read whoever its guard names
    :ivar running: the owner, if it is live or stopped
    :ivar overdue: the owner, if its lease has expired and it lives: it may go on until somebody takes over
    :ivar token: the last token known: of the record, or else of the guard
    :ivar previous: how the ownership before ended
    :ivar malformed: what is wrong with the record
    :ivar elsewhere: whose pids the owner's pid is one of, if not ours: ``pid namespace 4026532178 (ours is ...)``
    :ivar expires_in: seconds from the look on until its lease runs out unless it is renewed, if that can be told here
    :ivar missing: the directory of the resource, if it is not there: then the path may well be misspelled
    :ivar request: who asked the owner to go, dead or not (see its verdict): only a live asker may acquire
    :ivar withdrawn: only from :func:`break_claim`: the token was that of ``request``, which was withdrawn, and the
        owner owns as before
    :ivar error: why it could not be looked at (only from :func:`inspect_all`; :func:`inspect` raises it)
    """

    resource: Path
    verdict: Verdict
    reason: str
    record: OwnerRecord | None = None
    owner: OwnerIdentity | None = None
    running: Running | None = None
    token: int = 0
    previous: Previous | None = None
    malformed: str | None = None
    elsewhere: str = ""
    missing: Path | None = None
    error: Exception | None = None
    request: StopRequest | None = None
    expires_in: float | None = field(default=None, compare=False)
    withdrawn: bool = False
    overdue: Running | None = None

    @property
    def ref(self) -> OwnerRef | None:
        """The owner as a value, whatever the verdict."""
        return None if self.running is None else self.running.ref


def inspection_of(
    resource: Resource,
    registry: str | None,
    remembered: GuardState,
    examined: Examined,
    request: StopRequest | None = None,
) -> Inspection:
    """What one look showed."""
    record, verdict = examined.record, examined.verdict
    running = None
    if record is not None and examined.judgement.lives:
        running = Running(record, OwnerRef.of(resource.path, record, registry, examined.directory), verdict)
    overdue = running if verdict is Verdict.EXPIRED else None
    malformed = examined.malformed
    return Inspection(
        Path(resource.path),
        verdict,
        examined.judgement.reason,
        record,
        examined.owner,
        None if overdue else running,
        record.token if record else remembered.token,
        remembered.previous and remembered.previous.shown,
        malformed.fault if isinstance(malformed, Malformed) else None,
        examined.judgement.elsewhere,
        request=request,
        expires_in=examined.ends_in,
        overdue=overdue,
    )


def nobody(resource: Resource, registry: str | None) -> Inspection:
    """Nobody owns *resource*: it has no lock directory or record; and whether it has a directory at all."""
    one = inspection_of(resource, registry, NO_GUARD_STATE, FREE)
    if registry is not None or os.path.lexists(resource.parent) or _is_made(resource.parent):
        return one
    return replace(one, reason=f"directory {shown(resource.parent)} does not exist", missing=Path(resource.parent))


def _is_made(parent: str) -> bool:
    """Whether whoever acquires makes *parent*: that of named resources."""
    try:
        return os.path.realpath(state_home()) == parent
    except ValueError:
        return False
