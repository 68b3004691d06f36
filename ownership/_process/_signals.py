"""Sending signals: never to a selector of kill(2), never to ourselves, never to our own group."""

from __future__ import annotations

import errno
import signal

from ownership._process._kernel import Kernel
from ownership._process._pidfd import UNSUPPORTED, Pidfds
from ownership._process._startid import Comparison, compare_start_ids
from ownership._process._types import ProcessObservation, validate_group, validate_pid

TERMINATE: int = signal.SIGTERM
KILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)
CONTINUE: int | None = getattr(signal, "SIGCONT", None)

_PROCESS_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, pidfd_send_signal(2): Linux 6.9


def own_group(kernel: Kernel) -> int | None:
    """Our process group, ``None`` on a system without groups."""
    try:
        return kernel.getpgrp()
    except OSError:
        return None


def require_other_process(kernel: Kernel, pid: int) -> None:
    """:raises ValueError: *pid* is not a process number, or nobody's to signal: 1, or our own"""
    if validate_pid(pid) == 1:
        raise ValueError("pid must not be 1, the first process is never signalled")
    if pid == kernel.getpid():
        raise ValueError(f"pid must be that of another process, {pid} is this one")


def require_other_group(kernel: Kernel, pgid: int) -> None:
    """:raises ValueError: *pgid* is not the number of a group, or is that of our own"""
    if validate_group(pgid) == own_group(kernel):
        raise ValueError(f"pgid must be that of another process group, {pgid} is our own")


def send_by_number(kernel: Kernel, seen: ProcessObservation, start_id: str, number: int) -> bool:
    """Signal the process of *start_id* by its number, if that is whom *seen*, a look just taken, found.

    Not guaranteed: that it did not end since, and its number was not given out again.

    :returns: false when the look does not tell who it is
    :raises OSError: ESRCH, EPERM
    """
    comparison = Comparison.UNKNOWN if seen.start_id is None else compare_start_ids(seen.start_id, start_id)
    if seen.exists is False or comparison is Comparison.DIFFERENT:
        raise ProcessLookupError(errno.ESRCH, f"no process {seen.pid} with start id {start_id}")
    if comparison is Comparison.UNKNOWN:
        return False
    kernel.kill(seen.pid, number)
    return True


class Sender:
    """Signals through pidfds: they reach the process or group that the descriptor was opened for, or nobody."""

    def __init__(self, kernel: Kernel, pidfds: Pidfds) -> None:
        self._kernel = kernel
        self._pidfds = pidfds
        self._works: bool | None = None

    def to_process(self, pidfd: int, number: int) -> bool:
        """Signal the process behind *pidfd*; false when this system does not do that.

        :raises OSError: ESRCH, EPERM
        """
        return self._send(pidfd, number, 0)

    def to_group(self, pidfd: int, number: int) -> bool:
        """Signal the group led, now or before, by the process behind *pidfd*; false when this system cannot.

        :raises OSError: ESRCH, EPERM
        """
        return self._send(pidfd, number, _PROCESS_GROUP)

    def _send(self, pidfd: int, number: int, flags: int) -> bool:
        try:
            self._kernel.pidfd_send_signal(pidfd, number, flags)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EBADF) or (error.errno in UNSUPPORTED and not self._can_send()):
                return False  # EINVAL: a flag that this kernel does not know
            raise
        return True

    def _can_send(self) -> bool:
        """Whether signal 0 reaches ourselves; if it does, a refusal of another process is about that process."""
        if self._works is None:
            try:
                pidfd = self._pidfds.open(self._kernel.getpid())
            except OSError:
                return False
            try:
                self._kernel.pidfd_send_signal(pidfd, 0, 0)
                self._works = True
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    return False
                self._works = False
            finally:
                self._kernel.close(pidfd)
        return self._works
