"""Groups and signals of the real tables, on a machine made of dictionaries: what each refusal and race leads to."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ownership._process import ProcessState
from ownership._process._kernel import Kernel
from ownership._process._linux import LinuxProcesses
from ownership._process._portable import PortableProcesses
from ownership._process._procfs import conceals
from tests.ownership.test_process_linux import BOOT, OWN, PEER, Machine, Open

CHILD, STRANGER = 201, 300
OWN_GROUP = 90
PROC = "29 1 0:25 / /proc rw,nosuid shared:9 - proc proc {}\n"
ALL_IDS = b"         0          0 4294967295\n"
TERM = int(signal.SIGTERM)


@dataclass
class Groups(Machine):
    """A machine that knows groups; what was sent is noted."""

    sent: list[tuple[str, int, int]] = field(default_factory=list)
    understood: frozenset[int] = frozenset({0, 4})

    def getpgid(self, pid: int) -> int:
        self._step(f"getpgid {pid}")
        if pid not in self.processes:
            raise ProcessLookupError(errno.ESRCH, "no process")
        return self.processes[pid].group

    def getpgrp(self) -> int:
        return OWN_GROUP

    def kill(self, pid: int, number: int) -> None:
        self._step(f"kill {pid}")
        self._send("kill", pid, number, pid in self.processes)

    def killpg(self, pgid: int, number: int) -> None:
        self._step(f"killpg {pgid} {number}")
        self._send("killpg", pgid, number, any(one.group == pgid for one in self.processes.values()))

    def pidfd_send_signal(self, pidfd: int, number: int, flags: int) -> None:
        process = self.descriptors[pidfd].process
        assert process is not None
        self._step(f"pidfd_send_signal {process.inode} {number}")
        if flags not in self.understood:
            raise OSError(errno.EINVAL, "flags")
        leader = next(iter(process.threads))
        there = any(one.group == leader for one in self.processes.values()) if flags else not process.reaped
        self._send("pidfd group" if flags else "pidfd", leader, number, there)

    def _send(self, how: str, number: int, signal: int, there: bool) -> None:
        if not there:
            raise ProcessLookupError(errno.ESRCH, "nobody")
        if signal:
            self.sent.append((how, number, signal))

    def open(self, path: str, flags: int, directory: int | None = None) -> int:
        if path == "/proc":
            self._step("open /proc")
            return self._give(Open("/proc"))
        return super().open(path, flags, directory)

    def listdir(self, descriptor: int) -> list[str]:
        if self.descriptors[descriptor].name != "/proc":
            return super().listdir(descriptor)
        self._step("listdir /proc")
        shown = [str(pid) for pid, process in self.processes.items() if process.hidden != errno.ENOENT]
        return ["self", "sys", *shown, "uptime"]


@pytest.fixture
def machine() -> Iterator[Groups]:
    """Ourselves in a group of ours; a peer that leads a group with a child; a stranger. Nothing stays open."""
    machine = Groups()
    machine.add(OWN, 11, "R", group=OWN_GROUP)
    machine.add(PEER, 22, group=PEER)
    machine.add(CHILD, 23, group=PEER)
    machine.add(STRANGER, 33, group=STRANGER)
    machine.files["/proc/sys/kernel/random/boot_id"] = f"{BOOT}\n".encode()
    machine.files["/proc/thread-self/mountinfo"] = PROC.format("rw").encode()
    machine.files["/proc/thread-self/status"] = b"Name:\tx\nCapEff:\t0000000000000000\n"
    machine.files["/proc/thread-self/uid_map"] = ALL_IDS
    yield machine
    assert machine.descriptors == {}


@pytest.fixture
def table(machine: Groups) -> LinuxProcesses:
    return LinuxProcesses(kernel=machine)


def members(table: LinuxProcesses | PortableProcesses, pgid: int = PEER) -> list[int]:
    listing = table.list_group(pgid)
    assert listing.fault == ""
    return [one.pid for one in listing.members]


# listing


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_listing_has_every_member_and_nobody_else(machine: Groups, pidfd: bool) -> None:
    table = LinuxProcesses(kernel=machine, pidfd=pidfd)
    assert members(table) == [PEER, CHILD]
    assert [one.group for one in table.list_group(PEER).members] == [PEER, PEER]
    assert (table.observe(CHILD).group, table.observe(STRANGER).group, table.own_group()) == (PEER, STRANGER, OWN_GROUP)


def test_titles_do_not_move_the_field_of_the_group(machine: Groups, table: LinuxProcesses) -> None:
    machine.processes[CHILD].title = f"x) S 1 {STRANGER} (y"
    assert members(table) == [PEER, CHILD]


def test_zombies_are_listed_as_such_and_threads_are_counted(machine: Groups, table: LinuxProcesses) -> None:
    machine.processes[PEER].threads = {PEER: ("Z", 0), PEER + 50: ("S", 0)}
    machine.processes[CHILD].threads = {CHILD: ("Z", 0)}
    states = [one.state for one in table.list_group(PEER).members]
    assert states == [ProcessState.RUNNING, ProcessState.ZOMBIE]


def test_that_nobody_is_in_a_group_needs_no_proc(machine: Groups, table: LinuxProcesses) -> None:
    machine.proc_self = ""
    assert members(table, 777) == []
    assert table.list_group(PEER).fault != ""


def test_a_member_that_goes_while_it_is_looked_at_is_no_member(machine: Groups, table: LinuxProcesses) -> None:
    machine.hooks[f"pidfd_open {CHILD}"] = lambda: machine.reap(CHILD)
    assert members(table) == [PEER]


def test_one_whose_number_is_given_to_a_stranger_meanwhile_is_no_member(machine: Groups, table: LinuxProcesses) -> None:
    def reuse() -> None:
        machine.reap(CHILD)
        machine.add(CHILD, 99, group=STRANGER)

    machine.hooks[f"pidfd_open {CHILD}"] = reuse
    assert members(table) == [PEER]


def test_a_child_with_a_number_that_was_passed_already_is_found(machine: Groups, table: LinuxProcesses) -> None:
    """Its parent forks it and ends while the others are looked at: nobody alive was seen, so there is a second look."""
    machine.processes[PEER].threads = {PEER: ("Z", 0)}

    def fork_and_end() -> None:
        machine.processes[CHILD].threads = {CHILD: ("Z", 0)}
        machine.add(150, 44, group=PEER)

    machine.hooks[f"open /proc/{CHILD}/stat"] = fork_and_end
    assert living(table) == [150]


def living(table: LinuxProcesses) -> list[int]:
    return [one.pid for one in table.list_group(PEER).members if one.state is not ProcessState.ZOMBIE]


@pytest.mark.parametrize("call", [f"open /proc/{CHILD}/stat", f"pidfd_open {CHILD}"])
def test_a_member_that_left_a_successor_and_was_reaped_is_not_overlooked(
    machine: Groups, table: LinuxProcesses, call: str
) -> None:
    machine.processes[PEER].threads = {PEER: ("Z", 0)}

    def succeed() -> None:
        machine.reap(CHILD)
        machine.add(250, 44, group=PEER)

    machine.hooks[call] = succeed
    assert living(table) == [250]


def test_members_that_come_and_go_at_every_look_count_as_live(machine: Groups, table: LinuxProcesses) -> None:
    """Each starts the next and ends before it is looked at."""
    machine.processes[PEER].threads = {PEER: ("Z", 0)}
    pids = iter(range(CHILD, CHILD + 90))

    def succeed() -> None:
        pid = next(pids)
        machine.reap(pid)
        machine.add(pid + 1, 1000 + pid, group=PEER)
        machine.hooks[f"open /proc/{pid + 1}/stat"] = succeed

    machine.hooks[f"open /proc/{CHILD}/stat"] = succeed
    listing = table.list_group(PEER)
    assert "come and go" in listing.fault
    assert [one.pid for one in listing.members] == [PEER]


def test_a_group_that_exists_but_shows_no_member_cannot_be_listed(machine: Groups, table: LinuxProcesses) -> None:
    """Its members live in a pid namespace around ours, for instance."""
    for pid in (PEER, CHILD):
        machine.processes[pid].hidden = errno.ENOENT
    assert "not shown" in table.list_group(PEER).fault


def test_strangers_that_come_and_go_do_not_keep_a_group_of_zombies_alive(
    machine: Groups, table: LinuxProcesses
) -> None:
    for pid in (PEER, CHILD):
        machine.processes[pid].threads = {pid: ("Z", 0)}
    machine.hooks[f"open /proc/{CHILD}/stat"] = lambda: machine.reap(STRANGER)
    listing = table.list_group(PEER)
    assert ([one.pid for one in listing.members], listing.fault) == ([PEER, CHILD], "")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("call", ["open /proc", "listdir /proc", f"open /proc/{CHILD}/stat", "mountinfo"])
def test_what_cannot_be_read_may_be_a_member(machine: Groups, table: LinuxProcesses, call: str, number: int) -> None:
    table.current()
    machine.failures = {call: number}
    assert os.strerror(number) in table.list_group(PEER).fault


def test_a_line_that_cannot_be_parsed_may_be_that_of_a_member(machine: Groups, table: LinuxProcesses) -> None:
    table.current()
    machine.files[f"/proc/{CHILD}/stat"] = b"garbage"
    assert table.list_group(PEER).fault


@pytest.mark.parametrize(
    ("options", "capabilities", "uid_map", "complete"),
    [
        ("rw", b"0", ALL_IDS, True),
        ("rw,hidepid=0", b"0", ALL_IDS, True),
        ("rw,hidepid=off", b"0", ALL_IDS, True),
        ("rw,hidepid=2", b"0", ALL_IDS, False),
        ("rw,hidepid=invisible", b"0", ALL_IDS, False),
        ("rw,hidepid=ptraceable", b"0", ALL_IDS, False),
        ("rw,gid=9,hidepid=1", b"0", ALL_IDS, False),
        ("rw,hidepid=2", b"000001ffffffffff", ALL_IDS, True),
        ("rw,hidepid=2", b"000001fffff7ffff", ALL_IDS, False),
        ("rw,hidepid=2", b"000001ffffffffff", b"0 1000 1\n", False),
    ],
)
def test_a_proc_that_hides_processes_from_us_lists_no_group(
    machine: Groups, table: LinuxProcesses, options: str, capabilities: bytes, uid_map: bytes, complete: bool
) -> None:
    """Capabilities of a user namespace of our own show us only what is in it."""
    machine.files["/proc/thread-self/mountinfo"] = PROC.format(options).encode()
    machine.files["/proc/thread-self/status"] = b"Name:\tx\nCapEff:\t%b\n" % capabilities
    machine.files["/proc/thread-self/uid_map"] = uid_map
    assert (table.list_group(PEER).fault == "") is complete
    assert members(table, 777) == []


def test_the_mount_on_top_counts(machine: Groups) -> None:
    two = PROC.format("rw") + PROC.format("rw,hidepid=2")
    machine.files["/proc/thread-self/mountinfo"] = two.encode()
    assert "hidepid=2" in conceals(machine, "/proc")
    machine.files["/proc/thread-self/mountinfo"] = b"29 1 0:25 / / rw - ext4 /dev/x rw\n"
    assert conceals(machine, "/proc") == "/proc is no mount point"


def test_a_hidden_process_has_its_group_all_the_same(machine: Groups, table: LinuxProcesses) -> None:
    machine.processes[PEER].hidden = errno.ENOENT
    seen = table.observe(PEER)
    assert (seen.state, seen.group) == (ProcessState.RUNNING, PEER)
    machine.failures = {"getpgid": errno.EPERM}
    assert table.observe(PEER).group is None


# signals to a process


def full(inode: int) -> str:
    return f"linux:{BOOT}:5000:4026531834:{inode}"


def test_a_process_is_signalled_by_its_pidfd(machine: Groups, table: LinuxProcesses) -> None:
    assert table.send(PEER, full(22), TERM)
    assert table.send(PEER, full(22), 0)
    assert machine.sent == [("pidfd", PEER, TERM)]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_pidfds_take_no_signals_the_number_does_after_a_look(
    machine: Groups, table: LinuxProcesses, number: int
) -> None:
    """A sandbox that refuses the call refuses it for ourselves too."""
    machine.failures = {"pidfd_send_signal": number}
    assert table.send(PEER, full(22), TERM)
    assert machine.sent == [("kill", PEER, TERM)]


def test_a_refusal_of_that_process_alone_is_one(machine: Groups, table: LinuxProcesses) -> None:
    machine.failures = {"pidfd_send_signal 22": errno.EPERM}
    with pytest.raises(PermissionError):
        table.send(PEER, full(22), TERM)
    assert machine.sent == []


def test_without_pidfds_the_number_is_signalled_if_it_is_that_process(machine: Groups) -> None:
    table = LinuxProcesses(kernel=machine, pidfd=False)
    by_ticks = f"linux:{BOOT}:5000:4026531834:"
    assert table.send(PEER, by_ticks, TERM)
    assert machine.sent == [("kill", PEER, TERM)]
    with pytest.raises(ProcessLookupError):
        table.send(PEER, f"linux:{BOOT}:4999:4026531834:", TERM)
    assert table.send(PEER, "linux:another-boot:5000:4026531834:", TERM) is False
    with pytest.raises(ProcessLookupError):
        table.send(777, by_ticks, TERM)
    assert len(machine.sent) == 1


def test_the_number_of_another_process_is_never_signalled(machine: Groups, table: LinuxProcesses) -> None:
    with pytest.raises(ProcessLookupError):
        table.send(PEER, full(99), TERM)

    def reuse() -> None:
        machine.reap(PEER)
        machine.add(PEER, 99)

    machine.hooks["pidfd_send_signal"] = reuse
    with pytest.raises(ProcessLookupError):
        table.send(PEER, full(22), TERM)
    assert machine.sent == []


def test_out_of_descriptors_the_number_does_after_a_look(machine: Groups, table: LinuxProcesses) -> None:
    table.current()
    machine.failures = {"pidfd_open": errno.EMFILE}
    by_ticks = f"linux:{BOOT}:5000:4026531834:"
    assert table.send(PEER, by_ticks, TERM)
    assert machine.sent == [("kill", PEER, TERM)]


@pytest.mark.parametrize("pid", [1, OWN, 0, -1, -PEER, True, 2**31])
def test_some_processes_are_never_signalled(machine: Groups, table: LinuxProcesses, pid: int) -> None:
    for one in (table, PortableProcesses(kernel=machine)):
        with pytest.raises(ValueError, match="pid must"):
            one.send(pid, full(22), TERM)
    assert machine.sent == []


# signals to a group


@pytest.fixture
def handle(machine: Groups, table: LinuxProcesses) -> Iterator[int]:
    handle = table.open_handle(PEER, full(22))
    assert handle is not None
    yield handle
    machine.descriptors.pop(handle, None)


def test_a_group_is_signalled_through_the_pidfd_of_its_leader(
    machine: Groups, table: LinuxProcesses, handle: int
) -> None:
    assert table.send_group_of(handle, PEER, full(22), TERM)
    machine.reap(PEER)
    assert table.send_group_of(handle, PEER, full(22), TERM)
    machine.reap(CHILD)
    with pytest.raises(ProcessLookupError):
        table.send_group_of(handle, PEER, full(22), TERM)
    assert machine.sent == [("pidfd group", PEER, TERM)] * 2


def test_a_kernel_that_does_not_know_the_flag_is_found_out_by_trying(
    machine: Groups, table: LinuxProcesses, handle: int
) -> None:
    machine.understood = frozenset({0})
    assert table.send_group_of(handle, PEER, full(22), TERM) is False
    assert machine.sent == []


def test_a_descriptor_that_became_another_one_signals_nobody(machine: Groups, table: LinuxProcesses) -> None:
    """The program around us closed it, and opened a pidfd of its own that got the number."""
    handle = table.open_handle(PEER, full(22))
    assert handle is not None
    machine.descriptors[handle].process = machine.processes[STRANGER]
    assert table.send_group_of(handle, PEER, full(22), TERM) is False
    del machine.descriptors[handle]
    assert machine.sent == []


def test_before_pidfs_a_descriptor_is_not_believed_for_a_group(
    machine: Groups, table: LinuxProcesses, handle: int
) -> None:
    machine.pidfs = False
    table = LinuxProcesses(kernel=machine)
    assert table.send_group_of(handle, PEER, f"linux:{BOOT}:5000:4026531834:", TERM) is False
    assert machine.sent == []


@pytest.mark.parametrize("pgid", [1, 0, -1, -PEER, OWN_GROUP, True, 2**31])
def test_some_groups_are_never_signalled(machine: Groups, table: LinuxProcesses, handle: int, pgid: int) -> None:
    machine.processes[OWN].group = OWN_GROUP
    for one in (table, PortableProcesses(kernel=machine)):
        with pytest.raises(ValueError, match="pgid must"):
            one.send_group(pgid, TERM)
        with pytest.raises(ValueError, match="pgid must"):
            one.send_group_of(handle, pgid, full(22), TERM)
    assert machine.sent == []


def test_a_group_is_signalled_by_number(machine: Groups, table: LinuxProcesses) -> None:
    table.send_group(PEER, TERM)
    assert machine.sent == [("killpg", PEER, TERM)]
    with pytest.raises(ProcessLookupError):
        table.send_group(777, TERM)


# the psutil form


def module(machine: Groups, pids: Callable[[], list[int]] | None = None) -> Any:
    """A psutil that shows the machine's processes."""

    def find(pid: int) -> Any:
        if pid not in machine.processes:
            raise psutil.NoSuchProcess(pid)
        process = machine.processes[pid]
        status = psutil.STATUS_ZOMBIE if process.ended else psutil.STATUS_SLEEPING
        return SimpleNamespace(create_time=lambda: float(process.inode), status=lambda: status)

    names = ["Error", "NoSuchProcess", "ZombieProcess", "AccessDenied"]
    statuses = [name for name in dir(psutil) if name.startswith("STATUS_")]
    known = {name: getattr(psutil, name) for name in names + statuses}
    return SimpleNamespace(Process=find, pids=pids or (lambda: [0, *machine.processes]), **known)


@pytest.fixture
def portable(machine: Groups) -> PortableProcesses:
    return PortableProcesses(module(machine), kernel=machine)


def test_the_portable_form_lists_by_asking_each_process(machine: Groups, portable: PortableProcesses) -> None:
    machine.processes[CHILD].threads = {CHILD: ("Z", 0)}
    assert members(portable) == [PEER, CHILD]
    assert [one.state for one in portable.list_group(PEER).members] == [ProcessState.RUNNING, ProcessState.ZOMBIE]
    assert members(portable, 777) == []
    assert portable.observe(CHILD).group == PEER


def test_the_portable_form_says_what_it_could_not_ask(machine: Groups, portable: PortableProcesses) -> None:
    machine.failures = {f"getpgid {CHILD}": errno.EPERM}
    listing = portable.list_group(PEER)
    assert ([one.pid for one in listing.members], str(CHILD) in listing.fault) == ([PEER], True)

    def refuse() -> list[int]:
        raise psutil.AccessDenied

    assert PortableProcesses(module(machine, refuse), kernel=machine).list_group(PEER).fault


def test_the_portable_form_looks_before_it_signals_a_number(machine: Groups, portable: PortableProcesses) -> None:
    assert portable.send(PEER, "psutil:22.0", TERM)
    with pytest.raises(ProcessLookupError):
        portable.send(PEER, "psutil:23.0", TERM)
    with pytest.raises(ProcessLookupError):
        portable.send(777, "psutil:22.0", TERM)
    assert portable.send(PEER, "linux:a:1:2:3", TERM) is False
    portable.send_group(PEER, TERM)
    assert portable.send_group_of(5, PEER, "psutil:22.0", TERM) is False
    assert machine.sent == [("kill", PEER, TERM), ("killpg", PEER, TERM)]


def test_a_system_without_groups_has_none_and_signal_zero_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """There ``os.kill(pid, 0)`` would send Ctrl-C."""
    for name in ("getpgid", "getpgrp", "killpg"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("nothing is to be sent"))
    kernel = Kernel()
    kernel.kill(os.getpid(), 0)
    table = PortableProcesses(kernel=kernel)
    assert table.own_group() is None
    assert table.list_group(PEER).fault
    with pytest.raises(OSError, match="not implemented"):
        table.send_group(PEER, TERM)
