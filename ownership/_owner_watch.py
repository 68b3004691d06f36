"""Being woken when one of several owners seems to have ended. A hint: :func:`judge_owner` says whether it has."""

from __future__ import annotations

import select

from ownership._bell import Bell
from ownership._models import OwnerIdentity
from ownership._process import ProcessTable, system_processes
from ownership._pulse import ProcessPulse
from ownership._verdict import same_namespace


class OwnerWatch:
    """Wakes one thread that waits when a process of those it watches seems to have ended, or when it is told to.

    Guaranteed: with a pidfd (Linux) within milliseconds of the end, reaped or not, once per owner that was added.

    Not guaranteed: to wake at all: for an owner in another pid namespace, without pidfds or out of descriptors it does
    not. Wait for a bounded time, and look with :func:`judge_owner` then.

    One thread adds, discards and waits; :meth:`wake` may be called by any. :meth:`close` it. A forked child's is empty.
    """

    def __init__(self, *, processes: ProcessTable | None = None) -> None:
        self._processes = processes or system_processes()
        self._pulses: dict[str, ProcessPulse] = {}
        self._told: set[str] = set()
        self._bell = Bell()
        self._woken = False

    def add(self, owner: OwnerIdentity) -> bool:
        """Watch *owner* too; whether its end will wake whoever waits."""
        pulse = self._pulses.get(owner.instance_id)
        if pulse is None:
            if not same_namespace(owner, self._processes.current()):
                return False
            pulse = self._pulses[owner.instance_id] = ProcessPulse.of(self._processes, owner)
        pulse.open()
        return pulse.handle >= 0

    def discard(self, owner: OwnerIdentity) -> None:
        """Watch *owner* no more."""
        self._told.discard(owner.instance_id)
        pulse = self._pulses.pop(owner.instance_id, None)
        if pulse is not None:
            pulse.close()

    def wait(self, seconds: float) -> frozenset[str]:
        """Wait at most *seconds*; the instance ids of the owners that seem to have ended since the last wait."""
        self._bell.hang()
        handles: dict[int, list[str]] = {}
        for instance_id, pulse in self._pulses.items():
            pulse.mend()
            if pulse.handle >= 0 and instance_id not in self._told:
                handles.setdefault(pulse.handle, []).append(instance_id)
        poll = select.poll()
        for number in (*handles, *([self._bell.number] if self._bell.number >= 0 else [])):
            poll.register(number, select.POLLIN)
        woken, self._woken = self._woken, False  # a bell that rang before it was hung is not heard
        ready = [number for number, _ in poll.poll(0 if woken else max(0.0, seconds) * 1000)]
        ended = frozenset(one for number in ready for one in handles.get(number, ()))
        self._told.update(ended)
        return ended

    def wake(self) -> None:
        """End the wait that goes on, or the next one."""
        self._woken = True
        self._bell.ring()

    def close(self) -> None:
        """Watch nobody any more."""
        while self._pulses:
            self._pulses.popitem()[1].close()
        self._told.clear()
        self._bell.take_down()
