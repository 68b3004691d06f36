"""The cheap question whether a process is still there, bound to the process and not to its number where it can be."""

from __future__ import annotations

from ownership._directory import LockDirectory
from ownership._fork import Descriptor
from ownership._models import OwnerIdentity
from ownership._process import ProcessTable
from ownership._verdict import WitnessState
from ownership._witness import ask


class ProcessPulse:
    """A pidfd, else a held descriptor of the process's stat line, else signal 0: what can be had at the moment.

    :ivar handle: a descriptor that polls readable once the process has ended, -1 without one
    """

    def __init__(self, processes: ProcessTable, owner: OwnerIdentity) -> None:
        self._processes = processes
        self._owner = owner
        self._pidfd = Descriptor()
        self._stat = Descriptor()

    @property
    def handle(self) -> int:
        return self._pidfd.number

    @property
    def is_bound(self) -> bool:
        """Whether it is the process that is asked, not whoever has its number."""
        return self._pidfd.number >= 0 or self._stat.number >= 0

    def open(self) -> None:
        """Get the best that is to be had; never fails."""
        pid, start_id = self._owner.pid, self._owner.start_id
        try:
            if self._pidfd.number < 0:
                number = self._processes.open_handle(pid, start_id)
                if number is not None:
                    self._pidfd.adopt(number)
            if self._pidfd.number >= 0:
                self._stat.close()
            elif self._stat.number < 0:
                number = self._processes.open_stat(pid, start_id)
                if number is not None:
                    self._stat.adopt(number)
        except OSError:  # it has ended, or there are no descriptors: the full look says which
            pass

    def beats(self) -> bool:
        """False when it may be over: a hint, to be confirmed by a full look."""
        if self._pidfd.number >= 0:
            if self._pidfd.intact():
                return not self._processes.has_ended(self._pidfd.number)
            self._pidfd.forget()
        if self._stat.number >= 0:
            if self._stat.intact():
                return self._processes.shows_life(self._stat.number)
            self._stat.forget()
        return self._processes.answers(self._owner.pid)

    def close(self) -> None:
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

    def beats(self) -> bool:
        """False when the witness is not held."""
        return ask(self._directory, self._owner.instance_id).state is WitnessState.HELD

    def close(self) -> None:
        """Nothing is kept open but the directory."""
