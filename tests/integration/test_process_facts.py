"""What the kernel really does with processes, and that the probes see it. Linux, as root.

Scenes that need another user, namespace, mount or clock run in a program of their own, which prints what it saw.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ownership._process as process
from ownership._process import Comparison, ProcessState, compare_start_ids, system_processes
from ownership._process._linux import LinuxProcesses
from ownership.testing import reuse_pid, sleeping_process, stopped_process, wait_until, zombie
from tests.support import warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="facts about Linux")

ROOT = str(Path(process.__file__).resolve().parents[2])
NOBODY = 65534
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
PRELUDE = f"""\
import ctypes, errno, json, os, signal, sys, threading, time
sys.path.insert(0, {ROOT!r})
from ownership._process import ProcessState, compare_start_ids, system_processes
from ownership._process._linux import LinuxProcesses
import ownership._process as process
system = system_processes()
def seen(pid, table=system):
    found = table.observe(pid)
    return [found.exists, found.state.value, found.start_id]
def say(*values):
    print(json.dumps(values if len(values) > 1 else values[0]), flush=True)
"""


def begun(body: str, arguments: tuple[object, ...], prefix: tuple[str, ...], **options: Any) -> Any:
    """The process of *body*."""
    return warm.start(PRELUDE + textwrap.dedent(body), [*map(str, arguments)], prefix=prefix, text=True, **options)


def run(body: str, *arguments: object, prefix: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Any:
    """Run *body* as a program of its own and return what it said."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return json.loads(warm.finish(begun(body, arguments, prefix, env={**os.environ, **(env or {})}, **pipes)))


@contextmanager
def running(body: str, *arguments: object, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Start *body* as a program of its own, to be talked to line by line; killed and reaped at exit."""
    with begun(body, arguments, prefix, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def said(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


def tell(child: subprocess.Popen[str], line: str = "") -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def both() -> list[LinuxProcesses]:
    """The form with pidfds and the one without."""
    return [LinuxProcesses(), LinuxProcesses(pidfd=False)]


def start_of(pid: int) -> str:
    found = system_processes().observe(pid).start_id
    assert found is not None
    return found


def state_of(pid: int) -> ProcessState:
    return system_processes().observe(pid).state


# exits


def test_a_zombie_is_a_zombie_and_keeps_its_start_id() -> None:
    with sleeping_process() as pid:
        before = start_of(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert start_of(pid) == before
        for table in both():
            assert table.observe(pid).state is ProcessState.ZOMBIE


def test_a_zombie_of_a_stopped_parent_is_a_zombie() -> None:
    """Nobody will reap it, and signal 0 finds it for ever."""
    body = """
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        say(child)
        os.kill(os.getpid(), signal.SIGSTOP)
        """
    with running(body) as parent:
        pid = said(parent)
        wait_until(lambda: state_of(parent.pid) is ProcessState.STOPPED)
        os.kill(pid, 0)
        assert state_of(pid) is ProcessState.ZOMBIE


LEADER_EXITS = """
    import ctypes
    reader, writer = os.pipe()
    def work():
        os.read(reader, 1)
        {at_end}
    threading.Thread(target=work).start()
    say(os.getpid())
    ctypes.CDLL(None).syscall(60, 0)
    """


def leader_exited(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2].startswith(b"Z")


def test_an_exited_leader_with_a_working_thread_is_alive() -> None:
    """Its stat line says ``Z`` as long as any thread works; then it is a zombie at once."""
    with running(LEADER_EXITS.format(at_end="os._exit(0)")) as child:
        pid = said(child)
        wait_until(lambda: leader_exited(pid))
        for table in both():
            assert table.observe(pid).state is ProcessState.RUNNING
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) is ProcessState.STOPPED)
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: state_of(pid) is ProcessState.RUNNING)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        for table in both():
            assert table.observe(pid).state is ProcessState.ZOMBIE


def test_a_process_whose_leader_has_exited_still_knows_itself_fully() -> None:
    """``/proc/self`` is the exited leader, which has left its namespaces."""
    body = """
        import ctypes
        def work():
            while True:
                with open("/proc/self/stat", "rb") as file:
                    if file.read().rpartition(b") ")[2].startswith(b"Z"):
                        break
            me = system.current()
            say(me.start_id, me.pid_namespace, seen(os.getpid()))
            os._exit(0)
        threading.Thread(target=work).start()
        say(os.getpid())
        ctypes.CDLL(None).syscall(60, 0)
        """
    with running(body) as child:
        pid = said(child)
        start_id, namespace, itself = said(child)
        assert start_id == start_of(pid)
        assert namespace == system_processes().current().pid_namespace
        assert itself == [True, "running", start_id]


def test_a_process_that_lives_on_in_ever_new_threads_is_never_a_zombie() -> None:
    """Its leader has exited, and each thread starts another one and ends: no listing of them is ever complete."""
    body = """
        import _thread, ctypes
        def work():
            try:
                _thread.start_new_thread(work, ())
            except RuntimeError:
                work()
        for _ in range(3):
            _thread.start_new_thread(work, ())
        say(os.getpid())
        ctypes.CDLL(None).syscall(60, 0)
        """
    with running(body) as child:
        pid = said(child)
        wait_until(lambda: leader_exited(pid))
        for table in both():
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline:
                assert table.observe(pid).state is ProcessState.RUNNING


@pytest.mark.parametrize("leader", ["dumps", "has exited"])
def test_a_core_dump_in_progress_is_no_death(tmp_path: Path, leader: str) -> None:
    """A dump of 192 MiB takes long enough to be looked at. Until it is written the process is not gone."""
    body = """
        import ctypes, mmap, resource
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.chdir(sys.argv[1])
        memory = mmap.mmap(-1, 192 << 20)
        for page in range(0, len(memory), 4096):
            memory[page] = 1
        def work():
            sys.stdin.readline()
            os.kill(os.getpid(), signal.SIGABRT)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        say(os.getpid())
        if sys.argv[2] == "dumps":
            work()
        threading.Thread(target=work).start()
        ctypes.CDLL(None).syscall(60, 0)
        """
    with running(body, tmp_path, leader) as child:
        pid = said(child)
        before = start_of(pid)
        if leader == "has exited":
            wait_until(lambda: leader_exited(pid))
        tell(child)
        seen = set()
        deadline = time.monotonic() + 60
        while (state := state_of(pid)) is not ProcessState.ZOMBIE and time.monotonic() < deadline:
            assert start_of(pid) == before
            seen.add(state)
        assert ProcessState.DUMPING in seen
        assert seen <= {ProcessState.DUMPING, ProcessState.RUNNING}
        for core in tmp_path.iterdir():
            core.unlink()


# stops


def test_a_stopped_process_is_stopped_and_runs_again() -> None:
    with stopped_process() as pid:
        for table in both():
            assert table.observe(pid).state is ProcessState.STOPPED
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: state_of(pid) is ProcessState.RUNNING)


def test_a_stopped_process_with_threads_is_stopped() -> None:
    body = """
        for _ in range(3):
            threading.Thread(target=sys.stdin.readline, daemon=True).start()
        say(os.getpid())
        time.sleep(600)
        """
    with running(body) as child:
        said(child)
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(child.pid) is ProcessState.STOPPED)
        assert LinuxProcesses(pidfd=False).observe(child.pid).state is ProcessState.STOPPED


@contextmanager
def traced(thread: int) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(PTRACE_ATTACH, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        os.waitpid(thread, 0x40000000)  # __WALL
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, thread, None, None)


def test_a_traced_process_is_traced() -> None:
    with sleeping_process() as pid:
        with traced(pid):
            for table in both():
                assert table.observe(pid).state is ProcessState.TRACED
        wait_until(lambda: state_of(pid) is ProcessState.RUNNING)


def test_a_process_of_which_one_thread_is_traced_is_running() -> None:
    body = """
        threading.Thread(target=sys.stdin.readline, daemon=True).start()
        say(os.getpid())
        time.sleep(600)
        """
    with running(body) as child:
        said(child)
        with traced(child.pid):
            assert state_of(child.pid) is ProcessState.RUNNING
            os.kill(child.pid, signal.SIGSTOP)
            wait_until(lambda: state_of(child.pid) is ProcessState.TRACED)


@contextmanager
def cgroup(version: int) -> Iterator[Path]:
    """A fresh cgroup with a freezer; the test is skipped only if none can be made."""
    path = new_cgroup(version)
    if path is None:
        pytest.skip(f"no cgroup v{version} with a freezer can be made here")
    try:
        yield path
    finally:
        wait_until(lambda: _removed(path))


def new_cgroup(version: int) -> Path | None:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, filesystem, options, *_ = line.split()
        if filesystem == "cgroup2" if version == 2 else filesystem == "cgroup" and "freezer" in options.split(","):
            path = Path(mount_point) / f"process-facts-{os.getpid()}"
            try:
                path.mkdir()
            except OSError:
                continue
            return path
    return None


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def is_frozen(table: LinuxProcesses, pid: int) -> bool:
    return table.observe(pid).state is ProcessState.FROZEN


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_process_in_a_frozen_cgroup_is_frozen(version: int, threads: int) -> None:
    body = f"""
        for _ in range({threads - 1}):
            threading.Thread(target=sys.stdin.readline, daemon=True).start()
        say(os.getpid())
        time.sleep(600)
        """
    with cgroup(version) as path, running(body) as child:
        said(child)
        (path / "cgroup.procs").write_text(str(child.pid))
        switch, on, off = ("cgroup.freeze", "1", "0") if version == 2 else ("freezer.state", "FROZEN", "THAWED")
        assert state_of(child.pid) is ProcessState.RUNNING
        (path / switch).write_text(on)
        try:
            for table in both():
                wait_until(partial(is_frozen, table, child.pid))
        finally:
            (path / switch).write_text(off)
        wait_until(lambda: state_of(child.pid) is ProcessState.RUNNING)


# identity


def test_a_reused_number_is_another_process() -> None:
    with sleeping_process() as pid:
        before = start_of(pid)
        handle = system_processes().open_handle(pid, before)
    assert handle is not None
    assert select.select([handle], [], [], 5)[0]
    os.close(handle)
    for _ in range(3):
        with reuse_pid(pid):
            assert compare_start_ids(before, start_of(pid)) is Comparison.DIFFERENT
            with pytest.raises(ProcessLookupError):
                system_processes().open_handle(pid, before)
            before = start_of(pid)
    with pytest.raises(ProcessLookupError):
        system_processes().open_handle(pid, before)


def test_a_handle_waits_for_the_end_and_is_not_inherited() -> None:
    with sleeping_process() as pid:
        handle = system_processes().open_handle(pid, start_of(pid))
        assert handle is not None
        assert not os.get_inheritable(handle)
        assert not select.select([handle], [], [], 0)[0]
        os.kill(pid, signal.SIGKILL)
        assert select.select([handle], [], [], 5)[0]
        os.close(handle)


@pytest.mark.parametrize("title", ["a) Z 1 (b", ") Z 0 0", "((((", "x y z", "\\n"])
def test_a_process_title_changes_nothing(title: str) -> None:
    body = """
        import ctypes
        for line in sys.stdin:
            ctypes.CDLL(None).prctl(15, line.encode()[:-1], 0, 0, 0)
            say("renamed")
        """
    with running(body) as child:
        wait_until(lambda: state_of(child.pid) is ProcessState.RUNNING)
        before = start_of(child.pid)
        tell(child, title)
        said(child)
        assert Path(f"/proc/{child.pid}/comm").read_text() == f"{title[:15]}\n"
        for table in both():
            seen = table.observe(child.pid)
            assert (seen.exists, seen.state) == (True, ProcessState.RUNNING)
            assert compare_start_ids(str(seen.start_id), before) is Comparison.SAME


def test_exec_keeps_the_process_and_makes_another_instance() -> None:
    body = """
        me = system.current()
        say(me.pid, me.start_id, me.instance_id)
        if len(sys.argv) == 1:
            os.execv(sys.executable, [*sys.orig_argv, "again"])
        """
    with running(body) as child:
        first, second = said(child), said(child)
    assert first[:2] == second[:2]
    assert first[2] != second[2]


@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.CDLL(None).fork()"])
def test_a_fork_makes_another_process_even_when_made_in_c(fork: str) -> None:
    body = f"""
        before = system.current()
        child = {fork}
        if child == 0:
            me = system.current()
            say(me.pid, me.start_id, me.instance_id)
            os._exit(0)
        os.waitpid(child, 0)
        assert system.current() is before
        say(child, before.start_id, before.instance_id)
        """
    with running(body) as child:
        inner, outer = said(child), said(child)
    assert inner[0] == outer[0]
    assert compare_start_ids(inner[1], outer[1]) is Comparison.DIFFERENT
    assert inner[2] != outer[2]


LOOK = "say(seen(int(sys.argv[1])), seen(int(sys.argv[1]), LinuxProcesses(pidfd=False)), time.time())"


def looks(pid: int, **env: str) -> tuple[list[Any], float]:
    with_pidfd, without, wall = run(LOOK, pid, env=env)
    assert compare_start_ids(with_pidfd[2], without[2]) is Comparison.SAME
    return with_pidfd, wall


@pytest.mark.parametrize("offset", [120, -120])
def test_a_step_of_the_wall_clock_changes_no_start_id(offset: int) -> None:
    libraries = glob.glob("/usr/lib*/*/faketime/libfaketime.so.1") + glob.glob("/usr/lib*/faketime/libfaketime.so.1")
    assert libraries, "libfaketime is needed: install the package faketime"
    with sleeping_process() as pid:
        seen, wall = looks(
            pid,
            LD_PRELOAD=libraries[0],
            FAKETIME=f"{offset:+d}s",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            NO_FAKE_STAT="1",
        )
        assert abs(wall - time.time() - offset) < 60
        assert seen == [True, "running", start_of(pid)]


def test_time_zone_locale_and_path_change_no_start_id() -> None:
    with sleeping_process() as pid:
        for env in ({"TZ": "UTC", "LC_ALL": "C"}, {"TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "PATH": ""}):
            seen, _ = looks(pid, **env)
            assert seen == [True, "running", start_of(pid)]


# other users


AS_NOBODY = f"""
    for table in (system, LinuxProcesses(pidfd=False)):
        process.is_alive(os.getpid())
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
    try:
        os.kill(int(sys.argv[1]), 0)
    except PermissionError:
        pass
    else:
        raise AssertionError("signal 0 was permitted")
    """


def test_a_process_of_another_user_exists_and_is_known() -> None:
    """Signal 0 answers EPERM, which pins nobody: ``stat`` is for everybody to read, so its identity is compared."""
    body = (
        AS_NOBODY
        + "say([[seen(int(pid), table) for table in (system, LinuxProcesses(pidfd=False))] for pid in sys.argv[1:]])"
    )
    with sleeping_process() as live, stopped_process() as stopped, zombie() as dead:
        pids = (live, stopped, dead, 1)
        found = run(body, *pids)
        for pid, answers, state in zip(pids, found, ["running", "stopped", "zombie", "running"], strict=True):
            for exists, seen, start_id in answers:
                assert (exists, seen) == (True, state)
                assert compare_start_ids(start_id, start_of(pid)) is Comparison.SAME


def test_another_user_knows_itself_and_is_known_alike() -> None:
    body = AS_NOBODY + "say(system.current().start_id, seen(os.getpid())); sys.stdin.readline()"
    with running(body, os.getpid()) as child:
        start_id, seen = said(child)
        assert seen == [True, "running", start_id]
        assert start_id == start_of(child.pid)


def test_a_process_hidden_from_a_user_is_known_by_its_pidfd() -> None:
    """``/proc`` mounted with hidepid=2 shows a user only its own."""
    body = (
        AS_NOBODY
        + """
    live, dead = map(int, sys.argv[1:3])
    assert not os.path.exists(f"/proc/{live}")
    say(seen(live), seen(dead), seen(live, LinuxProcesses(pidfd=False)), seen(dead, LinuxProcesses(pidfd=False)),
        seen(os.getpid()), system.current().start_id)
    """
    )
    script = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    with sleeping_process() as live, zombie() as dead:
        prefix = ("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh")
        seen_live, seen_dead, bare_live, bare_dead, itself, own = run(body, live, dead, prefix=prefix)
        assert seen_live[:2] == [True, "running"]
        assert seen_dead[:2] == [True, "zombie"]
        for pid, seen in ((live, seen_live), (dead, seen_dead)):
            assert compare_start_ids(seen[2], start_of(pid)) is Comparison.SAME
        assert bare_live == bare_dead == [True, "unknown", None]
        assert itself == [True, "running", own]


# namespaces and mounts


def test_without_proc_processes_are_known_by_pidfd_and_namespace_and_boot_are_unknown() -> None:
    body = """
        assert not os.path.exists("/proc/self")
        me = system.current()
        say([seen(int(pid)) for pid in sys.argv[1:]], [me.start_id, me.boot_id, me.pid_namespace], seen(os.getpid()))
        """
    prefix = ("unshare", "-m", "--propagation", "private", "sh", "-c", 'umount -l /proc && exec "$@"', "sh")
    with sleeping_process() as live, zombie() as dead:
        (seen_live, seen_dead, seen_gone), me, itself = run(body, live, dead, 4_000_000, prefix=prefix)
        assert seen_live[:2] == [True, "running"]
        assert seen_dead[:2] == [True, "zombie"]
        assert seen_gone == [False, "unknown", None]
        assert me[1:] == [None, None]
        assert itself == [True, "running", me[0]]
        for pid, seen in ((live, seen_live), (dead, seen_dead)):
            assert seen[2].rsplit(":", 1)[1] == start_of(pid).rsplit(":", 1)[1]
            assert compare_start_ids(seen[2], start_of(pid)) is Comparison.UNKNOWN


def test_a_proc_of_the_outer_namespace_is_not_believed() -> None:
    """There the small number we have is some process of the machine."""
    body = """
        me = system.current()
        say(me.pid, me.start_id, me.boot_id, me.pid_namespace, seen(os.getpid()), seen(int(sys.argv[1])),
            system.command_of(1))
        """
    with sleeping_process() as outer:
        pid, start_id, boot_id, namespace, itself, other, command = run(body, outer, prefix=("unshare", "-pf"))
    assert (pid, boot_id, namespace, command) == (1, None, None, None)
    assert itself == [True, "running", start_id]
    assert other == [False, "unknown", None]
    assert start_id.startswith("linux::::")
    assert start_id.rsplit(":", 1)[1] != start_of(1).rsplit(":", 1)[1]


def test_a_process_in_an_inner_namespace_has_one_start_id_seen_from_both_sides() -> None:
    """The number differs, the inode of the pidfd does not."""
    body = """
        me = system.current()
        say(os.getpid(), me.start_id, me.pid_namespace)
        sys.stdin.readline()
        """
    with running(body, prefix=("unshare", "-pf", "--mount-proc", "--kill-child")) as outer:
        pid, start_id, namespace = said(outer)
        assert pid == 1
        assert namespace not in (None, system_processes().current().pid_namespace)
        inner = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())
        assert compare_start_ids(start_id, start_of(inner)) is Comparison.SAME


def test_a_shifted_time_namespace_makes_ticks_incomparable_and_inodes_decide() -> None:
    body = """
        without = LinuxProcesses(pidfd=False)
        me = system.current()
        say(me.pid, me.start_id, without.current().start_id, seen(int(sys.argv[1])), seen(int(sys.argv[1]), without))
        sys.stdin.readline()
        """
    bare = LinuxProcesses(pidfd=False)
    with (
        sleeping_process() as other,
        running(body, other, prefix=("unshare", "-T", "-f", "--boottime", "100000", "--kill-child")) as child,
    ):
        pid, full, ticks, other_full, other_ticks = said(child)
        assert int(other_ticks[2].split(":")[2]) != int(str(bare.observe(other).start_id).split(":")[2])
        assert compare_start_ids(full, start_of(pid)) is Comparison.SAME
        assert compare_start_ids(other_full[2], start_of(other)) is Comparison.SAME
        assert compare_start_ids(full, start_of(other)) is Comparison.DIFFERENT
        assert compare_start_ids(ticks, str(bare.observe(pid).start_id)) is Comparison.UNKNOWN
        assert compare_start_ids(other_ticks[2], str(bare.observe(other).start_id)) is Comparison.UNKNOWN


# shortage


def test_out_of_descriptors_nobody_is_taken_for_dead() -> None:
    """However many descriptors are left, a live process, a stopped one and a zombie are never gone, never worse."""
    body = """
        import resource
        live, stopped, dead = map(int, sys.argv[1:])
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        try:
            system.current()
        except OSError as error:
            assert error.errno == errno.EMFILE
        else:
            raise AssertionError("an identity without descriptors")
        answers = []
        for _ in range(8):
            for table in (LinuxProcesses(), LinuxProcesses(pidfd=False), system):
                answers.append([seen(pid, table)[:2] for pid in (live, stopped, dead)])
                assert seen(4000000, table)[0] is not True
            os.close(held.pop())
        for descriptor in held:
            os.close(descriptor)
        say(answers, [seen(pid) for pid in (live, stopped, dead)], system.current().start_id is not None)
        """
    with sleeping_process() as live, stopped_process() as stopped, zombie() as dead:
        answers, after, known = run(body, live, stopped, dead)
        for seen_live, seen_stopped, seen_dead in answers:
            assert seen_live[0] is seen_stopped[0] is seen_dead[0] is True
            assert seen_live[1] in ("running", "unknown")
            assert seen_stopped[1] in ("stopped", "unknown")
            assert seen_dead[1] in ("zombie", "unknown")
        assert answers[0] == [[True, "unknown"]] * 3
        assert answers[-1] == [[True, "running"], [True, "stopped"], [True, "zombie"]]
        assert after == [
            [True, state, start_of(pid)] for pid, state in ((live, "running"), (stopped, "stopped"), (dead, "zombie"))
        ]
        assert known


def test_a_probe_spawns_no_process_and_sends_no_signal_but_zero(tmp_path: Path) -> None:
    body = """
        live, stopped, dead = map(int, sys.argv[1:])
        for _ in range(200):
            for pid in (live, stopped, dead, 4000000, 1):
                for table in (system, LinuxProcesses(pidfd=False)):
                    table.observe(pid)
                    table.command_of(pid)
                process.is_alive(pid)
        for pid in (0, -1, 2**31, 10**30, True, 1.5, "123", None):
            try:
                process.exists(pid)
            except ValueError:
                pass
        say(system.current().pid)
        """
    trace = tmp_path / "trace"
    calls = "trace=clone,clone3,fork,vfork,execve,kill,tkill,tgkill,pidfd_send_signal"
    with sleeping_process() as live, stopped_process() as stopped, zombie() as dead:
        run(body, live, stopped, dead, prefix=("strace", "-f", "-qq", "-o", str(trace), "-e", calls))
    lines = trace.read_text().splitlines()
    spawned = [line for line in lines if any(f" {call}(" in line for call in ("clone", "clone3", "fork", "vfork"))]
    signals = [line for line in lines if "kill(" in line or "pidfd_send_signal(" in line]
    assert len([line for line in lines if "execve(" in line]) == 1
    assert spawned == []
    assert all(", 0)" in line for line in signals)
    assert not [line for line in signals if "kill(0," in line or "kill(-" in line]


def test_a_look_is_cheap_enough_for_a_poll() -> None:
    """A bound ten times above what is measured, so that only another order of magnitude fails."""
    table = system_processes()
    with sleeping_process() as pid:
        for number, bound in ((pid, 500e-6), (4_000_000, 50e-6)):
            table.observe(number)
            started = time.process_time()
            for _ in range(1000):
                table.observe(number)
            assert (time.process_time() - started) / 1000 < bound


def test_looking_leaves_no_descriptor_open() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with sleeping_process() as live, stopped_process() as stopped, zombie() as dead:
        before = descriptors()
        for table in both():
            table.current()
            for pid in (live, stopped, dead, 4_000_000, 1, 2, os.getpid()):
                table.observe(pid)
                table.command_of(pid)
        assert descriptors() == before
