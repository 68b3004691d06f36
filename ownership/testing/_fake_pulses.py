"""The cheap questions whether a process of the fake table is still there."""

from __future__ import annotations

import select

from ownership._process import ProcessState, validate_pid
from ownership.testing._fake_groups import FakeProcess


class FakePulses:
    """The part of :class:`FakeProcessTable` that is asked again and again."""

    _processes: dict[int, FakeProcess]

    def has_ended(self, handle: int) -> bool:
        """Whether the process of a handle has ended."""
        return bool(select.select([handle], [], [], 0)[0])

    def open_stat(self, pid: int, start_id: str) -> int | None:
        """Always ``None``: without handles there is only signal 0."""
        validate_pid(pid)
        return None

    def shows_life(self, stat: int) -> bool:
        """Always true: there are no such descriptors."""
        return True

    def linger(self, pid: int, seconds: float) -> bool:
        """Whether *pid* has ended; returns at once."""
        process = self._processes.get(validate_pid(pid))
        return process is None or process.state is ProcessState.ZOMBIE

    def activity(self, pid: int) -> int | None:
        """How often the process was told to run; ``None`` if probes of it fail."""
        process = self._processes.get(validate_pid(pid))
        return None if process is None or process.detail else process.activity

    def answers(self, pid: int) -> bool:
        """Whether there is a process *pid*, by any name, as signal 0 says."""
        process = self._processes.get(validate_pid(pid))
        return process is not None and process.exists is not False
