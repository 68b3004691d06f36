"""The holder's side of a lease: what it may believe, and that one write renews whatever is in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ownership._heartbeat import Heartbeat, Term
from ownership.testing import FakeClock


class FakePlace:
    """A lock directory whose witness is a number, and which takes time when told to."""

    def __init__(self) -> None:
        self.witness: Any = self
        self.shown: list[int] = []
        self.visible = self.ours = True
        self.meanwhile: Callable[[], object] = lambda: None

    def restore(self) -> bool:
        return self.visible

    def beat(self, nanoseconds: int) -> bool:
        if self.ours:
            self.meanwhile()
            self.shown.append(nanoseconds)
        return self.ours


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(monotonic=100.0)


@pytest.fixture
def place() -> FakePlace:
    return FakePlace()


@pytest.fixture
def heartbeat(clock: FakeClock) -> Heartbeat:
    return Heartbeat(clock)


def term(heartbeat: Heartbeat | None, clock: FakeClock, ttl: float = 10.0) -> Term:
    one = Term(ttl, clock.monotonic(), heartbeat, clock)
    one.begin()
    return one


def test_a_heartbeat_renews_every_lease_by_one_write(heartbeat: Heartbeat, place: FakePlace, clock: FakeClock) -> None:
    terms = [term(heartbeat, clock, ttl) for ttl in (10.0, 30.0, 10.0)]
    clock.advance(6)
    assert heartbeat.beat(place) == 106.0
    assert not heartbeat.found_late
    assert place.shown == [106_000_000_000]
    assert [one.until for one in terms] == [116.0, 136.0, 116.0]
    assert [one.expires_in for one in terms] == [10.0, 30.0, 10.0]


def test_a_heartbeat_written_in_time_whose_writer_was_paused_does_not_count(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock
) -> None:
    """The clock is read again after the write: by then a contender may have seen the lease run out."""
    one = term(heartbeat, clock)
    clock.advance(9)
    place.meanwhile = lambda: clock.advance(1)
    heartbeat.beat(place)
    assert heartbeat.found_late
    assert place.shown == [109_000_000_000]
    assert one.until == 110.0
    assert one.is_over
    assert one.is_frozen


def test_a_heartbeat_that_comes_at_the_deadline_is_late(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock
) -> None:
    one = term(heartbeat, clock)
    clock.advance(10)
    heartbeat.beat(place)
    assert heartbeat.found_late
    assert one.until == 110.0


def test_what_is_late_is_renewed_by_no_later_heartbeat(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock
) -> None:
    """Only under the guard: somebody may have taken over in between. What was in time goes on."""
    late, other = term(heartbeat, clock, 5.0), term(heartbeat, clock, 20.0)
    clock.advance(6)
    heartbeat.beat(place)
    assert heartbeat.found_late
    heartbeat.found_late = False
    clock.advance(1)
    heartbeat.beat(place)
    assert not heartbeat.found_late
    assert (late.until, other.until) == (105.0, 127.0)
    late.renew(clock.monotonic())
    assert (late.until, late.lapses, other.lapses) == (112.0, 1, 0)
    clock.advance(1)
    heartbeat.beat(place)
    assert late.until == 113.0


@pytest.mark.parametrize("fault", ["visible", "ours"])
def test_a_heartbeat_that_nobody_can_see_renews_nothing(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock, fault: str
) -> None:
    """Its directory was moved, or its descriptor is another file's."""
    one = term(heartbeat, clock)
    setattr(place, fault, False)
    clock.advance(6)
    assert heartbeat.beat(place) is None
    assert one.until == 110.0


def test_a_write_that_fails_renews_nothing_and_the_next_one_does(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock
) -> None:
    one = term(heartbeat, clock)

    def fail() -> None:
        raise OSError(5, "no")

    place.meanwhile = fail
    with pytest.raises(OSError, match="no"):
        heartbeat.beat(place)
    place.meanwhile = lambda: None
    clock.advance(1)
    heartbeat.beat(place)
    assert one.until == 111.0


def test_a_write_that_interrupts_a_write_is_none(heartbeat: Heartbeat, place: FakePlace, clock: FakeClock) -> None:
    """A signal handler, in the middle of a write of its own thread: what is shown never goes back."""
    found: list[float | None] = []

    def interrupt() -> None:
        clock.advance(1)
        found.append(heartbeat.beat(place))

    place.meanwhile = interrupt
    heartbeat.beat(place)
    assert found == [None]
    assert place.shown == [100_000_000_000]


@pytest.mark.parametrize(("ttl", "every"), [(1.0, 0.25), (2.0, 0.5), (4.0, 1.0), (3600.0, 1.0)])
def test_it_beats_at_least_once_a_second_and_four_times_in_the_shortest_ttl(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock, ttl: float, every: float
) -> None:
    assert not heartbeat.is_due
    long, short = term(heartbeat, clock, 7200.0), term(heartbeat, clock, ttl)
    assert heartbeat.is_due
    heartbeat.beat(place)
    clock.advance(every * 0.8)
    assert not heartbeat.is_due
    clock.advance(every * 0.2)
    assert heartbeat.is_due
    short.end()
    heartbeat.beat(place)
    clock.advance(0.8)
    assert not heartbeat.is_due
    long.end()
    clock.advance(100)
    assert not heartbeat.is_due


def test_another_directory_has_to_be_entered_under_its_guard(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock
) -> None:
    one = term(heartbeat, clock)
    other = Heartbeat(clock)
    clock.advance(2)
    other.beat(FakePlace())
    one.move(other)
    assert one.until == 110.0
    clock.advance(2)
    other.beat(FakePlace())
    assert one.until == 110.0
    one.renew(clock.monotonic())
    assert one.until == 114.0
    assert not heartbeat.is_due


def test_a_lease_renewed_by_hand_ignores_the_heartbeat(
    heartbeat: Heartbeat, place: FakePlace, clock: FakeClock
) -> None:
    one = term(None, clock)
    clock.advance(3)
    heartbeat.beat(place)
    assert one.until == 110.0
    one.renew(clock.monotonic())
    assert (one.until, one.lapses) == (113.0, 0)
