"""The holder's side of a lease: until when it is ours, and the one write that renews all leases of a lock directory.

A renewal without the guard counts only like this: the heartbeat is written, *then* the clock is read again, and that is
before the old deadline. A contender reads the clock first and the heartbeat second, under the guard. So whoever evicts
has seen the deadline pass before a heartbeat was there that its holder believes in.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Protocol

from ownership import _fork
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._models import Malformed, OwnerRecord
from ownership._witness import Witness

_RATE = 1.0  # seconds between two heartbeats at most: whoever reads another clock must see them change
_SHARE = 0.25  # of the shortest ttl between two heartbeats


class _Place(Protocol):
    """A lock directory: what shows our heartbeat to others."""

    witness: Witness

    def restore(self) -> bool:
        """Put back what is missing; false if it is not at its path, and cannot be seen there."""


class Term:
    """Until when one resource is ours, as its holder may believe; seconds of the clock it is measured by.

    :param renewed_at: the last renewal under the guard
    :param heartbeat: what renews it without the guard, ``None`` if that is done by hand
    :ivar lapses: how often it was renewed after it had run out
    """

    __slots__ = ("_clock", "_frozen", "heartbeat", "lapses", "renewed_at", "ttl")

    def __init__(self, ttl: float, renewed_at: float, heartbeat: Heartbeat | None, clock: Clock) -> None:
        self.ttl = ttl
        self.renewed_at = renewed_at
        self.heartbeat = heartbeat
        self.lapses = 0
        self._clock = clock
        self._frozen: float | None = None  # where heartbeats do not move it any more, since one came too late

    @property
    def until(self) -> float:
        """The deadline."""
        beaten = self.heartbeat.counted if self.heartbeat is not None else self.renewed_at  # before it may freeze
        frozen = self._frozen
        return max(self.renewed_at, beaten) + self.ttl if frozen is None else frozen

    @property
    def expires_in(self) -> float:
        """Seconds, negative once it has run out."""
        return self.until - self._clock.monotonic()

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self.until

    @property
    def is_frozen(self) -> bool:
        return self._frozen is not None

    def freeze(self) -> None:
        """From now on only a renewal under the guard counts."""
        self._frozen = self.until

    def renew(self, at: float) -> None:
        """It was renewed under the guard, which was found to be ours."""
        self.lapses += at >= self.until
        self.renewed_at = at
        self._frozen = None

    def heed(self, record: OwnerRecord | Malformed | None) -> None:
        """*record* is ours: whoever works for us may have renewed it."""
        lease = record.lease if isinstance(record, OwnerRecord) else None
        if self.heartbeat is None and lease is not None and lease.renewed_at > self.renewed_at:
            self.renew(lease.renewed_at)

    def renewed(self, record: OwnerRecord) -> OwnerRecord:
        """*record*, ours, as it is now that others have renewed it."""
        if self.heartbeat is not None or record.lease is None or record.lease.renewed_at >= self.renewed_at:
            return record
        return record.model_copy(update={"lease": record.lease.model_copy(update={"renewed_at": self.renewed_at})})

    def begin(self) -> None:
        """Be renewed by the heartbeat from now on."""
        if self.heartbeat is not None:
            self.heartbeat.enter(self)

    def end(self) -> None:
        """Be renewed no more."""
        if self.heartbeat is not None:
            self.heartbeat.leave(self)

    def move(self, heartbeat: Heartbeat) -> None:
        """The record goes to another directory: there it is to be renewed under the guard first."""
        if self.heartbeat is not None and self.heartbeat is not heartbeat:
            self.freeze()
            self.heartbeat.leave(self)
            self.heartbeat = heartbeat
            heartbeat.enter(self)


class Heartbeat:
    """What renews the leases of a lock directory, whatever their number.

    :param clock: CLOCK_MONOTONIC, or for tests another one
    :ivar counted: the last heartbeat that was in time for every term that is not frozen
    :ivar found_late: some were frozen since the keeper looked
    """

    found_late = False

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._terms: set[Term] = set()
        self._ttls: Counter[float] = Counter()
        self._shortest = math.inf
        self._last = -math.inf
        self._busy = False
        self.counted = -math.inf

    def enter(self, term: Term) -> None:
        with _fork.gate:
            if term not in self._terms:
                self._terms.add(term)
                self._ttls[term.ttl] += 1
                self._shortest = min(self._ttls)

    def leave(self, term: Term) -> None:
        with _fork.gate:
            if term in self._terms:
                self._terms.discard(term)
                self._ttls[term.ttl] -= 1
                if self._ttls[term.ttl] <= 0:
                    del self._ttls[term.ttl]
                    self._shortest = min(self._ttls, default=math.inf)

    @property
    def is_due(self) -> bool:
        """Whether the next one is to be written now."""
        if not self._terms:
            return False
        return self._clock.monotonic() - self._last >= min(_RATE, self._shortest * _SHARE) * 0.9

    def beat(self, place: _Place) -> float | None:
        """Renew every term that is not late, and freeze those that are; when that was, ``None`` if nobody can see it.

        :raises OSError: it cannot be written
        """
        with _fork.gate:
            began = self._write(place)
            if began is None:
                return None
            again = self._clock.monotonic()  # after the write: by now a contender may have seen them run out before it
            if again >= self.counted + self._shortest:  # else none can be late
                for term in list(self._terms):
                    if not term.is_frozen and again >= term.until:
                        term.freeze()
                        self.found_late = True
            self.counted = began  # last: no term that is late takes it for its own
            return began

    def _write(self, place: _Place) -> float | None:
        """Put the time into the witness; what was written, or ``None`` if nobody could see it there.

        It never goes back: one writes at a time, and reads the clock when its turn has come.
        """
        if self._busy:  # a signal handler interrupts this very thread
            return None
        self._busy = True
        try:
            now = int(self._clock.monotonic() * 1e9)  # before it is seen that the witness is at its path
            if not (place.restore() and place.witness.beat(now)):
                return None
            self._last = now / 1e9
            return self._last
        finally:
            self._busy = False
