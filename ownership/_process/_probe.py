"""One full-strength look at a process of a Linux machine, by whatever the machine lets us see."""

from __future__ import annotations

import errno
import os

from ownership._process._instance import instance_id
from ownership._process._kernel import DIRECTORY_NAME_ONLY, READ_ONLY, Kernel, read_file
from ownership._process._pidfd import NOT_A_LEADER, Pidfds
from ownership._process._procfs import ABSENT, DENIED, VANISHED, ProcStat, ProcView, parse_stat, read_view, thread_group
from ownership._process._startid import Comparison, LinuxStartId, compare_start_ids
from ownership._process._state import StateReader
from ownership._process._types import ProcessObservation, ProcessState


class _NotALeader(Exception):
    """The number is that of a thread of another process."""


class Probe:
    """Looks at processes. Gone needs ESRCH, a zombie the exit of every thread; a failure is reported, never guessed.

    A pidfd opened first holds the process, so what ``/proc`` says afterwards is of that process if the pidfd has not
    ended by then, or if a fresh one has the same inode.
    """

    def __init__(self, kernel: Kernel, proc: str, pidfds: Pidfds, states: StateReader) -> None:
        self._kernel = kernel
        self._proc = proc
        self._pidfds = pidfds
        self._states = states
        self._known_view: tuple[tuple[int, str], ProcView] | None = None

    def view(self) -> ProcView:
        """What ``/proc`` is to us, read once for each process that we have been (a fork may enter a pid namespace).

        :raises OSError: that cannot be told at the moment
        """
        pid = self._kernel.getpid()
        key, known = (pid, instance_id(pid)), self._known_view
        if known is None or known[0] != key:
            known = self._known_view = (key, read_view(self._kernel, self._proc, pid))
        return known[1]

    def ticks(self, pid: int) -> int:
        """The start time of *pid* in clock ticks.

        :raises OSError: it cannot be read
        """
        return parse_stat(read_file(self._kernel, f"{self._proc}/{pid}/stat", limit=4096)).ticks

    def look(self, pid: int) -> ProcessObservation | None:
        """One look at *pid*; ``None`` when it changed meanwhile: look again."""
        try:
            pidfd = self._pidfds.open(pid)
        except OSError as error:
            if error.errno == errno.ESRCH:
                return _gone(pid)
            if error.errno in NOT_A_LEADER:
                return self._look_at_refused(pid)
            return self._look_without_pidfd(pid, error)
        try:
            return self._look_with_pidfd(pid, pidfd)
        except OSError as error:
            return _failed(pid, self.signal_zero(pid), f"pidfd of {pid}: {os.strerror(error.errno or 0)}")
        finally:
            self._kernel.close(pidfd)

    def compare(self, pid: int, pidfd: int, start_id: str) -> Comparison:
        """Whether the process behind *pidfd*, opened of *pid*, is the one of *start_id*.

        :raises OSError: that cannot be told at the moment
        :raises ValueError: a stat line cannot be parsed
        """
        view = self.view()
        by_inode = str(LinuxStartId(boot_id=view.boot_id, inode=self._pidfds.inode(pidfd)))
        comparison = compare_start_ids(by_inode, start_id)
        if comparison is not Comparison.UNKNOWN or not view.usable:
            return comparison
        ticks = self.ticks(pid)
        if self._pidfds.has_ended(pidfd):  # the line may be of a successor
            return Comparison.UNKNOWN
        return compare_start_ids(str(LinuxStartId(view.boot_id, ticks, view.time_namespace)), start_id)

    def open_stat(self, pid: int, start_id: str) -> int | None:
        """A descriptor of the stat line of the process with that start id. Bound to it: once it is reaped, ESRCH.

        :raises ProcessLookupError: the process is gone, or another one
        """
        descriptor = -1
        comparison = Comparison.UNKNOWN
        try:
            view = self.view()
            if not view.usable:
                return None
            descriptor = self._kernel.open(f"{self._proc}/{pid}/stat", READ_ONLY)
            ticks = parse_stat(self._kernel.pread(descriptor, 4096)).ticks
            found = str(LinuxStartId(view.boot_id, ticks, view.time_namespace))
            comparison = compare_start_ids(found, start_id)
        except ValueError:
            pass
        except OSError as error:
            if error.errno in VANISHED and self.signal_zero(pid) is False:  # else it is hidden from us
                comparison = Comparison.DIFFERENT
        finally:
            if descriptor >= 0 and comparison is not Comparison.SAME:
                self._kernel.close(descriptor)
        if comparison is Comparison.DIFFERENT:
            raise ProcessLookupError(errno.ESRCH, f"process {pid} is gone, or another one now")
        return descriptor if comparison is Comparison.SAME else None

    def _look_with_pidfd(self, pid: int, pidfd: int) -> ProcessObservation | None:
        inode, view = self._pidfds.inode(pidfd), None
        try:
            view = self.view()
            if not view.usable:
                return self._look_at_hidden(pid, pidfd, inode, view)
            stat, state = self._read(pid)
        except (OSError, ValueError) as error:
            if view is not None and isinstance(error, OSError) and error.errno in VANISHED | DENIED:
                return self._look_at_hidden(pid, pidfd, inode, view)
            return self._look_failed(pid, pidfd, inode, view, self._explain(pid, error))
        if self._pidfds.has_ended(pidfd) and (
            state is not ProcessState.ZOMBIE or (inode is not None and not self._pidfds.is_still(pid, inode))
        ):
            return None
        start_id = str(LinuxStartId(view.boot_id, stat.ticks, view.time_namespace, inode))
        return ProcessObservation(pid, True, start_id, state, group=stat.group)

    def _look_at_hidden(self, pid: int, pidfd: int, inode: int | None, view: ProcView) -> ProcessObservation | None:
        """``/proc`` does not show the process. Its pidfd tells who it is and whether it has ended; else it runs."""
        start_id = None if inode is None else str(LinuxStartId(boot_id=view.boot_id, inode=inode))
        group = self._group(pid)
        if not self._pidfds.has_ended(pidfd):
            return ProcessObservation(pid, True, start_id, ProcessState.RUNNING, group=group)
        if self._pidfds.is_zombie(pid, inode):
            return ProcessObservation(pid, True, start_id, ProcessState.ZOMBIE, group=group)
        return None

    def _group(self, pid: int) -> int | None:
        """The process group that getpgid(2) tells of whoever has the number *pid*."""
        try:
            return self._kernel.getpgid(pid)
        except OSError:
            return None

    def _look_failed(
        self, pid: int, pidfd: int, inode: int | None, view: ProcView | None, failure: str
    ) -> ProcessObservation:
        """A read failed, which is no verdict on the process, but its pidfd may still tell who it is."""
        if self._pidfds.has_ended(pidfd) and (inode is None or not self._pidfds.is_still(pid, inode)):
            return _failed(pid, None, failure)
        start_id = None if inode is None or view is None else str(LinuxStartId(boot_id=view.boot_id, inode=inode))
        return ProcessObservation(pid, True, start_id, ProcessState.UNKNOWN, failure)

    def _look_at_refused(self, pid: int) -> ProcessObservation | None:
        """pidfd_open says that *pid* leads no thread group: a thread, or just gone. Never a failed probe by itself."""
        try:
            if self.view().usable:
                group = thread_group(read_file(self._kernel, f"{self._proc}/{pid}/status"))
                return None if group == pid else _gone(pid)  # it leads one by now
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError) or error.errno not in ABSENT:
                return _failed(pid, self.signal_zero(pid), self._explain(pid, error))
            if error.errno in VANISHED and self.signal_zero(pid) is False:
                return _gone(pid)
        if self._pidfds.work(self._kernel.getpid()):
            return _gone(pid)
        return _failed(pid, self.signal_zero(pid), f"pidfd_open({pid}): refused, and so is one of ourselves")

    def _look_without_pidfd(self, pid: int, error: OSError) -> ProcessObservation:
        """No pidfd, for want of support or of descriptors: ``/proc`` if it is ours, then signal 0."""
        failure = f"pidfd_open({pid}): {os.strerror(error.errno or 0)}"
        try:
            view = self.view()
            if view.usable:
                stat, state = self._read(pid, leaders_only=True)
                start_id = str(LinuxStartId(view.boot_id, stat.ticks, view.time_namespace))
                return ProcessObservation(pid, True, start_id, state, group=stat.group)
        except _NotALeader:
            return _gone(pid)
        except (OSError, ValueError) as unread:
            failure = f"{failure}; {self._explain(pid, unread)}"
        return _failed(pid, self.signal_zero(pid), failure)

    def _read(self, pid: int, *, leaders_only: bool = False) -> tuple[ProcStat, ProcessState]:
        """Stat line and state of *pid*, both of one process.

        :param leaders_only: refuse a thread id; pidfd_open does that by itself, ``/proc`` does not
        """
        directory = self._kernel.open(f"{self._proc}/{pid}", DIRECTORY_NAME_ONLY)
        try:
            if leaders_only and thread_group(read_file(self._kernel, "status", directory)) != pid:
                raise _NotALeader
            return self._states.read(directory)
        finally:
            self._kernel.close(directory)

    def signal_zero(self, pid: int) -> bool | None:
        """Whether signal 0 finds *pid*, be it a thread. EPERM is *exists* (kill(2)); ``None`` for other refusals."""
        try:
            self._kernel.signal_zero(pid)
        except OSError as error:
            return {errno.ESRCH: False, errno.EPERM: True}.get(error.errno or 0)
        return True

    def _explain(self, pid: int, error: OSError | ValueError) -> str:
        if not isinstance(error, OSError):
            return f"{self._proc}/{pid}: {error}"
        name = error.filename if isinstance(error.filename, str) else ""  # listdir(3) of a descriptor gives its number
        path = name if name.startswith("/") else f"{self._proc}/{pid}/{name}".rstrip("/")
        return f"{path}: {os.strerror(error.errno or 0)}"


def _gone(pid: int) -> ProcessObservation:
    return ProcessObservation(pid, False, None, ProcessState.UNKNOWN)


def _failed(pid: int, exists: bool | None, failure: str) -> ProcessObservation:
    return ProcessObservation(pid, exists, None, ProcessState.UNKNOWN, "" if exists is False else failure)
