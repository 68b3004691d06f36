"""A task of a roster, as one look showed it."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal, NamedTuple, TypeAlias

from ownership import OwnerIdentity, Verdict

FAILED = "failed: "  # how the status of what an exception ended begins
TaskState: TypeAlias = Literal["running", "lost", "finished"]


class Task(NamedTuple):
    """One task at one moment.

    :ivar name: unique in its roster
    :ivar state: ``running``: whoever drives it lives, or that cannot be told; ``lost``: whoever drove it is gone, a
        zombie or its number reused, or gave it up; ``finished``
    :ivar status: what its driver said last, in its own words
    :ivar data: what its driver recorded last, anything that JSON can say
    :ivar token: by which it is, or was, driven: greater than every earlier one
    :ivar owner: the identity of its driver, ``None`` if the roster does not say
    :ivar driver: the driver for people: pid, command and host
    :ivar verdict: on the driver, ``None`` if it was not looked at: the task has ended by its own word
    :ivar reason: the fact behind *state*, in words
    :ivar began: seconds since the epoch when this driver began; for people
    :ivar said: seconds since the epoch when it last said something; for people
    """

    name: str
    state: TaskState
    status: str
    data: Any
    token: int
    owner: OwnerIdentity | None
    driver: str
    verdict: Verdict | None
    reason: str
    began: float
    said: float

    @property
    def failed(self) -> bool:
        """Whether it is finished as failed: an exception left its ``with job:``, or its driver said ``failed: ``."""
        return self.state == "finished" and self.status.startswith(FAILED)

    @property
    def since(self) -> dt.datetime:
        """When its present driver began, by the wall clock of then."""
        return _moment(self.began)

    @property
    def updated(self) -> dt.datetime:
        """When its driver last said something, by the wall clock of then."""
        return _moment(self.said)


class Restored(NamedTuple):
    """Every task of a roster at one moment, by its state, in the order in which they were begun."""

    running: tuple[Task, ...]
    lost: tuple[Task, ...]
    finished: tuple[Task, ...]


def _moment(seconds: float) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (OverflowError, ValueError, OSError):  # records are written by others
        return dt.datetime.fromtimestamp(0, dt.UTC)
