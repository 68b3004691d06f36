"""A table of processes that live and die when told to."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from types import TracebackType
from typing import Self

from ownership._process import GroupListing, Identity, ProcessObservation, ProcessState, validate_group, validate_pid
from ownership.testing._fake_groups import FakeGroups, FakeProcess
from ownership.testing._fake_pulses import FakePulses
from ownership.testing._fake_surroundings import FakeSurroundings

_BOOT_ID = "00000000-0000-4000-8000-000000000001"
_NAMESPACE = 4026531836


class FakeProcessTable(FakeGroups, FakePulses, FakeSurroundings):
    """Processes for tests: nothing here touches the system, and every number is free until it is added.

    The table starts with one process, the current one. Pass it wherever a ``processes=`` parameter is taken. Handles
    are real descriptors (pipes), so whatever polls them works; :meth:`close`, or leaving the ``with`` block, frees
    the table's ends of them.

    :param pid: the number of the current process
    :param handles: whether :meth:`open_handle` gives descriptors, as a kernel with pidfds does
    :param group_handles: whether these reach process groups, as since Linux 6.9
    """

    def __init__(self, pid: int = 1000, *, handles: bool = True, group_handles: bool = True) -> None:
        super().__init__()
        self._watchers: dict[int, list[int]] = {}
        self._handles = handles
        self._group_handles = handles and group_handles
        self._given: dict[int, tuple[int, str]] = {}
        self._concealed: tuple[str, frozenset[int]] = ("", frozenset())
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
        group = process.group if known else None
        return ProcessObservation(pid, process.exists, known, process.state, process.detail, group)

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
        self._given[reader] = (pid, start_id)
        return reader

    def command_of(self, pid: int) -> str | None:
        """The command that *pid* was added with."""
        process = self._processes.get(validate_pid(pid))
        return process.command if process is not None else None

    def own_group(self) -> int | None:
        """The group of the current process."""
        return self._get(self._identity.pid).group

    def list_group(self, pgid: int) -> GroupListing:
        """Everybody who is in it, and what :meth:`conceal` was told. That nobody is in it cannot be concealed."""
        fault, hidden = self._concealed
        members = set(self.members_of(validate_group(pgid)))
        return GroupListing(tuple(self.observe(pid) for pid in sorted(members - hidden)), fault if members else "")

    def send(self, pid: int, start_id: str, number: int) -> bool:
        """Deliver a signal to that very process; see :meth:`add` for what it does."""
        if validate_pid(pid) in (1, self._identity.pid):
            raise ValueError(f"pid must be that of another process, not {pid}")
        self.tell(number)
        process = self._processes.get(pid)
        if process is not None and (process.detail or not process.exists):
            return False
        meant = process is not None and process.start_id == start_id
        self.deliver("process", pid, number, [pid] if meant else [], f"no process {pid} with start id {start_id}")
        return True

    def send_group(self, pgid: int, number: int) -> None:
        """Deliver a signal to whoever is in the group *pgid* now."""
        self._require_other_group(pgid)
        self.tell(number)
        self.deliver("group", pgid, number, list(self.members_of(pgid)), f"no group {pgid}")

    def send_group_of(self, handle: int, pid: int, start_id: str, number: int) -> bool:
        """Deliver a signal to the group that the process behind *handle* founded, if handles do that here."""
        self._require_other_group(pid)
        if not self._group_handles or self._given.get(handle) != (pid, start_id):
            return False
        self.tell(number)
        self.deliver("group", pid, number, list(self.members_of(pid, start_id)), f"no group of {start_id}")
        return True

    def _require_other_group(self, pgid: int) -> None:
        if validate_group(pgid) == self.own_group():
            raise ValueError(f"pgid must be that of another process group, {pgid} is our own")

    # what happens to processes

    def become(self, identity: Identity) -> None:
        """Make *identity* the current process, running. ``dataclasses.replace`` varies what :meth:`current` gives."""
        self._identity = identity
        process = FakeProcess(identity.start_id, ProcessState.RUNNING, identity.command)
        self._processes[identity.pid] = replace(process, group=identity.pid, led_by=identity.start_id)

    def add(
        self,
        pid: int,
        *,
        start_id: str | None = None,
        command: str | None = None,
        group: int | None = None,
        ignores: Collection[int] = (),
        lingers: bool = False,
        forbidden: bool = False,
    ) -> str:
        """A running process gets the free number *pid*.

        It ends when it gets a signal, except SIGCONT; while it is stopped only by SIGKILL, but see *ignores*.

        :param start_id: by default one that no process of this table had before
        :param group: its process group, by default one of its own
        :param ignores: signals that do nothing to it, SIGKILL not excepted: some wait for a device for ever
        :param lingers: it becomes a zombie when a signal ends it, else it is reaped at once
        :param forbidden: it belongs to another account, signals to it are refused
        :returns: its start id
        :raises ValueError: the number is not free
        """
        validate_pid(pid)
        if pid in self._processes:
            raise ValueError(f"pid must be free, {pid} is taken; use reuse()")
        self._generation += 1
        if start_id is None:
            start_id = f"linux:{_BOOT_ID}:{100 * self._generation}:4026531834:{self._generation}"
        group = pid if group is None else group
        founders = [self._processes[one].led_by for one in self.members_of(group)]
        self._processes[pid] = FakeProcess(
            start_id,
            ProcessState.RUNNING,
            command,
            group=group,
            led_by=start_id if group == pid else (founders or [""])[0],
            ignores=frozenset(ignores),
            lingers=lingers,
            forbidden=forbidden,
        )
        return start_id

    def set_group(self, pid: int, group: int) -> None:
        """The process moves to another group, as by setpgid(2); to one of its own if that is its number."""
        one = self._get(pid)
        founders = [self._processes[member].led_by for member in self.members_of(group)]
        founder = one.start_id if group == pid else (founders or [""])[0]
        self._processes[pid] = replace(one, group=group, led_by=founder)

    def conceal(self, fault: str = "/proc: hidden", hidden: Collection[int] = ()) -> None:
        """From now on listings of groups may lack somebody, for the reason *fault*, and do lack those of *hidden*.

        An empty reason: they are complete again.
        """
        self._concealed = (fault, frozenset(hidden if fault else ()))

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
        process = self._get(pid)
        ran = state is ProcessState.RUNNING
        self._processes[pid] = replace(process, state=state, exists=True, detail="", activity=process.activity + ran)
        if state is ProcessState.ZOMBIE:
            self._end(pid)

    def fail(self, pid: int, detail: str = "/proc: Too many open files", *, exists: bool | None = None) -> None:
        """From now on probes of *pid* fail: whether it exists is *exists*, everything else unknown."""
        self._processes[pid] = replace(
            self._processes.get(pid, FakeProcess("", ProcessState.UNKNOWN, None)),
            state=ProcessState.UNKNOWN,
            exists=exists,
            detail=detail,
        )

    def _get(self, pid: int) -> FakeProcess:
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
