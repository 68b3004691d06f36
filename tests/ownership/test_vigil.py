"""Leases whose clock is not ours: run out only when the renewal was seen unchanged for a whole ttl."""

from __future__ import annotations

import pytest

from ownership import LeaseTerms, _verdict
from ownership._verdict import WitnessState
from ownership._vigil import Vigil, outlook
from ownership.testing import FakeClock

TTL = 10.0


class Contender:
    """Somebody who waits for a lease of another clock, and looks when told to."""

    def __init__(self, *, auto_renew: bool = True) -> None:
        self.clock = FakeClock(monotonic=5.0)
        self.vigil: Vigil | None = Vigil()
        self.lease = LeaseTerms(ttl=TTL, auto_renew=auto_renew, renewed_at=1e6)

    def looks(self, beat: float | None, *, same_clock: bool = False, **changes: object) -> bool:
        """Whether the lease counts as run out, the heartbeat being *beat*."""
        state = WitnessState.HELD if beat is not None else WitnessState.MISSING
        witness = _verdict.Testimony(state, beat=beat)._replace(**changes)
        now = self.clock.monotonic()
        return outlook(self.lease, witness, now, self.clock, same_clock, self.vigil, "owner")[0]

    def looks_for(self, seconds: float, beat: float | None, *, every: float = 0.25, **changes: object) -> bool:
        """What the last of its looks said, over *seconds*."""
        said = self.looks(beat, **changes)
        for _ in range(round(seconds / every)):
            self.clock.advance(every)
            said = self.looks(beat, **changes)
        return said


@pytest.mark.parametrize("beat", [1e6, None], ids=["readable", "missing"])
def test_a_renewal_has_to_stay_unchanged_for_the_whole_ttl(beat: float | None) -> None:
    one = Contender()
    assert not one.looks_for(TTL - 0.25, beat)
    one.clock.advance(0.25)
    assert one.looks(beat)


def test_every_renewal_begins_it_anew() -> None:
    one = Contender()
    for beat in (1e6, 1e6 + 5, 2e6):
        assert not one.looks_for(TTL - 0.25, beat)
    assert one.looks_for(0.25, 2e6)


def test_it_begins_after_the_first_look_not_before_it() -> None:
    """What we read may have been written while we were paused between clock and heartbeat."""
    one = Contender()
    assert one.vigil is not None
    end = one.vigil.end_of("owner", (1.0, 2.0), TTL, 5.0, 9.0, False)
    assert end == 9.0 + TTL


def test_a_renewal_by_hand_is_seen_in_the_record() -> None:
    one = Contender(auto_renew=False)
    assert not one.looks_for(TTL - 0.25, None)
    one.lease = one.lease.model_copy(update={"renewed_at": 1e6 + 1})
    assert not one.looks_for(TTL - 0.25, None)
    assert one.looks_for(0.25, None, every=0.25)


def test_an_error_of_ours_is_no_look() -> None:
    """The witness cannot be opened or read: nothing was seen, and nothing that was seen before counts."""
    one = Contender()
    one.looks_for(TTL - 1, 1e6)
    assert not one.looks(None, state=WitnessState.UNTESTABLE, blind=True)
    assert not one.looks_for(TTL - 0.25, 1e6)
    assert not one.looks_for(2 * TTL, None, state=WitnessState.HELD, blind=True)


def test_a_missing_heartbeat_has_to_be_looked_for_often() -> None:
    """Its owner puts it back within a tick; between two looks far apart it may have been there, and counted."""
    one = Contender()
    assert not one.looks_for(5 * TTL, None, every=1.0)
    assert one.looks_for(TTL, None)


def test_one_look_proves_nothing() -> None:
    one = Contender()
    one.vigil = None
    assert not one.looks_for(3 * TTL, 1e6)


def test_with_the_same_clock_one_look_is_enough() -> None:
    one = Contender()
    one.clock.advance(1e6 + TTL + 1)
    assert one.looks(1e6, same_clock=True)
    assert not one.looks(1e6 + 7, same_clock=True)


def test_with_the_same_clock_a_missing_heartbeat_has_to_be_waited_for_too() -> None:
    one = Contender()
    one.clock.advance(5e6)
    assert not one.looks(None, same_clock=True)
    assert one.looks_for(TTL, None, same_clock=True)
