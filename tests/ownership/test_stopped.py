"""What a contender does about a stopped owner that it waits for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AcquireTimeoutError, Claim
from ownership.testing import FakeClock, FakeProcessTable, ProcessState
from tests.support.namespaces import needs_linux_root
from tests.support.processes import Child, running
from tests.support.waiting import eventually

OWNER, CONTENDER = 1000, 2000


class World:
    """A stopped owner and a contender on one fake machine, with real files."""

    def __init__(self, path: Path, state: ProcessState) -> None:
        self.path = path
        self.clock = FakeClock(wall_ns=time.time_ns())
        self.processes = FakeProcessTable(OWNER)
        self.claim: Claim = ownership.acquire(path, clock=self.clock, processes=self.processes)
        owner = self.processes.current()
        start_id = self.processes.add(CONTENDER)
        self.processes.become(replace(owner, pid=CONTENDER, start_id=start_id, instance_id=f"{CONTENDER:032x}"))
        self.processes.set_state(OWNER, state)

    def acquire(self, on_stopped: Any, timeout: float) -> Claim:
        return ownership.acquire(
            self.path, timeout=timeout, on_stopped=on_stopped, clock=self.clock, processes=self.processes
        )


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    one = World(tmp_path / "x", request.param)
    yield one
    one.claim.release()
    one.processes.close()


stopped = pytest.mark.parametrize("world", [ProcessState.STOPPED, ProcessState.FROZEN], indirect=True)
others = pytest.mark.parametrize(
    "world", [ProcessState.RUNNING, ProcessState.TRACED, ProcessState.DUMPING], indirect=True
)


@stopped
def test_evicting_takes_three_looks_two_seconds_apart(world: World) -> None:
    begun = world.clock.monotonic()
    claim = world.acquire("evict", 60)
    assert 4.0 <= world.clock.monotonic() - begun < 7.0
    assert claim.token > world.claim.token
    assert ownership.inspect(world.path).token == claim.token
    eventually(world.claim.lost.is_set)
    claim.release()


@stopped
def test_waiting_never_ends_by_itself(world: World) -> None:
    with pytest.raises(AcquireTimeoutError, match="stopped"):
        world.acquire("wait", 60)
    world.claim.verify()


@stopped
def test_a_timeout_that_is_too_short_for_an_eviction_evicts_nobody(world: World) -> None:
    for timeout in (0.5, 3.5):
        with pytest.raises(AcquireTimeoutError):
            world.acquire("evict", timeout)
    world.claim.verify()


@others
def test_whoever_is_not_stopped_by_a_signal_is_never_touched(world: World) -> None:
    for way in ("resume", "evict"):
        with pytest.raises(AcquireTimeoutError):
            world.acquire(way, 60)
    world.claim.verify()


@pytest.mark.parametrize("world", [ProcessState.STOPPED], indirect=True)
def test_an_owner_that_goes_on_in_between_is_counted_anew(world: World) -> None:
    class Restless(FakeClock):
        def wait(self, seconds: float, poller: Any = None) -> bool:
            runs = int(self.monotonic()) % 4 >= 2
            world.processes.set_state(OWNER, ProcessState.RUNNING if runs else ProcessState.STOPPED)
            return super().wait(min(seconds, 0.25), poller)

    world.clock = Restless(wall_ns=time.time_ns())
    with pytest.raises(AcquireTimeoutError):
        world.acquire("evict", 60)
    world.claim.verify()


@pytest.mark.parametrize("way", ["", "kill", None, 5])
def test_there_are_three_ways(tmp_path: Path, way: Any) -> None:
    with pytest.raises(ValueError, match="on_stopped must be one of 'wait', 'resume', 'evict'"):
        ownership.acquire(tmp_path / "x", on_stopped=way)
    assert os.listdir(tmp_path) == []


# the real thing

_OWNER = """
continued = []
signal.signal(signal.SIGCONT, lambda *_: continued.append(1))
claim = ownership.acquire(sys.argv[1])
say(True)
while True:
    what = hear()
    say(len(continued) if what == "continued" else attempt(claim.verify))
"""


def stop(child: Child) -> None:
    child.signal(signal.SIGSTOP)
    eventually(lambda: ownership.is_stopped(child.pid))


@needs_linux_root
def test_a_stopped_owner_is_let_go_on_once(tmp_path: Path) -> None:
    with running(_OWNER, tmp_path / "x") as owner:
        owner.hear()
        stop(owner)
        with pytest.raises(AcquireTimeoutError):
            ownership.acquire(tmp_path / "x", timeout=0.6, on_stopped="resume")
        assert owner.ask("continued") == 1
        assert owner.ask("verify") is None


@needs_linux_root
def test_an_owner_that_was_evicted_while_it_was_stopped_learns_of_it(tmp_path: Path) -> None:
    with running(_OWNER, tmp_path / "x") as owner:
        owner.hear()
        stop(owner)
        clock = FakeClock(wall_ns=time.time_ns())
        with ownership.acquire(tmp_path / "x", timeout=60, on_stopped="evict", clock=clock) as claim:
            owner.signal(signal.SIGCONT)
            assert owner.ask("verify") == "OwnershipLostError"
            claim.verify()
