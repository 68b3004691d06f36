"""Callbacks and signals: what a callback starts can be ended, and a program that waits for signals gets them all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import leases
import ownership
from ownership.testing import FakeProcessTable
from tests.support.processes import PATIENCE, running
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

Register = Callable[[Path, ExitStack, Callable[..., object]], object]


def of_a_loss(path: Path, stack: ExitStack, callback: Callable[..., object]) -> None:
    claim = ownership.acquire(path)
    stack.callback(claim.release)
    claim.on_loss(callback)
    ownership.break_claim(path, token=claim.token)


def of_a_lease(path: Path, stack: ExitStack, callback: Callable[..., object]) -> None:
    lease = leases.acquire(path, ttl=30)
    stack.callback(lease.release)
    lease.on_loss(callback)
    ownership.break_claim(path, token=lease.token)


def of_a_trip(path: Path, stack: ExitStack, callback: Callable[..., object]) -> None:
    owner = stack.enter_context(
        running("claim = ownership.acquire(sys.argv[1]); say(claim.ref.to_env()); hear()", path)
    )
    ref = ownership.OwnerRef.from_env(owner.hear())
    stack.enter_context(ownership.Fence(ref, on_trip=callback))
    owner.kill()


def of_a_request(path: Path, stack: ExitStack, callback: Callable[..., object]) -> None:
    claim = stack.enter_context(ownership.acquire(path))
    claim.on_stop_request(callback)
    asking = "say(attempt(ownership.replace, sys.argv[1], grace=60)); hear()"
    stack.enter_context(running(asking, path))


def of_a_lost_path(path: Path, stack: ExitStack, callback: Callable[..., object]) -> None:
    owned = stack.enter_context(ownership.listen(path, release="close"))
    owned.on_path_lost(callback)
    path.unlink()


def of_a_task(path: Path, stack: ExitStack, callback: Callable[..., object]) -> None:
    roster = leases.Roster(path)
    task = roster.start("one")
    roster.follow("one", callback)
    task.finish()


def of_a_frozen_peer(path: Path, stack: ExitStack, callback: Callable[..., object]) -> None:
    class Deaf(FakeProcessTable):
        def send(self, pid: int, start_id: str, number: int) -> bool:
            return True

    processes = stack.enter_context(Deaf())
    processes.add(2000)
    processes.stop(2000)
    stack.enter_context(ownership.release_if_frozen(2000, callback, interval=0.02, processes=processes))


WAYS: dict[str, Register] = {
    name.removeprefix("of_a_"): function for name, function in list(globals().items()) if name.startswith("of_a_")
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


class Starter:
    """A callback that starts a program."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *_: object) -> None:
        self.started.append(subprocess.Popen(["sleep", "600"]))
        self.called.set()

    def ended_by(self, number: int) -> int:
        """How the program ends that gets that signal."""
        assert self.called.wait(PATIENCE)
        process = self.started[0]
        try:
            process.send_signal(number)
            return process.wait(5)
        finally:
            process.kill()
            process.wait(PATIENCE)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_callback_starts_ends_by_term(tmp_path: Path, stack: ExitStack, way: str) -> None:
    callback = Starter()
    WAYS[way](tmp_path / "r", stack, callback)
    assert callback.ended_by(signal.SIGTERM) == -signal.SIGTERM


def test_what_a_callback_starts_inherits_what_whoever_registered_it_had_blocked(
    tmp_path: Path, stack: ExitStack
) -> None:
    masks: list[set[int]] = []
    called = threading.Event()

    def callback(*_: object) -> None:
        masks.append({*signal.pthread_sigmask(signal.SIG_BLOCK, ())})
        called.set()

    def register(blocked: set[int], name: str) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        of_a_loss(tmp_path / name, stack, callback)

    for blocked in ({signal.SIGUSR1}, set[int](), {signal.SIGUSR2, signal.SIGTERM}):
        called.clear()
        thread = threading.Thread(target=register, args=(blocked, f"r{len(masks)}"))
        thread.start()
        thread.join()
        assert called.wait(PATIENCE)
        assert masks[-1] == blocked


def test_between_callbacks_their_thread_takes_no_signal(tmp_path: Path, stack: ExitStack) -> None:
    called = threading.Event()
    of_a_loss(tmp_path / "r", stack, lambda _: called.set())
    assert called.wait(PATIENCE)
    tasks = [Path(f"/proc/self/task/{one.native_id}") for one in threading.enumerate() if "ownership-" in one.name]
    assert len(tasks) >= 2
    term = 1 << signal.SIGTERM - 1

    def blocked(task: Path) -> int:
        line = next(one for one in (task / "status").read_text().splitlines() if one.startswith("SigBlk:"))
        return int(line.split()[1], 16)

    eventually(lambda: all(blocked(task) & term for task in tasks))


WAITING = """
import leases
which, path = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
def callback(*_):
    say("called")
    threading.Event().wait()  # until the end
if which == "loss":
    claim = ownership.acquire(path)
    claim.on_loss(callback)
    ownership.break_claim(path, token=claim.token)
else:
    roster = leases.Roster(path)
    task = roster.start("one")
    roster.follow("one", callback)
    task.finish()
while True:
    say(signal.sigwait({signal.SIGTERM, signal.SIGUSR1}))
"""


@pytest.mark.parametrize("which", ["loss", "task"])
def test_a_program_that_waits_for_signals_gets_every_one_while_a_callback_runs(tmp_path: Path, which: str) -> None:
    with running(WAITING, which, tmp_path / "r") as child:
        assert child.hear() == "called"
        for number in (signal.SIGTERM, signal.SIGUSR1) * 20:
            child.signal(number)
            assert child.hear() == number


def test_a_callback_may_be_anything_that_can_be_called(tmp_path: Path) -> None:
    class Odd:
        """Neither hashable, nor with a name."""

        __hash__ = None  # type: ignore[assignment]
        __name__ = 5

        def __init__(self) -> None:
            self.told = threading.Event()

        def __call__(self, *_: object) -> None:
            self.told.set()

    followed, lost, asked = Odd(), Odd(), Odd()
    roster = leases.Roster(tmp_path / "roster")
    roster.start("a").finish()
    roster.follow("a", followed)
    assert followed.told.wait(30)
    claim = ownership.acquire(tmp_path / "x")
    claim.on_stop_request(asked)
    claim.on_loss(lost)
    ownership.break_claim(tmp_path / "x", token=claim.token)
    assert lost.told.wait(30)
