"""Watching a lease whose clock is not ours: it has run out once its renewal was seen unchanged for a whole ttl."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ownership._clock import Clock
from ownership._expiry import deadline, has_expired
from ownership._models import LeaseTerms
from ownership._verdict import Testimony

_GAP = (
    0.5  # seconds between two looks at a heartbeat that is missing: a live owner may have put it back in a longer one
)


class _Seen(NamedTuple):
    renewal: tuple[float, float | None]
    since: float
    last: float


class Vigil:
    """What one contender that waits has seen of renewals, in seconds of its own clock."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, _Seen] = {}

    def end_of(
        self, owner: Hashable, renewal: tuple[float, float | None], ttl: float, before: float, after: float, gaps: bool
    ) -> float:
        """When *owner*'s lease will have been seen unrenewed for a whole ttl.

        :param renewal: what says when it was renewed, by the owner's clock
        :param before: our clock, read before *renewal* was: what is later was not seen
        :param after: our clock, read after it: a renewal that we saw was made before
        :param gaps: *renewal* could change and change back between two looks
        """
        seen = self._seen.get(owner)
        if seen is None or seen.renewal != renewal or (gaps and before - seen.last > _GAP):
            seen = _Seen(renewal, after, after)
        self._seen[owner] = seen._replace(last=after)
        return seen.since + ttl

    @property
    def is_kept(self) -> bool:
        """Whether anything is watched: then it is to be looked at often."""
        return bool(self._seen)

    def forget(self, owner: Hashable) -> None:
        """Its renewal could not be looked at: begin anew."""
        self._seen.pop(owner, None)


def outlook(
    lease: LeaseTerms | None,
    witness: Testimony | None,
    now: float,
    clock: Clock,
    same_clock: bool,
    vigil: Vigil | None,
    owner: Hashable,
) -> tuple[bool, float | None]:
    """Whether *lease* has certainly run out, and when it does by our clock unless it is renewed, if that can be told.

    :param now: of *clock*, read before *witness* was asked
    :param same_clock: owner and contender read one CLOCK_MONOTONIC
    :param vigil: what we have seen so far, if we wait
    """
    if lease is None:
        return False, None
    beat = witness.beat if witness is not None else None
    until = deadline(lease, beat) if same_clock else None
    if until is not None or vigil is None:
        return has_expired(lease, beat, now, same_clock=same_clock), until
    if lease.auto_renew and (witness is None or witness.blind):
        vigil.forget(owner)
        return False, None
    missing = lease.auto_renew and beat is None
    until = vigil.end_of(owner, (lease.renewed_at, beat), lease.ttl, now, clock.monotonic(), missing)
    return now >= until, until
