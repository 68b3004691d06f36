"""Peers that are frozen, slow, held by a tracer or out of sight: what a wait for them does, and how often."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import ownership
from leases import release_if_frozen as the_same
from ownership import FrozenWait, OwnerIdentity, release_if_frozen
from ownership._frozen import Freeze, Step
from ownership._process import PortableProcesses, system_processes
from ownership.testing import FakeProcessTable, ProcessState, sleeping_process
from tests.support.waiting import eventually

PEER = 2000


@pytest.fixture
def processes() -> Iterator[FakeProcessTable]:
    with FakeProcessTable() as table:
        table.add(PEER)
        yield table


def waiting(processes: FakeProcessTable, released: list[FrozenWait] | None = None) -> FrozenWait:
    """A wait whose looks are taken by the test."""
    told = [] if released is None else released
    wait = release_if_frozen(PEER, told.append, confirmations=3, processes=processes)
    wait._hand_on = wait._run
    return wait


def looks(wait: FrozenWait, count: int) -> None:
    for _ in range(count):
        wait.look()


# the counting


def test_it_is_resumed_once_and_given_up_after_further_confirmations() -> None:
    freeze = Freeze(3, resumes=True)
    steps = [freeze.found(stopped=True) for _ in range(8)]
    assert steps == [Step.RESUME, Step.NOTHING, Step.NOTHING, Step.GIVE_UP, *[Step.NOTHING] * 4]


def test_confirmations_follow_each_other() -> None:
    freeze = Freeze(2, resumes=False)
    found = [True, False, True, False, True, True]
    assert [freeze.found(stopped=one) for one in found] == [Step.NOTHING] * 5 + [Step.GIVE_UP]


def test_a_second_freeze_is_not_resumed_again() -> None:
    freeze = Freeze(2, resumes=True)
    assert freeze.found(stopped=True) is Step.RESUME
    assert freeze.found(stopped=False) is Step.NOTHING
    assert freeze.found(stopped=True) is Step.NOTHING
    assert freeze.found(stopped=True) is Step.GIVE_UP


# the looks


def test_a_stopped_peer_gets_one_signal_and_is_released_after_three_more_looks(processes: FakeProcessTable) -> None:
    released: list[FrozenWait] = []
    wait = waiting(processes, released)
    processes.stop(PEER)
    wait.look()
    assert wait.resumed
    processes.stop(PEER)  # the fake obeys SIGCONT: stop it again
    looks(wait, 2)
    assert not released
    wait.look()
    assert released == [wait]
    assert wait.released.is_set()
    looks(wait, 10)
    assert released == [wait]


@pytest.mark.parametrize(
    "state", [ProcessState.RUNNING, ProcessState.TRACED, ProcessState.DUMPING, ProcessState.ZOMBIE]
)
def test_whoever_is_not_stopped_is_left_alone_for_ever(processes: FakeProcessTable, state: ProcessState) -> None:
    released: list[FrozenWait] = []
    wait = waiting(processes, released)
    processes.set_state(PEER, state)
    looks(wait, 100)
    assert not released
    assert not wait.resumed


def test_whoever_cannot_be_looked_at_is_left_alone(processes: FakeProcessTable) -> None:
    released: list[FrozenWait] = []
    wait = waiting(processes, released)
    processes.stop(PEER)
    processes.fail(PEER, exists=True)
    looks(wait, 100)
    assert not released
    assert not wait.resumed


def test_a_stopped_process_that_has_the_number_now_is_not_the_peer(processes: FakeProcessTable) -> None:
    released: list[FrozenWait] = []
    wait = waiting(processes, released)
    processes.reuse(PEER)
    processes.stop(PEER)
    looks(wait, 100)
    assert not released
    assert not wait.resumed


def test_a_peer_of_another_namespace_is_out_of_sight(processes: FakeProcessTable) -> None:
    released: list[FrozenWait] = []
    wait = waiting(processes, released)
    processes.stop(PEER)
    processes.become(replace(processes.current(), pid_namespace=1))
    looks(wait, 100)
    assert not released
    assert not wait.resumed


def test_after_the_block_nothing_is_released(processes: FakeProcessTable) -> None:
    released: list[FrozenWait] = []
    with release_if_frozen(PEER, released.append, interval=1000, confirmations=1, processes=processes) as wait:
        processes.stop(PEER)
        wait.look()
        processes.stop(PEER)
        handed: list[Any] = []
        wait._hand_on = lambda: handed.append(wait._run)
        wait.look()
        assert wait.released.is_set()
    for run in handed:
        run()  # too late: a later wait of the same name may have begun
    looks(wait, 10)
    assert released == []


def test_a_wait_begins_once(processes: FakeProcessTable) -> None:
    wait = release_if_frozen(PEER, print, processes=processes)
    with wait:
        pass
    with pytest.raises(RuntimeError, match="begun"):
        wait.__enter__()


# the real thing


def test_a_stopped_process_is_let_go_on_and_its_answer_delivered() -> None:
    with sleeping_process() as pid:
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: ownership.is_stopped(pid))
        released: list[FrozenWait] = []
        with release_if_frozen(pid, released.append, interval=0.02) as wait:
            eventually(lambda: not ownership.is_stopped(pid))
        assert wait.resumed
        assert not released


def test_a_process_that_is_stopped_again_and_again_releases_the_wait_whose_answer_still_counts() -> None:
    waits: dict[str, FrozenWait] = {}
    answer: queue.Queue[str] = queue.Queue()
    done = threading.Event()

    def release(wait: FrozenWait) -> None:
        if waits.get("session") is wait:
            del waits["session"]
        answer.put("after all")
        done.set()

    with sleeping_process() as pid:
        stopping = threading.Thread(target=lambda: keep_stopped(pid, done))
        stopping.start()
        with release_if_frozen(pid, release, interval=0.02, confirmations=2) as wait:
            waits["session"] = wait
            assert answer.get(timeout=30) == "after all"
        stopping.join()
    assert waits == {}
    assert wait.resumed
    assert wait.released.is_set()


def keep_stopped(pid: int, done: threading.Event) -> None:
    while not done.wait(0.001):
        os.kill(pid, signal.SIGSTOP)


def test_in_async_code_the_loop_releases() -> None:
    async def main(pid: int) -> tuple[bool, str]:
        where: list[Any] = []
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def release(wait: FrozenWait) -> None:
            where.append(asyncio.get_running_loop())
            reply.set_result("given up")

        async with release_if_frozen(pid, release, interval=0.02, confirmations=1):
            answer = await asyncio.wait_for(reply, 30)
        return where == [asyncio.get_running_loop()], answer

    done = threading.Event()
    with sleeping_process() as pid:
        stopping = threading.Thread(target=lambda: keep_stopped(pid, done))
        stopping.start()
        try:
            assert asyncio.run(main(pid)) == (True, "given up")
        finally:
            done.set()
            stopping.join()


# arguments


def test_the_sister_package_offers_it_too() -> None:
    assert the_same is release_if_frozen


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"interval": 0}, "interval must be a number of seconds >= 0.01, got 0"),
        ({"interval": "2"}, "interval"),
        ({"confirmations": 0}, "confirmations must be a whole number >= 1, got 0"),
        ({"confirmations": True}, "confirmations"),
        ({"release": 5}, "release must be callable, got 5"),
        ({"peer": 0}, "peer must be an integer"),
        ({"peer": True}, "peer"),
    ],
)
def test_arguments_that_cannot_be_right_are_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        release_if_frozen(**{"peer": os.getpid(), "release": print, **given})


def test_a_pid_that_is_free_is_no_peer(processes: FakeProcessTable) -> None:
    with pytest.raises(ProcessLookupError, match="no process 4000"):
        release_if_frozen(4000, print, processes=processes)


def test_a_peer_may_be_named_by_its_identity(processes: FakeProcessTable) -> None:
    seen, me = processes.observe(PEER), processes.current()
    assert seen.start_id is not None
    peer = OwnerIdentity(
        pid=PEER, start_id=seen.start_id, instance_id="0" * 32, boot_id=me.boot_id, pid_namespace=me.pid_namespace
    )
    released: list[FrozenWait] = []
    wait = release_if_frozen(peer, released.append, confirmations=1, processes=processes)
    wait._hand_on = wait._run
    processes.stop(PEER)
    wait.look()
    processes.stop(PEER)
    wait.look()
    assert released == [wait]


def test_whoever_runs_between_two_looks_is_slow_and_not_frozen() -> None:
    """As under cpulimit(1), which stops and continues a process all the time."""
    for resumes in (True, False):
        freeze = Freeze(2, resumes=resumes)
        steps = [freeze.found(stopped=True, activity=number) for number in range(50)]
        assert Step.GIVE_UP not in steps
        assert steps.count(Step.RESUME) == resumes
        assert freeze.found(stopped=True, activity=50) is Step.NOTHING
        assert freeze.found(stopped=True, activity=50) is Step.NOTHING
        assert freeze.found(stopped=True, activity=50) is Step.GIVE_UP


def test_activity_grows_when_a_process_runs_and_not_while_it_is_stopped() -> None:
    for processes in (system_processes(), PortableProcesses()):
        with sleeping_process() as pid:
            os.kill(pid, signal.SIGSTOP)
            eventually(lambda pid=pid: ownership.is_stopped(pid))
            before = processes.activity(pid)
            assert before is not None
            assert processes.activity(pid) == before
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGSTOP)
            eventually(lambda pid=pid: ownership.is_stopped(pid))
            after = processes.activity(pid)
            assert after is not None
            assert after > before
        assert processes.activity(pid) is None


def test_a_coroutine_function_cannot_release() -> None:
    async def release(wait: FrozenWait) -> None:
        pass

    with pytest.raises(ValueError, match="coroutine"):
        release_if_frozen(os.getpid(), release)
