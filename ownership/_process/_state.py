"""The state of a whole process from the states of its threads, read through one descriptor of its ``/proc`` directory.

Such a descriptor stays bound to the process: once that is reaped every read through it is ESRCH, whoever has the
number then. The stat line of a process shows its leader only, and a leader that ended by itself stays ``Z`` while the
other threads work on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ownership._process._cgroups import CgroupFreezer
from ownership._process._kernel import DIRECTORY, Kernel, read_file
from ownership._process._procfs import EXITED, VANISHED, ProcStat, is_dumping_core, parse_stat
from ownership._process._types import ProcessState

_ASLEEP = frozenset("SD")
_HALTED = {"T": ProcessState.STOPPED, "t": ProcessState.TRACED}
_DYING = 0x4 | 0x200 | 0x400  # PF_EXITING, PF_DUMPCORE, PF_SIGNALED (linux/sched.h): a core dump may be under way
_LOOKS = 8


class _ThreadsChanged(Exception):
    """A thread went while the threads were looked at, so another may have come."""


class StateReader:
    """Tells what a process is doing. Its answers are at most as old as the call."""

    def __init__(self, kernel: Kernel, freezer: CgroupFreezer) -> None:
        self._kernel = kernel
        self._freezer = freezer

    def read(self, process: int) -> tuple[ProcStat, ProcessState]:
        """The leader's stat line and the state of the process whose ``/proc`` directory is open as *process*.

        A process whose threads change at every look is running.

        :raises OSError: it is gone (ENOENT, ESRCH), or a read failed
        :raises ValueError: a stat line cannot be parsed
        """
        for _ in range(_LOOKS):
            leader = self._stat(process, "stat")
            try:
                return leader, self._state(process, leader)
            except _ThreadsChanged:
                continue
        return leader, ProcessState.RUNNING

    def _state(self, process: int, leader: ProcStat) -> ProcessState:
        if leader.state in EXITED:
            return self._from_threads(process)
        if (leader.flags & _DYING or leader.state == "D") and self._is_dumping(process, "status"):
            return ProcessState.DUMPING
        if leader.state in _HALTED:
            return _HALTED[leader.state] if leader.threads == 1 else self._from_threads(process)
        if leader.state in _ASLEEP and self._freezer.is_frozen(process):
            return ProcessState.FROZEN if leader.threads == 1 else self._from_threads(process)
        return ProcessState.RUNNING

    def _from_threads(self, process: int) -> ProcessState:
        """Judge by every thread; the first that may run, or that is writing a core dump, settles it."""
        halted: list[ProcessState] = []
        exited: set[int] = set()
        for thread, stat in self._threads(process):
            if stat.state in EXITED:
                exited.add(thread)
            elif stat.flags & _DYING and self._is_dumping(process, f"task/{thread}/status"):
                return ProcessState.DUMPING
            elif stat.state in _HALTED:
                halted.append(_HALTED[stat.state])
            elif stat.state in _ASLEEP and (ProcessState.FROZEN in halted or self._freezer.is_frozen(process, thread)):
                halted.append(ProcessState.FROZEN)
            else:
                return ProcessState.RUNNING
        leader = self._stat(process, "stat")
        if leader.threads > len(halted) + len(exited):  # the listing missed one
            raise _ThreadsChanged
        for state in (ProcessState.FROZEN, ProcessState.TRACED, ProcessState.STOPPED):
            if state in halted:
                return state
        self._require_all_exited(process, leader, exited)
        return ProcessState.ZOMBIE

    def _require_all_exited(self, process: int, leader: ProcStat, exited: set[int]) -> None:
        """Each of *exited* was found exited, one after the other, and *leader* was read after that: is that all?

        Not yet: one that was found exited may have started another thread just before and be gone by now, and a thread
        that executes a program trades its number for the leader's. A line of an exited leader that counts one thread is
        proof: the kernel counts after it has read the state, and one thread is the leader itself (proc/array.c). If it
        counts more (tracers keep exited threads), just these must be there, exited, before and after the count.
        """
        if leader.state not in EXITED or leader.threads != len(exited):
            raise _ThreadsChanged
        if leader.threads > 1 and {(thread, stat.state in EXITED) for thread, stat in self._threads(process)} != {
            (thread, True) for thread in exited
        }:
            raise _ThreadsChanged

    def _threads(self, process: int) -> Iterator[tuple[int, ProcStat]]:
        directory = self._kernel.open("task", DIRECTORY, process)
        try:
            names = self._kernel.listdir(directory)
        finally:
            self._kernel.close(directory)
        for name in names:
            if name.isdigit():
                try:
                    yield int(name), self._stat(process, f"task/{name}/stat")
                except OSError as error:
                    if error.errno in VANISHED:
                        raise _ThreadsChanged from None
                    raise

    def _stat(self, process: int, name: str) -> ProcStat:
        return parse_stat(read_file(self._kernel, name, process, limit=4096))

    def _is_dumping(self, process: int, name: str) -> bool:
        """Whether ``CoreDumping`` is set. Only threads that still have their memory show it."""
        try:
            return is_dumping_core(read_file(self._kernel, name, process))
        except OSError as error:
            if error.errno in VANISHED:
                raise _ThreadsChanged from None
            raise
