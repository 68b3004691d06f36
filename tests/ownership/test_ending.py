"""Waiting for the end of a process: each form forced, and nothing believed that a full look does not confirm."""

from __future__ import annotations

import os
import signal
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ownership
from ownership._ending import Ending
from ownership._process import LinuxProcesses, PortableProcesses, ProcessTable, system_processes
from ownership.testing import FakeClock, FakeProcessTable, reuse_pid, sleeping_process, wait_until, zombie
from tests.support.namespaces import needs_linux_root

psutil = pytest.importorskip("psutil")

FORMS: dict[str, Callable[[], ProcessTable]] = {
    "pidfd": system_processes,
    "polling": lambda: LinuxProcesses(pidfd=False),
    "psutil": PortableProcesses,
}


@pytest.fixture(params=FORMS)
def processes(request: pytest.FixtureRequest) -> ProcessTable:
    return FORMS[request.param]()


def ending_of(processes: ProcessTable, pid: int, **given: Any) -> Ending:
    start_id = processes.observe(pid).start_id
    assert start_id is not None
    return Ending(processes, pid, start_id, poll=0.02, **given)


@pytest.fixture
def ending(processes: ProcessTable) -> Iterator[tuple[Ending, int]]:
    with sleeping_process() as pid:
        one = ending_of(processes, pid)
        yield one, pid
        one.close()


def test_a_process_that_lives_is_waited_for(ending: tuple[Ending, int]) -> None:
    one, _ = ending
    assert not one.wait(0)
    assert not one.wait(0.1)


def test_a_process_that_is_killed_ends_the_wait_reaped_or_not(ending: tuple[Ending, int]) -> None:
    one, pid = ending
    killer = threading.Timer(0.05, os.kill, (pid, signal.SIGKILL))
    killer.start()
    assert one.wait(30)
    assert one.wait(0)
    assert ownership.is_zombie(pid)
    killer.join()


def test_a_stopped_process_has_not_ended(ending: tuple[Ending, int]) -> None:
    one, pid = ending
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: ownership.is_stopped(pid))
    assert not one.wait(0.1)


def test_a_zombie_has_ended(processes: ProcessTable) -> None:
    with zombie() as pid:
        start_id = processes.observe(pid).start_id or ownership.start_id(pid)
        one = Ending(processes, pid, start_id or "", poll=0.02)
        assert one.wait(30)
        one.close()


@needs_linux_root
def test_another_process_with_the_number_is_the_end_too(processes: ProcessTable) -> None:
    with sleeping_process() as pid:
        one = ending_of(processes, pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with reuse_pid(pid):
            assert one.wait(30)
        one.close()


def test_the_end_is_noticed_without_handles_within_one_poll() -> None:
    clock = FakeClock()
    with FakeProcessTable(handles=False) as fake:
        fake.add(2000)
        one = ending_of(fake, 2000, clock=clock)
        assert not one.wait(1.0)
        fake.zombify(2000)
        begun = clock.monotonic()
        assert one.wait(60)
        assert clock.monotonic() - begun <= 0.02
        one.close()


def test_a_handle_that_lies_is_not_believed() -> None:
    clock = FakeClock()
    with FakeProcessTable() as fake:
        fake.add(2000)
        one = ending_of(fake, 2000, clock=clock)
        fake.zombify(2000)
        fake.resume(2000)  # its handle is ready all the same
        assert not one.wait(60)
        fake.kill(2000)
        assert one.wait(60)
        one.close()


def test_a_look_that_fails_is_no_end() -> None:
    clock = FakeClock()
    with FakeProcessTable() as fake:
        fake.add(2000)
        one = ending_of(fake, 2000, clock=clock)
        fake.fail(2000)
        assert not one.wait(60)
        one.close()


class Waits:
    """What psutil waits by on another system."""

    def __init__(self, outcome: Callable[[float], None]) -> None:
        self._outcome = outcome
        self.parent = 1
        self.waited: list[float] = []

    def Process(self, pid: int) -> Any:  # noqa: N802 named as in psutil
        def wait(timeout: float) -> None:
            self.waited.append(timeout)
            self._outcome(timeout)

        return types.SimpleNamespace(wait=wait, ppid=lambda: self.parent)

    def __getattr__(self, name: str) -> Any:
        return getattr(psutil, name)


def test_elsewhere_psutil_waits() -> None:
    def expire(seconds: float) -> None:
        raise psutil.TimeoutExpired(seconds)

    def vanish(seconds: float) -> None:
        raise psutil.NoSuchProcess(5)

    def end(seconds: float) -> None:
        return None

    def deny(seconds: float) -> None:
        raise psutil.AccessDenied(5)

    for outcome, ended in ((expire, False), (vanish, True), (end, True), (deny, False)):
        fake = Waits(outcome)
        assert PortableProcesses(fake).linger(5, 0.01) is ended
        assert fake.waited == [0.01]


def test_a_child_of_ours_is_not_reaped_by_waiting_for_it() -> None:
    fake = Waits(lambda seconds: None)
    fake.parent = os.getpid()
    assert not PortableProcesses(fake).linger(5, 0.01)
    assert fake.waited == []
