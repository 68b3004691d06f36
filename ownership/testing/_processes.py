"""A table of processes that live and die when told to."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from ownership._process import Identity, ProcessObservation, ProcessState, validate_pid

_BOOT_ID = "00000000-0000-4000-8000-000000000001"
_NAMESPACE = 4026531836


@dataclass(frozen=True, slots=True)
class _Process:
    start_id: str
    state: ProcessState
    command: str | None
    detail: str = ""
    exists: bool | None = True


class FakeProcessTable:
    """Processes for tests: nothing here touches the system, and every number is free until it is added.

    The table starts with one process, the current one. Pass it wherever a ``processes=`` parameter is taken. Handles
    are real descriptors (pipes), so whatever polls them works; :meth:`close`, or leaving the ``with`` block, frees
    the table's ends of them.

    :param pid: the number of the current process
    :param handles: whether :meth:`open_handle` gives descriptors, as a kernel with pidfds does
    """

    def __init__(self, pid: int = 1000, *, handles: bool = True) -> None:
        self._processes: dict[int, _Process] = {}
        self._watchers: dict[int, list[int]] = {}
        self._handles = handles
        self._generation = 0
        self._current = pid
        self.observed: list[int] = []
        start_id = self.add(pid, command="fake")
        self._identity = Identity(
            pid=pid,
            start_id=start_id,
            instance_id=f"{pid:032x}",
            boot_id=_BOOT_ID,
            pid_namespace=_NAMESPACE,
            host="fake-host",
            command="fake",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the table's ends of all handles given out; they poll readable from now on."""
        for pid in list(self._watchers):
            self._end(pid)

    # the protocol

    def current(self) -> Identity:
        """The identity last set, at first that of the process the table was made with."""
        return self._identity

    def observe(self, pid: int) -> ProcessObservation:
        """What was last told about *pid*; nothing told is no such process. Each call is noted in ``observed``."""
        self.observed.append(validate_pid(pid))
        process = self._processes.get(pid)
        if process is None:
            return ProcessObservation(pid, False, None, ProcessState.UNKNOWN)
        known = process.start_id if process.exists and not process.detail else None
        return ProcessObservation(pid, process.exists, known, process.state, process.detail)

    def open_handle(self, pid: int, start_id: str) -> int | None:
        """The read end of a pipe that gets a byte when the process ends, for the caller to close."""
        process = self._processes.get(validate_pid(pid))
        if not self._handles:
            return None
        if process is None or process.start_id != start_id:
            raise ProcessLookupError(f"no process {pid} with start id {start_id}")
        if process.detail:
            return None
        reader, writer = os.pipe()
        self._watchers.setdefault(pid, []).append(writer)
        if process.state is ProcessState.ZOMBIE:
            self._end(pid)
        return reader

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

    def answers(self, pid: int) -> bool:
        """Whether there is a process *pid*, by any name, as signal 0 says."""
        process = self._processes.get(validate_pid(pid))
        return process is not None and process.exists is not False

    def command_of(self, pid: int) -> str | None:
        """The command that *pid* was added with."""
        process = self._processes.get(validate_pid(pid))
        return process.command if process is not None else None

    # what happens to processes

    def become(self, identity: Identity) -> None:
        """Make *identity* the current process, running. ``dataclasses.replace`` varies what :meth:`current` gives."""
        self._identity = identity
        self._processes[identity.pid] = _Process(identity.start_id, ProcessState.RUNNING, identity.command)

    def add(self, pid: int, *, start_id: str | None = None, command: str | None = None) -> str:
        """A running process gets the free number *pid*.

        :param start_id: by default one that no process of this table had before
        :returns: its start id
        :raises ValueError: the number is not free
        """
        validate_pid(pid)
        if pid in self._processes:
            raise ValueError(f"pid must be free, {pid} is taken; use reuse()")
        self._generation += 1
        if start_id is None:
            start_id = f"linux:{_BOOT_ID}:{100 * self._generation}:4026531834:{self._generation}"
        self._processes[pid] = _Process(start_id, ProcessState.RUNNING, command)
        return start_id

    def kill(self, pid: int) -> None:
        """The process ends and is reaped: its number is free."""
        self._get(pid)
        del self._processes[pid]
        self._end(pid)

    def zombify(self, pid: int) -> None:
        """The process ends and is not reaped."""
        self.set_state(pid, ProcessState.ZOMBIE)

    def stop(self, pid: int) -> None:
        """The process is stopped, as by SIGSTOP."""
        self.set_state(pid, ProcessState.STOPPED)

    def resume(self, pid: int) -> None:
        """The process runs again, and probes of it work again."""
        self.set_state(pid, ProcessState.RUNNING)

    def reuse(self, pid: int, *, command: str | None = None) -> str:
        """The process ends, is reaped, and another one gets its number; returns the start id of that one."""
        self.kill(pid)
        return self.add(pid, command=command)

    def set_state(self, pid: int, state: ProcessState) -> None:
        """The process is found in *state*; ``ZOMBIE`` ends it."""
        self._processes[pid] = replace(self._get(pid), state=state, exists=True, detail="")
        if state is ProcessState.ZOMBIE:
            self._end(pid)

    def fail(self, pid: int, detail: str = "/proc: Too many open files", *, exists: bool | None = None) -> None:
        """From now on probes of *pid* fail: whether it exists is *exists*, everything else unknown."""
        self._processes[pid] = replace(
            self._processes.get(pid, _Process("", ProcessState.UNKNOWN, None)),
            state=ProcessState.UNKNOWN,
            exists=exists,
            detail=detail,
        )

    def _get(self, pid: int) -> _Process:
        if pid not in self._processes:
            raise ValueError(f"pid must be that of a process of this table, not {pid}")
        return self._processes[pid]

    def _end(self, pid: int) -> None:
        for writer in self._watchers.pop(pid, []):
            try:
                os.write(writer, b"\0")
            except BrokenPipeError:  # its reader was closed
                pass
            finally:
                os.close(writer)
