"""Waiting: woken by whatever the system has, by polling where it has nothing, and never busy."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AcquireTimeoutError, Verdict, _inotify, _waiting, _watch
from ownership._examine import Examiner
from ownership._models import GuardState
from ownership._paths import resolve
from ownership._place import existing
from ownership._process import ProcessTable, system_processes
from ownership._waiting import Waiter
from ownership._watch import Watch
from ownership.testing import FakeClock, FakeProcessTable, sleeping_process
from tests.support.namespaces import NEW_PIDS, elsewhere, needs_linux_root, owner, running, taken
from tests.support.records import file_of, identity, plant, plant_guard, record

pytestmark = needs_linux_root


class WithoutHandles:
    """The processes of this machine, without pidfds to wait on."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def open_handle(self, pid: int, start_id: str) -> int | None:
        return None


def without_notify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_waiting, "Watch", lambda: Watch(notify=False))


@pytest.mark.parametrize("handles", [True, False], ids=["pidfd", "no pidfd"])
@pytest.mark.parametrize("notify", [True, False], ids=["inotify", "no inotify"])
@pytest.mark.parametrize("event", ["dies", "releases", "is broken", "is a zombie"])
def test_every_way_to_be_woken_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handles: bool, notify: bool, event: str
) -> None:
    """Each of them forced off in turn; with the right one at once, by polling within a tick or two."""
    processes: Any = system_processes() if handles else WithoutHandles(system_processes())
    if not notify:
        without_notify(monkeypatch)
        if not handles:  # as on Windows
            monkeypatch.delattr(_watch, "select")
    with owner(tmp_path / "x", then=lambda claim: claim.release()) as child:
        started: list[float] = []

        def act() -> None:
            started.append(time.monotonic())
            match event:
                case "dies":
                    child.kill()
                case "releases":
                    child.go_on()
                case "is broken":
                    ownership.break_claim(tmp_path / "x", token=child.said)
                case "is a zombie":
                    child.kill(reap=False)

        token = taken(tmp_path / "x", timeout=30.0, processes=processes, on_wait=lambda error: act())
        seconds = time.monotonic() - started[0]
        assert token > child.said
        woken = handles if event in ("dies", "is a zombie") else notify
        assert seconds < (1.0 if woken else 3.5)
        child.reap() if event == "is a zombie" else None


def test_an_owner_in_another_namespace_is_waited_for_by_polling(tmp_path: Path) -> None:
    body = "claim = ownership.acquire(sys.argv[1]); say(claim.token); hear(); os._exit(0)"
    with running(body, tmp_path / "x", prefix=NEW_PIDS) as process:
        token = process.said()
        assert taken(tmp_path / "x", timeout=30.0, on_wait=lambda error: process.tell()) > token


def test_the_deadline_is_kept_by_the_clock_that_was_given(tmp_path: Path) -> None:
    table, clock = FakeProcessTable(), FakeClock()
    start_id = table.add(7)
    ours = table.current()
    plant(tmp_path / "x", record(boot_id=ours.boot_id, pid_namespace=ours.pid_namespace) | named(7, start_id))
    before = clock.monotonic()
    with table, pytest.raises(AcquireTimeoutError) as caught:
        ownership.acquire(tmp_path / "x", timeout=600.0, clock=clock, processes=table)
    assert clock.monotonic() - before == pytest.approx(600.0, abs=0.1)
    assert "waited 600 s" in str(caught.value)
    assert len(clock.waits) < 3000
    assert max(clock.waits) <= 2.5


def named(pid: int, start_id: str) -> dict[str, Any]:
    return {"pid": pid, "start_id": start_id}


def test_a_record_that_cannot_be_watched_is_polled_and_its_owner_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of inotify instances: the end of the owner would wake us all the same."""
    without_notify(monkeypatch)
    table, clock = FakeProcessTable(), FakeClock()
    start_id = table.add(7)
    ours = table.current()
    plant(tmp_path / "x", record(boot_id=ours.boot_id, pid_namespace=ours.pid_namespace) | named(7, start_id))
    with table, pytest.raises(AcquireTimeoutError):
        ownership.acquire(tmp_path / "x", timeout=60.0, clock=clock, processes=table)
    assert 150 < len(clock.waits) < 400  # a quarter of a second each
    assert 20 < table.observed.count(7) < 80


def test_threads_that_poll_one_record_share_the_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_notify(monkeypatch)
    for crowd, most in ((1, 0.31), (64, 1.3)):
        clock = FakeClock()
        others: Any = {object(): os.fspath(file_of(tmp_path / "x")) for _ in range(crowd - 1)}
        others |= {object(): os.fspath(file_of(tmp_path / "y")) for _ in range(1000)}
        monkeypatch.setattr(_waiting, "_polling", others)
        with ownership.acquire(tmp_path / "x"), pytest.raises(AcquireTimeoutError):
            ownership.acquire(tmp_path / "x", timeout=60.0, clock=clock)
        assert most / 2 < max(clock.waits) < most
        assert len(others) == crowd - 1 + 1000


def test_the_owner_goes_just_before_the_deadline(tmp_path: Path) -> None:
    table = FakeProcessTable()

    class Ticking(FakeClock):
        def wait(self, seconds: float, poller: Any = None) -> bool:
            if self.monotonic() - 1000.0 > 57.0 and table.observe(7).exists:
                table.kill(7)
            return super().wait(seconds, poller)

    start_id = table.add(7)
    ours = table.current()
    plant(tmp_path / "x", record(boot_id=ours.boot_id, pid_namespace=ours.pid_namespace) | named(7, start_id))
    with table:
        ownership.acquire(tmp_path / "x", timeout=60.0, clock=Ticking(), processes=table).release()


@pytest.mark.parametrize("timeout", [None, 1e9, float("inf")])
def test_for_ever_is_until_it_comes_free(tmp_path: Path, timeout: float | None) -> None:
    with owner(tmp_path / "x") as child:
        assert taken(tmp_path / "x", timeout=timeout, on_wait=lambda error: child.kill()) > child.said


def test_nobody_waits_with_a_timeout_of_zero(tmp_path: Path) -> None:
    clock = FakeClock()
    with owner(tmp_path / "x"):
        assert isinstance(taken(tmp_path / "x", timeout=0.0, clock=clock), ownership.AlreadyOwnedError)
    assert clock.waits == []


def test_on_wait_is_called_once_for_each_holder(tmp_path: Path) -> None:
    """Not again for the same one, however often its record changes."""
    holders: list[int] = []
    timers: list[threading.Timer] = []

    def told(error: ownership.AlreadyOwnedError) -> None:
        assert error.record is not None
        holders.append(error.record.pid)
        if len(holders) == 1:
            put(second, token=1001)
        else:
            put(second, token=1001, phase="another")
            timers.append(threading.Timer(0.1, path.unlink))
            timers[0].start()

    def put(pid: int, **changes: Any) -> None:
        other = plant(tmp_path / "new", record(pid, instance_id=f"{pid:032d}", **changes))
        other.rename(path)

    with sleeping_process() as first, sleeping_process() as second:
        path = plant(tmp_path / "x", record(first))
        assert isinstance(taken(tmp_path / "x", timeout=30.0, on_wait=told), int)
        timers[0].join()
        assert holders == [first, second]


def test_on_wait_is_not_called_when_there_is_no_wait(tmp_path: Path) -> None:
    called: list[object] = []
    assert isinstance(taken(tmp_path / "x", timeout=5.0, on_wait=called.append), int)
    with owner(tmp_path / "x"):
        assert isinstance(taken(tmp_path / "x", timeout=0.0, on_wait=called.append), ownership.AlreadyOwnedError)
    assert called == []


def switches() -> int:
    text = Path("/proc/thread-self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("voluntary_ctxt_switches")).split()[1])


@pytest.mark.parametrize("ways", ["all", "polling only", "record that says nothing", "elsewhere"])
def test_an_idle_waiter_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: str) -> None:
    """At most 30 wake-ups a second, and next to no time of the processor."""
    processes: Any = None
    if ways == "polling only":
        processes = WithoutHandles(system_processes())
        without_notify(monkeypatch)
    with sleeping_process() as pid:
        match ways:
            case "record that says nothing":
                plant(tmp_path / "x", b"{")
                plant_guard(tmp_path / "x", GuardState(token=1000, owner=identity(pid)))
            case "elsewhere":
                plant(tmp_path / "x", record(pid, pid_namespace=1))
            case _:
                plant(tmp_path / "x", record(pid))
        taken(tmp_path / "warm")
        counted = []
        for _ in range(4):  # the least of a few: a busy machine adds switches that are none of the waiter's
            before, cpu = switches(), time.thread_time()
            assert isinstance(taken(tmp_path / "x", timeout=0.5, processes=processes), AcquireTimeoutError)
            counted.append((switches() - before, time.thread_time() - cpu))
            if counted[-1][0] <= 15 and counted[-1][1] < 0.05:
                return
        pytest.fail(f"switches and seconds of the processor in half a second of waiting: {counted}")


def test_a_handle_that_wakes_for_nothing_is_not_listened_to_again(tmp_path: Path) -> None:
    """A pidfd that polls readable while the process is not over must not make the waiter spin."""

    class Crying:
        def __getattr__(self, name: str) -> Any:
            return getattr(system_processes(), name)

        def open_handle(self, pid: int, start_id: str) -> int | None:
            reader, writer = os.pipe()
            os.close(writer)
            return reader

    with sleeping_process() as pid:
        plant(tmp_path / "x", record(pid))
        before = switches()
        processes: Any = Crying()
        assert isinstance(taken(tmp_path / "x", timeout=0.5, processes=processes), AcquireTimeoutError)
        assert switches() - before <= 15


def test_an_owner_that_is_watched_is_not_judged_again_before_something_happens(tmp_path: Path) -> None:
    looks: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(system_processes(), name)

        def observe(self, pid: int) -> Any:
            looks.append(pid)
            return system_processes().observe(pid)

    with sleeping_process() as pid:
        plant(tmp_path / "x", record(pid))
        counting: Any = Counting()
        seen: list[int] = []
        taken(tmp_path / "x", timeout=0.5, processes=counting, on_wait=lambda error: seen.append(len(looks)))
        assert seen == [1]
        assert len(looks) <= 3  # the others when time was up


def test_waiting_leaks_no_descriptors(tmp_path: Path) -> None:
    with owner(tmp_path / "x"):
        taken(tmp_path / "x", timeout=0.02)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            assert isinstance(taken(tmp_path / "x", timeout=0.02), AcquireTimeoutError)
        assert len(os.listdir("/proc/self/fd")) <= before


def test_waiting_works_without_inotify_instances_or_descriptors(tmp_path: Path) -> None:
    """Out of watches: poll instead."""

    def starved() -> Any:
        class Full:
            def __getattr__(self, name: str) -> Any:
                return lambda *args: -1

        from ownership import _watch

        _watch._library = Full()
        return taken(tmp_path / "x", timeout=0.3)

    with owner(tmp_path / "x"):
        assert isinstance(elsewhere(starved), AcquireTimeoutError)


# waiting without acquiring


def test_wait_ends_when_nobody_holds_it_and_acquires_nothing(tmp_path: Path) -> None:
    assert ownership.wait(tmp_path / "x").verdict is Verdict.FREE
    with owner(tmp_path / "x") as child:
        found = ownership.wait(tmp_path / "x", timeout=20.0, on_wait=lambda error: child.kill())
        assert found.verdict is Verdict.GONE
        assert file_of(tmp_path / "x").exists()
    with owner(tmp_path / "x", then=lambda claim: claim.release()) as child:
        found = ownership.wait(tmp_path / "x", timeout=20.0, on_wait=lambda error: child.go_on())
        assert found.verdict is Verdict.FREE


def test_wait_gives_up_after_its_timeout(tmp_path: Path) -> None:
    called: list[object] = []
    with owner(tmp_path / "x") as child:
        with pytest.raises(AcquireTimeoutError) as caught:
            ownership.wait(tmp_path / "x", timeout=0.2, on_wait=called.append)
        assert caught.value.record is not None
        assert caught.value.record.pid == child.pid
        assert len(called) == 1
        with pytest.raises(ownership.AlreadyOwnedError):
            ownership.wait(tmp_path / "x", timeout=0.0)
    with pytest.raises(ValueError, match="timeout"):
        ownership.wait(tmp_path / "x", timeout=-1)


def test_no_time_passes_when_nothing_is_in_the_way(tmp_path: Path) -> None:
    clock = FakeClock()
    assert isinstance(taken(tmp_path / "x", timeout=60.0, clock=clock), int)
    assert clock.waits == []


def test_a_record_that_is_updated_costs_a_waiter_nothing_of_its_attention(tmp_path: Path) -> None:
    """The file that is waited for goes with every update; the owner's process is watched all the same."""
    clock = FakeClock(wall_ns=time.time_ns())
    with FakeProcessTable() as processes:
        claim = ownership.acquire(tmp_path / "x", clock=clock, processes=processes)
        place = existing(resolve(tmp_path / "x"))
        assert place is not None
        examiner = Examiner(processes, clock)
        waiter, resource = Waiter(examiner), resolve(tmp_path / "x")
        other = processes.add(2000)
        processes.become(replace(processes.current(), pid=2000, start_id=other, instance_id="2" * 32))
        for phase in ("one", "two", "three"):
            found = examiner.look(place, resource)[1]
            clock.waits.clear()
            assert waiter.wait(place, resource, found, clock.monotonic() + 30) is None
            assert min(clock.waits[:-1]) >= 1.9  # watched, so that looks are far between
            claim.announce(phase)
        waiter.close()
        claim.release()


def test_the_endless_timeout_of_filelock_is_refused_with_the_name_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="timeout=None"):
        ownership.acquire(tmp_path / "x", timeout=-1)


@needs_linux_root
@pytest.mark.parametrize("number", ["is ours", "was reused"])
def test_out_of_descriptors_a_watch_closes_what_is_its_own_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    """What it watches, and so whether it is ours, is told by a file that cannot be opened then."""
    watch = Watch()
    assert watch.file(os.fspath(tmp_path))
    (instance,) = watch.descriptors
    monkeypatch.setattr(_inotify, "marks", lambda number: None)
    if number == "was reused":
        os.close(instance)
        assert os.open(tmp_path, os.O_RDONLY) == instance
    watch.close()
    if number == "was reused":
        os.close(instance)
    else:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(instance)
