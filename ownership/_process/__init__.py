"""What is known about processes: who we are, who has a number, what it is doing.

The only code of the project that reads ``/proc``, opens pidfds or asks psutil. Which of them, is chosen here, once.
"""

from __future__ import annotations

import functools
import sys

from ownership._process._locks import LockedFile, lock_holder, lock_holders, lock_sharers, locked_file
from ownership._process._peers import PeerFacts, listeners_at, peer_facts
from ownership._process._portable import PortableProcesses, boot_session_uuid
from ownership._process._signals import CONTINUE, KILL, TERMINATE
from ownership._process._startid import Comparison, LinuxStartId, compare_start_ids, parse_linux_start_id
from ownership._process._text import printable
from ownership._process._types import (
    GroupListing,
    Identity,
    ProcessObservation,
    ProcessState,
    ProcessTable,
    Surroundings,
    validate_group,
    validate_pid,
)

if sys.platform == "linux":
    from ownership._process._linux import LinuxProcesses

__all__ = [
    "CONTINUE",
    "KILL",
    "TERMINATE",
    "Comparison",
    "GroupListing",
    "Identity",
    "LinuxStartId",
    "LockedFile",
    "PeerFacts",
    "ProcessObservation",
    "ProcessState",
    "ProcessTable",
    "Surroundings",
    "compare_start_ids",
    "exists",
    "is_alive",
    "is_stopped",
    "is_zombie",
    "listeners_at",
    "lock_holder",
    "lock_holders",
    "lock_sharers",
    "locked_file",
    "parse_linux_start_id",
    "peer_facts",
    "printable",
    "start_id",
    "system_processes",
    "validate_group",
    "validate_pid",
]

_HALTED = frozenset({ProcessState.STOPPED, ProcessState.TRACED, ProcessState.FROZEN})


@functools.cache
def system_processes() -> ProcessTable:
    """The processes of this machine, one table for the whole process. Nothing is probed before it is asked."""
    if sys.platform == "linux":
        return LinuxProcesses()
    if sys.platform == "darwin":
        return PortableProcesses(boot_id=boot_session_uuid)
    return PortableProcesses()


def exists(pid: int) -> bool:
    """Whether a process has the number *pid*, a zombie included. False only on proof, true in doubt.

    A process of another user exists; a thread id is not a process. Not guaranteed: that it is the process you think
    of, numbers are reused; see :func:`start_id`.

    :param pid: 1 to 2**31-1
    :raises ValueError: *pid* is not a process number
    """
    return _observe(pid).exists is not False


def is_alive(pid: int) -> bool:
    """Whether a process has the number *pid* and has not exited. False only on proof, true in doubt.

    A zombie is not alive; a stopped process is, and one whose core dump is still being written.

    :param pid: 1 to 2**31-1
    :raises ValueError: *pid* is not a process number
    """
    observation = _observe(pid)
    return observation.exists is not False and observation.state is not ProcessState.ZOMBIE


def is_zombie(pid: int) -> bool:
    """Whether every thread of process *pid* has exited and its parent has not reaped it. True only on proof.

    A process whose main thread has ended while others run is no zombie, though its stat line says ``Z``.

    :param pid: 1 to 2**31-1
    :raises ValueError: *pid* is not a process number
    """
    return _observe(pid).state is ProcessState.ZOMBIE


def is_stopped(pid: int) -> bool:
    """Whether no thread of process *pid* can run until somebody lets it. True only on proof.

    Stopped by a signal, held by a tracer, or in a frozen cgroup. Not guaranteed: that a process which ``/proc`` hides
    is found to be stopped.

    :param pid: 1 to 2**31-1
    :raises ValueError: *pid* is not a process number
    """
    return _observe(pid).state in _HALTED


def start_id(pid: int) -> str | None:
    """Text that tells the process *pid* from every other that had or will have its number.

    It does not change with exec, the wall clock, the time zone, the locale, ``PATH`` or the process title. Opaque: two
    that are equal are of one process; two that differ need not be of two, a reader may not see every part.

    :param pid: 1 to 2**31-1
    :returns: ``None`` when there is no such process, or when it cannot be told
    :raises ValueError: *pid* is not a process number
    """
    return _observe(pid).start_id


def _observe(pid: int) -> ProcessObservation:
    return system_processes().observe(validate_pid(pid))
