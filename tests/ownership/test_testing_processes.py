"""The fakes and the real processes that are shipped for users' tests."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

import ownership.testing
from ownership._process import Comparison, ProcessState, ProcessTable, compare_start_ids, system_processes
from ownership.testing import (
    FakeProcessTable,
    reuse_pid,
    sleeping_process,
    stopped_process,
    wait_until,
    zombie,
)


def ready(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return any(events & select.POLLIN for _, events in poller.poll(0))


def children() -> list[int]:
    """Our children, zombies included, that nobody reaped."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def test_the_list_of_names_is_sorted_and_complete() -> None:
    assert ownership.testing.__all__ == sorted(ownership.testing.__all__)
    assert all(hasattr(ownership.testing, name) for name in ownership.testing.__all__)


# the fake


def test_a_fake_table_is_a_process_table_with_one_process() -> None:
    table: ProcessTable = FakeProcessTable(42)
    me = table.current()
    assert (me.pid, table.observe(42).start_id, table.observe(42).state) == (42, me.start_id, ProcessState.RUNNING)
    assert table.observe(43).exists is False


def test_a_fake_process_has_the_surroundings_it_was_given() -> None:
    table = FakeProcessTable()
    table.add(7)
    table.surround(7, parent=6, tracer=5, frozen_by=("/cgroup/a/cgroup.freeze",))
    table.stop(7)
    around = table.surroundings_of(7)
    assert around is not None
    assert (around.state, around.parent, around.tracer) == ("stopped", 6, 5)
    assert around.frozen_by == ("/cgroup/a/cgroup.freeze",)
    table.fail(7)
    assert table.surroundings_of(7) is None
    assert table.surroundings_of(8) is None


def test_processes_live_stop_and_die_when_told() -> None:
    table = FakeProcessTable()
    start_id = table.add(7, command="worker")
    assert (table.observe(7).start_id, table.command_of(7)) == (start_id, "worker")
    table.stop(7)
    assert table.observe(7).state is ProcessState.STOPPED
    table.resume(7)
    assert table.observe(7).state is ProcessState.RUNNING
    table.set_state(7, ProcessState.FROZEN)
    assert table.observe(7).state is ProcessState.FROZEN
    table.zombify(7)
    assert (table.observe(7).exists, table.observe(7).state) == (True, ProcessState.ZOMBIE)
    table.kill(7)
    assert (table.observe(7).exists, table.command_of(7)) == (False, None)


def test_a_reused_number_has_a_start_id_that_differs_for_certain() -> None:
    table = FakeProcessTable()
    before = table.add(7)
    after = table.reuse(7)
    assert compare_start_ids(before, after) is Comparison.DIFFERENT
    assert table.observe(7).start_id == after


def test_a_failing_probe_tells_nothing_until_it_works_again() -> None:
    table = FakeProcessTable()
    start_id = table.add(7)
    table.fail(7, "stat: EIO")
    seen = table.observe(7)
    assert (seen.exists, seen.start_id, seen.state, seen.detail) == (None, None, ProcessState.UNKNOWN, "stat: EIO")
    assert table.open_handle(7, start_id) is None
    table.fail(7, exists=True)
    assert table.observe(7).exists is True
    table.resume(7)
    assert table.observe(7).start_id == start_id


def test_the_current_identity_can_be_set() -> None:
    table = FakeProcessTable()
    table.become(replace(table.current(), pid=77, pid_namespace=5))
    assert (table.current().pid, table.current().pid_namespace) == (77, 5)
    assert table.observe(77).start_id == table.current().start_id


def test_a_fake_table_notes_what_it_was_asked() -> None:
    table = FakeProcessTable()
    table.observe(7)
    table.observe(8)
    assert table.observed == [7, 8]


def test_a_handle_of_the_fake_gets_ready_when_the_process_ends() -> None:
    with FakeProcessTable() as table:
        ends: list[Callable[[int], object]] = [table.kill, table.zombify, table.reuse]
        for pid, end in enumerate(ends, start=7):
            handle = table.open_handle(pid, table.add(pid))
            assert handle is not None
            assert not os.get_inheritable(handle)
            assert not ready(handle)
            end(pid)
            assert ready(handle)
            os.close(handle)


def test_a_handle_of_a_zombie_is_ready_at_once_and_of_a_stranger_there_is_none() -> None:
    with FakeProcessTable() as table:
        start_id = table.add(7)
        table.zombify(7)
        handle = table.open_handle(7, start_id)
        assert handle is not None
        assert ready(handle)
        os.close(handle)
        with pytest.raises(ProcessLookupError):
            table.open_handle(7, table.add(8))
        with pytest.raises(ProcessLookupError):
            table.open_handle(9, start_id)
    assert FakeProcessTable(handles=False).open_handle(1000, "") is None


def test_a_handle_that_was_closed_does_not_disturb_the_end() -> None:
    table = FakeProcessTable()
    handle = table.open_handle(7, table.add(7))
    assert handle is not None
    os.close(handle)
    table.kill(7)


def test_misuse_of_the_fake_is_told_at_once() -> None:
    table = FakeProcessTable()
    with pytest.raises(ValueError, match="free"):
        table.add(1000)
    with pytest.raises(ValueError, match="not 7"):
        table.kill(7)
    with pytest.raises(ValueError, match="pid must be"):
        table.observe(0)


def test_signals_end_stop_and_continue_processes_as_they_would() -> None:
    with FakeProcessTable() as table:
        start_id = table.add(7)
        table.stop(7)
        assert table.send(7, start_id, signal.SIGTERM)
        assert table.observe(7).state is ProcessState.STOPPED
        assert table.send(7, start_id, signal.SIGCONT)  # now it meets the signal that came before
        assert table.observe(7).exists is False
        start_id = table.add(7, ignores=[signal.SIGTERM], lingers=True)
        assert table.send(7, start_id, signal.SIGTERM)
        assert table.observe(7).state is ProcessState.RUNNING
        assert table.send(7, start_id, signal.SIGKILL)
        assert table.observe(7).state is ProcessState.ZOMBIE
        assert table.send(7, start_id, 0)
        assert [number for _, _, number in table.signals] == [15, 18, 15, 9]


def test_a_signal_reaches_the_process_that_is_meant_or_nobody() -> None:
    with FakeProcessTable() as table:
        start_id = table.add(7)
        table.reuse(7)
        with pytest.raises(ProcessLookupError):
            table.send(7, start_id, signal.SIGTERM)
        table.fail(7, exists=True)
        assert table.send(7, start_id, signal.SIGTERM) is False
        table.add(8, forbidden=True)
        with pytest.raises(PermissionError):
            table.send(8, str(table.observe(8).start_id), 0)
        for pid in (0, 1, 1000):
            with pytest.raises(ValueError, match="pid must be"):
                table.send(pid, start_id, signal.SIGTERM)
        assert table.signals == []


def test_groups_have_members_and_are_signalled_whole() -> None:
    with FakeProcessTable() as table:
        leader = table.add(7)
        table.add(8, group=7)
        table.add(9)
        assert table.own_group() == 1000
        assert [one.pid for one in table.list_group(7).members] == [7, 8]
        assert table.list_group(7).fault == table.list_group(50).fault == ""
        table.conceal("no /proc", hidden=[8])
        assert ([one.pid for one in table.list_group(7).members], table.list_group(7).fault) == ([7], "no /proc")
        handle = table.open_handle(7, leader)
        assert handle is not None
        table.kill(7)
        assert table.send_group_of(handle, 7, leader, signal.SIGTERM)  # led by one that is gone
        assert table.observe(8).exists is False
        table.add(7)
        with pytest.raises(ProcessLookupError):
            table.send_group_of(handle, 7, leader, signal.SIGTERM)
        table.send_group(7, signal.SIGKILL)
        with pytest.raises(ProcessLookupError):
            table.send_group(7, signal.SIGKILL)
        for pgid in (0, 1, 1000):
            with pytest.raises(ValueError, match="pgid must be"):
                table.send_group(pgid, signal.SIGTERM)
        assert table.signals == [("group", 7, signal.SIGTERM), ("group", 7, signal.SIGKILL)]
        os.close(handle)


def test_handles_of_older_kernels_reach_no_groups() -> None:
    with FakeProcessTable(group_handles=False) as table:
        leader = table.add(7)
        handle = table.open_handle(7, leader)
        assert handle is not None
        assert table.send_group_of(handle, 7, leader, signal.SIGTERM) is False
        assert table.observe(7).exists
        os.close(handle)


# the real ones


def test_real_helpers_leave_no_child_behind() -> None:
    before = children()
    for make in (zombie, stopped_process, sleeping_process):
        with make() as pid:
            assert pid in children()
        assert children() == before


def test_real_helpers_reap_their_child_when_the_body_fails() -> None:
    before = children()
    for make in (zombie, stopped_process, sleeping_process):
        with pytest.raises(KeyError), make():
            raise KeyError
    assert children() == before


def test_the_body_may_end_and_reap_the_child_itself() -> None:
    """The number may be another process's by then: nothing is signalled."""
    with sleeping_process() as pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with reuse_pid(pid):
            stranger = system_processes().observe(pid).start_id
    with sleeping_process() as pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        outer = reuse_pid(pid)
        outer.__enter__()
    assert system_processes().observe(pid).state is ProcessState.RUNNING
    outer.__exit__(None, None, None)
    assert stranger is not None


def test_a_stopped_process_runs_again_when_continued() -> None:
    with stopped_process() as pid:
        assert system_processes().observe(pid).state is ProcessState.STOPPED
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: system_processes().observe(pid).state is ProcessState.RUNNING)


def test_a_number_still_in_use_is_not_reused() -> None:
    with sleeping_process() as pid, pytest.raises(RuntimeError, match="still in use"), reuse_pid(pid):
        pass
    with zombie() as pid, pytest.raises(RuntimeError, match="reap it"), reuse_pid(pid):
        pass


def test_numbers_are_reused_again_and_again_and_never_taken_for_one_process() -> None:
    with sleeping_process() as pid:
        seen = [system_processes().observe(pid).start_id]
    for _ in range(5):
        with reuse_pid(pid) as again:
            assert again == pid
            seen.append(system_processes().observe(pid).start_id)
    assert None not in seen
    for n, one in enumerate(seen):
        for other in seen[n + 1 :]:
            assert compare_start_ids(str(one), str(other)) is Comparison.DIFFERENT


def test_waiting_ends_with_the_condition_or_with_an_error() -> None:
    looks = iter([False, False, True])
    wait_until(lambda: next(looks))
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        wait_until(lambda: False, timeout=0.02)
    assert time.monotonic() - started < 2
