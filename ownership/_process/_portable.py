"""The processes of any system that psutil knows: macOS, Windows and the rest. Linux does not come here."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from ownership._process._groups import is_empty_group
from ownership._process._instance import instance_id
from ownership._process._kernel import Kernel
from ownership._process._signals import own_group, require_other_group, require_other_process, send_by_number
from ownership._process._startid import psutil_start_id
from ownership._process._text import command_text
from ownership._process._types import (
    GroupListing,
    Identity,
    ProcessObservation,
    ProcessState,
    Surroundings,
    validate_group,
    validate_pid,
)

_LOOKS = 8


def no_boot_id() -> str | None:
    """For systems whose start ids are times of day, unique across boots by themselves."""
    return "none"


def boot_session_uuid() -> str | None:
    """The boot id of macOS: ``kern.bootsessionuuid`` (sysctlbyname(3)); ``None`` when it cannot be read."""
    import ctypes  # only here, and only on macOS: not worth its start-up time elsewhere

    try:
        buffer = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(len(buffer))
        failed = ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0)
    except (OSError, AttributeError, TypeError):
        return None
    return buffer.value.decode("ascii", "replace") or None if not failed else None


class PortableProcesses:
    """A :class:`ProcessTable` on psutil.

    The start id is the creation time that the kernel keeps, unadjusted. Not guaranteed: a start id that survives a
    step of the wall clock on FreeBSD and OpenBSD, and any handle: :meth:`open_handle` answers ``None``.

    :param psutil: the module, imported at first use by default
    :param boot_id: reads the boot id, ``"none"`` where it plays no part
    :param kernel: the system calls, for tests that make them fail
    """

    def __init__(
        self, psutil: Any = None, *, boot_id: Callable[[], str | None] = no_boot_id, kernel: Kernel | None = None
    ) -> None:
        self._module = psutil
        self._boot_id = boot_id
        self._kernel = kernel if kernel is not None else Kernel()
        self._identity: Identity | None = None

    @property
    def _psutil(self) -> Any:
        if self._module is None:
            self._module = importlib.import_module("psutil")
        return self._module

    def current(self) -> Identity:
        """See :meth:`ProcessTable.current`."""
        pid, identity = os.getpid(), self._identity
        instance = instance_id(pid)
        if identity is None or identity.pid != pid or identity.instance_id != instance:
            identity = self._identity = self._read_identity(pid, instance)
        return identity

    def observe(self, pid: int) -> ProcessObservation:
        """See :meth:`ProcessTable.observe`."""
        validate_pid(pid)
        for _ in range(_LOOKS):
            observation = self._look(pid)
            if observation is not None:
                return observation
        return ProcessObservation(pid, None, None, ProcessState.UNKNOWN, f"process {pid} changed at every look")

    def open_handle(self, pid: int, start_id: str) -> int | None:
        """Always ``None``: psutil has no descriptors of processes."""
        validate_pid(pid)
        return None

    def has_ended(self, handle: int) -> bool:
        """Always false: there are no handles."""
        return False

    def open_stat(self, pid: int, start_id: str) -> int | None:
        """Always ``None``, as :meth:`open_handle`."""
        validate_pid(pid)
        return None

    def shows_life(self, stat: int) -> bool:
        """Always true: there are no such descriptors."""
        return True

    def linger(self, pid: int, seconds: float) -> bool:
        """See :meth:`ProcessTable.linger`: psutil waits by kqueue(2), a handle of Windows, or by polling.

        Not for a child of ours, which it would reap: its exit status is the program's.
        """
        psutil = self._psutil
        begun = time.monotonic()
        try:
            process = psutil.Process(validate_pid(pid))
            if process.ppid() != os.getpid():
                process.wait(timeout=seconds)
                return True
            time.sleep(seconds)
            return False
        except psutil.TimeoutExpired:
            return False
        except psutil.NoSuchProcess:
            return True
        except (psutil.Error, OSError):
            time.sleep(max(0.0, begun + seconds - time.monotonic()))
            return False

    def answers(self, pid: int) -> bool:
        """See :meth:`ProcessTable.answers`."""
        try:
            return bool(self._psutil.pid_exists(validate_pid(pid)))
        except (self._psutil.Error, OSError):
            return True

    def activity(self, pid: int) -> int | None:
        """See :meth:`ProcessTable.activity`."""
        try:
            return int(sum(self._psutil.Process(validate_pid(pid)).num_ctx_switches()))
        except (self._psutil.Error, OSError, AttributeError):
            return None

    def command_of(self, pid: int) -> str | None:
        """See :meth:`ProcessTable.command_of`."""
        validate_pid(pid)
        try:
            arguments = self._psutil.Process(pid).cmdline()
        except (self._psutil.Error, OSError):
            return None
        return command_text(arguments) if arguments else None

    def own_group(self) -> int | None:
        """See :meth:`ProcessTable.own_group`."""
        return own_group(self._kernel)

    def list_group(self, pgid: int) -> GroupListing:
        """See :meth:`ProcessTable.list_group`. Asks getpgid(2) of every process that psutil lists, once.

        Not guaranteed: that a process is found that was forked meanwhile by one that has ended since.
        """
        validate_group(pgid)
        if is_empty_group(self._kernel, pgid):
            return GroupListing()
        members, fault = [], ""
        try:
            pids = [pid for pid in self._psutil.pids() if pid > 0]
        except (self._psutil.Error, OSError) as error:
            return GroupListing(fault=f"the processes cannot be listed: {error}")
        for pid in pids:
            try:
                if self._kernel.getpgid(pid) != pgid:
                    continue
            except ProcessLookupError:
                continue
            except OSError as error:
                fault = fault or f"getpgid({pid}): {error.strerror}"
                continue
            member = self.observe(pid)
            if member.exists is not False and member.group in (pgid, None):
                members.append(member)
        return GroupListing(tuple(members), fault)

    def send(self, pid: int, start_id: str, number: int) -> bool:
        """See :meth:`ProcessTable.send`. By number, right after a look that found the process."""
        require_other_process(self._kernel, pid)
        return send_by_number(self._kernel, self.observe(pid), start_id, number)

    def send_group(self, pgid: int, number: int) -> None:
        """See :meth:`ProcessTable.send_group`."""
        require_other_group(self._kernel, pgid)
        self._kernel.killpg(pgid, number)

    def send_group_of(self, handle: int, pid: int, start_id: str, number: int) -> bool:
        """Always false: there are no handles."""
        require_other_group(self._kernel, pid)
        return False

    def surroundings_of(self, pid: int) -> Surroundings | None:
        """See :meth:`ProcessTable.surroundings_of`. Neither tracers nor freezers are known here."""
        validate_pid(pid)
        psutil = self._psutil
        try:
            process = psutil.Process(pid)
            return Surroundings("psutil", str(process.status()), process.ppid() or None)
        except (psutil.Error, OSError):
            return None

    def _look(self, pid: int) -> ProcessObservation | None:
        """One look; ``None`` when the number changed hands meanwhile."""
        psutil = self._psutil
        start_id: str | None = None
        group: int | None = None
        try:
            process = psutil.Process(pid)
            start_id = self._start_id(process)
            group = self._group(pid)
            state = self._state(process)
            if self._start_id(psutil.Process(pid)) != start_id:
                return None
        except psutil.ZombieProcess:  # before NoSuchProcess, whose subclass it is
            return ProcessObservation(pid, True, start_id, ProcessState.ZOMBIE, group=group)
        except psutil.NoSuchProcess:
            return ProcessObservation(pid, False, None, ProcessState.UNKNOWN)
        except psutil.AccessDenied as error:
            return ProcessObservation(pid, True, start_id, ProcessState.UNKNOWN, f"process {pid}: {error}")
        except (psutil.Error, OSError) as error:
            return ProcessObservation(pid, None, start_id, ProcessState.UNKNOWN, f"process {pid}: {error}")
        return ProcessObservation(pid, True, start_id, state, group=group)

    def _group(self, pid: int) -> int | None:
        try:
            return self._kernel.getpgid(pid)
        except OSError:
            return None

    def _state(self, process: Any) -> ProcessState:
        psutil = self._psutil
        states = {
            psutil.STATUS_ZOMBIE: ProcessState.ZOMBIE,
            psutil.STATUS_DEAD: ProcessState.ZOMBIE,
            psutil.STATUS_STOPPED: ProcessState.STOPPED,
            psutil.STATUS_TRACING_STOP: ProcessState.TRACED,
        }
        return states.get(process.status(), ProcessState.RUNNING)

    def _start_id(self, process: Any) -> str:
        """By the creation time that psutil itself compares processes with.

        ``Process.create_time()`` follows later steps of the wall clock on macOS and NetBSD (psutil 7.1), so that two
        processes that ask may get two answers; ``monotonic`` turns that off, and older versions have no such form.
        """
        try:
            return psutil_start_id(process._proc.create_time(monotonic=True))
        except (AttributeError, TypeError):
            return psutil_start_id(process.create_time())

    def _read_identity(self, pid: int, instance: str) -> Identity:
        try:
            start_id = self._start_id(self._psutil.Process(pid))
        except self._psutil.Error as error:
            raise OSError(f"cannot read the creation time of this process: {error}") from error
        return Identity(
            pid=pid,
            start_id=start_id,
            instance_id=instance,
            boot_id=self._boot_id(),
            pid_namespace="none",
            host=socket.gethostname(),
            command=command_text(sys.orig_argv),
        )
