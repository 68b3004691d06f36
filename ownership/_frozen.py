"""Peers that are frozen: let go on once, given up when that does not help, and never because they are slow."""

from __future__ import annotations

import enum
import logging

from ownership._models import OwnerIdentity
from ownership._process import CONTINUE, Comparison, ProcessState, ProcessTable, compare_start_ids
from ownership._verdict import same_namespace

INTERVAL = 2.0  # seconds between two looks
CONFIRMATIONS = 3

log = logging.getLogger("ownership")


class Step(enum.Enum):
    """What a look calls for."""

    NOTHING = "nothing"
    RESUME = "resume"
    GIVE_UP = "give up"


class Freeze:
    """One peer as it was found at each of several looks, some seconds apart. Pure: it only counts.

    :param confirmations: looks at which it must be found stopped, one after the other, before it is given up
    :param resumes: let it go on first, once and never again; looks before that do not count
    """

    def __init__(self, confirmations: int, *, resumes: bool) -> None:
        self._confirmations = confirmations
        self._resumes = resumes
        self._count = 0
        self._given_up = False
        self.resumed = False

    def found(self, *, stopped: bool) -> Step:
        """The peer was looked at. Whatever is not certain is not stopped."""
        if not stopped:
            self._count = 0
            return Step.NOTHING
        if self._resumes and not self.resumed:
            self.resumed = True
            return Step.RESUME
        self._count += 1
        if self._count < self._confirmations or self._given_up:
            return Step.NOTHING
        self._given_up = True
        return Step.GIVE_UP


def is_frozen(processes: ProcessTable, peer: OwnerIdentity) -> bool:
    """Whether that very process is certainly stopped, by a signal or because its cgroup is frozen; not by a tracer."""
    if not same_namespace(peer, processes.current()):
        return False
    seen = processes.observe(peer.pid)
    if seen.start_id is None or compare_start_ids(peer.start_id, seen.start_id) is not Comparison.SAME:
        return False
    return seen.state in (ProcessState.STOPPED, ProcessState.FROZEN)


def resume(processes: ProcessTable, peer: OwnerIdentity) -> bool:
    """Send SIGCONT to that very process; whether it was sent. (Of no use to a frozen cgroup, and no harm.)"""
    if CONTINUE is None:
        return False
    try:
        return processes.send(peer.pid, peer.start_id, CONTINUE)
    except (OSError, ValueError) as error:  # it has just gone, or is not ours to signal: the looks go on
        log.info("pid %d is stopped and cannot be continued: %s", peer.pid, error)
        return False
