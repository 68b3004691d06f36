"""Process groups and signals of the fake table: who is reached by what, and what becomes of it."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ownership._process import CONTINUE, KILL, ProcessState, Surroundings

_NOTHING_AROUND = Surroundings("fake")


@dataclass(frozen=True, slots=True)
class FakeProcess:
    """One process of the table.

    :ivar group: its process group
    :ivar led_by: start id of the process that founded that group, which tells it from others with that number
    :ivar ignores: signals that do nothing to it
    :ivar lingers: nobody reaps it when a signal ends it
    :ivar forbidden: we may not signal it
    :ivar activity: how often it was told to run
    :ivar pending: a signal that would end it came while it was stopped
    """

    start_id: str
    state: ProcessState
    command: str | None
    detail: str = ""
    exists: bool | None = True
    group: int | None = None
    led_by: str = ""
    ignores: frozenset[int] = frozenset()
    lingers: bool = False
    forbidden: bool = False
    pending: bool = False
    surroundings: Surroundings = _NOTHING_AROUND
    activity: int = 0


class FakeGroups(ABC):
    """The part of :class:`FakeProcessTable` that is about groups and signals.

    :ivar signals: every signal sent, ``("process", pid, number)`` or ``("group", pgid, number)``; no mere tries (0)
    :ivar before_signal: called right before a signal is delivered, that is after whoever sends it has looked
    """

    def __init__(self) -> None:
        self._processes: dict[int, FakeProcess] = {}
        self.signals: list[tuple[str, int, int]] = []
        self.before_signal: Callable[[], None] | None = None

    def deliver(self, target: str, number: int, signal: int, pids: list[int], gone: str) -> None:
        """Send *signal* to *pids*, as kill(2) does: to those that we may signal, an error if that is nobody."""
        if not pids:
            raise ProcessLookupError(errno.ESRCH, gone)
        allowed = [pid for pid in pids if not self._processes[pid].forbidden]
        if not allowed:
            raise PermissionError(errno.EPERM, f"{target} {number} may not be signalled")
        if signal:
            self.signals.append((target, number, signal))
            for pid in allowed:
                self._receive(pid, signal)

    def tell(self, signal: int) -> None:
        """What happens between the look and the signal."""
        if signal and self.before_signal is not None:
            self.before_signal()

    def members_of(self, pgid: int, led_by: str | None = None) -> Iterator[int]:
        """Who is in a group, zombies included; the one founded by *led_by*, if given."""
        for pid, one in list(self._processes.items()):
            if one.group == pgid and led_by in (None, one.led_by):
                yield pid

    def _receive(self, pid: int, signal: int) -> None:
        one = self._processes[pid]
        if one.state is ProcessState.ZOMBIE or signal in one.ignores:
            return
        if signal == CONTINUE:
            if one.state is ProcessState.STOPPED:
                one = self._processes[pid] = replace(one, state=ProcessState.RUNNING, activity=one.activity + 1)
            if not one.pending:
                return
        elif signal != KILL and one.state in (ProcessState.STOPPED, ProcessState.TRACED, ProcessState.FROZEN):
            self._processes[pid] = replace(one, pending=True)
            return
        if one.lingers:
            self.zombify(pid)
        else:
            self.kill(pid)

    @abstractmethod
    def zombify(self, pid: int) -> None:
        """*pid* exits, and nobody reaps it."""

    @abstractmethod
    def kill(self, pid: int) -> None:
        """*pid* exits and is reaped."""
