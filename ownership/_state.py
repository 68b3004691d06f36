"""What a claim can be, from acquiring to its end."""

from __future__ import annotations

import enum

ADOPTED = 32  # characters of a hand-over's hash that are kept


class State(enum.Enum):
    ACQUIRING = "acquiring"
    HELD = "held"
    RELEASED = "released"
    CLOSED = "closed"  # given up; the record stays until the process ends
    HANDED_OVER = "handed over"
    LOST = "lost"
    FORKED = "forked"

    @property
    def told(self) -> str:
        """For people, who called :meth:`ownership.Claim.retire`."""
        return "retired" if self is State.CLOSED else self.value


OWNING = (State.HELD, State.ACQUIRING)
KEPT = (State.HELD, State.CLOSED)  # while a record is put back that others delete


def adopted_by(heir: str) -> str:
    """What the record of an heir carries: by which hand-over it came in. The guard keeps it too, without the word."""
    return f"adopted:{heir[:ADOPTED]}"
