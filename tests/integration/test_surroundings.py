"""Who decides about a process, as the kernel tells it: who has to reap it, who traces it, what keeps it frozen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ownership._process import lock_holder, lock_holders, locked_file, system_processes
from ownership._process._linux import LinuxProcesses
from ownership._process._portable import PortableProcesses
from ownership._system import lock_shared
from ownership.testing import sleeping_process, stopped_process, wait_until, zombie
from tests.integration.test_process_facts import cgroup, is_frozen, traced
from tests.support.namespaces import needs_linux_root, run

pytestmark = needs_linux_root


def test_a_zombie_has_the_parent_that_did_not_reap_it() -> None:
    with zombie() as pid:
        for table in (system_processes(), LinuxProcesses(pidfd=False), PortableProcesses(psutil)):
            around = table.surroundings_of(pid)
            assert around is not None
            assert (around.parent, around.tracer, around.frozen_by) == (os.getpid(), None, ())
        assert system_processes().surroundings_of(pid).state == "Z (zombie)"  # type: ignore[union-attr]


def test_a_stopped_process_is_in_the_state_that_the_kernel_calls_so() -> None:
    with stopped_process() as pid:
        around = system_processes().surroundings_of(pid)
    assert around is not None
    assert (around.source, around.state) == (f"/proc/{pid}/status", "T (stopped)")


def test_a_traced_process_has_a_tracer() -> None:
    with sleeping_process() as pid, traced(pid):
        around = system_processes().surroundings_of(pid)
    assert around is not None
    assert (around.tracer, around.state) == (os.getpid(), "t (tracing stop)")


@pytest.mark.parametrize(
    ("version", "switch", "on", "off"), [(1, "freezer.state", "FROZEN", "THAWED"), (2, "cgroup.freeze", "1", "0")]
)
@pytest.mark.parametrize("above", [False, True])
def test_a_frozen_process_is_frozen_by_its_cgroup_or_by_one_above(
    version: int, switch: str, on: str, off: str, above: bool
) -> None:
    table = LinuxProcesses()
    with cgroup(version) as path, sleeping_process() as pid:
        inner = path / "inner"
        inner.mkdir()
        (inner / "cgroup.procs").write_text(str(pid))
        frozen = path if above else inner
        assert table.surroundings_of(pid).frozen_by == ()  # type: ignore[union-attr]
        (frozen / switch).write_text(on)
        try:
            wait_until(lambda: is_frozen(table, pid))
            around = table.surroundings_of(pid)
        finally:
            (frozen / switch).write_text(off)
            os.kill(pid, 9)
            wait_until(lambda: not (inner / "cgroup.procs").read_text())
            inner.rmdir()
    assert around is not None
    assert around.frozen_by == (str(frozen / switch),)


def test_what_is_not_there_or_hidden_has_no_surroundings() -> None:
    with sleeping_process() as pid:
        seen = run(
            "from ownership._process import system_processes as table; say(table().surroundings_of(int(sys.argv[1])))",
            pid,
            prefix=("unshare", "-pf", "--kill-child"),  # with the /proc of the namespace outside
        )
        assert seen is None
    with zombie() as pid:
        pass
    assert system_processes().surroundings_of(pid) is None
    assert PortableProcesses(psutil).surroundings_of(pid) is None


def test_every_lock_has_the_pid_that_took_it(tmp_path: Path) -> None:
    numbers = [os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in ("one", "two", "free")]
    try:
        assert all(lock_shared(number) for number in numbers[:2])
        files = [os.fstat(number) for number in numbers]
        held = lock_holders()
        assert [held.get(locked_file(one.st_dev, one.st_ino)) for one in files] == [os.getpid(), os.getpid(), None]
        assert [lock_holder(one.st_dev, one.st_ino) for one in files] == [os.getpid(), os.getpid(), None]
    finally:
        for number in numbers:
            os.close(number)


def test_locks_of_processes_outside_our_namespace_are_not_shown(tmp_path: Path) -> None:
    number = os.open(tmp_path / "one", os.O_CREAT | os.O_RDWR)
    try:
        assert lock_shared(number)
        body = "from ownership._process import lock_holders; print(len(lock_holders()))"
        done = subprocess.run(
            ["unshare", "-pf", "--mount-proc", "--kill-child", sys.executable, "-c", body],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == "0"
    finally:
        os.close(number)
