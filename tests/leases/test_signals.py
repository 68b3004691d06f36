"""Signals received one by one, in both ways a system may offer.

They are raised in this thread: the program that runs the tests may have others, which hold nothing back.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import ownership
from leases.commands._child import attend
from leases.commands._signals import PASSED_ON, Inbox, Received, _blocked, _handled
from tests.support.cli import quick
from tests.support.namespaces import elsewhere

Kind = Callable[[], AbstractContextManager[Inbox]]
kinds = pytest.mark.parametrize("kind", [_blocked, _handled])


def state() -> tuple[object, ...]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, []), *map(signal.getsignal, signal.valid_signals())


@kinds
@pytest.mark.parametrize("number", PASSED_ON)
def test_a_signal_arrives_in_the_box_and_nowhere_else(kind: Kind, number: signal.Signals) -> None:
    before = state()
    with kind() as box:
        signal.raise_signal(number)
        assert box.next(10.0) == Received(number)
        assert box.next(0.0) is None
    assert state() == before


@kinds
def test_none_is_lost_and_none_arrives_after_the_end(kind: Kind) -> None:
    with kind() as box:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
        assert {box.next(10.0), box.next(10.0)} == {Received(signal.SIGUSR1), Received(signal.SIGUSR2)}
        signal.raise_signal(signal.SIGTERM)  # nobody asks for it


@kinds
def test_the_end_of_a_child_wakes(kind: Kind) -> None:
    """In a process of one thread, as leasectl is one: another thread might take the signal."""

    def woken() -> tuple[object, bool]:
        with kind() as box:
            pid = os.posix_spawn("/bin/true", ["true"], {})
            begun = time.monotonic()
            received = box.next(60.0)
            assert os.waitpid(pid, 0) == (pid, 0)
            return received, time.monotonic() - begun < 59.0

    assert elsewhere(woken) == (None, True)


@kinds
def test_what_was_ignored_is_ignored_again(kind: Kind) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with kind():
            pass
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@kinds
@pytest.mark.parametrize("number", PASSED_ON)
def test_a_signal_before_exec_ends_the_child_as_one_after_it_would(kind: Kind, number: signal.Signals) -> None:
    """No handler of ours runs in a child that is about to become CMD: what it raised would be told as a bug of ours."""

    def ended() -> int:
        signal.signal(number, signal.default_int_handler)
        with kind() as box:
            if (pid := os.fork()) == 0:
                if kind is _blocked:
                    signal.raise_signal(number)  # stays pending
                box.leave()
                signal.raise_signal(number)
                os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert elsewhere(ended) == -number


@kinds
def test_a_command_is_attended_to_its_end(kind: Kind, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim, kind() as box:
        assert attend(["sh", "-c", "exit 3"], claim, box, 1.0) == (3, None)
        signal.raise_signal(signal.SIGUSR1)  # passed on as soon as it runs
        assert attend(quick("import signal; signal.pause()"), claim, box, 1.0) == (128 + signal.SIGUSR1, None)
