"""Leases of claims: what they say, how long they hold, and that each is evicted and lost by the rules."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leases
import ownership
from ownership import AlreadyOwnedError, OwnershipLostError, Verdict
from ownership._keeper import KEEPER
from ownership._place import places
from ownership._renewal import renew
from ownership.testing import FakeClock, sleeping_process
from tests.support.namespaces import needs_linux_root
from tests.support.records import fields_of, file_of, guard_of, plant, record
from tests.support.waiting import eventually

pytestmark = needs_linux_root


def by_hand(path: Path, clock: FakeClock, ttl: float = 10.0) -> ownership.Claim:
    return ownership.acquire(path, ttl=ttl, auto_renew=False, clock=clock)


def test_the_record_says_the_terms(tmp_path: Path) -> None:
    before = time.monotonic()
    with ownership.acquire(tmp_path / "x", ttl=30, labels={"renewed_at": "0.0"}) as claim:
        lease = claim.record.lease
        assert lease is not None
        assert (lease.ttl, lease.auto_renew) == (30.0, True)
        assert before <= lease.renewed_at <= time.monotonic()
        assert claim.record.labels == {"renewed_at": "0.0"}
        assert claim.record == ownership.OwnerRecord.model_validate_json(file_of(tmp_path / "x").read_bytes())
        assert claim.expires_in is not None
        assert 29 < claim.expires_in <= 30


def test_a_label_that_looks_like_a_lease_stays_what_it_is(tmp_path: Path) -> None:
    label = ',"renewed_at":0.0}'
    with ownership.acquire(tmp_path / "x", ttl=2.0, labels={"a": label}) as claim:
        assert claim.record.labels == {"a": label}
        assert claim.record.lease is not None
        assert claim.record.lease.renewed_at > 1.0


def test_without_a_ttl_it_never_expires(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        assert claim.record.lease is None
        assert claim.expires_in is None
        assert claim.lapses == 0
        assert claim.renew()
    assert not claim.renew()


@pytest.mark.parametrize("ttl", [0.5, 0, -1, float("nan"), float("inf"), True, "30", 1e10])
def test_a_ttl_that_cannot_be_right_is_refused(tmp_path: Path, ttl: Any) -> None:
    with pytest.raises(ValueError, match=r"ttl must be None or a finite number of seconds >= 1\.0, got"):
        ownership.acquire(tmp_path / "x", ttl=ttl)
    assert not (tmp_path / ".leases").exists()


@pytest.mark.parametrize("acquire", [ownership.acquire, leases.acquire])
def test_renewing_by_hand_without_a_ttl_is_refused(tmp_path: Path, acquire: Callable[..., object]) -> None:
    """Whoever asks for it expects that a stuck worker loses the lease."""
    with pytest.raises(ValueError, match="auto_renew=False needs ttl=SECONDS"):
        acquire(tmp_path / "x", auto_renew=False)
    assert not (tmp_path / ".leases").exists()


def test_auto_renew_is_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="auto_renew must be true or false, got 1"):
        ownership.acquire(tmp_path / "x", ttl=5.0, auto_renew=1)  # type: ignore[arg-type]


# by hand


def test_it_holds_for_its_ttl_and_then_goes_to_whoever_comes(tmp_path: Path) -> None:
    clock = FakeClock()
    first = by_hand(tmp_path / "x", clock)
    clock.advance(9.999)
    with pytest.raises(AlreadyOwnedError):
        by_hand(tmp_path / "x", clock)
    clock.advance(0.001)
    assert ownership.inspect(tmp_path / "x", clock=clock).verdict is Verdict.EXPIRED
    with by_hand(tmp_path / "x", clock) as second:
        assert second.token > first.token
        assert first.expires_in == 0.0
        with pytest.raises(OwnershipLostError, match="its lease ran out unrenewed") as lost:
            first.verify()
        assert lost.value.reason == "expired"
        assert not first.renew()
        assert first.lost.is_set()
        first.release()
        second.verify()
        assert guard_of(tmp_path / "x")["previous"]["how"] == "expired"


def test_whoever_waits_looks_again_at_the_deadline(tmp_path: Path) -> None:
    """Not much later, and not again and again before it."""
    with sleeping_process() as pid:
        clock = FakeClock(1000.0)
        lease = {"ttl": 9.0, "auto_renew": False, "renewed_at": 1000.0}
        plant(tmp_path / "x", record(**fields_of(pid, lease=lease)))
        with ownership.acquire(tmp_path / "x", timeout=60, clock=clock):
            assert 1009.0 <= clock.monotonic() < 1009.1
            assert len(clock.waits) < 8


def test_a_refusal_says_how_long_the_lease_holds(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock):
        clock.advance(4)
        with pytest.raises(AlreadyOwnedError, match=r"; lease of 10 s, which holds 6\.0 s unless renewed"):
            by_hand(tmp_path / "x", clock)


def test_renewing_moves_the_deadline(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        for _ in range(3):
            clock.advance(9)
            assert claim.renew()
            assert claim.expires_in == 10.0
        assert claim.lapses == 0
        assert claim.record.lease is not None
        assert claim.record.lease.renewed_at == clock.monotonic()
        assert ownership.inspect(tmp_path / "x", clock=clock).verdict is Verdict.LIVE


def test_an_update_of_the_record_renews_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        clock.advance(4)
        claim.announce("busy")
        assert claim.expires_in == 6.0


@pytest.mark.parametrize("call", ["verify", "renew", "critical"])
def test_who_is_late_keeps_it_if_nobody_has_taken_it(tmp_path: Path, call: str) -> None:
    """K54: a pause without a contender loses nothing."""
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        clock.advance(1000)
        assert claim.expires_in == 0.0
        if call == "critical":
            with claim.critical():
                assert claim.expires_in == 10.0
        else:
            getattr(claim, call)()
        assert (claim.expires_in, claim.lapses) == (10.0, 1)
        assert not claim.lost.is_set()
        with pytest.raises(AlreadyOwnedError):
            by_hand(tmp_path / "x", clock)


@pytest.mark.parametrize(
    "evict", [ownership.reclaim, lambda path, clock: list(ownership.reclaim_all(path.parent, clock=clock))]
)
def test_reclaim_evicts_it_too_and_its_owner_learns_of_it(tmp_path: Path, evict: Callable[..., Any]) -> None:
    clock = FakeClock()
    claim = by_hand(tmp_path / "x", clock)
    clock.advance(10)
    evict(tmp_path / "x", clock=clock)
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE
    assert guard_of(tmp_path / "x")["previous"]["how"] == "expired"
    with pytest.raises(OwnershipLostError) as lost:
        claim.verify()
    assert lost.value.reason == "expired"


def test_a_break_in_time_is_no_expiry(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", ttl=30.0) as claim:
        ownership.break_claim(tmp_path / "x", token=claim.token)
        with pytest.raises(OwnershipLostError) as lost:
            claim.verify()
        assert lost.value.reason == "broken"


def test_several_resources_end_with_the_first(tmp_path: Path) -> None:
    clock = FakeClock()
    (tmp_path / "d").mkdir()
    claim = ownership.acquire(tmp_path / "x", also=[tmp_path / "d" / "y"], ttl=10, auto_renew=False, clock=clock)
    clock.advance(9)
    assert claim.renew()
    clock.advance(10)
    with by_hand(tmp_path / "d" / "y", clock):
        with pytest.raises(OwnershipLostError):
            claim.verify()
        assert not claim.renew()
    claim.release()


def test_a_renewal_after_the_release_brings_nothing_back(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = by_hand(tmp_path / "x", clock)
    claim.release()
    assert not claim.renew()
    assert not file_of(tmp_path / "x").exists()
    assert claim.expires_in == 0.0


def test_a_release_that_overtakes_a_renewal_in_flight_wins(tmp_path: Path) -> None:
    """It waits for the renewal, which is inside the guard, and takes away what that has written."""

    class Slow(FakeClock):
        """Its owner is given up by another thread while it renews."""

        def wall_ns(self) -> int:
            if self.armed and threading.current_thread() is threading.main_thread():
                self.armed = False
                releasing.start()
                eventually(lambda: not claim.held)
            return super().wall_ns()

        armed = False

    clock = Slow()
    claim = by_hand(tmp_path / "x", clock)
    claim.verify()
    releasing = threading.Thread(target=claim.release)
    clock.armed = True
    claim.renew()
    releasing.join()
    assert not file_of(tmp_path / "x").exists()
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE
    assert not claim.renew()


# by the keeper


def test_the_keeper_renews_without_touching_the_record(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", ttl=1.0):
        before = os.stat(file_of(tmp_path / "x"))
        until = time.monotonic() + 1.0
        eventually(lambda: time.monotonic() > until)
        after = os.stat(file_of(tmp_path / "x"))
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.LIVE


def test_a_contender_reads_its_clock_before_the_heartbeat(tmp_path: Path) -> None:
    """Else a renewal in between would count for nothing: a late look at the clock, an early one at the heartbeat."""
    with sleeping_process() as pid:
        directory = tmp_path / ".leases"
        plant(tmp_path / "x", record(**fields_of(pid, lease={"ttl": 10.0, "auto_renew": True, "renewed_at": 1.0})))
        witness = directory / f"{record()['instance_id']}.alive"
        witness.write_bytes((100 * 10**9).to_bytes(8, "little"))

        class Late(FakeClock):
            """Much time passes until we look at it, and in the meantime the owner has renewed."""

            def monotonic(self) -> float:
                self.advance(20.0)
                witness.write_bytes((int(self._monotonic - 2) * 10**9).to_bytes(8, "little"))
                return self._monotonic

        assert ownership.inspect(tmp_path / "x", clock=FakeClock(109.9)).verdict is Verdict.LIVE
        assert ownership.inspect(tmp_path / "x", clock=FakeClock(110.0)).verdict is Verdict.EXPIRED
        assert ownership.inspect(tmp_path / "x", clock=Late(91.0)).verdict is Verdict.LIVE


def test_a_dead_owner_is_evicted_at_once_whatever_its_ttl(tmp_path: Path) -> None:
    lease = {"ttl": 1e6, "auto_renew": False, "renewed_at": time.monotonic()}
    plant(tmp_path / "x", record(2**22 + 1, lease=lease))
    with ownership.acquire(tmp_path / "x") as claim:
        assert claim.token > 1000
    assert json.loads(json.dumps(guard_of(tmp_path / "x")["previous"]))["how"] == "released"


def test_nothing_is_renewed_once_the_last_lease_is_over(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "plain") as plain:
        with ownership.acquire(tmp_path / "x", ttl=1.0):
            [place] = [one for one in places() if one.directory.path == str(tmp_path / ".leases")]
            eventually(lambda: place.heartbeat.counted > 0)
        place.heartbeat._last = 0.0
        assert not place.heartbeat.is_due
        witness = tmp_path / ".leases" / f"{plain.record.instance_id}.alive"
        before = witness.read_bytes()
        KEEPER.tick()
        assert witness.read_bytes() == before


@pytest.mark.parametrize("auto", [True, False], ids=["by the keeper", "by hand"])
def test_a_renewal_looks_under_the_guard_whether_it_is_still_ours(tmp_path: Path, auto: bool) -> None:
    """Taken over since it was looked at without the guard, however late or in time it is."""
    claim = ownership.acquire(tmp_path / "x", ttl=30.0, auto_renew=auto)
    ownership.break_claim(tmp_path / "x", token=claim.token)
    with ownership.acquire(tmp_path / "x", labels={"second": "1"}) as second:
        with pytest.raises(OwnershipLostError):
            renew(claim._holding)
        found = ownership.inspect(tmp_path / "x")
        assert (found.token, found.record) == (second.token, second.record)
        second.verify()


def test_in_another_directory_it_is_renewed_by_that_ones_heartbeat(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", ttl=30.0) as claim:
        before = claim._holding.part.place.heartbeat
        (tmp_path / ".leases").rename(tmp_path / "moved")
        eventually(lambda: file_of(tmp_path / "x").exists())
        part = claim._holding.part
        assert part.term is not None
        assert part.term.heartbeat is part.place.heartbeat is not before
        eventually(lambda: part.term is not None and not part.term.is_frozen)
        assert not before.is_due
        assert claim.lapses == 0


def test_no_heartbeat_goes_into_a_file_that_got_our_number(tmp_path: Path) -> None:
    """K74: looked at again before every write, whatever was seen before."""
    with ownership.acquire(tmp_path / "x"), open(tmp_path / "file", "w+b") as file:
        [place] = [one for one in places() if one.directory.path == str(tmp_path / ".leases")]
        with place.mutex:  # the keeper would put it right
            os.dup2(file.fileno(), place.witness.descriptor.number)
            assert not place.witness.beat(5)
            os.close(place.witness.descriptor.number)
        assert (tmp_path / "file").read_bytes() == b""


def test_a_lease_does_not_survive_exec(tmp_path: Path) -> None:
    with (
        ownership.acquire(tmp_path / "x", ttl=5.0) as claim,
        pytest.raises(RuntimeError, match="nothing renews it by itself after exec"),
    ):
        claim.keep_across_exec()
