"""One change of a roster, for whoever decides about it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from leases import _forks
from leases._roster_file import OpenRoster
from leases._roster_lines import RUNNING, State, encoded
from leases._roster_view import View
from leases._seat import Seats
from ownership import Claim, OwnerIdentity, OwnershipError


class Change:
    """What is known to whoever decides about a change, while nobody else can make one.

    :ivar me: the identity of this process, as the roster says it
    :ivar token: greater than every earlier one
    :ivar now: seconds since the epoch
    """

    def __init__(self, view: View, claim: Claim, now: float, reread: Callable[[], View], seats: Seats) -> None:
        self.view = view
        self._seats = seats
        self.me: OwnerIdentity = claim.ref.owner
        self.token = max(claim.token, view.top + 1)
        self.now = now
        self._record = claim.record
        self._reread = reread

    def reread(self) -> View:
        """Read again, after something was found out: what was written before that is there."""
        self.view = self._reread()
        return self.view

    def lines(self, state: State) -> bytes:
        """What is to be appended for *state*."""
        if state.by != self.me.instance_id:
            return state.line
        known = self.view.drivers.get(state.by)
        if state.state == RUNNING:
            seat = self._seats.take()
            self._seats.drives(state.task, True)
            if known is not None and known.get("seat") == list(seat):
                return state.line
        elif known is not None:
            return state.line
        told = {**self.me.model_dump(mode="json"), "host": self._record.host, "command": self._record.command}
        return encoded({"driver": {**told, "seat": self._seats.take()}}) + state.line


Decide: TypeAlias = "Callable[[Change], State]"


class DoesNotCount(Exception):
    """What was appended is not what everybody reads: somebody else wrote at the same time."""


class Deadline:
    """Until when a change may wait for others.

    :param timeout: seconds from now, ``None`` for ever
    """

    def __init__(self, timeout: float | None, now: Callable[[], float]) -> None:
        self._now = now
        self._until = None if timeout is None else now() + timeout

    @property
    def left(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - self._now())


class Attempt:
    """One call that changes a roster: what it has open, and what it has written so far.

    :ivar written: what was appended last, whether it counts or not
    """

    def __init__(self, task: str, decide: Decide | None, deadline: Deadline) -> None:
        self.task, self.decide = task, decide
        self._deadline = deadline
        self.forks = _forks.count
        self.files: list[OpenRoster] = []
        self.claims: list[Claim] = []
        self.sections: list[AbstractContextManager[None]] = []
        self.written: State | None = None

    @property
    def left(self) -> float | None:
        """Seconds that it may still wait for others."""
        return self._deadline.left

    def critical(self) -> AbstractContextManager[None]:
        """A section in which nobody can break what we own meanwhile."""
        section = self.claims[-1].critical()
        self.sections.append(section)
        return section

    def let_go(self) -> None:
        """Others may change it.

        What was written stays written: that a release is put off is no failure, the keeper goes on trying.
        """
        for section in self.sections:
            section.__exit__(None, None, None)  # a signal handler may have raised right before it began, or was left
        for claim in self.claims:
            try:
                claim.release()
            except (OSError, OwnershipError):
                pass

    def end(self) -> None:
        """Hold nothing any more; may be repeated until it is done."""
        self.let_go()
        for file in self.files:
            file.close()
