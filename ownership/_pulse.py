"""The cheap question whether a process is still there, bound to the process and not to its number where it can be."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from ownership import _fork
from ownership._directory import LockDirectory
from ownership._fork import Descriptor
from ownership._models import OwnerIdentity
from ownership._process import ProcessTable
from ownership._verdict import WitnessState
from ownership._witness import ask

_Key = tuple[int, int, str]


class ProcessPulse:
    """A pidfd, else a held descriptor of the process's stat line, else signal 0: what can be had at the moment.

    All who ask about one process share it, so that they cost one descriptor however many they are.
    """

    _shared: ClassVar[dict[_Key, ProcessPulse]] = {}
    _mutex: ClassVar[Any] = threading.RLock()

    def __init__(self, processes: ProcessTable, owner: OwnerIdentity) -> None:
        self._processes = processes
        self._owner = owner
        self._pidfd = Descriptor()
        self._stat = Descriptor()
        self._users = 0

    @classmethod
    def of(cls, processes: ProcessTable, owner: OwnerIdentity) -> ProcessPulse:
        """The one pulse of *owner*'s process; each caller closes it once."""
        with cls._mutex:
            key = (id(processes), owner.pid, owner.start_id)
            pulse = cls._shared.setdefault(key, cls(processes, owner))
            pulse._users += 1
            return pulse

    @property
    def handle(self) -> int:
        """A descriptor that polls readable once the process has ended, -1 without one."""
        return self._pidfd.number

    @property
    def is_bound(self) -> bool:
        """Whether it is the process that is asked, not whoever has its number."""
        return self._pidfd.number >= 0 or self._stat.number >= 0

    def open(self) -> None:
        """Get the best that is to be had, again what the program around us closed. Never fails.

        It leaves half of the descriptors to the program.
        """
        pid, start_id = self._owner.pid, self._owner.start_id
        with self._mutex:
            self._was_closed()
            if self._pidfd.number >= 0 or not _fork.may_hold():
                return
            try:
                number = self._processes.open_handle(pid, start_id)
                if number is not None:
                    self._pidfd.take(number)
                    self._stat.close()
                elif self._stat.number < 0:
                    number = self._processes.open_stat(pid, start_id)
                    if number is not None:
                        self._stat.take(number)
            except OSError:  # it has ended, or there are no descriptors: the full look says which
                pass

    def mend(self) -> bool:
        """Whether the program around us had closed what was open; it is open again if that can be had."""
        pidfd, stat = self._pidfd, self._stat
        if (pidfd.number < 0 or pidfd.intact()) and (stat.number < 0 or stat.intact()):
            return False
        with self._mutex:
            closed = self._was_closed()
            if closed:
                self.open()
            return closed

    def _was_closed(self) -> bool:
        closed = [one for one in (self._pidfd, self._stat) if one.number >= 0 and not one.intact()]
        for one in closed:
            one.forget()
        return bool(closed)

    def beats(self) -> bool:
        """False when it may be over: a hint, to be confirmed by a full look."""
        ended = self._asked()
        return self._processes.answers(self._owner.pid) if ended is None else not ended

    def has_ended(self) -> bool:
        """Whether what is open of that very process says that it has ended: evidence for :func:`judge`."""
        return self._asked() is True

    def _asked(self) -> bool | None:
        """Whether the process has ended, ``None`` when nothing of it is open."""
        with self._mutex:
            self._was_closed()
            if self._pidfd.number >= 0:
                return self._processes.has_ended(self._pidfd.number)
            if self._stat.number >= 0:
                return not self._processes.shows_life(self._stat.number)
            return None

    def close(self) -> None:
        """One caller needs it no more."""
        with self._mutex:
            self._users -= 1
            if self._users == 0:
                self._shared.pop((id(self._processes), self._owner.pid, self._owner.start_id), None)
                self._pidfd.close()
                self._stat.close()


class WitnessPulse:
    """For an owner in another pid namespace, or of another boot: its witness stands for it."""

    handle = -1
    is_bound = True

    def __init__(self, directory: LockDirectory, owner: OwnerIdentity) -> None:
        self._directory = directory
        self._owner = owner

    def open(self) -> None:
        """Nothing is kept open but the directory."""

    def mend(self) -> bool:
        """Nothing is kept open but the directory."""
        return False

    def beats(self) -> bool:
        """False when the witness is not held."""
        return ask(self._directory, self._owner.instance_id).state is WitnessState.HELD

    def close(self) -> None:
        """Nothing is kept open but the directory."""


def _child() -> None:
    ProcessPulse._mutex = threading.RLock()
    ProcessPulse._shared.clear()


_fork.in_child(_child)
