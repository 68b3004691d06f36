"""Evicting: reclaim on proof only, break by decision and never the wrong one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, OwnershipLostError, Verdict
from ownership._models import GuardState
from ownership.testing import FakeClock, sleeping_process, stopped_process
from tests.support.namespaces import die_owning, elsewhere, needs_linux_root, owner, taken
from tests.support.records import file_of, guard_of, identity, names, plant, plant_guard, record, snapshot

pytestmark = needs_linux_root


def test_the_dead_are_reclaimed_without_a_new_owner(tmp_path: Path) -> None:
    die_owning(tmp_path / "x")
    found = ownership.reclaim(tmp_path / "x")
    assert found.verdict is Verdict.GONE
    assert not file_of(tmp_path / "x").exists()
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE
    assert ownership.reclaim(tmp_path / "x").verdict is Verdict.FREE
    assert len(guard_of(tmp_path / "x")["deaths"]) == 1


def test_every_way_to_find_an_owner_dead_counts_its_death(tmp_path: Path) -> None:
    die_owning(tmp_path / "x")
    list(ownership.reclaim_all(tmp_path))
    assert len(guard_of(tmp_path / "x")["deaths"]) == 1
    die_owning(tmp_path / "x")
    with ownership.acquire(tmp_path / "x"):
        assert len(guard_of(tmp_path / "x")["deaths"]) == 2


def test_a_clean_release_ends_a_row_of_deaths(tmp_path: Path) -> None:
    die_owning(tmp_path / "x")
    taken(tmp_path / "x")
    assert "deaths" not in guard_of(tmp_path / "x")


def test_a_reclaimed_heir_is_no_loss_of_its_predecessor(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover() as heir:
        elsewhere(lambda: heir.adopt().token)
        ownership.reclaim(tmp_path / "x")
    assert not claim.lost.is_set()


def test_a_reclaimed_token_is_never_given_out_again(tmp_path: Path) -> None:
    plant(tmp_path / "x", record(2**22 + 5, token=2**52))
    plant_guard(tmp_path / "x", b"")
    ownership.reclaim(tmp_path / "x")
    assert taken(tmp_path / "x") > 2**52


@pytest.mark.parametrize("who", ["live", "stopped", "unknown", "ourselves", "malformed"])
def test_whoever_may_live_is_not_reclaimed(tmp_path: Path, who: str) -> None:
    with sleeping_process() as living, stopped_process() as halted:
        claim = None
        match who:
            case "live":
                plant(tmp_path / "x", record(living))
            case "stopped":
                plant(tmp_path / "x", record(halted))
            case "unknown":
                plant(tmp_path / "x", record(living, pid_namespace=1))
            case "ourselves":
                claim = ownership.acquire(tmp_path / "x")
            case "malformed":
                plant(tmp_path / "x", b"{")
                plant_guard(tmp_path / "x", GuardState(token=5, owner=identity(living)))
        before = file_of(tmp_path / "x").read_bytes()
        with pytest.raises(AlreadyOwnedError) as caught:
            ownership.reclaim(tmp_path / "x")
        assert caught.value.hint
        assert str(tmp_path / "x") in str(caught.value)
        assert file_of(tmp_path / "x").read_bytes() == before
        outcome = list(ownership.reclaim_all(tmp_path))
        assert [removed for _, removed in outcome] == [False]
        assert file_of(tmp_path / "x").read_bytes() == before
        if claim is not None:
            claim.verify()
            claim.release()


def test_a_malformed_record_of_nobody_is_reclaimed_after_a_second(tmp_path: Path) -> None:
    plant(tmp_path / "x", b"{")
    clock = FakeClock()
    assert ownership.reclaim(tmp_path / "x", clock=clock).verdict is Verdict.UNKNOWN
    assert sum(clock.waits) == pytest.approx(1.0, abs=0.01)
    assert not file_of(tmp_path / "x").exists()


# break


def test_a_broken_owner_is_told(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    found = ownership.break_claim(tmp_path / "x", token=claim.token)
    assert found.verdict is Verdict.LIVE
    with pytest.raises(OwnershipLostError) as caught:
        claim.verify()
    assert caught.value.reason == "broken"
    assert claim.lost.is_set()
    assert taken(tmp_path / "x") > claim.token + 1
    claim.release()


def test_a_broken_owner_of_another_process_learns_by_itself(tmp_path: Path) -> None:
    def notice() -> Any:
        claim = ownership.acquire(tmp_path / "x")
        elsewhere(lambda: ownership.break_claim(tmp_path / "x", token=claim.token))
        return claim.lost.wait(10.0), claim.held

    assert elsewhere(notice) == (True, False)


def test_the_wrong_token_breaks_nothing(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        for token in (0, claim.token - 1, claim.token + 1, 2**53):
            before = snapshot(tmp_path / ".leases")
            with pytest.raises(AlreadyOwnedError) as caught:
                ownership.break_claim(tmp_path / "x", token=token)
            assert str(claim.token) in str(caught.value)
            assert str(token) in str(caught.value)
            assert caught.value.hint
            assert snapshot(tmp_path / ".leases") == before
        claim.verify()


@pytest.mark.parametrize("token", [-1, 2**53 + 1, True, 1.5, "5", None])
def test_what_is_no_token_is_refused(tmp_path: Path, token: Any) -> None:
    with ownership.acquire(tmp_path / "x"), pytest.raises(ValueError, match="token"):
        ownership.break_claim(tmp_path / "x", token=token)


def test_breaking_what_nobody_owns_changes_nothing(tmp_path: Path) -> None:
    taken(tmp_path / "x")
    before = snapshot(tmp_path / ".leases")
    assert ownership.break_claim(tmp_path / "x", token=5).verdict is Verdict.FREE
    assert snapshot(tmp_path / ".leases") == before


def test_a_record_that_cannot_be_judged_can_be_broken(tmp_path: Path) -> None:
    """The way out that the refusal names."""
    plant(tmp_path / "x", record(1, pid_namespace=1, token=777))
    error = taken(tmp_path / "x")
    assert "leasectl break" in error.hint
    assert "--token 777" in error.hint
    ownership.break_claim(tmp_path / "x", token=777)
    assert taken(tmp_path / "x") > 778


def test_a_malformed_record_is_broken_by_the_guards_token(tmp_path: Path) -> None:
    with sleeping_process() as pid:
        plant(tmp_path / "x", b"{")
        plant_guard(tmp_path / "x", GuardState(token=777, owner=identity(pid)))
        assert ownership.inspect(tmp_path / "x").token == 777
        with pytest.raises(AlreadyOwnedError):
            ownership.break_claim(tmp_path / "x", token=776)
        ownership.break_claim(tmp_path / "x", token=777)
        assert not file_of(tmp_path / "x").exists()


def test_the_living_are_not_hurt_by_clearing_a_directory(tmp_path: Path) -> None:
    with owner(tmp_path / "a") as child, ownership.acquire(tmp_path / "b") as claim:
        before = {name for name in names(tmp_path / ".leases") if name.endswith(".alive")}
        outcome = list(ownership.reclaim_all(tmp_path))
        assert {one.resource.name: removed for one, removed in outcome} == {"a": False, "b": False}
        assert before <= names(tmp_path / ".leases")
        claim.verify()
        assert ownership.inspect(tmp_path / "a").token == child.said


def test_a_dry_run_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    die_owning(tmp_path / "dead")
    with owner(tmp_path / "living"):
        before = snapshot(tmp_path)
        outcome = {one.resource.name: removed for one, removed in ownership.reclaim_all(tmp_path, dry_run=True)}
        assert outcome == {"dead": True, "living": False}
        assert snapshot(tmp_path) == before
    assert os.path.exists(tmp_path)


def test_in_a_registry_whole_paths_are_cleared(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    die_owning("/data/x", registry=registry)
    [(found, removed)] = list(ownership.reclaim_all(registry, registry=True))
    assert (found.resource, removed) == (Path("/data/x"), True)
    assert names(registry) == {"%2Fdata%2Fx.guard"}


def test_a_lease_of_this_process_that_ran_out_is_reclaimed_by_it(tmp_path: Path) -> None:
    """Though it is this process that is inside the guard then."""
    clock = FakeClock()
    claim = ownership.acquire(tmp_path / "x", ttl=5.0, auto_renew=False, clock=clock)
    clock.advance(9.0)
    assert ownership.reclaim(tmp_path / "x", clock=clock).verdict is Verdict.EXPIRED
    assert ownership.inspect(tmp_path / "x", clock=clock).verdict is Verdict.FREE
    assert not claim.renew()
