"""The decisions of the Linux form, on a machine made of dictionaries: what each failure and each race leads to."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from ownership._process import Comparison, ProcessState, compare_start_ids
from ownership._process._cgroups import find_freezers
from ownership._process._kernel import Kernel
from ownership._process._linux import LinuxProcesses
from ownership._process._procfs import parse_stat
from ownership._process._text import command_text
from tests.support.namespaces import elsewhere

BOOT = "4cf94a06-d9c6-49b1-a3ff-600659699c69"
OWN = 100
PEER = 200
PIDFS, ANONYMOUS = 5, 16
PF_EXITING, PF_SIGNALED = 0x4, 0x400
MOUNTINFO = """\
36 31 0:30 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
TRANSIENT = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO]


@dataclass
class Process:
    """A process of the fake machine: its threads' states and flags by thread id, and what its files say."""

    inode: int
    threads: dict[int, tuple[str, int]]
    ticks: int = 5000
    title: str = "a) Z 1 (b"
    cgroup: str = "0::/"
    dumping: bool = False
    hidden: int = 0
    reaped: bool = False
    cmdline: bytes = b"sleep\x0060\x00"
    group: int = 1

    @property
    def ended(self) -> bool:
        return self.reaped or all(state in "ZX" for state, _ in self.threads.values())


@dataclass
class Open:
    name: str
    process: Process | None = None
    content: bytes = b""


@dataclass
class Machine(Kernel):
    """A kernel whose processes, files, refusals and interruptions are set by the test."""

    processes: dict[int, Process] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    proc_self: str = str(OWN)
    nspid: str = str(OWN)
    namespaces: dict[str, int] = field(default_factory=lambda: {"mnt": 1, "pid": 4026531836, "time": 4026531834})
    pidfs: bool = True
    thread_refusal: int = errno.ENOENT
    failures: dict[str, int] = field(default_factory=dict)
    hooks: dict[str, Callable[[], None]] = field(default_factory=dict)
    descriptors: dict[int, Open] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)

    def add(self, pid: int, inode: int, state: str = "S", **parts: object) -> Process:
        process = Process(inode, {pid: (state, 0)})
        for name, value in parts.items():
            setattr(process, name, value)
        self.processes[pid] = process
        return process

    def reap(self, pid: int) -> None:
        self.processes.pop(pid).reaped = True

    def _step(self, name: str) -> None:
        """Every call passes here: a hook runs once, before the call; a failure stays until it is taken away."""
        for pattern in [pattern for pattern in self.hooks if pattern in name]:
            self.hooks.pop(pattern)()
        for pattern, number in self.failures.items():
            if pattern in name:
                raise OSError(number, os.strerror(number))

    def _give(self, opened: Open) -> int:
        number = 1000 + len(self.opened)
        self.opened.append(opened.name)
        self.descriptors[number] = opened
        return number

    def getpid(self) -> int:
        return OWN

    def pidfd_open(self, pid: int) -> int:
        self._step(f"pidfd_open {pid}")
        if pid in self.processes:
            return self._give(Open("pidfd", self.processes[pid]))
        if any(pid in process.threads for process in self.processes.values()):
            raise OSError(self.thread_refusal, "not a leader")
        raise OSError(errno.ESRCH, "no process")

    def eventfd(self) -> int:
        self._step("eventfd")
        return self._give(Open("eventfd"))

    def ready(self, descriptor: int) -> bool:
        self._step("ready")
        process = self.descriptors[descriptor].process
        assert process is not None
        return process.ended

    def fstat(self, descriptor: int) -> os.stat_result:
        process = self.descriptors[descriptor].process
        inode, device = (process.inode, PIDFS) if process and self.pidfs else (1, ANONYMOUS)
        return os.stat_result((0, inode, device, 1, 0, 0, 0, 0, 0, 0))

    def stat(self, path: str) -> os.stat_result:
        self._step(f"stat {path}")
        kind = path.rsplit("/", 1)[1]
        if kind not in self.namespaces:
            raise FileNotFoundError(errno.ENOENT, path)
        return os.stat_result((0, self.namespaces[kind], 4, 1, 0, 0, 0, 0, 0, 0))

    def readlink(self, path: str) -> str:
        self._step(f"readlink {path}")
        if not self.proc_self:
            raise FileNotFoundError(errno.ENOENT, path)
        return self.proc_self

    def signal_zero(self, pid: int) -> None:
        self._step(f"signal {pid}")
        if not any(pid in process.threads for process in self.processes.values()):
            raise ProcessLookupError(errno.ESRCH, "no process")

    def open(self, path: str, flags: int, directory: int | None = None) -> int:
        process = None if directory is None else self.descriptors[directory].process
        self._step(f"open {path}")
        if process is None and path in self.files:
            return self._give(Open(path, content=self.files[path]))
        if process is None:
            _, _, number, *rest = path.split("/")
            process, path = self._visible(OWN if number == "self" else int(number)), "/".join(rest)
        if process.reaped:
            raise ProcessLookupError(errno.ESRCH, path)
        return self._give(Open(path, process, self._content(process, path)))

    def _visible(self, number: int) -> Process:
        for pid, process in self.processes.items():
            if number in process.threads:
                if process.hidden:
                    raise OSError(process.hidden, "hidden")
                return process if number == pid else replace(process, threads={number: process.threads[number]})
        raise FileNotFoundError(errno.ENOENT, str(number))

    def _content(self, process: Process, path: str) -> bytes:
        leader = next(iter(process.threads))
        if path in ("", "task"):
            return b""
        if path.startswith("task/"):
            _, number, path = path.split("/")
            if int(number) not in process.threads:
                raise FileNotFoundError(errno.ENOENT, number)
            leader = int(number)
        state, flags = process.threads[leader]
        if path == "stat":
            fields = [
                state,
                1,
                process.group,
                1,
                0,
                -1,
                flags,
                *[0] * 10,
                len(process.threads),
                0,
                process.ticks,
                *[0] * 30,
            ]
            return f"{leader} ({process.title}) {' '.join(map(str, fields))}\n".encode()
        if path == "status":
            group = next(pid for pid, other in self.processes.items() if other.inode == process.inode)
            dump = f"CoreDumping:\t{int(process.dumping)}\n" if state not in "ZX" else ""
            return f"Name:\tx\nTgid:\t{group}\nNSpid:\t{self.nspid}\n{dump}".encode()
        return {"cgroup": process.cgroup.encode() + b"\n", "cmdline": process.cmdline, "comm": b"kworker\n"}[path]

    def read(self, descriptor: int, size: int) -> bytes:
        opened = self.descriptors[descriptor]
        self._step(f"read {opened.name}")
        if opened.process is not None and opened.process.reaped:
            raise ProcessLookupError(errno.ESRCH, opened.name)
        head, opened.content = opened.content[:size], opened.content[size:]
        return head

    def listdir(self, descriptor: int) -> list[str]:
        self._step("listdir")
        process = self.descriptors[descriptor].process
        assert process is not None
        return [str(thread) for thread in process.threads]

    def close(self, descriptor: int) -> None:
        del self.descriptors[descriptor]


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine with ourselves and one sleeping peer; no test may leave a descriptor open."""
    machine = Machine()
    machine.add(OWN, 11, "R")
    machine.add(PEER, 22)
    machine.files["/proc/sys/kernel/random/boot_id"] = f"{BOOT}\n".encode()
    machine.files["/proc/thread-self/mountinfo"] = MOUNTINFO.encode()
    yield machine
    assert machine.descriptors == {}


@pytest.fixture
def table(machine: Machine) -> LinuxProcesses:
    return LinuxProcesses(kernel=machine)


@pytest.fixture
def old_table(machine: Machine) -> LinuxProcesses:
    """The form of a kernel without pidfds."""
    return LinuxProcesses(kernel=machine, pidfd=False)


FULL = f"linux:{BOOT}:5000:4026531834:22"


# what a process is doing


def test_a_live_process_is_running_and_carries_a_whole_start_id(table: LinuxProcesses) -> None:
    seen = table.observe(PEER)
    assert (seen.exists, seen.state, seen.start_id, seen.detail) == (True, ProcessState.RUNNING, FULL, "")


@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        ("R", ProcessState.RUNNING),
        ("S", ProcessState.RUNNING),
        ("D", ProcessState.RUNNING),
        ("I", ProcessState.RUNNING),
        ("Z", ProcessState.ZOMBIE),
        ("X", ProcessState.ZOMBIE),
        ("ZZ", ProcessState.ZOMBIE),
        ("ZXZ", ProcessState.ZOMBIE),
        ("ZS", ProcessState.RUNNING),
        ("ZZR", ProcessState.RUNNING),
        ("ZT", ProcessState.STOPPED),
        ("Zt", ProcessState.TRACED),
        ("ZTS", ProcessState.RUNNING),
        ("T", ProcessState.STOPPED),
        ("TT", ProcessState.STOPPED),
        ("TZT", ProcessState.STOPPED),
        ("Tt", ProcessState.TRACED),
        ("tT", ProcessState.TRACED),
        ("t", ProcessState.TRACED),
        ("TS", ProcessState.RUNNING),
        ("tR", ProcessState.RUNNING),
        ("ST", ProcessState.RUNNING),
    ],
)
def test_the_state_of_a_process_is_that_of_all_its_threads(
    machine: Machine, table: LinuxProcesses, old_table: LinuxProcesses, threads: str, expected: ProcessState
) -> None:
    """The leader's line alone would call a process with a working thread a zombie, or stopped."""
    machine.processes[PEER].threads = {PEER + n: (state, 0) for n, state in enumerate(threads)}
    assert table.observe(PEER).state is expected
    assert old_table.observe(PEER).state is expected


def test_a_thread_that_ends_while_the_threads_are_looked_at_is_looked_for_again(
    machine: Machine, table: LinuxProcesses
) -> None:
    """It may have started another one after the listing was made."""
    peer = machine.processes[PEER]
    peer.threads = {PEER: ("Z", 0), PEER + 1: ("S", 0)}

    def succeed() -> None:
        peer.threads = {PEER: ("Z", 0), PEER + 2: ("S", 0)}

    machine.hooks[f"open task/{PEER + 1}/stat"] = succeed
    assert table.observe(PEER).state is ProcessState.RUNNING


def test_the_last_thread_ending_during_the_look_makes_a_zombie(machine: Machine, table: LinuxProcesses) -> None:
    peer = machine.processes[PEER]
    peer.threads = {PEER: ("Z", 0), PEER + 1: ("S", 0)}
    machine.hooks[f"open task/{PEER + 1}/stat"] = lambda: peer.threads.__delitem__(PEER + 1)
    assert table.observe(PEER).state is ProcessState.ZOMBIE


def test_a_thread_that_the_listing_missed_is_not_overlooked(machine: Machine, table: LinuxProcesses) -> None:
    peer = machine.processes[PEER]
    peer.threads = {PEER: ("Z", 0)}

    def appear() -> None:
        peer.threads[PEER + 1] = ("S", 0)

    machine.hooks[f"read task/{PEER}/stat"] = appear
    assert table.observe(PEER).state is ProcessState.RUNNING


def test_an_exited_thread_that_left_a_successor_makes_no_zombie(machine: Machine, table: LinuxProcesses) -> None:
    """It was seen as it exited; the thread it had started after the listing is not listed."""
    peer = machine.processes[PEER]
    peer.threads = {PEER: ("Z", 0), PEER + 1: ("Z", 0)}

    def succeed() -> None:
        peer.threads = {PEER: ("Z", 0), PEER + 2: ("S", 0)}

    machine.hooks[f"read task/{PEER + 1}/stat"] = lambda: machine.hooks.update({"open stat": succeed})
    assert table.observe(PEER).state is ProcessState.RUNNING


def test_a_thread_that_takes_the_leaders_number_by_exec_makes_no_zombie(
    machine: Machine, table: LinuxProcesses
) -> None:
    """The exited leader is seen twice, under both numbers."""
    peer = machine.processes[PEER]
    peer.threads = {PEER: ("Z", 0), PEER + 1: ("R", 0)}
    machine.hooks[f"open task/{PEER + 1}/stat"] = lambda: peer.threads.update({PEER + 1: ("Z", 0)})

    def trade() -> None:
        machine.hooks["open stat"] = lambda: setattr(peer, "threads", {PEER: ("R", 0)})

    machine.hooks[f"read task/{PEER + 1}/stat"] = trade
    assert table.observe(PEER).state is ProcessState.RUNNING


def test_exited_threads_that_tracers_keep_do_not_hold_up_the_proof(machine: Machine, table: LinuxProcesses) -> None:
    machine.processes[PEER].threads = {PEER: ("Z", 0), PEER + 1: ("Z", 0), PEER + 2: ("Z", 0)}
    assert table.observe(PEER).state is ProcessState.ZOMBIE


def test_a_process_whose_threads_never_hold_still_is_running(machine: Machine, table: LinuxProcesses) -> None:
    peer = machine.processes[PEER]
    peer.threads = {PEER: ("Z", 0), PEER + 1: ("S", 0)}
    machine.failures[f"open task/{PEER + 1}/stat"] = errno.ENOENT
    assert table.observe(PEER).state is ProcessState.RUNNING


@pytest.mark.parametrize("states", ["R", "S", "D", "SD", "ZD", "ZS"])
def test_a_core_dump_in_progress_is_dumping_whatever_the_leader_shows(
    machine: Machine, table: LinuxProcesses, states: str
) -> None:
    peer = machine.processes[PEER]
    peer.threads = {PEER + n: (state, PF_SIGNALED) for n, state in enumerate(states)}
    peer.dumping = True
    assert table.observe(PEER).state is ProcessState.DUMPING


def test_a_leader_in_disk_wait_is_asked_for_a_core_dump_without_other_signs(
    machine: Machine, table: LinuxProcesses
) -> None:
    machine.add(PEER, 22, "D", dumping=True)
    assert table.observe(PEER).state is ProcessState.DUMPING


def test_a_process_that_exits_without_a_dump_is_running_until_it_has_exited(
    machine: Machine, table: LinuxProcesses
) -> None:
    machine.processes[PEER].threads = {PEER: ("R", PF_EXITING)}
    assert table.observe(PEER).state is ProcessState.RUNNING


@pytest.mark.parametrize(
    ("cgroup", "path", "content"),
    [
        ("0::/a/b", "/sys/fs/cgroup/unified/a/b/cgroup.events", b"populated 1\nfrozen 1\n"),
        ("7:freezer:/a", "/sys/fs/cgroup/freezer/a/freezer.state", b"FROZEN\n"),
        ("7:cpu,freezer:/a\n0::/", "/sys/fs/cgroup/freezer/a/freezer.state", b"FROZEN\n"),
    ],
)
@pytest.mark.parametrize("states", ["S", "D", "SSD", "STS"])
def test_a_process_asleep_in_a_frozen_cgroup_is_frozen(
    machine: Machine, table: LinuxProcesses, cgroup: str, path: str, content: bytes, states: str
) -> None:
    peer = machine.processes[PEER]
    peer.cgroup, machine.files[path] = cgroup, content
    peer.threads = {PEER + n: (state, 0) for n, state in enumerate(states)}
    assert table.observe(PEER).state is ProcessState.FROZEN


@pytest.mark.parametrize(
    ("cgroup", "content"),
    [
        ("0::/a", b"populated 1\nfrozen 0\n"),
        ("0::/../a", b"frozen 1\n"),
        ("0::/gone (deleted)", b"frozen 1\n"),
        ("7:cpu:/a", b"frozen 1\n"),
        ("nonsense", b"frozen 1\n"),
        ("0::/", b"frozen 1\n"),
    ],
)
def test_a_cgroup_that_is_not_provably_frozen_is_not_frozen(
    machine: Machine, table: LinuxProcesses, cgroup: str, content: bytes
) -> None:
    machine.processes[PEER].cgroup = cgroup
    machine.files["/sys/fs/cgroup/unified/a/cgroup.events"] = content
    assert table.observe(PEER).state is ProcessState.RUNNING


def test_what_keeps_a_process_frozen_is_named_from_the_nearest_cgroup_up(
    machine: Machine, table: LinuxProcesses
) -> None:
    machine.processes[PEER].cgroup = "7:freezer:/a/b\n0::/c/d"
    freezer, unified = "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified"
    machine.files |= {
        f"{freezer}/a/b/freezer.state": b"FROZEN\n",
        f"{freezer}/a/b/freezer.self_freezing": b"1\n",
        f"{freezer}/a/freezer.self_freezing": b"1\n",
        f"{unified}/c/d/cgroup.events": b"frozen 1\n",
        f"{unified}/c/d/cgroup.freeze": b"0\n",
        f"{unified}/c/cgroup.freeze": b"1\n",
    }
    around = table.surroundings_of(PEER)
    assert around is not None
    switches = (f"{freezer}/a/b/freezer.state", f"{freezer}/a/freezer.state", f"{unified}/c/cgroup.freeze")
    assert around.frozen_by == switches
    machine.failures["cgroup"] = errno.EIO
    assert table.surroundings_of(PEER).frozen_by == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("pattern", ["cgroup", "mountinfo", "cgroup.events"])
def test_failing_to_look_at_the_cgroup_is_not_frozen(machine: Machine, table: LinuxProcesses, pattern: str) -> None:
    machine.processes[PEER].cgroup = "0::/a"
    machine.files["/sys/fs/cgroup/unified/a/cgroup.events"] = b"frozen 1\n"
    machine.failures[pattern] = errno.EIO
    assert table.observe(PEER).state is ProcessState.RUNNING
    machine.failures.clear()
    assert table.observe(PEER).state is ProcessState.FROZEN


def test_a_thread_that_runs_in_a_frozen_cgroup_keeps_the_process_running(
    machine: Machine, table: LinuxProcesses
) -> None:
    peer = machine.processes[PEER]
    peer.cgroup = "0::/a"
    machine.files["/sys/fs/cgroup/unified/a/cgroup.events"] = b"frozen 1\n"
    peer.threads = {PEER: ("S", 0), PEER + 1: ("R", 0)}
    assert table.observe(PEER).state is ProcessState.RUNNING


def test_the_part_of_the_hierarchy_that_is_mounted_is_taken_off_the_path(machine: Machine) -> None:
    machine.files["/proc/thread-self/mountinfo"] = rb"41 31 0:38 /docker/abc /mnt/my\040groups rw - cgroup2 cgroup2 rw"
    machine.files["/mnt/my groups/x/cgroup.events"] = b"frozen 1\n"
    table = LinuxProcesses(kernel=machine)
    machine.processes[PEER].cgroup = "0::/docker/abc/x"
    assert table.observe(PEER).state is ProcessState.FROZEN
    machine.processes[PEER].cgroup = "0::/docker/abcdef/x"
    assert table.observe(PEER).state is ProcessState.RUNNING


def test_lines_that_are_no_freezers_are_passed_over() -> None:
    assert (
        find_freezers(b"\n\n36 31 0:30 / /cpu rw - cgroup cgroup rw,cpu\nrubbish\n1 2 3 / /p rw - proc proc rw\n") == {}
    )


# who has the number


def test_a_free_number_is_gone(table: LinuxProcesses, old_table: LinuxProcesses) -> None:
    for processes in (table, old_table):
        seen = processes.observe(999)
        assert (seen.exists, seen.start_id, seen.state) == (False, None, ProcessState.UNKNOWN)


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.ENOENT])
@pytest.mark.parametrize("proc", ["ours", "foreign", "hidden"])
def test_a_thread_id_is_no_process(machine: Machine, table: LinuxProcesses, refusal: int, proc: str) -> None:
    """pidfd_open refuses it with EINVAL on older kernels, ENOENT on newer ones; neither is a failed probe."""
    machine.thread_refusal = refusal
    machine.processes[PEER].threads[PEER + 1] = ("S", 0)
    machine.processes[PEER].hidden = errno.ENOENT if proc == "hidden" else 0
    machine.proc_self = "77" if proc == "foreign" else machine.proc_self
    assert table.observe(PEER + 1).exists is False


def test_a_thread_id_is_no_process_without_pidfds(machine: Machine, old_table: LinuxProcesses) -> None:
    machine.processes[PEER].threads[PEER + 1] = ("S", 0)
    assert old_table.observe(PEER + 1).exists is False


def test_a_refused_number_that_leads_its_group_is_looked_at_again(machine: Machine, table: LinuxProcesses) -> None:
    """Between the refusal and the look at ``Tgid`` the number was given to a new process."""
    machine.processes[1] = Process(33, {1: ("S", 0), PEER + 5: ("S", 0)})

    def replaced() -> None:
        del machine.processes[1].threads[PEER + 5]
        machine.add(PEER + 5, 44)

    machine.hooks[f"open /proc/{PEER + 5}/status"] = replaced
    seen = table.observe(PEER + 5)
    assert (seen.exists, seen.start_id) == (True, FULL.replace(":22", ":44"))


def test_a_sandbox_that_refuses_every_pidfd_as_invalid_makes_nobody_dead(machine: Machine) -> None:
    machine.proc_self = ""
    machine.failures["pidfd_open"] = errno.EINVAL
    seen = LinuxProcesses(kernel=machine).observe(PEER)
    assert (seen.exists, seen.state) == (True, ProcessState.UNKNOWN)


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM, errno.ENODEV, *TRANSIENT])
def test_without_a_pidfd_proc_answers_for_itself(machine: Machine, table: LinuxProcesses, refusal: int) -> None:
    machine.failures["pidfd_open"] = refusal
    seen = table.observe(PEER)
    assert (seen.exists, seen.state) == (True, ProcessState.RUNNING)
    assert seen.start_id is not None
    assert compare_start_ids(seen.start_id, FULL) is Comparison.SAME


def test_a_kernel_without_pidfs_leaves_the_inode_out(machine: Machine, table: LinuxProcesses) -> None:
    """There every pidfd has one inode, that of the anonymous inode filesystem."""
    machine.pidfs = False
    assert table.observe(PEER).start_id == f"linux:{BOOT}:5000:4026531834:"
    assert table.current().start_id == f"linux:{BOOT}:5000:4026531834:"


def test_a_kernel_without_time_namespaces_has_the_constant_none(machine: Machine, table: LinuxProcesses) -> None:
    machine.namespaces.pop("time")
    assert table.observe(PEER).start_id == f"linux:{BOOT}:5000:none:22"


def test_namespaces_that_proc_does_not_show_are_unknown_and_not_absent(machine: Machine) -> None:
    """Two containers whose namespaces are concealed must not look like one system without namespaces."""
    machine.namespaces.clear()
    me = LinuxProcesses(kernel=machine).current()
    assert (me.pid_namespace, me.start_id) == (None, f"linux:{BOOT}:5000::11")


def test_a_kernel_without_pid_namespaces_has_the_constant_none(machine: Machine, table: LinuxProcesses) -> None:
    machine.namespaces.pop("pid")
    assert table.current().pid_namespace == "none"


# failures are no verdicts


@pytest.mark.parametrize("number", TRANSIENT)
@pytest.mark.parametrize("state", ["S", "Z"])
@pytest.mark.parametrize("pattern", ["open stat", "read stat", f"open /proc/{PEER}"])
def test_a_read_that_fails_is_never_death(
    machine: Machine, table: LinuxProcesses, number: int, state: str, pattern: str
) -> None:
    """The pidfd still tells who it is, so a reused number is found out even then."""
    table.current()
    machine.processes[PEER].threads = {PEER: (state, 0)}
    machine.failures[pattern] = number
    seen = table.observe(PEER)
    assert (seen.exists, seen.state) == (True, ProcessState.UNKNOWN)
    assert seen.start_id is not None
    assert compare_start_ids(seen.start_id, FULL) is Comparison.SAME
    assert os.strerror(number) in seen.detail
    assert f"/proc/{PEER}" in seen.detail


@pytest.mark.parametrize("number", TRANSIENT)
@pytest.mark.parametrize("pattern", ["open task", "listdir", f"open task/{PEER}/stat"])
def test_a_zombie_whose_threads_cannot_be_read_is_unknown(
    machine: Machine, table: LinuxProcesses, number: int, pattern: str
) -> None:
    machine.processes[PEER].threads = {PEER: ("Z", 0)}
    machine.failures[pattern] = number
    seen = table.observe(PEER)
    assert (seen.exists, seen.state) == (True, ProcessState.UNKNOWN)
    assert os.strerror(number) in seen.detail


@pytest.mark.parametrize("number", TRANSIENT)
def test_out_of_everything_signal_zero_still_tells_the_dead(
    machine: Machine, table: LinuxProcesses, number: int
) -> None:
    machine.failures.update({"pidfd_open": number, "open ": number, "readlink": number})
    seen = table.observe(PEER)
    assert (seen.exists, seen.start_id, seen.state) == (True, None, ProcessState.UNKNOWN)
    assert f"pidfd_open({PEER})" in seen.detail
    assert table.observe(999).exists is False


def test_permission_denied_by_signal_zero_means_that_it_exists(machine: Machine, table: LinuxProcesses) -> None:
    machine.failures.update({"pidfd_open": errno.ENOSYS, "open ": errno.EACCES, "signal": errno.EPERM})
    assert table.observe(999).exists is True


def test_a_signal_that_cannot_be_sent_leaves_everything_unknown(machine: Machine, table: LinuxProcesses) -> None:
    machine.failures.update({"pidfd_open": errno.ENOSYS, "open ": errno.EIO, "signal": errno.ENOSYS})
    seen = table.observe(PEER)
    assert (seen.exists, seen.start_id, seen.state) == (None, None, ProcessState.UNKNOWN)


@pytest.mark.parametrize("pattern", ["ready", "eventfd"])
def test_a_pidfd_that_cannot_be_asked_is_a_failed_probe(machine: Machine, table: LinuxProcesses, pattern: str) -> None:
    machine.failures[pattern] = errno.ENOMEM
    seen = table.observe(PEER)
    assert (seen.exists is not False, seen.state) == (True, ProcessState.UNKNOWN)
    assert os.strerror(errno.ENOMEM) in seen.detail


def test_a_line_that_is_no_stat_line_is_a_failed_probe(machine: Machine, table: LinuxProcesses) -> None:
    machine.processes[PEER].threads = {PEER: ("Sleeping", 0)}
    seen = table.observe(PEER)
    assert (seen.exists, seen.state) == (True, ProcessState.UNKNOWN)
    assert "not a stat line" in seen.detail


# races


def test_a_process_that_goes_between_its_pidfd_and_its_stat_line_is_gone(
    machine: Machine, table: LinuxProcesses
) -> None:
    machine.hooks["open stat"] = lambda: machine.reap(PEER)
    assert table.observe(PEER).exists is False


def test_a_process_that_goes_while_its_stat_line_is_read_is_gone(
    machine: Machine, table: LinuxProcesses, old_table: LinuxProcesses
) -> None:
    for processes in (table, old_table):
        machine.add(PEER, 22)
        machine.hooks["read stat"] = lambda: machine.reap(PEER)
        assert processes.observe(PEER).exists is False


def test_a_number_that_changes_hands_during_the_look_is_never_a_mixture(
    machine: Machine, table: LinuxProcesses
) -> None:
    """The inode of the one and the ticks of the other would be a process that never was."""

    def reuse() -> None:
        machine.reap(PEER)
        machine.add(PEER, 33, ticks=6000)

    machine.hooks[f"open /proc/{PEER}"] = reuse
    assert table.observe(PEER).start_id == f"linux:{BOOT}:6000:4026531834:33"


def test_a_zombie_reaped_during_the_look_and_replaced_is_the_new_process(
    machine: Machine, table: LinuxProcesses
) -> None:
    machine.processes[PEER].threads = {PEER: ("Z", 0)}

    def reuse() -> None:
        machine.reap(PEER)
        machine.add(PEER, 33, ticks=6000)

    machine.hooks["ready"] = reuse
    seen = table.observe(PEER)
    assert (seen.state, seen.start_id) == (ProcessState.RUNNING, f"linux:{BOOT}:6000:4026531834:33")


def test_a_process_that_ends_just_after_its_line_was_read_is_looked_at_again(
    machine: Machine, table: LinuxProcesses
) -> None:
    """Its ready pidfd is a hint, the second look confirms it."""
    machine.hooks["ready"] = lambda: machine.processes[PEER].threads.update({PEER: ("Z", 0)})
    assert table.observe(PEER).state is ProcessState.ZOMBIE


def test_a_number_that_changes_hands_at_every_look_is_unknown(machine: Machine, table: LinuxProcesses) -> None:
    def reuse() -> None:
        inode = machine.processes[PEER].inode + 1
        machine.reap(PEER)
        machine.add(PEER, inode)
        machine.hooks["open stat"] = reuse

    machine.hooks["open stat"] = reuse
    seen = table.observe(PEER)
    assert (seen.exists, seen.state) == (None, ProcessState.UNKNOWN)
    assert "changed" in seen.detail


# what /proc hides


@pytest.mark.parametrize("refusal", [errno.ENOENT, errno.EPERM, errno.EACCES])
def test_a_hidden_process_is_known_by_its_pidfd(machine: Machine, table: LinuxProcesses, refusal: int) -> None:
    machine.processes[PEER].hidden = refusal
    seen = table.observe(PEER)
    assert (seen.exists, seen.state, seen.start_id) == (True, ProcessState.RUNNING, f"linux:{BOOT}:::22")
    machine.processes[PEER].threads = {PEER: ("Z", 0)}
    assert table.observe(PEER).state is ProcessState.ZOMBIE
    machine.reap(PEER)
    assert table.observe(PEER).exists is False


def test_a_hidden_zombie_needs_a_second_pidfd_of_the_same_process(machine: Machine, table: LinuxProcesses) -> None:
    machine.processes[PEER].hidden = errno.ENOENT
    machine.processes[PEER].threads = {PEER: ("Z", 0)}

    def reuse() -> None:
        machine.reap(PEER)
        machine.add(PEER, 33, hidden=errno.ENOENT)

    machine.hooks["ready"] = reuse
    seen = table.observe(PEER)
    assert (seen.state, seen.start_id) == (ProcessState.RUNNING, f"linux:{BOOT}:::33")


def test_a_hidden_process_without_pidfds_exists_and_nothing_more(machine: Machine, old_table: LinuxProcesses) -> None:
    machine.processes[PEER].hidden = errno.ENOENT
    seen = old_table.observe(PEER)
    assert (seen.exists, seen.start_id, seen.state) == (True, None, ProcessState.UNKNOWN)


@pytest.mark.parametrize(("proc_self", "nspid"), [("77", "77"), ("100", "100\t1"), ("", "")])
def test_a_proc_of_another_namespace_is_not_believed(machine: Machine, proc_self: str, nspid: str) -> None:
    """Another number as self, the same one by accident with two in ``NSpid``, or no ``/proc`` at all."""
    machine.proc_self, machine.nspid = proc_self, nspid
    table = LinuxProcesses(kernel=machine)
    me = table.current()
    assert (me.boot_id, me.pid_namespace, me.start_id) == (None, None, "linux::::11")
    machine.processes[PEER].threads = {PEER: ("T", 0)}
    seen = table.observe(PEER)
    assert (seen.exists, seen.state, seen.start_id) == (True, ProcessState.RUNNING, "linux::::22")
    assert table.command_of(PEER) is None


@pytest.mark.parametrize("content", [b"", b"masked\n", b"a:b\n"])
def test_a_boot_id_that_is_masked_is_unknown(machine: Machine, table: LinuxProcesses, content: bytes) -> None:
    machine.files["/proc/sys/kernel/random/boot_id"] = content
    assert table.current().boot_id is None
    assert table.current().start_id == "linux::5000:4026531834:11"


# ourselves


def test_our_identity_is_read_once(machine: Machine, table: LinuxProcesses) -> None:
    me = table.current()
    assert (me.pid, me.boot_id, me.pid_namespace) == (OWN, BOOT, 4026531836)
    assert me.start_id == f"linux:{BOOT}:5000:4026531834:11"
    calls = len(machine.opened)
    assert table.current() is me
    assert len(machine.opened) == calls


@pytest.mark.parametrize("number", TRANSIENT)
@pytest.mark.parametrize(
    "pattern", ["pidfd_open", "eventfd", "readlink", "open /proc/100/stat", "boot_id", "ns/pid", "ns/time", "status"]
)
def test_an_identity_that_cannot_be_read_right_now_is_an_error_and_not_a_weaker_one(
    machine: Machine, number: int, pattern: str
) -> None:
    table = LinuxProcesses(kernel=machine)
    machine.failures[pattern] = number
    with pytest.raises(OSError, match=os.strerror(number)):
        table.current()
    machine.failures.clear()
    assert table.current().start_id == f"linux:{BOOT}:5000:4026531834:11"


def test_a_view_that_failed_once_is_asked_again(machine: Machine, table: LinuxProcesses) -> None:
    machine.failures["readlink"] = errno.EMFILE
    assert table.observe(PEER).state is ProcessState.UNKNOWN
    machine.failures.clear()
    assert table.observe(PEER).start_id == FULL


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_without_pidfds_our_identity_has_no_inode(machine: Machine, table: LinuxProcesses, refusal: int) -> None:
    machine.failures["pidfd_open"] = refusal
    assert table.current().start_id == f"linux:{BOOT}:5000:4026531834:"


def test_every_table_of_a_process_tells_one_instance_id() -> None:
    assert LinuxProcesses().current() == LinuxProcesses().current()


def test_a_forked_child_is_another_instance_and_another_process() -> None:
    table = LinuxProcesses()
    before = table.current()
    child, after = elsewhere(lambda: (os.getpid(), table.current()))
    assert after.pid == child != before.pid
    assert after.instance_id != before.instance_id
    assert compare_start_ids(after.start_id, before.start_id) is Comparison.DIFFERENT
    assert table.current() is before


# handles


def test_a_handle_is_given_only_for_the_very_process(machine: Machine, table: LinuxProcesses) -> None:
    handle = table.open_handle(PEER, FULL)
    assert handle is not None
    assert machine.descriptors[handle].process is machine.processes[PEER]
    machine.close(handle)
    with pytest.raises(ProcessLookupError):
        table.open_handle(PEER, FULL.replace(":22", ":23"))
    with pytest.raises(ProcessLookupError):
        table.open_handle(999, FULL)
    machine.processes[PEER].threads[PEER + 1] = ("S", 0)
    with pytest.raises(ProcessLookupError):
        table.open_handle(PEER + 1, FULL)


def test_a_handle_is_compared_by_ticks_where_inodes_are_missing(machine: Machine, table: LinuxProcesses) -> None:
    machine.pidfs = False
    handle = table.open_handle(PEER, FULL)
    assert handle is not None
    machine.close(handle)
    with pytest.raises(ProcessLookupError):
        table.open_handle(PEER, FULL.replace(":5000:", ":5001:"))
    machine.hooks["read /proc/200/stat"] = lambda: None
    machine.hooks["ready"] = lambda: machine.reap(PEER)
    assert table.open_handle(PEER, FULL) is None


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM, *TRANSIENT])
def test_no_pidfd_is_no_handle_and_no_error(machine: Machine, table: LinuxProcesses, refusal: int) -> None:
    machine.failures["pidfd_open"] = refusal
    assert table.open_handle(PEER, FULL) is None


@pytest.mark.parametrize("start_id", ["", "nonsense", "psutil:1.0", FULL.replace(BOOT, ""), FULL.replace("4c", "5c")])
def test_a_handle_of_a_process_that_cannot_be_compared_is_not_given(table: LinuxProcesses, start_id: str) -> None:
    assert table.open_handle(PEER, start_id) is None


def test_a_handle_that_cannot_be_compared_right_now_is_not_given(machine: Machine, table: LinuxProcesses) -> None:
    machine.pidfs = False
    machine.failures[f"open /proc/{PEER}/stat"] = errno.EMFILE
    assert table.open_handle(PEER, FULL) is None


# parsing and text


@pytest.mark.parametrize("title", ["sh", "a) Z 1 (b", "", ")", ") Z 1 1 1 1 1 1 1 1 1", "(((", "a\nb", "\xff"])
def test_a_title_cannot_break_the_stat_line(title: str) -> None:
    line = f"7 ({title}) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 8127731 10 11\n".encode("latin-1")
    stat = parse_stat(line)
    assert (stat.state, stat.flags, stat.threads, stat.ticks) == ("S", 4194560, 3, 8127731)


@pytest.mark.parametrize("line", [b"", b"7", b"7 (sh", b"7 (sh)", b"7 (sh) S 1 2 3", b"7 (sh) S " + b"x " * 30])
def test_what_is_no_stat_line_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_stat(line)


def test_command_lines_are_for_people(machine: Machine, table: LinuxProcesses) -> None:
    assert table.command_of(PEER) == "sleep 60"
    machine.processes[PEER].cmdline = b"sh\0-c\0echo \xff\n\x1b[31m\0"
    shown = table.command_of(PEER)
    assert shown is not None
    assert shown.isprintable()
    assert shown.encode("utf-8")
    machine.processes[PEER].cmdline = b""
    assert table.command_of(PEER) == "[kworker]"
    assert table.command_of(999) is None


def test_a_long_command_line_is_cut() -> None:
    assert len(command_text(["x" * 500])) == 200
    assert len(command_text(["\n" * 500])) == 200
    assert command_text(["a b", "c"]) == "'a b' c"
    assert command_text([os.fsdecode(b"\xff")]) == "'\\udcff'"


# the real kernel, for what needs nothing but ourselves


def test_the_real_table_sees_this_process_and_its_threads() -> None:
    table = LinuxProcesses()
    seen = table.observe(os.getpid())
    assert (seen.exists, seen.state, seen.start_id) == (True, ProcessState.RUNNING, table.current().start_id)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert table.observe(thread.native_id).exists is False
        assert LinuxProcesses(pidfd=False).observe(thread.native_id).exists is False
    finally:
        stop.set()
        thread.join()


def test_the_real_table_without_proc_knows_itself_by_pidfd() -> None:
    table = LinuxProcesses(proc="/nonexistent")
    me = table.current()
    assert (me.boot_id, me.pid_namespace) == (None, None)
    assert me.start_id.startswith("linux::::")
    assert me.start_id.rsplit(":", 1)[1] == LinuxProcesses().current().start_id.rsplit(":", 1)[1]
    assert table.observe(os.getpid()).state is ProcessState.RUNNING


def test_our_own_command_is_the_one_we_were_started_with() -> None:
    assert LinuxProcesses().current().command.startswith(sys.orig_argv[0][:150])
