"""Looking at an owner: which facts are asked for, and what is made of what is found."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, Verdict
from ownership._models import GuardState
from ownership.testing import FakeClock, FakeProcessTable, ProcessState
from tests.support.namespaces import elsewhere, needs_linux_root, taken
from tests.support.records import OTHER_INSTANCE, file_of, identity, plant, plant_guard, record

pytestmark = needs_linux_root


@pytest.fixture
def table() -> FakeProcessTable:
    """A table with ourselves and with process 7."""
    made = FakeProcessTable(1000)
    made.add(7, start_id=start_id())
    return made


def start_id() -> str:
    return "linux:00000000-0000-4000-8000-000000000001:555:4026531834:77"


def planted(tmp_path: Path, table: FakeProcessTable, **changes: Any) -> Path:
    ours = table.current()
    own = {"pid": 7, "start_id": start_id(), "boot_id": ours.boot_id, "pid_namespace": ours.pid_namespace}
    return plant(tmp_path / "x", record() | own | changes)


STATES = {
    ProcessState.RUNNING: Verdict.LIVE,
    ProcessState.STOPPED: Verdict.STOPPED,
    ProcessState.TRACED: Verdict.STOPPED,
    ProcessState.FROZEN: Verdict.STOPPED,
    ProcessState.DUMPING: Verdict.LIVE,
    ProcessState.ZOMBIE: Verdict.ZOMBIE,
    ProcessState.UNKNOWN: Verdict.UNKNOWN,
}


@pytest.mark.parametrize(("state", "expected"), STATES.items(), ids=[state.value for state in STATES])
def test_the_state_of_the_process_decides_whether_it_may_be_evicted(
    tmp_path: Path, table: FakeProcessTable, state: ProcessState, expected: Verdict
) -> None:
    planted(tmp_path, table)
    table.set_state(7, state)
    assert ownership.inspect(tmp_path / "x", processes=table).verdict is expected
    if expected.may_be_evicted:
        ownership.acquire(tmp_path / "x", processes=table).release()
    else:
        with pytest.raises(AlreadyOwnedError) as caught:
            ownership.acquire(tmp_path / "x", processes=table)
        assert caught.value.verdict is expected


def test_here_the_process_is_asked_and_elsewhere_it_is_not(tmp_path: Path, table: FakeProcessTable) -> None:
    planted(tmp_path, table)
    ownership.inspect(tmp_path / "x", processes=table)
    assert table.observed == [7]
    table.observed.clear()
    planted(tmp_path, table, pid_namespace=1)
    assert ownership.inspect(tmp_path / "x", processes=table).verdict is Verdict.UNKNOWN
    assert table.observed == []


def test_a_witness_that_vanishes_is_looked_for_again_with_the_record(
    tmp_path: Path, table: FakeProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner has just left: record and witness went between our two looks."""
    from ownership import _examine

    path = planted(tmp_path, table, pid_namespace=1)
    asked: list[str] = []
    original = _examine.ask

    def ask(directory: Any, instance_id: str) -> Any:
        asked.append(instance_id)
        path.unlink(missing_ok=True)
        return original(directory, instance_id)

    monkeypatch.setattr(_examine, "ask", ask)
    assert ownership.inspect(tmp_path / "x", processes=table).verdict is Verdict.FREE
    assert asked == [OTHER_INSTANCE]


def test_the_record_of_the_next_owner_is_judged_not_the_one_before(
    tmp_path: Path, table: FakeProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ownership import _examine

    planted(tmp_path, table, pid_namespace=1)
    original = _examine.ask

    def ask(directory: Any, instance_id: str) -> Any:
        if instance_id == OTHER_INSTANCE:
            planted(tmp_path, table, instance_id="f" * 32, token=1001)
        return original(directory, instance_id)

    monkeypatch.setattr(_examine, "ask", ask)
    found = ownership.inspect(tmp_path / "x", processes=table)
    assert (found.verdict, found.token) == (Verdict.LIVE, 1001)


# leases, as a contender sees them


@pytest.mark.parametrize(("age", "expected"), [(0.0, Verdict.LIVE), (29.9, Verdict.LIVE), (30.1, Verdict.EXPIRED)])
@pytest.mark.parametrize("state", [ProcessState.RUNNING, ProcessState.STOPPED, ProcessState.UNKNOWN])
def test_a_lease_that_ran_out_evicts_whoever_is_not_dead(
    tmp_path: Path, table: FakeProcessTable, age: float, expected: Verdict, state: ProcessState
) -> None:
    clock = FakeClock(monotonic=5000.0)
    lease = {"ttl": 30.0, "auto_renew": False, "renewed_at": 5000.0 - age}
    planted(tmp_path, table, lease=lease)
    table.set_state(7, state)
    found = ownership.inspect(tmp_path / "x", processes=table, clock=clock).verdict
    assert found is (expected if expected is Verdict.EXPIRED else STATES[state])


def test_a_lease_renewed_by_heartbeat_is_not_over_while_the_heart_beats(
    tmp_path: Path, table: FakeProcessTable
) -> None:
    clock = FakeClock(monotonic=5000.0)
    planted(tmp_path, table, lease={"ttl": 30.0, "auto_renew": True, "renewed_at": 100.0})
    assert ownership.inspect(tmp_path / "x", processes=table, clock=clock).verdict is Verdict.LIVE
    witness = tmp_path / ".leases" / f"{OTHER_INSTANCE}.alive"
    for beat, expected in ((4990.0, Verdict.LIVE), (4969.0, Verdict.EXPIRED), (1e6, Verdict.LIVE)):
        witness.write_bytes(struct.pack("=q", int(beat * 1e9)))
        assert ownership.inspect(tmp_path / "x", processes=table, clock=clock).verdict is expected
    for damaged in (b"", b"1234"):
        witness.write_bytes(damaged)
        assert ownership.inspect(tmp_path / "x", processes=table, clock=clock).verdict is Verdict.LIVE


@pytest.mark.parametrize("changes", [{"boot_id": "another"}, {"boot_id": None}], ids=str)
def test_a_lease_of_another_clock_is_not_believed_to_be_over(
    tmp_path: Path, table: FakeProcessTable, changes: dict[str, Any]
) -> None:
    lease = {"ttl": 30.0, "auto_renew": False, "renewed_at": 1.0}
    planted(tmp_path, table, lease=lease, **changes)
    found = ownership.inspect(tmp_path / "x", processes=table, clock=FakeClock(monotonic=5000.0))
    assert found.verdict is Verdict.UNKNOWN


def test_an_evicted_live_owner_leaves_a_greater_token_behind(tmp_path: Path, table: FakeProcessTable) -> None:
    clock = FakeClock(monotonic=5000.0)
    planted(tmp_path, table, token=2**52, lease={"ttl": 30.0, "auto_renew": False, "renewed_at": 1.0})
    with ownership.acquire(tmp_path / "x", processes=table, clock=clock) as claim:
        assert claim.token > 2**52
    planted(tmp_path, table, token=2**52 + 50, lease={"ttl": 30.0, "auto_renew": False, "renewed_at": 1.0})
    assert ownership.reclaim(tmp_path / "x", processes=table, clock=clock).verdict is Verdict.EXPIRED
    assert ownership.inspect(tmp_path / "x").token > 2**52 + 50


# what an unreadable system says


def test_an_unknown_owner_may_be_broken_by_the_command_that_the_hint_names(
    tmp_path: Path, table: FakeProcessTable
) -> None:
    planted(tmp_path, table, token=31)
    table.fail(7)
    with pytest.raises(AlreadyOwnedError) as caught:
        ownership.acquire(tmp_path / "x", processes=table)
    assert f"leasectl break {tmp_path / 'x'} --token 31" in caught.value.hint


def test_our_own_look_is_never_weaker_for_want_of_descriptors(tmp_path: Path) -> None:
    """Without an identity nothing is published."""

    class Failing:
        def current(self) -> Any:
            raise OSError(24, os.strerror(24))

    processes: Any = Failing()
    with pytest.raises(OSError, match="Too many open files"):
        ownership.acquire(tmp_path / "x", processes=processes)
    assert not file_of(tmp_path / "x").exists()
    assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), int)


def guard_naming_seven(tmp_path: Path, table: FakeProcessTable, **changes: Any) -> Path:
    """No record, and a guard that says that process 7 owns."""
    ours = table.current()
    own = {"pid": 7, "start_id": start_id(), "boot_id": ours.boot_id, "pid_namespace": ours.pid_namespace}
    plant_guard(tmp_path / "x", GuardState(token=1000, owner=identity(**own | changes)))
    return tmp_path / "x"


@pytest.mark.parametrize("state", STATES, ids=[state.value for state in STATES])
def test_a_missing_record_is_free_only_if_the_owner_in_the_guard_is_gone(
    tmp_path: Path, table: FakeProcessTable, state: ProcessState
) -> None:
    """A look that fails proves nothing, here as little as for a record that is there."""
    resource = guard_naming_seven(tmp_path, table)
    table.set_state(7, state)
    if STATES[state].may_be_evicted:
        ownership.acquire(resource, processes=table).release()
        return
    with pytest.raises(AlreadyOwnedError) as caught:
        ownership.acquire(resource, processes=table)
    assert caught.value.verdict is STATES[state]
    assert caught.value.owner is not None
    assert caught.value.owner.pid == 7
    assert not file_of(resource).exists()
    ownership.break_claim(resource, token=1000, processes=table)  # the way out, by decision
    ownership.acquire(resource, processes=table).release()


def test_a_probe_that_fails_does_not_free_a_missing_record(tmp_path: Path, table: FakeProcessTable) -> None:
    resource = guard_naming_seven(tmp_path, table)
    table.fail(7, "pidfd_open: too many open files")
    with pytest.raises(AlreadyOwnedError) as caught:
        ownership.acquire(resource, processes=table)
    assert caught.value.verdict is Verdict.UNKNOWN
    assert "too many open files" in caught.value.reason


@pytest.mark.parametrize("witness", ["missing", "no file"])
def test_an_owner_elsewhere_that_left_nothing_but_its_name_in_the_guard(
    tmp_path: Path, table: FakeProcessTable, witness: str
) -> None:
    """Its witness was swept because no record named it: it is gone. One that cannot be tested proves nothing."""
    resource = guard_naming_seven(tmp_path, table, pid_namespace=1)
    if witness == "missing":
        ownership.acquire(resource, processes=table).release()
        return
    (file_of(resource).parent / f"{OTHER_INSTANCE}.alive").mkdir()
    with pytest.raises(AlreadyOwnedError) as caught:
        ownership.acquire(resource, processes=table)
    assert caught.value.verdict is Verdict.UNKNOWN
