"""At every call that ``stop`` makes to the kernel, in turn, its owner dies and its number is given to somebody else.

On a kernel whose pidfds reach groups nobody else is ever hit, and nobody is left unseen. Always on is a sample of the
calls; ``-m slow`` takes every one.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ownership
from ownership import StopTimeoutError
from ownership._process._kernel import Kernel
from ownership._process._linux import LinuxProcesses
from ownership.testing import wait_until
from tests.support.families import Family, family, needs_group_pidfds
from tests.support.records import identity

pytestmark = needs_group_pidfds

WATCHED = ("pidfd_open", "pidfd_send_signal", "killpg", "kill", "getpgid", "getpgrp", "listdir", "ready")


class Counting(Kernel):
    """Does something right before the call that is due; the calls of a ``stop`` are counted from 1."""

    def __init__(self) -> None:
        self.count, self.due, self.happens = 0, 0, lambda: None

    def arm(self, due: int, happens: Callable[[], None]) -> None:
        self.count, self.due, self.happens = 0, due, happens

    @property
    def fired(self) -> bool:
        return self.count >= self.due

    def step(self) -> None:
        self.count += 1
        if self.count == self.due:
            self.happens()


def _counted(name: str) -> Callable[..., Any]:
    def call(self: Counting, *arguments: Any) -> Any:
        self.step()
        return getattr(Kernel, name)(self, *arguments)

    return call


for _name in WATCHED:
    setattr(Counting, _name, _counted(_name))


def die(group: Family) -> None:
    group.process.kill()
    group.reap()


def all_die(group: Family) -> None:
    die(group)
    for pid in group.children:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not group.living)


@contextlib.contextmanager
def replaced(group: Family, *words: str) -> Iterator[Family]:
    """The leader dies and a stranger's group gets its number."""
    die(group)
    with family(1, *words, pid=group.pid) as stranger:
        if words:
            stranger.reap()
        yield stranger


def one_race(kernel: Counting, due: int, event: str) -> bool:
    """Whether the call *due* was made; then *event* happened right before it, and everything was as it should be."""
    processes = LinuxProcesses(kernel=kernel)
    processes.current()
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(family(0 if event in STRANGERS else 2, "deaf"))
        who = identity(group.pid)
        strangers: list[Family] = []

        def happens() -> None:
            if event in STRANGERS:
                strangers.append(stack.enter_context(replaced(group, *STRANGERS[event])))
            else:
                EVENTS[event](group)

        kernel.arm(due, happens)
        try:
            report = ownership.stop(who, 0.01, processes=processes)
        except StopTimeoutError as error:  # gone before anything was held: it cannot be told whose group that is
            report = error.report
        fired = kernel.fired
        kernel.arm(0, lambda: None)
        if report.gone:
            assert group.living == []
        else:
            assert report.signalled == ()
            assert {one.pid for one in report.survivors} == {pid for one in [group, *strangers] for pid in one.living}
        for stranger in strangers:
            assert stranger.living == stranger.children
            assert STRANGERS[event] or ownership.is_alive(stranger.pid)
        return fired


EVENTS: dict[str, Callable[[Family], None]] = {"leader dies": die, "all die": all_die}
STRANGERS: dict[str, tuple[str, ...]] = {"stranger": (), "leaderless stranger": ("brief",)}


def sweep(event: str, stride: int) -> None:
    kernel, due = Counting(), 1
    while one_race(kernel, due, event):
        due += stride
    assert due > 30  # there were calls to disturb


@pytest.mark.parametrize("event", [*EVENTS, *STRANGERS])
def test_whatever_dies_in_between_nobody_else_is_hit(event: str) -> None:
    sweep(event, 13)


@pytest.mark.slow
@pytest.mark.parametrize("event", [*EVENTS, *STRANGERS])
def test_whatever_dies_at_any_call_nobody_else_is_hit(event: str) -> None:
    sweep(event, 1)
