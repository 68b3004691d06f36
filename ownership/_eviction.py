"""What the guard is to remember when the owner of a record is found at its end."""

from __future__ import annotations

import time
from typing import NamedTuple

from ownership._examine import Examined
from ownership._models import Death, GuardState, OwnerIdentity, OwnerRecord, Previous, ending, timestamp
from ownership._verdict import Verdict

_DEATHS = 3  # remembered
_REASON, _LONGEST = 80, 120  # characters of a reason of ours, and of one that was given


class Ended(NamedTuple):
    """An owner that whoever acquires has ended, and why."""

    instance_id: str
    reason: str


def after_end(
    remembered: GuardState, examined: Examined, wall_ns: int, boot_id: str | None, ended: Ended | None = None
) -> GuardState:
    """*remembered* and, if the owner is found dead for the first time, its death; or how else it came to its end.

    :param ended: whom the caller has ended: that is no death of its own
    """
    judged, last, record = examined.owner, remembered.owner, examined.record
    if examined.verdict is Verdict.EXPIRED and judged is not None:
        return remembered._replace(previous=ending("expired", run_out(judged), wall_ns))
    if not examined.verdict.is_dead or judged is None or last is None or last.instance_id != judged.instance_id:
        return remembered
    if record is not None and record.is_closed:
        closed = Previous(how="closed", reason=(record.reason or "")[:_LONGEST], at=record.updated_at)
        return remembered._replace(previous=closed, deaths=())
    if ended is not None and ended.instance_id == judged.instance_id:
        return remembered._replace(previous=Previous(how="died", reason=ended.reason[:_LONGEST], at=timestamp(wall_ns)))
    previous = Previous(how="died", reason=examined.judgement.reason[:_REASON], at=timestamp(wall_ns))
    death = Death(at=round(boottime(), 3), boot_id=(boot_id or "")[:8])
    return remembered._replace(previous=previous, deaths=(*remembered.deaths, death)[-_DEATHS:])


def run_out(owner: OwnerIdentity) -> str:
    """That *owner*'s lease had run out, in words."""
    lease = owner.lease if isinstance(owner, OwnerRecord) else None
    ttl = f" of {lease.ttl:g} s" if lease is not None else ""
    return f"pid {owner.pid} had not renewed its lease{ttl}"


def boottime() -> float:
    """Seconds since the boot, those of a suspended machine included."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(clock) if clock is not None else time.monotonic()
