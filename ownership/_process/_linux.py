"""The processes of a Linux machine: pidfd first, then ``/proc``, then signal 0. No process is ever spawned."""

from __future__ import annotations

import errno
import os
import sys
import time

from ownership._process._cgroups import CgroupFreezer
from ownership._process._groups import GroupReader
from ownership._process._instance import instance_id
from ownership._process._kernel import Kernel, read_file
from ownership._process._pidfd import NOT_A_LEADER, UNSUPPORTED, Pidfds
from ownership._process._probe import Probe
from ownership._process._procfs import EXITED, parse_stat
from ownership._process._signals import Sender, own_group, require_other_group, require_other_process, send_by_number
from ownership._process._startid import Comparison, LinuxStartId, parse_linux_start_id
from ownership._process._state import StateReader
from ownership._process._surroundings import read_activity, read_surroundings
from ownership._process._text import command_text, printable
from ownership._process._types import (
    GroupListing,
    Identity,
    ProcessObservation,
    ProcessState,
    Surroundings,
    validate_group,
    validate_pid,
)

_LOOKS = 8


class LinuxProcesses:
    """A :class:`ProcessTable` of Linux.

    A process counts as gone only on ESRCH, as a zombie only when each of its threads has exited; errors are neither.
    Not guaranteed: the start id of a process that ``/proc`` hides, on a kernel before 6.9.

    :param proc: where procfs is mounted
    :param kernel: the system calls, for tests that make them fail
    :param pidfd: whether to use pidfds at all
    """

    def __init__(self, *, proc: str = "/proc", kernel: Kernel | None = None, pidfd: bool = True) -> None:
        self._proc = proc
        self._kernel = kernel if kernel is not None else Kernel()
        self._pidfds = Pidfds(self._kernel, enabled=pidfd)
        self._freezer = CgroupFreezer(self._kernel, proc)
        states = StateReader(self._kernel, self._freezer)
        self._probe = Probe(self._kernel, proc, self._pidfds, states)
        self._groups = GroupReader(self._kernel, proc, self._probe.view, self.observe)
        self._sender = Sender(self._kernel, self._pidfds)
        self._identity: Identity | None = None

    def current(self) -> Identity:
        """See :meth:`ProcessTable.current`. Costs a getpid(2) once the identity is known."""
        pid, identity = self._kernel.getpid(), self._identity
        instance = instance_id(pid)  # another one after any fork, even if the child has the parent's number
        if identity is None or identity.pid != pid or identity.instance_id != instance:
            identity = self._identity = self._read_identity(pid, instance)
        return identity

    def observe(self, pid: int) -> ProcessObservation:
        """See :meth:`ProcessTable.observe`."""
        validate_pid(pid)
        for _ in range(_LOOKS):
            observation = self._probe.look(pid)
            if observation is not None:
                return observation
        return ProcessObservation(pid, None, None, ProcessState.UNKNOWN, f"process {pid} changed at every look")

    def open_handle(self, pid: int, start_id: str) -> int | None:
        """See :meth:`ProcessTable.open_handle`: a pidfd, whose process was compared with *start_id*."""
        validate_pid(pid)
        try:
            pidfd = self._pidfds.open(pid)
        except OSError as error:
            if error.errno == errno.ESRCH or (error.errno in NOT_A_LEADER and self.observe(pid).exists is False):
                raise ProcessLookupError(errno.ESRCH, f"no process {pid}") from None
            return None
        comparison = Comparison.UNKNOWN
        try:
            comparison = self._probe.compare(pid, pidfd, start_id)
        except (OSError, ValueError):
            pass
        finally:
            if comparison is not Comparison.SAME:
                self._kernel.close(pidfd)
        if comparison is Comparison.DIFFERENT:
            raise ProcessLookupError(errno.ESRCH, f"process {pid} is another one now")
        return pidfd if comparison is Comparison.SAME else None

    def has_ended(self, handle: int) -> bool:
        """See :meth:`ProcessTable.has_ended`."""
        try:
            return self._kernel.ready(handle)
        except OSError:
            return False

    def open_stat(self, pid: int, start_id: str) -> int | None:
        """See :meth:`ProcessTable.open_stat`: its stat line, read by :meth:`shows_life`."""
        return self._probe.open_stat(validate_pid(pid), start_id)

    def shows_life(self, stat: int) -> bool:
        """See :meth:`ProcessTable.shows_life`. A leader that has exited lives while other threads of it do."""
        try:
            line = parse_stat(self._kernel.pread(stat, 4096))
        except OSError as error:
            return error.errno != errno.ESRCH
        except ValueError:
            return True
        return line.state not in EXITED or line.threads > 1

    def linger(self, pid: int, seconds: float) -> bool:
        """See :meth:`ProcessTable.linger`. Without a pidfd nothing tells."""
        validate_pid(pid)
        time.sleep(seconds)
        return False

    def answers(self, pid: int) -> bool:
        """See :meth:`ProcessTable.answers`: signal 0, of which EPERM means *exists* (kill(2))."""
        return self._probe.signal_zero(validate_pid(pid)) is not False

    def activity(self, pid: int) -> int | None:
        """See :meth:`ProcessTable.activity`: the context switches of its threads."""
        validate_pid(pid)
        try:
            return read_activity(self._kernel, self._proc, pid) if self._probe.view().usable else None
        except OSError:
            return None

    def command_of(self, pid: int) -> str | None:
        """See :meth:`ProcessTable.command_of`. A process without a command line is shown by its title in brackets."""
        validate_pid(pid)
        try:
            if not self._probe.view().usable:
                return None
            arguments = read_file(self._kernel, f"{self._proc}/{pid}/cmdline", limit=4096).rstrip(b"\0").split(b"\0")
            if arguments != [b""]:
                return command_text(os.fsdecode(argument) for argument in arguments)
            return printable(f"[{os.fsdecode(read_file(self._kernel, f'{self._proc}/{pid}/comm', limit=64)).strip()}]")
        except OSError:
            return None

    def own_group(self) -> int | None:
        """See :meth:`ProcessTable.own_group`."""
        return own_group(self._kernel)

    def list_group(self, pgid: int) -> GroupListing:
        """See :meth:`ProcessTable.list_group`. Costs two short reads for each process of the machine."""
        return self._groups.members(validate_group(pgid))

    def send(self, pid: int, start_id: str, number: int) -> bool:
        """See :meth:`ProcessTable.send`. Without a pidfd: by number, right after a look that found the process."""
        require_other_process(self._kernel, pid)
        pidfd = self.open_handle(pid, start_id)
        if pidfd is not None:
            try:
                if self._sender.to_process(pidfd, number):
                    return True
            finally:
                self._kernel.close(pidfd)
        return send_by_number(self._kernel, self.observe(pid), start_id, number)

    def send_group(self, pgid: int, number: int) -> None:
        """See :meth:`ProcessTable.send_group`."""
        require_other_group(self._kernel, pgid)
        self._kernel.killpg(pgid, number)

    def send_group_of(self, handle: int, pid: int, start_id: str, number: int) -> bool:
        """See :meth:`ProcessTable.send_group_of`.

        Descriptors may be closed by the program around us and their numbers given out again, so that *handle* is what
        it was is seen by its inode. Kernels without such inodes have no signals for groups through pidfds either.
        """
        require_other_group(self._kernel, pid)
        expected = parse_linux_start_id(start_id)
        try:
            inode = self._pidfds.inode(handle)
        except OSError:
            return False
        if expected is None or inode is None or inode != expected.inode:
            return False
        return self._sender.to_group(handle, number)

    def surroundings_of(self, pid: int) -> Surroundings | None:
        """See :meth:`ProcessTable.surroundings_of`: what ``/proc`` says, where it speaks of our pid namespace."""
        validate_pid(pid)
        try:
            return (
                read_surroundings(self._kernel, self._proc, pid, self._freezer) if self._probe.view().usable else None
            )
        except (OSError, ValueError):
            return None

    def _read_identity(self, pid: int, instance: str) -> Identity:
        view = self._probe.view()
        inode = self._own_inode(pid)
        ticks = self._probe.ticks(pid) if view.usable else None
        return Identity(
            pid=pid,
            start_id=str(LinuxStartId(view.boot_id, ticks, view.time_namespace, inode)),
            instance_id=instance,
            boot_id=view.boot_id,
            pid_namespace=view.pid_namespace,
            host=os.uname().nodename,
            command=command_text(sys.orig_argv),
        )

    def _own_inode(self, pid: int) -> int | None:
        try:
            pidfd = self._pidfds.open(pid)
        except OSError as error:
            if error.errno in UNSUPPORTED | NOT_A_LEADER:
                return None
            raise
        try:
            return self._pidfds.inode(pidfd)
        finally:
            self._kernel.close(pidfd)
