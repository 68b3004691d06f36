"""Who is in a process group, by the stat lines of all processes (proc_pid_stat(5), field 5)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from ownership._process._kernel import DIRECTORY, Kernel, read_file
from ownership._process._procfs import VANISHED, ProcView, conceals, parse_stat
from ownership._process._types import GroupListing, ProcessObservation, ProcessState

_LOOKS = 8


def is_empty_group(kernel: Kernel, pgid: int) -> bool:
    """Whether nobody is in the group *pgid*, not even a zombie: ESRCH is proof, whatever can be seen (kill(2))."""
    try:
        kernel.killpg(pgid, 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return False


@dataclass(slots=True)
class _Scan:
    """One pass over all processes.

    :ivar members: of the group, zombies included
    :ivar read: numbers of those that were found out of the group, or zombies in it: they start nobody who is in it
    :ivar vanished: numbers of those that were gone before they could be looked at
    :ivar fault: why somebody may have been missed
    """

    members: list[ProcessObservation] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    vanished: set[int] = field(default_factory=set)
    fault: str = ""

    @property
    def conclusive(self) -> bool:
        """Nothing more is learned by another pass: somebody lives, or cannot be looked at."""
        return bool(self.fault) or any(one.state is not ProcessState.ZOMBIE for one in self.members)

    def settles(self, known: set[int]) -> bool:
        """Whether everybody is a zombie, and was one before this pass began; *known* is what was read before it.

        A member that was alive when the numbers were listed may have started another one and ended since.
        """
        return bool(self.members) and {one.pid for one in self.members} | self.vanished <= known


class GroupReader:
    """Lists process groups. That nobody lives in one is said only after a look at all that could have missed nobody.

    :param view: what ``/proc`` is to us
    :param observe: one full-strength look at a process
    """

    def __init__(
        self,
        kernel: Kernel,
        proc: str,
        view: Callable[[], ProcView],
        observe: Callable[[int], ProcessObservation],
    ) -> None:
        self._kernel = kernel
        self._proc = proc
        self._view = view
        self._observe = observe

    def members(self, pgid: int) -> GroupListing:
        """See :meth:`ProcessTable.list_group`."""
        known: set[int] = set()
        for _ in range(_LOOKS):
            if is_empty_group(self._kernel, pgid):
                return GroupListing()
            scan = self._scan(pgid)
            if scan.conclusive or scan.settles(known):
                return GroupListing(tuple(scan.members), scan.fault)
            known |= scan.read
        hidden = (
            "its members come and go at every look" if scan.members or scan.vanished else "its members are not shown"
        )
        return GroupListing(tuple(scan.members), f"{self._proc}: {hidden}")

    def _scan(self, pgid: int) -> _Scan:
        scan = _Scan()
        try:
            if not self._view().usable:
                return _Scan(fault=f"{self._proc} is not that of our pid namespace")
            scan.fault = conceals(self._kernel, self._proc)
            for pid in self._processes():
                try:
                    self._classify(pid, pgid, scan)
                except (OSError, ValueError) as error:
                    scan.fault = scan.fault or self._explain(error)
        except (OSError, ValueError) as error:
            scan.fault = self._explain(error)
        scan.members.sort(key=lambda one: one.pid)
        return scan

    def _processes(self) -> list[int]:
        """All numbers, the youngest first as a rule: they are the most likely to be gone soon."""
        directory = self._kernel.open(self._proc, DIRECTORY)
        try:
            return sorted((int(name) for name in self._kernel.listdir(directory) if name.isdigit()), reverse=True)
        finally:
            self._kernel.close(directory)

    def _classify(self, pid: int, pgid: int, scan: _Scan) -> None:
        """:raises OSError: *pid* cannot be read; also ValueError, for a line that is none"""
        group = self._group(pid)
        seen = self._observe(pid) if group == pgid else None
        if group is None or (seen is not None and seen.exists is False):
            scan.vanished.add(pid)
        elif seen is None or seen.group not in (pgid, None):
            scan.read.add(pid)
        else:
            scan.members.append(seen)
            if seen.state is ProcessState.ZOMBIE:
                scan.read.add(pid)

    def _group(self, pid: int) -> int | None:
        """The group of *pid*, ``None`` when it is gone.

        :raises OSError: it cannot be read
        :raises ValueError: it cannot be parsed
        """
        try:
            return parse_stat(read_file(self._kernel, f"{self._proc}/{pid}/stat", limit=4096)).group
        except OSError as error:
            if error.errno in VANISHED:
                return None
            raise

    def _explain(self, error: OSError | ValueError) -> str:
        if not isinstance(error, OSError):
            return f"{self._proc}: {error}"
        name = error.filename if isinstance(error.filename, str) else self._proc
        return f"{name}: {os.strerror(error.errno or 0)}"
