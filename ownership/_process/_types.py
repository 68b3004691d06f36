"""What can be said about a process, and who can be asked: values and the protocol, no system calls."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

MAX_PID = 2**31 - 1


class ProcessState(enum.Enum):
    """What a process is doing, as far as ownership cares.

    ``RUNNING`` is every process that may run its next instruction, asleep or not. ``STOPPED``: every thread that has
    not exited is stopped by a signal. ``TRACED``: the same, and a tracer holds at least one of them. ``FROZEN``: its
    cgroup is frozen. ``DUMPING``: it is dying, but its core dump is still being written. ``ZOMBIE``: every thread has
    exited and the parent has not fetched the exit status. ``UNKNOWN``: the question could not be answered.
    """

    RUNNING = "running"
    STOPPED = "stopped"
    TRACED = "traced"
    FROZEN = "frozen"
    DUMPING = "dumping"
    ZOMBIE = "zombie"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProcessObservation:
    """What one look at a process number showed. An answer that is not certain is ``None`` or ``UNKNOWN``.

    :ivar pid: the number that was looked at
    :ivar exists: false only on proof that no process has this number (a thread id is not a process); ``None`` when the
        probe failed
    :ivar start_id: which process has the number, ``None`` when that could not be read
    :ivar state: what the process is doing; ``UNKNOWN`` when it does not exist as well
    :ivar detail: for people: the probe that failed and why, else empty
    :ivar group: its process group, ``None`` when that could not be read
    """

    pid: int
    exists: bool | None
    start_id: str | None
    state: ProcessState
    detail: str = ""
    group: int | None = None


@dataclass(frozen=True, slots=True)
class GroupListing:
    """Who was found in a process group, zombies included.

    :ivar members: those that were there at some moment of the look; one whose group could not be confirmed is in it
    :ivar fault: why others may be there that were not found, empty when nobody else was
    """

    members: tuple[ProcessObservation, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is. ``None`` is unknown; ``"none"`` belongs to a system without the concept, equal and known.

    :ivar pid: the process number, in this process's own pid namespace
    :ivar start_id: tells this process from every other that has or will have the number; survives exec
    :ivar instance_id: random, new for every process image, so also after fork and after exec
    :ivar boot_id: the boot of the machine
    :ivar pid_namespace: inode of the pid namespace in which ``pid`` has a meaning
    :ivar host: for people only, never compared
    :ivar command: for people only: the command line, at most 200 printable characters
    """

    pid: int
    start_id: str
    instance_id: str
    boot_id: str | None
    pid_namespace: int | str | None
    host: str
    command: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Who and what decides about a process, for people who are to do something about it. Never evidence.

    :ivar source: where this was read
    :ivar state: as the system words it: the state of its main thread
    :ivar parent: who has to reap it; ``None`` when that is not known, or a process of another pid namespace
    :ivar tracer: who traces it, ``None`` when nobody is known to
    :ivar frozen_by: control files that keep its cgroup frozen, the nearest first
    """

    source: str
    state: str = ""
    parent: int | None = None
    tracer: int | None = None
    frozen_by: tuple[str, ...] = ()


class ProcessTable(Protocol):
    """The processes of this machine as this process may see them."""

    def current(self) -> Identity:
        """Who this process is.

        The same value for the life of the process image, another one after a fork. It is never weaker than what the
        system can tell: when a probe of ourselves fails for want of descriptors or memory, that error is raised.

        :raises OSError: the identity cannot be read at the moment (EMFILE, EIO, ENOMEM)
        """
        ...

    def observe(self, pid: int) -> ProcessObservation:
        """One look at *pid*. A failed probe is a value (``exists`` ``None`` or state ``UNKNOWN``), not an exception.

        :raises ValueError: *pid* is not a process number
        """
        ...

    def open_handle(self, pid: int, start_id: str) -> int | None:
        """A close-on-exec descriptor that polls readable once that very process has ended, for the caller to close.

        :returns: ``None`` when there is no such descriptor here (no pidfd, out of descriptors) or when it cannot be
            told whether the process is the one meant: poll with :meth:`observe` instead
        :raises ProcessLookupError: the process is gone, or the number belongs to another one
        :raises ValueError: *pid* is not a process number
        """
        ...

    def has_ended(self, handle: int) -> bool:
        """Whether a descriptor from :meth:`open_handle` polls readable now. A hint: confirm it with :meth:`observe`."""
        ...

    def open_stat(self, pid: int, start_id: str) -> int | None:
        """A close-on-exec descriptor bound to that very process, for :meth:`shows_life`, for the caller to close.

        :returns: ``None`` when there is none here, or when it cannot be told whether the process is the one meant
        :raises ProcessLookupError: the process is gone, or the number belongs to another one
        :raises ValueError: *pid* is not a process number
        """
        ...

    def shows_life(self, stat: int) -> bool:
        """Whether the process of a descriptor from :meth:`open_stat` seems to live. False is a hint, no proof."""
        ...

    def linger(self, pid: int, seconds: float) -> bool:
        """Wait *seconds*, less if *pid* seems to end before that and the system tells without a handle.

        :returns: whether it seems to have ended, a hint
        :raises ValueError: *pid* is not a process number
        """
        ...

    def answers(self, pid: int) -> bool:
        """Whether anything has the number *pid*, a zombie and a thread included. True in doubt.

        :raises ValueError: *pid* is not a process number
        """
        ...

    def activity(self, pid: int) -> int | None:
        """A number that grows whenever a thread of *pid* has run, ``None`` when it cannot be told.

        :raises ValueError: *pid* is not a process number
        """
        ...

    def command_of(self, pid: int) -> str | None:
        """The command line of *pid* for messages, ``None`` when it cannot be read. Never evidence of anything.

        :raises ValueError: *pid* is not a process number
        """
        ...

    def own_group(self) -> int | None:
        """The process group of this process, ``None`` on a system without groups."""
        ...

    def list_group(self, pgid: int) -> GroupListing:
        """Who is in the process group *pgid*. A look that failed is a value (``fault``), not an exception.

        :raises ValueError: *pgid* is not the number of a group: 2 to 2**31-1
        """
        ...

    def send(self, pid: int, start_id: str, number: int) -> bool:
        """Send signal *number* (0: only try) to that very process, by pidfd where there is one.

        :returns: false when it cannot be told whether the process is the one meant; then nothing is sent
        :raises ProcessLookupError: the process is gone, or the number belongs to another one
        :raises PermissionError: we may not signal it
        :raises ValueError: *pid* is not a process number, is 1, or is our own
        """
        ...

    def send_group(self, pgid: int, number: int) -> None:
        """Send signal *number* to whatever group has the number *pgid* now. Who that is, is for the caller to know.

        :raises ProcessLookupError: no group has it
        :raises PermissionError: we may signal none of its members
        :raises ValueError: *pgid* is not the number of a group, or it is our own
        """
        ...

    def send_group_of(self, handle: int, pid: int, start_id: str, number: int) -> bool:
        """Send signal *number* (0: only try) to the group that the process behind *handle* leads or led.

        Never reaches another group that got the number since, even when the process was reaped.

        :param handle: from :meth:`open_handle` for *pid* and *start_id*
        :returns: false when that cannot be done here; then nothing is sent
        :raises ProcessLookupError: nobody is left in that group, not even a zombie
        :raises PermissionError: we may signal none of its members
        :raises ValueError: *pid* is not the number of a group, or it is our own
        """
        ...

    def surroundings_of(self, pid: int) -> Surroundings | None:
        """Parent, tracer and freezer of *pid* for messages, ``None`` when they cannot be read. Never evidence.

        :raises ValueError: *pid* is not a process number
        """
        ...


def validate_pid(pid: object, name: str = "pid") -> int:
    """Return *pid* if it is a process number, 1 to 2**31-1, of type int.

    Zero, negative numbers and numbers that do not fit are *selectors* or errors for kill(2), never identities; a bool
    is not a number here.

    :param name: the parameter to name in the message
    :raises ValueError: it is anything else
    """
    if isinstance(pid, bool) or not isinstance(pid, int) or not 1 <= pid <= MAX_PID:
        raise ValueError(f"{name} must be an integer from 1 to {MAX_PID}, not {_shown(pid)}")
    return int(pid)


def validate_group(pgid: object, name: str = "pgid") -> int:
    """Return *pgid* if it can be the number of a process group that somebody means: 2 to 2**31-1.

    For kill(2) 0 and -1 stand for our own group and for everybody, and group 1 is that of the first process.

    :param name: the parameter to name in the message
    :raises ValueError: it is anything else
    """
    if isinstance(pgid, bool) or not isinstance(pgid, int) or not 2 <= pgid <= MAX_PID:
        raise ValueError(f"{name} must be an integer from 2 to {MAX_PID}, not {_shown(pgid)}")
    return int(pgid)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # int too long for the decimal digits limit of int()
        return "an integer of more digits than can be shown"
    return text if len(text) <= 80 else text[:79] + "…"
