"""One change of a roster, for whoever decides about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from leases._roster_lines import State, encoded
from leases._roster_view import View
from ownership import Claim, OwnerIdentity


class Change:
    """What is known to whoever decides about a change, while nobody else can make one.

    :ivar me: the identity of this process, as the roster says it
    :ivar token: greater than every earlier one
    :ivar now: seconds since the epoch
    """

    def __init__(self, view: View, claim: Claim, now: float, reread: Callable[[], View]) -> None:
        self.view = view
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
        if state.by in self.view.drivers or state.by != self.me.instance_id:
            return state.line
        told = {**self.me.model_dump(mode="json"), "host": self._record.host, "command": self._record.command}
        return encoded({"driver": told}) + state.line


Decide: TypeAlias = "Callable[[Change], State]"
