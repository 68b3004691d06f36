"""The guard: a short mutex with a memory; tokens grow whatever happens to owners, records and clocks."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import ownership
from ownership import ContentionError, GuardTimeoutError, Verdict
from ownership.testing import FakeClock, FakeProcessTable
from tests.support.namespaces import Child, die_owning, elsewhere, needs_linux_root, owner, taken
from tests.support.records import file_of, guard_of, names
from tests.support.waiting import eventually

pytestmark = needs_linux_root


class Tokens(RuleBasedStateMachine):
    """Any sequence of owners that come, go, die and are broken, under a wall clock that is stepped at will."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ownership-"))
        self.path = self.folder / "x"
        self.clock = FakeClock()
        self.processes = FakeProcessTable(100)
        self.numbers = iter(range(101, 10_000))
        self.tokens = [0]
        self.claim: ownership.Claim | None = None
        self.forgotten: list[Any] = []

    def teardown(self) -> None:
        for claim in [*self.forgotten, *([self.claim] if self.claim else [])]:
            claim.release()
        shutil.rmtree(self.folder)

    @precondition(lambda self: self.claim is None)
    @rule()
    def acquire(self) -> None:
        self.claim = ownership.acquire(self.path, clock=self.clock, processes=self.processes)
        self.tokens.append(self.claim.token)

    @precondition(lambda self: self.claim is not None)
    @rule()
    def release(self) -> None:
        assert self.claim is not None
        self.claim.release()
        self.claim = None

    @precondition(lambda self: self.claim is not None)
    @rule()
    def broken(self) -> None:
        assert self.claim is not None
        ownership.break_claim(self.path, token=self.claim.token, clock=self.clock, processes=self.processes)
        with pytest.raises(ownership.OwnershipLostError):
            self.claim.verify()
        self.claim = None

    @rule()
    def die(self) -> None:
        """Whoever it is dies, owning or not, and another process goes on."""
        dead = self.processes.current()
        if self.claim is not None:
            self.claim._holding.state = type(self.claim._holding.state).RELEASED  # it has no say any more
            self.claim = None
        fresh = next(self.numbers)
        start_id = self.processes.add(fresh)
        self.processes.become(_successor(dead, fresh, start_id))
        self.processes.kill(dead.pid)

    @rule(seconds=st.floats(-1e7, 1e7))
    def step_the_wall_clock(self, seconds: float) -> None:
        if self.clock.wall_ns() + seconds * 1e9 > 0:
            self.clock.step_wall(seconds)

    @precondition(lambda self: self.claim is None)
    @rule()
    def lose_the_record(self) -> None:
        file_of(self.path).unlink(missing_ok=True)

    @precondition(lambda self: self.claim is None)
    @rule(content=st.sampled_from([b"", b"{", b'{"version": 1}']))
    def damage_the_record(self, content: bytes) -> None:
        if file_of(self.path).exists():
            file_of(self.path).write_bytes(content)

    @precondition(lambda self: self.claim is not None)
    @rule()
    def announce(self) -> None:
        assert self.claim is not None
        before = self.claim.token
        self.claim.announce("again")
        assert self.claim.token == before

    @precondition(lambda self: self.claim is None)
    @rule()
    def reclaim(self) -> None:
        ownership.reclaim(self.path, clock=self.clock, processes=self.processes)

    @invariant()
    def tokens_grow(self) -> None:
        assert self.tokens == sorted(set(self.tokens))


def _successor(dead: Any, pid: int, start_id: str) -> Any:
    return replace(dead, pid=pid, start_id=start_id, instance_id=f"{pid:032x}")


Tokens.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
test_tokens_grow_whatever_happens = Tokens.TestCase


def test_a_lost_guard_is_bridged_by_the_wall_clock(tmp_path: Path) -> None:
    first = taken(tmp_path / "x")
    file_of(tmp_path / "x", "guard").unlink()
    assert taken(tmp_path / "x") > first


@pytest.mark.parametrize("wall_ns", [2**53 * 1000 + 10**15, 2**63, 0, -(10**18)])
def test_an_absurd_wall_clock_is_not_believed(tmp_path: Path, wall_ns: int) -> None:
    """Tokens go on from the last one; the clock only bridges a lost guard."""
    first = taken(tmp_path / "x")
    second = taken(tmp_path / "x", clock=FakeClock(wall_ns=wall_ns))
    assert second == first + 1
    assert taken(tmp_path / "x") > second
    assert isinstance(taken(tmp_path / "y", clock=FakeClock(wall_ns=wall_ns)), int)


def test_the_guard_outlives_every_owner(tmp_path: Path) -> None:
    taken(tmp_path / "x")
    inode = file_of(tmp_path / "x", "guard").stat().st_ino
    for _ in range(3):
        die_owning(tmp_path / "x")
        ownership.reclaim(tmp_path / "x")
        taken(tmp_path / "x")
    assert file_of(tmp_path / "x", "guard").stat().st_ino == inode
    assert file_of(tmp_path / "x", "guard").stat().st_size <= 512


def test_the_guard_remembers_how_the_last_ownership_ended(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    claim.release("restart for an update")
    previous = guard_of(tmp_path / "x")["previous"]
    assert (previous["how"], previous["reason"]) == ("released", "restart for an update")
    assert "owner" not in guard_of(tmp_path / "x")
    pid = die_owning(tmp_path / "x")
    with ownership.acquire(tmp_path / "x") as claim:
        remembered = guard_of(tmp_path / "x")
        assert (remembered["previous"]["how"], remembered["previous"]["reason"]) == ("died", f"no process {pid}")
        assert len(remembered["deaths"]) == 1
        assert remembered["owner"]["instance_id"] == claim.record.instance_id
        found = ownership.inspect(tmp_path / "x").previous
        assert found is not None
        assert found.how == "died"


@pytest.mark.parametrize(
    "reason", ["", "x" * 500, "é\n\0\u202e" * 50, "\udcff"], ids=["none", "long", "odd", "no text"]
)
def test_any_reason_can_be_given(tmp_path: Path, reason: str) -> None:
    claim = ownership.acquire(tmp_path / "x")
    claim.release(reason)
    assert file_of(tmp_path / "x", "guard").stat().st_size <= 512
    assert guard_of(tmp_path / "x")["previous"]["how"] == "released"
    assert taken(tmp_path / "x") > claim.token


# busy


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Child]:
    """Another process is inside the guard of ``x`` until it is told to go on; nobody owns."""
    taken(tmp_path / "x")
    path = file_of(tmp_path / "x", "guard")
    locked: list[int] = []

    def lock(_claim: object) -> None:
        if locked:
            os.close(locked.pop())
            return
        locked.append(os.open(path, os.O_RDWR))
        fcntl.flock(locked[0], fcntl.LOCK_EX)
        (tmp_path / "locked").touch()

    with owner(tmp_path / "helper", then=lock) as child:
        child.go_on()
        eventually((tmp_path / "locked").exists)
        yield child


@pytest.mark.parametrize("timeout", [0.0, 0.5, 1.0])
def test_a_busy_guard_is_not_an_owner(tmp_path: Path, busy: Child, timeout: float) -> None:
    """K44: another error, which names who is inside and says that nothing was decided."""
    clock = FakeClock()
    with pytest.raises(GuardTimeoutError) as caught:
        ownership.acquire(tmp_path / "x", timeout=timeout, clock=clock)
    error = caught.value
    assert isinstance(error, ContentionError)
    assert not isinstance(error, ownership.AlreadyOwnedError)
    assert error.holder == busy.pid
    assert str(busy.pid) in str(error)
    assert "x.guard" in str(error)
    assert f"kill -CONT {busy.pid}" in error.hint
    assert sum(clock.waits) == pytest.approx(1.0, abs=0.05)


def test_a_longer_timeout_waits_longer_for_the_guard(tmp_path: Path, busy: Child) -> None:
    clock = FakeClock()
    with pytest.raises(GuardTimeoutError):
        ownership.acquire(tmp_path / "x", timeout=7.0, clock=clock)
    assert sum(clock.waits) == pytest.approx(7.0, abs=0.05)


def test_the_guard_comes_free_and_the_wait_ends(tmp_path: Path, busy: Child) -> None:
    timer = threading.Timer(0.1, busy.go_on)
    timer.start()
    assert isinstance(taken(tmp_path / "x", timeout=10.0), int)
    timer.join()


def test_break_and_reclaim_wait_for_the_guard_too_and_looking_does_not(tmp_path: Path, busy: Child) -> None:
    clock = FakeClock()
    (tmp_path / ".leases" / "x.json").write_bytes(b"{")
    with pytest.raises(GuardTimeoutError):
        ownership.reclaim(tmp_path / "x", clock=clock)
    with pytest.raises(GuardTimeoutError):
        ownership.break_claim(tmp_path / "x", token=0, clock=clock)
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.UNKNOWN


def test_a_fake_clock_still_lets_another_thread_out_of_the_guard(tmp_path: Path) -> None:
    """The keeper lives in real time, however fast a test's clock runs."""
    taken(tmp_path / "x")
    path = file_of(tmp_path / "x", "guard")
    stop = threading.Event()

    def go_in_and_out() -> None:
        while not stop.is_set():
            with open(path, "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                until = time.monotonic() + 0.003
                while time.monotonic() < until:
                    pass
                fcntl.flock(file, fcntl.LOCK_UN)
            stop.wait(0.003)

    thread = threading.Thread(target=go_in_and_out)
    thread.start()
    try:
        outcomes = [taken(tmp_path / "x", clock=FakeClock()) for _ in range(30)]
    finally:
        stop.set()
        thread.join()
    assert all(isinstance(one, int) for one in outcomes), outcomes


def test_a_busy_guard_makes_release_inert_and_the_keeper_goes_on(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x", clock=FakeClock())
    path = file_of(tmp_path / "x", "guard")

    def hold() -> None:
        with open(path, "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            (tmp_path / "locked").touch()
            eventually((tmp_path / "go").exists)

    thread = threading.Thread(target=lambda: elsewhere(hold))
    thread.start()
    eventually((tmp_path / "locked").exists)
    with pytest.raises(GuardTimeoutError):
        claim.release()
    assert not claim.held
    claim.release()
    (tmp_path / "go").touch()
    thread.join()
    eventually(lambda: not file_of(tmp_path / "x").exists())
    assert isinstance(taken(tmp_path / "x"), int)


def test_a_guard_that_was_replaced_by_another_file_is_noticed(tmp_path: Path) -> None:
    """Whoever locks the new file and whoever locked the old one must not both decide."""
    with ownership.acquire(tmp_path / "x") as claim:
        path = file_of(tmp_path / "x", "guard")
        path.rename(path.with_name("moved"))
        assert isinstance(taken(tmp_path / "x"), ownership.AlreadyOwnedError)
        assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), ownership.AlreadyOwnedError)
        claim.announce("again")
        claim.verify()


def test_nothing_of_a_guard_stays_open_in_a_program_that_is_started(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        listed = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True
        ).stdout
        assert str(tmp_path) not in listed
    assert names(tmp_path / ".leases") >= {"x.guard"}
    assert os.path.exists(tmp_path)


def test_what_a_guard_says_is_read_anew_after_many_others_were_used(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        for number in range(100):
            ownership.acquire(tmp_path / str(number)).release()
        holding = claim._holding
        assert holding.under_guard(holding.part, lambda hold: hold.read()).token == claim.token
        for number in range(100):
            ownership.acquire(tmp_path / str(number)).release()
        file_of(tmp_path / "x", "guard").write_bytes(b"")
        assert holding.under_guard(holding.part, lambda hold: hold.read()).owner is None
