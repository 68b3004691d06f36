"""When a lease has run out. Pure; wall clocks and file times are never evidence."""

from __future__ import annotations

from ownership._models import LeaseTerms


def deadline(lease: LeaseTerms, beat: float | None) -> float | None:
    """Seconds of the owner's CLOCK_MONOTONIC until which *lease* holds; ``None`` if its heartbeat is unknown.

    :param beat: the heartbeat in the owner's witness; only leases that renew by it look at it
    """
    if not lease.auto_renew:
        return lease.renewed_at + lease.ttl
    return None if beat is None else max(lease.renewed_at, beat) + lease.ttl


def has_expired(lease: LeaseTerms | None, beat: float | None, now: float, *, same_clock: bool) -> bool:
    """Whether *lease* has certainly run out. Doubt is no.

    :param now: CLOCK_MONOTONIC of the contender, read *before* the heartbeat was
    :param same_clock: owner and contender read one CLOCK_MONOTONIC: same boot, same time namespace
    """
    if lease is None or not same_clock:
        return False
    until = deadline(lease, beat)
    return until is not None and now >= until
