"""Peers that are frozen: let go on once, given up when that does not help, and never because they are slow."""

from __future__ import annotations

import enum

from ownership._log import log, tell
from ownership._models import OwnerIdentity
from ownership._process import CONTINUE, Comparison, ProcessState, ProcessTable, compare_start_ids
from ownership._verdict import same_namespace

INTERVAL = 2.0  # seconds between two looks
CONFIRMATIONS = 3


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
        self._activity: int | None = None
        self._given_up = False
        self.resumed = False

    def found(self, *, stopped: bool, activity: int | None = None) -> Step:
        """The peer was looked at. Whatever is not certain is not stopped.

        :param activity: grows whenever it has run: one that is stopped at every look and runs in between is only slow
        """
        before, self._activity = self._activity, activity
        if not stopped:
            self._count = 0
            return Step.NOTHING
        if self._resumes and not self.resumed:
            self.resumed, self._activity = True, None  # that it runs for a moment now is our own doing
            return Step.RESUME
        if before is not None and activity is not None and activity != before:
            self._count = 0
            return Step.NOTHING
        self._count += 1
        if self._count < self._confirmations or self._given_up:
            return Step.NOTHING
        self._given_up = True
        return Step.GIVE_UP


def look_at(processes: ProcessTable, peer: OwnerIdentity) -> tuple[bool, int | None]:
    """Whether that very process is certainly stopped, by a signal or because its cgroup is frozen; and its activity.

    Not one that a tracer holds.
    """
    if not same_namespace(peer, processes.current()):
        return False, None
    activity = processes.activity(peer.pid)
    seen = processes.observe(peer.pid)
    if seen.start_id is None or compare_start_ids(peer.start_id, seen.start_id) is not Comparison.SAME:
        return False, None
    return seen.state in (ProcessState.STOPPED, ProcessState.FROZEN), activity


def resume(processes: ProcessTable, peer: OwnerIdentity) -> bool:
    """Send SIGCONT to that very process; whether it was sent. (Of no use to a frozen cgroup, and no harm.)"""
    if CONTINUE is None:
        return False
    try:
        return processes.send(peer.pid, peer.start_id, CONTINUE)
    except (OSError, ValueError) as error:  # it has just gone, or is not ours to signal: the looks go on
        tell(log.info, "pid %d is stopped and cannot be continued: %s", peer.pid, error)
        return False
