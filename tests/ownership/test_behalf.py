"""Leases that a worker renews on behalf of their owner."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, OwnerRef, UnsupportedRecordError, Verdict, _behalf
from ownership._locking import locked
from ownership._models import GuardState
from ownership._place import places
from ownership._renewal import renew_part
from ownership.testing import FakeClock, sleeping_process, zombie
from tests.support.namespaces import needs_linux_root
from tests.support.records import fields_of, file_of, identity, names, plant, plant_guard, record
from tests.support.waiting import eventually

pytestmark = needs_linux_root


def by_hand(path: Path, clock: FakeClock) -> ownership.Claim:
    return ownership.acquire(path, ttl=10.0, auto_renew=False, clock=clock)


def ref_of(path: Path) -> OwnerRef:
    one = ownership.inspect(path)
    assert one.record is not None
    return OwnerRef.of(str(path), one.record, None)


def test_a_renewal_by_a_worker_moves_the_deadline(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        for _ in range(3):
            clock.advance(9)
            assert ownership.renew(claim.ref, clock=clock)
        with pytest.raises(AlreadyOwnedError, match=r"which holds 10\.0 s"):
            by_hand(tmp_path / "x", clock)
        clock.advance(10)
        with by_hand(tmp_path / "x", clock) as second:
            before = file_of(tmp_path / "x").read_bytes()
            assert not ownership.renew(claim.ref, clock=clock)
            assert file_of(tmp_path / "x").read_bytes() == before
            second.verify()
    assert names(tmp_path / ".leases") <= {"x.guard", f"{claim.record.instance_id}.alive"}


def test_the_owner_learns_of_it(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        clock.advance(9)
        assert ownership.renew(claim.ref, clock=clock)
        claim.verify()
        assert claim.expires_in == 10.0
        clock.advance(9)
        assert ownership.renew(claim.ref, clock=clock)
        eventually(lambda: claim.expires_in == 10.0)  # its keeper looks
        clock.advance(9)
        assert ownership.renew(claim.ref, clock=clock)
        clock.advance(9)
        claim.verify()
        assert claim.lapses == 0


def test_what_was_renewed_when_it_had_run_out_is_a_lapse(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        clock.advance(11)
        assert ownership.renew(claim.ref, clock=clock)
        claim.verify()
        assert claim.lapses == 1


def test_what_the_owner_changes_keeps_what_was_renewed_for_it(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        clock.advance(9)
        assert ownership.renew(claim.ref, clock=clock)
        claim.announce("busy")
        assert ownership.inspect(tmp_path / "x", clock=clock).expires_in == 10.0
        assert claim.record.phase == "busy"


def test_a_record_that_is_put_back_is_renewed_for_who_knows_who_had_renewed_it(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        clock.advance(9)
        assert ownership.renew(claim.ref, clock=clock)
        file_of(tmp_path / "x").unlink()
        claim.verify()
        assert ownership.inspect(tmp_path / "x", clock=clock).expires_in == 10.0


def test_a_renewal_waits_for_a_record_that_is_put_back(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", ttl=30.0, auto_renew=False) as claim:
        for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"{")):
            damage(file_of(tmp_path / "x"))
            assert ownership.renew(claim.ref)
            assert claim.renew()


def test_a_record_that_nobody_puts_back_is_no_loss(tmp_path: Path) -> None:
    with sleeping_process() as pid:
        lease = {"ttl": 9.0, "auto_renew": False, "renewed_at": 1000.0}
        plant(tmp_path / "x", record(**fields_of(pid, lease=lease)))
        plant_guard(tmp_path / "x", GuardState(token=1000, owner=identity(pid)))
        ref = ref_of(tmp_path / "x")
        file_of(tmp_path / "x").write_bytes(b"{")
        with pytest.raises(OSError, match=f"the lease of pid {pid} cannot be renewed now: its record"):
            ownership.renew(ref, clock=FakeClock(1000.0))
        assert file_of(tmp_path / "x").read_bytes() == b"{"


@pytest.mark.parametrize("ttl", [None, 30.0])
def test_what_needs_no_renewal_is_only_looked_at(tmp_path: Path, ttl: float | None) -> None:
    with ownership.acquire(tmp_path / "x", ttl=ttl) as claim:
        before = file_of(tmp_path / "x").stat()
        assert ownership.renew(claim.ref)
        assert file_of(tmp_path / "x").stat().st_ino == before.st_ino
    assert not ownership.renew(claim.ref)


def test_nothing_is_renewed_for_the_dead(tmp_path: Path) -> None:
    with zombie() as pid:
        plant(tmp_path / "x", record(**fields_of(pid, lease={"ttl": 9.0, "auto_renew": False, "renewed_at": 1000.0})))
        before = file_of(tmp_path / "x").read_bytes()
        assert not ownership.renew(ref_of(tmp_path / "x"), clock=FakeClock(1000.0))
        assert file_of(tmp_path / "x").read_bytes() == before


def test_nothing_is_renewed_by_the_clock_of_another_time_namespace(tmp_path: Path) -> None:
    with sleeping_process() as pid:
        fields = fields_of(pid, lease={"ttl": 9.0, "auto_renew": False, "renewed_at": 1000.0})
        source, boot, ticks, _, inode = fields["start_id"].split(":")
        if not inode:
            pytest.skip("start ids are no inodes before Linux 6.9")
        fields["start_id"] = ":".join((source, boot, ticks, "1", inode))
        plant(tmp_path / "x", record(**fields))
        with pytest.raises(RuntimeError, match="measured by a clock that is not known to be ours"):
            ownership.renew(ref_of(tmp_path / "x"))


def test_a_record_of_a_newer_format_is_not_written_anew(tmp_path: Path) -> None:
    with sleeping_process() as pid:
        fields = fields_of(pid, lease={"ttl": 9.0, "auto_renew": False, "renewed_at": 1000.0})
        plant(tmp_path / "x", {**record(**fields), "version": 2, "more": 1})
        before = file_of(tmp_path / "x").read_bytes()
        with pytest.raises(UnsupportedRecordError, match="of version 2"):
            ownership.renew(ref_of(tmp_path / "x"))
        assert file_of(tmp_path / "x").read_bytes() == before


def test_the_same_resource_of_a_later_owner_is_not_renewed(tmp_path: Path) -> None:
    """Also if that is the same process."""
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        first = claim.ref
    with by_hand(tmp_path / "x", clock):
        clock.advance(5)
        assert not ownership.renew(first, clock=clock)
        assert ownership.inspect(tmp_path / "x", clock=clock).expires_in == 5.0


@pytest.mark.parametrize("what", ["broken", "replaced", "retired"])
def test_what_happens_before_the_guard_is_had_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    clock = FakeClock()
    claim = by_hand(tmp_path / "x", clock)
    acts: dict[str, Callable[[], object]] = {
        "broken": lambda: ownership.break_claim(tmp_path / "x", token=claim.token),
        "replaced": lambda: (claim.release(), acquired.append(by_hand(tmp_path / "x", clock))),
        "retired": claim.retire,
    }
    acquired: list[ownership.Claim] = []
    found = []

    def meanwhile(*arguments: Any) -> Any:
        acts[what]()
        clock.advance(0.5)
        found.append(file_of(tmp_path / "x").read_bytes() if what != "broken" else b"")
        return locked(*arguments)

    monkeypatch.setattr(_behalf, "locked", meanwhile)
    assert not ownership.renew(claim.ref, clock=clock)
    assert found == [file_of(tmp_path / "x").read_bytes() if what != "broken" else b""]
    for one in (claim, *acquired):
        one.release()


def test_a_renewal_in_a_directory_that_was_moved_away_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[bool] = []

    def meanwhile(guards: Any, deadline: float, clock: Any, action: Callable[[Any], bool]) -> bool:
        def act(hold: Any) -> bool:
            if not moved:
                (tmp_path / ".leases").rename(tmp_path / "moved")
                moved.append(True)
            return action(hold)

        return locked(guards, deadline, clock, act)

    with ownership.acquire(tmp_path / "x", ttl=600.0, auto_renew=False) as claim:
        monkeypatch.setattr(_behalf, "locked", meanwhile)
        before = time.monotonic()
        assert ownership.renew(claim.ref)
        one = ownership.inspect(tmp_path / "x").record
        assert one is not None
        assert one.lease is not None
        assert one.lease.renewed_at > before


def test_what_its_owner_has_retired_is_not_renewed(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = by_hand(tmp_path / "x", clock)
    claim.retire("over")
    assert not ownership.renew(claim.ref, clock=clock)
    claim.release()


def test_where_nothing_is_nothing_is_made(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = by_hand(tmp_path / "x", clock)
    ref = claim.ref
    claim.release()
    for place in places():  # as the keeper does in time
        place.move_out()
    file_of(tmp_path / "x", "guard").unlink()
    assert not names(tmp_path / ".leases")
    assert not ownership.renew(ref)
    assert not names(tmp_path / ".leases")


def test_an_own_renewal_is_not_undone_by_what_was_renewed_before(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        clock.advance(1)
        assert ownership.renew(claim.ref, clock=clock)
        clock.advance(1)
        holding = claim._holding
        holding.under_guard(holding.part, lambda hold: renew_part(holding, holding.part, hold))
        claim.verify()
        assert claim.expires_in == 10.0
        assert holding.part.term is not None
        assert claim.record.lease is not None
        earlier = claim.record.lease.model_copy(update={"renewed_at": clock.monotonic() - 1})
        holding.part.term.heed(
            claim.record.model_copy(update={"lease": earlier})
        )  # what another thread had read before
        assert claim.expires_in == 10.0


def test_a_lease_that_others_renew_survives_exec(tmp_path: Path) -> None:
    clock = FakeClock()
    with by_hand(tmp_path / "x", clock) as claim:
        claim.keep_across_exec(command="another program")
        assert ownership.renew(claim.ref, clock=clock)
        assert ownership.inspect(tmp_path / "x", clock=clock).verdict is Verdict.LIVE
    os.environ.pop("LEASES_KEPT", None)


@pytest.mark.parametrize("ref", [None, "x", 1])
def test_whatever_is_no_reference_is_refused(ref: object) -> None:
    with pytest.raises(ValueError, match="ref must be an OwnerRef"):
        ownership.renew(ref)  # type: ignore[arg-type]
