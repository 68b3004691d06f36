"""Who waits is seen by others, for as long as it waits, and is in nobody's way."""

from __future__ import annotations

import os
from pathlib import Path

import ownership
from tests.support.processes import Contender, open_descriptors, opened_since
from tests.support.waiting import eventually


def test_waiting_processes_are_counted_until_they_own_or_give_up(tmp_path: Path) -> None:
    assert ownership.waiters(tmp_path) == {}
    claim = ownership.acquire(tmp_path / "x")
    idle = ownership.acquire(tmp_path / "y")
    before = sorted(os.listdir(tmp_path / ".leases"))
    with Contender() as first, Contender() as second:
        first.start("acquire", tmp_path / "x", timeout=30)
        second.start("acquire", tmp_path / "x", timeout=30)
        eventually(lambda: ownership.waiters(tmp_path) == {tmp_path / "x": 2})
        assert ownership.waiters(tmp_path / ".leases") == {tmp_path / "x": 2}
        claim.announce("serving")  # another file: they go on waiting for that one
        eventually(lambda: ownership.waiters(tmp_path) == {tmp_path / "x": 2})
        assert sorted(os.listdir(tmp_path / ".leases")) == before
        claim.release()
        eventually(lambda: ownership.waiters(tmp_path) == {tmp_path / "x": 1})
    idle.release()


def test_a_waiter_that_is_killed_counts_no_more(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        with Contender() as contender:
            contender.start("acquire", tmp_path / "x", timeout=30)
            eventually(lambda: ownership.waiters(tmp_path) == {tmp_path / "x": 1})
        assert ownership.waiters(tmp_path) == {}


def test_a_waiter_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        before = open_descriptors()
        for _ in range(5):
            try:
                ownership.wait(tmp_path / "x", timeout=0.01)
            except ownership.AcquireTimeoutError:
                pass
        eventually(lambda: opened_since(before) == [])
