"""Renewing leases under the guard: what counts however late it comes, so long as nobody has taken over."""

from __future__ import annotations

from functools import partial

from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._guard import PATIENCE, Interrupting
from ownership._heartbeat import Term
from ownership._hold import Hold
from ownership._holding import Holding
from ownership._models import LeaseTerms
from ownership._part import Part
from ownership._pinned import DirectoryChanged


def begun(terms: LeaseTerms, clock: Clock) -> LeaseTerms:
    """*terms* of a lease that begins now."""
    return LeaseTerms(ttl=terms.ttl, auto_renew=terms.auto_renew, renewed_at=_clock_of(terms, clock).monotonic())


def _clock_of(terms: LeaseTerms, clock: Clock) -> Clock:
    """What a lease is measured by: the machine's own clock where the heartbeat renews it."""
    return SYSTEM_CLOCK if terms.auto_renew else clock


def lease_out(holding: Holding, part: Part, terms: LeaseTerms) -> None:
    """*part*, about to be published, ends by *terms*."""
    heartbeat = part.place.heartbeat if terms.auto_renew else None
    part.term = Term(terms.ttl, terms.renewed_at, heartbeat, _clock_of(terms, holding.clock))
    part.term.begin()
    holding.leased = True


def renew(holding: Holding) -> None:
    """Renew every part, under its guard.

    :raises OwnershipLostError: somebody owns it by now
    :raises OSError: it cannot be renewed at the moment; nothing is lost by that
    """
    for part in holding.parts:
        if part.term is not None:
            try:
                holding.under_guard(part, partial(renew_part, holding, part))
            except Interrupting as interrupting:
                raise interrupting.told() from None


def renew_late(holding: Holding, *, wait: float = PATIENCE, by_hand: bool = True) -> None:
    """What has run out, or is renewed by no heartbeat any more, is renewed unless it was taken over.

    :param by_hand: also what the heartbeat does not renew
    :raises OwnershipLostError: it was taken over
    :raises OSError: it cannot be told or renewed at the moment; nothing is lost by that
    """
    for part in holding.parts:
        term = part.term
        if term is None or not (term.is_over or term.is_frozen) or not (by_hand or term.heartbeat is not None):
            continue
        inside = holding.inside
        if inside is not None and not inside.is_here:
            continue  # another thread of ours keeps everybody out
        try:
            holding.under_guard(part, partial(renew_part, holding, part), wait=wait)
        except Interrupting:
            continue  # our own thread is inside and will see for itself


def renew_part(holding: Holding, part: Part, hold: Hold) -> None:
    """Under the guard: make sure that it is ours, then renew it."""
    holding.repair(part, hold)
    term, place = part.term, part.place
    assert term is not None
    if term.heartbeat is None:
        terms = LeaseTerms(ttl=term.ttl, auto_renew=False, renewed_at=holding.clock.monotonic())
        part.change({"lease": terms.model_dump()}, holding.clock.wall_ns(), hold)
        term.renew(terms.renewed_at)
        return
    written = term.heartbeat.beat(place)  # which renews the others too: a thousand late ones take longer than a ttl
    if written is not None:
        term.renew(written)
    if not hold.is_at_path() or not place.directory.is_at_path():
        raise DirectoryChanged


def expires_in(holding: Holding) -> float:
    """Seconds until the first part runs out, negative once it has."""
    return min(part.term.expires_in for part in holding.parts if part.term is not None)


def lapses(holding: Holding) -> int:
    """How often a part had run out before it was renewed."""
    return sum(part.term.lapses for part in holding.parts if part.term is not None)
