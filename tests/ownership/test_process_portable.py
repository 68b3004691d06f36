"""The psutil form, on a made-up psutil for decisions and on the real one for what every system shares."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ownership._process import Comparison, ProcessState, compare_start_ids
from ownership._process._portable import PortableProcesses, boot_session_uuid
from ownership.testing import reuse_pid, sleeping_process, stopped_process, zombie

STARTED = 1764430000.25


class Process:
    """What psutil would hand out for one number. Values that are exceptions are raised."""

    def __init__(self, started: Any = STARTED, status: Any = "sleeping", cmdline: Any = ()) -> None:
        self.started, self._status, self._cmdline = started, status, cmdline

    def create_time(self) -> float:
        return float(_given(self.started))

    def status(self) -> str:
        return str(_given(self._status))

    def cmdline(self) -> list[str]:
        return list(_given(self._cmdline))


class SteppedProcess(Process):
    """As psutil 7.1 on macOS: the public creation time follows the clock, the inner one does not."""

    @property
    def _proc(self) -> Any:
        return SimpleNamespace(create_time=lambda monotonic: self.started if monotonic else None)

    def create_time(self) -> float:
        return float(self.started) + 120.0


def _given(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def module(find: Callable[[int], Any]) -> Any:
    """A psutil whose ``Process(pid)`` is what *find* returns or raises."""
    names = ["Error", "NoSuchProcess", "ZombieProcess", "AccessDenied"]
    statuses = [name for name in dir(psutil) if name.startswith("STATUS_")]
    return SimpleNamespace(
        Process=lambda pid: _given(find(pid)), **{name: getattr(psutil, name) for name in names + statuses}
    )


def always(found: Any) -> Callable[[int], Any]:
    return lambda pid: found


def table(find: Callable[[int], Any]) -> PortableProcesses:
    return PortableProcesses(module(find))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (psutil.STATUS_RUNNING, ProcessState.RUNNING),
        (psutil.STATUS_SLEEPING, ProcessState.RUNNING),
        (psutil.STATUS_DISK_SLEEP, ProcessState.RUNNING),
        (psutil.STATUS_ZOMBIE, ProcessState.ZOMBIE),
        (psutil.STATUS_DEAD, ProcessState.ZOMBIE),
        (psutil.STATUS_STOPPED, ProcessState.STOPPED),
        (psutil.STATUS_TRACING_STOP, ProcessState.TRACED),
        ("something new", ProcessState.RUNNING),
    ],
)
def test_the_status_of_psutil_becomes_a_state(status: str, expected: ProcessState) -> None:
    seen = table(lambda pid: Process(status=status)).observe(7)
    assert (seen.exists, seen.state, seen.start_id) == (True, expected, f"psutil:{STARTED!r}")


def test_no_such_process_is_gone_at_whatever_step() -> None:
    gone = psutil.NoSuchProcess(7)
    for find in (lambda pid: gone, lambda pid: Process(started=gone), lambda pid: Process(status=gone)):
        seen = table(find).observe(7)
        assert (seen.exists, seen.start_id, seen.state) == (False, None, ProcessState.UNKNOWN)


def test_access_denied_means_that_it_exists_and_no_more() -> None:
    seen = table(lambda pid: Process(status=psutil.AccessDenied(7))).observe(7)
    assert (seen.exists, seen.start_id, seen.state) == (True, f"psutil:{STARTED!r}", ProcessState.UNKNOWN)
    assert seen.detail
    seen = table(lambda pid: Process(started=psutil.AccessDenied(7))).observe(7)
    assert (seen.exists, seen.start_id, seen.state) == (True, None, ProcessState.UNKNOWN)


def test_a_zombie_that_psutil_raises_for_is_a_zombie_and_not_gone() -> None:
    """``ZombieProcess`` is a ``NoSuchProcess`` to psutil."""
    for find in (lambda pid: psutil.ZombieProcess(7), lambda pid: Process(status=psutil.ZombieProcess(7))):
        seen = table(find).observe(7)
        assert (seen.exists, seen.state) == (True, ProcessState.ZOMBIE)


def test_an_error_of_the_system_is_never_death() -> None:
    for error in (OSError(24, "Too many open files"), psutil.Error("odd")):
        seen = table(always(Process(status=error))).observe(7)
        assert (seen.exists, seen.state) == (None, ProcessState.UNKNOWN)
        assert "7" in seen.detail


def test_a_number_that_changes_hands_during_the_look_is_looked_at_again() -> None:
    """The state of the one must not be reported with the start of the other."""
    found = iter([Process(1.0, psutil.STATUS_ZOMBIE), Process(2.0), Process(2.0), Process(2.0)])
    seen = table(lambda pid: next(found)).observe(7)
    assert (seen.state, seen.start_id) == (ProcessState.RUNNING, "psutil:2.0")


def test_a_number_that_changes_hands_at_every_look_is_unknown() -> None:
    numbers = iter(range(1, 100))
    seen = table(lambda pid: Process(float(next(numbers)))).observe(7)
    assert (seen.exists, seen.start_id, seen.state) == (None, None, ProcessState.UNKNOWN)


def test_the_start_id_does_not_follow_the_wall_clock() -> None:
    """psutil adjusts the public creation time to later clock steps on macOS; two readers would disagree."""
    assert table(lambda pid: SteppedProcess()).observe(7).start_id == f"psutil:{STARTED!r}"


def test_there_are_no_handles() -> None:
    assert table(lambda pid: Process()).open_handle(7, f"psutil:{STARTED!r}") is None


def test_the_command_line_is_for_people() -> None:
    assert table(lambda pid: Process(cmdline=["a b", "c\n"])).command_of(7) == "'a b' 'c\\x0a'"
    assert table(lambda pid: Process()).command_of(7) is None
    for error in (psutil.AccessDenied(7), psutil.ZombieProcess(7), OSError(5, "I/O")):
        assert table(always(Process(cmdline=error))).command_of(7) is None


def test_our_identity_has_the_constants_of_a_system_without_namespaces() -> None:
    processes = table(lambda pid: Process())
    me = processes.current()
    assert (me.pid, me.boot_id, me.pid_namespace) == (os.getpid(), "none", "none")
    assert me.start_id == f"psutil:{STARTED!r}"
    assert processes.current() is me


def test_the_boot_id_is_asked_where_there_is_one() -> None:
    assert PortableProcesses(module(lambda pid: Process()), boot_id=lambda: "B-1").current().boot_id == "B-1"
    assert PortableProcesses(module(lambda pid: Process()), boot_id=lambda: None).current().boot_id is None


@pytest.mark.skipif(sys.platform == "darwin", reason="there it is a uuid")
def test_a_boot_session_that_cannot_be_read_is_unknown() -> None:
    assert boot_session_uuid() is None


def test_an_identity_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(OSError, match="creation time"):
        table(lambda pid: Process(started=psutil.AccessDenied(pid))).current()


@pytest.mark.parametrize("pid", [0, -1, True, 1.5, "7", 2**31, None])
def test_what_is_no_process_number_never_reaches_psutil(pid: Any) -> None:
    processes = table(lambda pid: pytest.fail("asked"))
    for call in (processes.observe, processes.command_of, lambda pid: processes.open_handle(pid, "psutil:1.0")):
        with pytest.raises(ValueError, match="pid must be"):
            call(pid)


def test_the_real_psutil_sees_the_same_as_the_kernel() -> None:
    processes = PortableProcesses()
    assert processes.observe(os.getpid()).start_id == processes.current().start_id
    with sleeping_process() as pid:
        before = processes.observe(pid).start_id
        assert processes.observe(pid).state is ProcessState.RUNNING
        assert before is not None
    assert processes.observe(pid).exists is False
    with reuse_pid(pid):
        after = processes.observe(pid).start_id
        assert after is not None
        assert compare_start_ids(before, after) is Comparison.DIFFERENT
    with zombie() as pid:
        assert processes.observe(pid).state is ProcessState.ZOMBIE
    with stopped_process() as pid:
        assert processes.observe(pid).state is ProcessState.STOPPED


def test_the_surroundings_are_the_parent_and_what_psutil_calls_its_state() -> None:
    class Child(Process):
        def ppid(self) -> int:
            return 6

    around = table(always(Child(status=psutil.STATUS_ZOMBIE))).surroundings_of(7)
    assert around is not None
    assert (around.source, around.state, around.parent, around.tracer) == ("psutil", "zombie", 6, None)
    for error in (psutil.NoSuchProcess(7), psutil.AccessDenied(7), OSError(5, "I/O")):
        assert table(always(error)).surroundings_of(7) is None
