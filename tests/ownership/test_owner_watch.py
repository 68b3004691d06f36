"""Being woken when one of several owners ends: once for each, by others, and never by a stranger."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from ownership import OwnerIdentity, OwnerWatch
from ownership._process import Identity
from ownership.testing import FakeProcessTable, sleeping_process
from tests.support.records import identity

LONG = 30.0


def named(found: Identity) -> OwnerIdentity:
    return OwnerIdentity(**{name: getattr(found, name, None) for name in OwnerIdentity.model_fields})


@pytest.fixture
def table() -> Iterator[FakeProcessTable]:
    with FakeProcessTable() as found:
        yield found


def other(table: FakeProcessTable, pid: int) -> OwnerIdentity:
    found = named(FakeProcessTable(pid=pid).current())
    table.add(pid, start_id=found.start_id)
    return found


def test_whoever_ends_wakes_it_once(table: FakeProcessTable) -> None:
    first, second = other(table, 2000), other(table, 3000)
    watch = OwnerWatch(processes=table)
    assert watch.add(first)
    assert watch.add(first)
    assert watch.add(second)
    assert watch.wait(0) == frozenset()
    table.kill(2000)
    assert watch.wait(LONG) == {first.instance_id}
    assert watch.wait(0) == frozenset()
    table.zombify(3000)
    assert watch.wait(LONG) == {second.instance_id}
    watch.discard(first)
    watch.close()


def test_whoever_is_watched_no_more_wakes_nobody(table: FakeProcessTable) -> None:
    first = other(table, 2000)
    watch = OwnerWatch(processes=table)
    watch.add(first)
    watch.discard(first)
    watch.discard(first)
    table.kill(2000)
    assert watch.wait(0) == frozenset()


def test_where_there_are_no_handles_nothing_wakes_it() -> None:
    with FakeProcessTable(handles=False) as table:
        watch = OwnerWatch(processes=table)
        assert not watch.add(other(table, 2000))
        assert not watch.add(other(table, 3000).model_copy(update={"pid_namespace": 7}))
        table.kill(2000)
        assert watch.wait(0) == frozenset()
        watch.close()


def test_it_is_woken_before_and_while_it_waits(table: FakeProcessTable) -> None:
    watch = OwnerWatch(processes=table)
    began = time.monotonic()
    watch.wake()
    watch.wait(LONG)
    waker = threading.Timer(0.05, watch.wake)
    waker.start()
    watch.wait(LONG)
    waker.join()
    assert time.monotonic() - began < LONG
    watch.close()


def test_a_real_end_wakes_it_unreaped() -> None:
    with sleeping_process() as pid:
        watch, owner = OwnerWatch(), identity(pid)
        if not watch.add(owner):
            pytest.skip("no pidfd here")
        os.kill(pid, signal.SIGKILL)
        assert watch.wait(LONG) == {owner.instance_id}
        watch.close()
