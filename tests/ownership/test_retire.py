"""A claim that is closed until its process ends: inert at once, its record kept, nobody follows before."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ownership
from ownership import AlreadyOwnedError, Claim, FenceTrippedError, OwnershipLostError, Verdict
from ownership._keeper import KEEPER
from ownership._models import GuardState
from ownership._paths import resolve
from ownership._place import pinned
from ownership.testing import sleeping_process, zombie
from tests.support.namespaces import needs_linux_root
from tests.support.processes import Contender, stopped
from tests.support.records import fields_of, file_of, identity, plant, plant_guard
from tests.support.waiting import eventually

pytestmark = needs_linux_root


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x"


@pytest.fixture
def claim(path: Path) -> Iterator[Claim]:
    one = ownership.acquire(path)
    yield one
    one.release()


def on_disk(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(file_of(path).read_text())
    return found


def is_recorded(path: Path) -> bool:
    """Not while what was damaged is being replaced."""
    with contextlib.suppress(FileNotFoundError):
        return bool(file_of(path).read_text())
    return False


def test_the_record_stays_and_says_that_it_was_closed_and_why(path: Path, claim: Claim) -> None:
    before = claim.record
    claim.retire("upgrade")
    assert claim.record.is_closed
    assert on_disk(path) | {"phase": "closed", "reason": "upgrade"} == on_disk(path)
    assert (claim.record.token, claim.record.instance_id) == (before.token, before.instance_id)


def test_the_handle_is_inert_at_once_and_nothing_was_lost(claim: Claim) -> None:
    claim.retire()
    assert not claim.held
    assert not claim.lost.is_set()
    assert "closed" in repr(claim)
    for act in (claim.verify, lambda: claim.announce("x"), claim.handover, claim.keep_across_exec, claim.__enter__):
        with pytest.raises(OwnershipLostError, match="this handle was retired"):
            act()


def test_a_second_retirement_and_one_after_a_release_do_nothing(path: Path, claim: Claim) -> None:
    claim.retire("first")
    claim.retire("second")
    assert on_disk(path)["reason"] == "first"
    claim.release()
    claim.retire("third")
    assert not file_of(path).exists()


def test_a_release_takes_the_record_away_and_tells_of_a_close(path: Path, claim: Claim) -> None:
    claim.retire("upgrade")
    claim.release()
    assert not file_of(path).exists()
    found = ownership.inspect(path).previous
    assert found is not None
    assert (found.how, found.reason) == ("closed", "upgrade")


def test_leaving_the_block_does_not_release_what_was_closed(path: Path) -> None:
    with ownership.acquire(path) as claim:
        claim.retire()
    assert file_of(path).exists()
    claim.release()


def test_dropping_the_handle_does_not_release_what_was_closed(path: Path) -> None:
    claim = ownership.acquire(path)
    claim.retire()
    token = claim.token
    del claim
    gc.collect()
    file_of(path).unlink()
    eventually(file_of(path).exists)  # the keeper has looked since
    assert on_disk(path)["token"] == token
    ownership.acquire(path).release()


def test_a_closed_record_that_is_deleted_or_damaged_is_put_back(path: Path, claim: Claim) -> None:
    claim.retire("upgrade")
    file_of(path).unlink()
    eventually(file_of(path).exists)
    assert on_disk(path)["phase"] == "closed"
    file_of(path).write_text("")
    eventually(lambda: is_recorded(path))
    assert on_disk(path)["phase"] == "closed"


def test_this_process_may_acquire_again_at_once(path: Path, claim: Claim) -> None:
    claim.retire("upgrade")
    again = ownership.acquire(path)
    assert again.token > claim.token
    previous = ownership.inspect(path).previous
    assert previous is not None
    assert (previous.how, previous.reason) == ("closed", "upgrade")
    claim.release()
    again.verify()
    again.retire("second")
    third = ownership.acquire(path)
    eventually(lambda: third.verify() is None)
    third.release()
    assert not file_of(path).exists()


def test_two_retirements_in_a_row_both_end_with_the_process(path: Path, claim: Claim) -> None:
    """The keeper of the older one finds that it was followed, and leaves the guard to the younger one."""
    claim.retire("first")
    again = ownership.acquire(path)
    again.retire("second")
    file_of(path).unlink()
    eventually(file_of(path).exists)
    assert on_disk(path)["token"] == again.token
    again.release()


def test_nobody_else_gets_it_while_the_process_lives(path: Path, claim: Claim) -> None:
    claim.retire("upgrade")
    with Contender() as other:
        refused = other.do("acquire", path)
        assert refused["error"] == "AlreadyOwnedError"
        assert "closed (upgrade), free once its process has ended" in refused["text"]
    assert ownership.inspect(path).verdict is Verdict.LIVE
    with pytest.raises(AlreadyOwnedError, match="closed"):
        ownership.reclaim(path)


def test_who_closed_did_not_die(path: Path) -> None:
    """Also if it is still a zombie, or was killed after it had closed."""
    with zombie() as pid:
        plant(path, {"version": 1, "token": 7, **fields_of(pid), "phase": "closed", "reason": "done"})
        plant_guard(path, GuardState(7, identity(pid)))
        with ownership.acquire(path) as claim:
            assert claim.token > 7
            previous = ownership.inspect(path).previous
            assert previous is not None
            assert (previous.how, previous.reason) == ("closed", "done")
    assert '"deaths"' not in file_of(path, "guard").read_text()


def test_a_reclaim_tells_of_a_close_too(path: Path) -> None:
    with zombie() as pid:
        plant(path, {"version": 1, "token": 7, **fields_of(pid), "phase": "closed", "reason": "done"})
        plant_guard(path, GuardState(7, identity(pid)))
        ownership.reclaim(path)
    previous = ownership.inspect(path).previous
    assert previous is not None
    assert previous.how == "closed"


def test_no_program_of_the_owner_may_call_itself_closed(claim: Claim) -> None:
    with pytest.raises(ValueError, match="retire"):
        claim.announce("closed")


def test_a_lease_is_no_reason_to_end_a_closed_record(path: Path, claim: Claim) -> None:
    claim._holding.part.write_down(
        json.dumps(on_disk(path) | {"lease": {"ttl": 1.0, "auto_renew": False, "renewed_at": 0.0}}).encode()
    )
    claim.retire()
    assert on_disk(path)["lease"] is None


def test_workers_are_told(path: Path, claim: Claim) -> None:
    fence = ownership.Fence(claim.ref)
    claim.retire()
    assert fence.wait(10)
    assert fence.reason == "record-missing"
    with pytest.raises(FenceTrippedError, match="closed"):
        fence.check()


def test_a_break_ends_it_quietly(path: Path, claim: Claim) -> None:
    claim.retire()
    ownership.break_claim(path, token=claim.token)
    with Contender() as other:
        assert "value" in other.do("acquire", path)
        eventually(lambda: claim._holding.state.value == "released")
        assert not claim.lost.is_set()
        claim.release()
        assert "value" in other.do("verify", path)


def test_several_resources_are_closed_together(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x", also=[tmp_path / "y"])
    claim.retire("both")
    assert [on_disk(tmp_path / name)["phase"] for name in "xy"] == ["closed", "closed"]
    claim.release()


def test_what_cannot_be_written_now_the_keeper_writes_later(path: Path, claim: Claim) -> None:
    with file_of(path, "guard").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ownership.GuardTimeoutError):
            claim.retire("late")
        assert not claim.held
        assert on_disk(path)["phase"] == "owner"
    eventually(lambda: on_disk(path)["phase"] == "closed")


def test_a_signal_handler_inside_the_guard_closes_when_it_is_left(path: Path, claim: Claim) -> None:
    place = pinned(resolve(path))
    guard = place.guard(resolve(path))
    guard.inside.add(threading.get_ident())
    claim.retire("inside")
    assert not claim.held
    assert on_disk(path)["phase"] == "owner"
    guard.inside.clear()
    guard.catch_up()
    assert on_disk(path)["phase"] == "closed"


def test_a_forked_child_closes_nothing(path: Path, claim: Claim) -> None:
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            claim.retire("from the child")
        os._exit(0)
    os.waitpid(child, 0)
    claim.verify()
    assert on_disk(path)["phase"] == "owner"


def test_doctor_says_that_it_was_closed_and_its_process_has_not_ended(path: Path) -> None:
    with sleeping_process() as pid:
        plant(path, {"version": 1, "token": 7, **fields_of(pid), "phase": "closed", "reason": "done"})
        found = {one.code: one for one in ownership.diagnose(path.parent)}
        assert found[ownership.FindingCode.CLOSED].severity is ownership.Severity.NOTE
        assert found[ownership.FindingCode.CLOSED].evidence["reason"] == "done"
        with stopped(pid):
            assert ownership.FindingCode.STOPPED in {one.code for one in ownership.diagnose(path.parent)}


def test_where_the_directory_is_gone_nobody_is_kept_out_any_more(tmp_path: Path) -> None:
    """The keeper does not try for ever to put back what has no place."""
    folder = tmp_path / "folder"
    folder.mkdir()
    ownership.acquire(folder / "x").retire()
    kept = ownership.acquire(tmp_path / "x")
    kept.retire()
    while folder.exists():  # the keeper may put something back in the middle
        shutil.rmtree(folder, ignore_errors=True)
    eventually(
        lambda: (
            [one.primary.path for one in KEEPER.holdings if one.primary.path.startswith(str(tmp_path))]
            == [str(tmp_path / "x")]
        )
    )
    kept.release()
