"""What decides about the processes of the fake table: parents, tracers, freezers."""

from __future__ import annotations

from dataclasses import replace

from ownership._process import Surroundings, validate_pid
from ownership.testing._fake_groups import FakeProcess


class FakeSurroundings:
    """The part of :class:`FakeProcessTable` that is about a process's surroundings."""

    _processes: dict[int, FakeProcess]

    def surroundings_of(self, pid: int) -> Surroundings | None:
        """What :meth:`surround` said of *pid*."""
        process = self._processes.get(validate_pid(pid))
        return None if process is None or process.detail else replace(process.surroundings, state=process.state.value)

    def surround(
        self, pid: int, *, parent: int | None = None, tracer: int | None = None, frozen_by: tuple[str, ...] = ()
    ) -> None:
        """From now on these decide about the process: who has to reap it, who traces it, what keeps it frozen."""
        around = Surroundings("fake", parent=parent, tracer=tracer, frozen_by=frozen_by)
        self._processes[pid] = replace(self._processes[pid], surroundings=around)
