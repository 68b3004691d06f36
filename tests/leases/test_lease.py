"""Leases as their users see them: the claim beneath, and losses by a name of their own."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import pytest

import leases
import ownership
from leases import Lease, LeaseLostError
from ownership import Verdict
from ownership.testing import FakeClock
from tests.support.injection import Interrupter
from tests.support.waiting import eventually


def lost_lease(path: Path) -> tuple[Lease, Lease]:
    clock = FakeClock()
    first = leases.acquire(path, ttl=5.0, auto_renew=False, clock=clock)
    clock.advance(5)
    return first, leases.acquire(path, clock=clock)


def test_it_shows_the_facts_of_its_claim(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x", ttl=30, labels={"a": "b"}, also=[tmp_path / "y"]) as lease:
        claim = lease.claim
        assert (lease.path, lease.token, lease.tokens, lease.record, lease.ref) == (
            tmp_path / "x",
            claim.token,
            claim.tokens,
            claim.record,
            claim.ref,
        )
        assert lease.ttl == 30.0
        assert lease.expires_in is not None
        assert 29 < lease.expires_in <= 30
        assert (lease.held, lease.lapses, lease.lost.is_set()) == (True, 0, False)
        assert lease.record.labels == {"a": "b"}
        assert repr(lease) == f"<Lease of <Claim {tmp_path / 'x'} and 1 more held>>"
        lease.announce("busy")
        assert ownership.inspect(tmp_path / "x").record == lease.record
        assert lease.renew()
        with lease.critical():
            lease.verify()
        with pytest.raises(ownership.AlreadyOwnedError):
            leases.acquire(tmp_path / "x", ttl=5.0)
    assert not lease.held


def test_without_a_ttl_it_ends_with_the_process(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x") as lease:
        assert (lease.ttl, lease.expires_in) == (None, None)
        assert lease.renew()


def test_every_loss_is_that_of_a_lease(tmp_path: Path) -> None:
    lease, successor = lost_lease(tmp_path / "x")
    told: list[LeaseLostError] = []
    for act in (lease.verify, lambda: lease.announce("x"), lease.critical().__enter__, lease.__enter__):
        with pytest.raises(LeaseLostError) as lost:
            act()
        error = lost.value
        assert (error.reason, error.exit_code, error.resource) == ("expired", 76, str(tmp_path / "x"))
        assert isinstance(error, ownership.OwnershipLostError)
        assert error.hint
    lease.on_loss(told.append)
    eventually(lambda: told)
    assert type(told[0]) is LeaseLostError
    assert not lease.renew()
    lease.release()
    successor.verify()
    successor.release()


def test_what_the_body_of_a_section_raises_is_left_alone(tmp_path: Path) -> None:
    error = ownership.OwnershipLostError("another one", reason="broken")
    with leases.acquire(tmp_path / "x") as lease:
        with pytest.raises(ownership.OwnershipLostError) as raised, lease.critical():
            raise error
        assert raised.value is error
        lease.announce("free")


def test_the_error_pickles(tmp_path: Path) -> None:
    error = LeaseLostError("lost", reason="expired", resource=tmp_path, hint="acquire it again")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is LeaseLostError
    assert (str(again), again.reason, again.hint) == ("lost", "expired", "acquire it again")


def test_what_is_no_callback_is_refused(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x") as lease, pytest.raises(ValueError, match="callback must be callable, got 5"):
        lease.on_loss(5)  # type: ignore[arg-type]


def test_an_unreleased_one_is_released_with_a_warning(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path / "x")
    with pytest.warns(ResourceWarning, match="garbage-collected"):
        del lease
    with leases.acquire(tmp_path / "x"):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a scandir() that was interrupted
def test_an_interrupted_acquire_leaves_nothing_whoever_keeps_the_exception(tmp_path: Path) -> None:
    class Broken(BaseException):
        pass

    def break_off() -> None:
        raise Broken

    kept, interrupter = list[Broken](), Interrupter(break_off, (__file__,))
    for number in itertools.count(1):
        try:
            interrupter.run(number, lambda: leases.acquire(tmp_path / "x", ttl=5.0)).release()
        except Broken as error:
            kept.append(error)
        eventually(lambda: ownership.inspect(tmp_path / "x").verdict is Verdict.FREE)
        if not interrupter.point:
            break
    assert len(kept) > 50
