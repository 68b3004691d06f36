"""Who is in a process group, by the stat lines of all processes (proc_pid_stat(5), field 5)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ownership._process._kernel import DIRECTORY, Kernel, read_file
from ownership._process._procfs import VANISHED, ProcView, conceals, parse_stat
from ownership._process._types import GroupListing, ProcessObservation, ProcessState


def is_empty_group(kernel: Kernel, pgid: int) -> bool:
    """Whether nobody is in the group *pgid*, not even a zombie: ESRCH is proof, whatever can be seen (kill(2))."""
    try:
        kernel.killpg(pgid, 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return False


class GroupReader:
    """Lists process groups.

    A process that is forked while the others are looked at may have a number that was passed already. So nobody alive
    is found twice in a row before nobody is alive. Not guaranteed: that a chain of processes, each of which starts the
    next and ends, is caught while the numbers wrap around.

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
        listing = GroupListing()
        for _ in range(2):
            if is_empty_group(self._kernel, pgid):
                return GroupListing()
            listing = self._look(pgid)
            if any(member.state is not ProcessState.ZOMBIE for member in listing.members):
                break
        return listing

    def _look(self, pgid: int) -> GroupListing:
        members: list[ProcessObservation] = []
        try:
            if not self._view().usable:
                return GroupListing(fault=f"{self._proc} is not that of our pid namespace")
            fault = conceals(self._kernel, self._proc)
            for pid in self._processes():
                try:
                    if self._group(pid) == pgid and (member := self._member(pid, pgid)) is not None:
                        members.append(member)
                except (OSError, ValueError) as error:
                    fault = fault or self._explain(error)
        except (OSError, ValueError) as error:
            fault = self._explain(error)
        return GroupListing(tuple(members), fault)

    def _processes(self) -> list[int]:
        directory = self._kernel.open(self._proc, DIRECTORY)
        try:
            return [int(name) for name in self._kernel.listdir(directory) if name.isdigit()]
        finally:
            self._kernel.close(directory)

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

    def _member(self, pid: int, pgid: int) -> ProcessObservation | None:
        seen = self._observe(pid)
        return None if seen.exists is False or seen.group not in (pgid, None) else seen

    def _explain(self, error: OSError | ValueError) -> str:
        if not isinstance(error, OSError):
            return f"{self._proc}: {error}"
        name = error.filename if isinstance(error.filename, str) else self._proc
        return f"{name}: {os.strerror(error.errno or 0)}"
