"""One look at each process, for many questions about it that arose before that look."""

from __future__ import annotations

from typing import Any

from ownership._process import ProcessObservation, ProcessTable


class OnceSeen:
    """A process table that looks at each process once: many resources have one owner. Keep it for one round only.

    What it says of an owner holds for records that were there before its first look: a later one may be of a process
    that has got the number since.
    """

    def __init__(self, processes: ProcessTable) -> None:
        self._processes = processes
        self._seen: dict[int, ProcessObservation] = {}
        self._answered: dict[int, bool] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processes, name)

    def observe(self, pid: int) -> ProcessObservation:
        """See :meth:`ProcessTable.observe`: what the first look showed."""
        if pid not in self._seen:
            self._seen[pid] = self._processes.observe(pid)
        return self._seen[pid]

    def answers(self, pid: int) -> bool:
        """See :meth:`ProcessTable.answers`: what it said first."""
        known = self._answered.get(pid)
        if known is None:
            known = self._answered[pid] = self._processes.answers(pid)
        return known
