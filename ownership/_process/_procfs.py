"""What the files of ``/proc`` say: whether they speak of our pid namespace, and how they are parsed (proc(5))."""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from ownership._process._kernel import Kernel, read_file

# the process or the whole of /proc is not there, or not for us; every other error says nothing and may pass
VANISHED = frozenset({errno.ENOENT, errno.ESRCH, errno.ENOTDIR})
DENIED = frozenset({errno.EACCES, errno.EPERM})
ABSENT = VANISHED | DENIED | {errno.ELOOP, errno.EINVAL, errno.ENOSYS}

EXITED = frozenset("ZXx")  # states of a thread that has ended

_UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAMESPACE_PIDS = re.compile(rb"^NSpid:(.*)$", re.MULTILINE)
_CAPABILITIES = re.compile(rb"^CapEff:\s*([0-9a-fA-F]+)\s*$", re.MULTILINE)
_ALL_IDS = [b"0", b"0", b"4294967295"]
_CAP_SYS_PTRACE = 1 << 19
_THREAD_GROUP = re.compile(rb"^Tgid:\s*(\d+)\s*$", re.MULTILINE)
_CORE_DUMPING = re.compile(rb"^CoreDumping:\s*1\s*$", re.MULTILINE)


class ProcView(NamedTuple):
    """What ``/proc`` tells this process about where it runs.

    :ivar usable: ``/proc`` speaks of our pid namespace; otherwise nothing in it may be believed
    :ivar boot_id: ``None`` when hidden
    :ivar pid_namespace: inode of ours, ``"none"`` on a kernel without pid namespaces, ``None`` when hidden
    :ivar time_namespace: inode of ours, ``"none"`` on a kernel without time namespaces, ``None`` when hidden
    """

    usable: bool = False
    boot_id: str | None = None
    pid_namespace: int | str | None = None
    time_namespace: int | str | None = None


class ProcStat(NamedTuple):
    """The fields of ``/proc/<pid>/stat`` that matter here.

    :ivar state: one letter
    :ivar group: the process group, in the pid namespace of this ``/proc``
    :ivar flags: PF_* flags of the kernel
    :ivar threads: threads that have not been released
    :ivar ticks: start time since boot in clock ticks
    """

    state: str
    group: int
    flags: int
    threads: int
    ticks: int


def read_view(kernel: Kernel, proc: str, pid: int) -> ProcView:
    """Whether the ``/proc`` mounted at *proc* is that of our pid namespace, where we are *pid*, and what it tells.

    A ``/proc`` of another namespace shows another number as ``self`` and, where the numbers happen to agree, more than
    one number in ``NSpid`` (pid_namespaces(7)).

    :raises OSError: that cannot be told at the moment (out of descriptors or memory, an I/O error)
    """
    try:
        usable = kernel.readlink(f"{proc}/self") == str(pid) and _one_pid_namespace(kernel, proc)
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        usable = False
    if not usable:
        return ProcView()
    return ProcView(
        usable=True,
        boot_id=_boot_id(kernel, proc),
        pid_namespace=_namespace(kernel, proc, "pid"),
        time_namespace=_namespace(kernel, proc, "time"),
    )


def _one_pid_namespace(kernel: Kernel, proc: str) -> bool:
    pids = _NAMESPACE_PIDS.search(read_file(kernel, f"{proc}/self/status"))
    if pids is None:  # only a kernel without pid namespaces leaves the line out
        return _namespace(kernel, proc, "pid") == "none"
    return len(pids[1].split()) == 1


def _namespace(kernel: Kernel, proc: str, kind: str) -> int | str | None:
    """Asked of the calling thread: a leader that has exited has left its namespaces.

    A kernel without namespaces of this kind still has mount namespaces (namespaces(7)); where not even these are shown
    the answer is unknown.
    """
    try:
        return kernel.stat(f"{proc}/thread-self/ns/{kind}").st_ino
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        concealed = kind == "mnt" or error.errno not in VANISHED or _namespace(kernel, proc, "mnt") is None
        return None if concealed else "none"


def _boot_id(kernel: Kernel, proc: str) -> str | None:
    try:
        text = read_file(kernel, f"{proc}/sys/kernel/random/boot_id", limit=64).strip()
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    return text.decode("ascii") if _UUID.fullmatch(text) else None


def parse_stat(content: bytes) -> ProcStat:
    """Parse ``/proc/<pid>/stat``. Field 2 is the title, which may hold blanks and brackets: cut after the last one.

    :raises ValueError: it is not such a line
    """
    fields = content[content.rindex(b")") + 1 :].split(None, 20)
    if len(fields) < 20 or len(fields[0]) != 1:
        raise ValueError(f"not a stat line: {content[:80]!r}")
    return ProcStat(fields[0].decode("ascii"), int(fields[2]), int(fields[6]), int(fields[17]), int(fields[19]))


def thread_group(status: bytes) -> int:
    """The ``Tgid`` of a ``status`` file: the pid of the process that the thread belongs to.

    :raises ValueError: it is not such a file
    """
    found = _THREAD_GROUP.search(status)
    if found is None:
        raise ValueError(f"not a status file: {status[:80]!r}")
    return int(found[1])


def is_dumping_core(status: bytes) -> bool:
    """Whether a ``status`` file says that a core dump is being written (Linux 4.15)."""
    return _CORE_DUMPING.search(status) is not None


def conceals(kernel: Kernel, proc: str) -> str:
    """Why the ``/proc`` mounted at *proc* may not show every process, empty when it shows them all.

    With ``hidepid=`` (proc(5)) it shows only those that we may ptrace; that is all of them for CAP_SYS_PTRACE in the
    first user namespace. An exemption by ``gid=`` is not taken into account.

    :raises OSError: that cannot be told at the moment, or not at all
    """
    mountinfo = read_file(kernel, f"{proc}/thread-self/mountinfo", limit=1 << 24, many_records=True)
    options = _mount_options(mountinfo, os.fsencode(proc))
    if options is None:
        return f"{proc} is no mount point"
    hiding = [option for option in options if option.startswith(b"hidepid=")]
    if not hiding or hiding[-1] in (b"hidepid=0", b"hidepid=off"):
        return ""
    return "" if _sees_everybody(kernel, proc) else f"{proc} is mounted with {hiding[-1].decode('ascii', 'replace')}"


def _mount_options(mountinfo: bytes, mount_point: bytes) -> list[bytes] | None:
    """The options of the file system on top at *mount_point* (proc_pid_mountinfo(5)), ``None`` if there is none."""
    found = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(b" - ")
        fields, filesystem = before.split(b" "), after.split(b" ")
        if separator and len(fields) > 5 and fields[4] == mount_point:
            found = [*fields[5].split(b","), *filesystem[-1].split(b",")]
    return found


def _sees_everybody(kernel: Kernel, proc: str) -> bool:
    capabilities = _CAPABILITIES.search(read_file(kernel, f"{proc}/thread-self/status"))
    if capabilities is None or not int(capabilities[1], 16) & _CAP_SYS_PTRACE:
        return False
    return read_file(kernel, f"{proc}/thread-self/uid_map").split() == _ALL_IDS
