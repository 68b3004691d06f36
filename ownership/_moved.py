"""A lock directory that its path does not lead to any more: deleted, or moved, and then it may come back."""

from __future__ import annotations

from typing import Protocol

from ownership._clock import SYSTEM_CLOCK
from ownership._errors import OwnershipError
from ownership._guard import Busy, Guard, Interrupting
from ownership._hold import Hold
from ownership._locking import locked
from ownership._models import GuardState, Malformed, OwnerRecord
from ownership._pinned import DirectoryChanged
from ownership._place import Place
from ownership._record import decode


class Movable(Protocol):
    """What was published in a directory."""

    behind: list[tuple[Place, Guard]]
    filename: str
    raw: bytes

    def is_ours(self, record: OwnerRecord | Malformed | None) -> bool:
        """Whether *record* says what we published."""
        ...

    def blank(self, hold: Hold, remembered: GuardState, place: Place | None = None) -> None:
        """Take our name out of the guard of *place*."""
        ...


def leave_behind(part: Movable, place: Place, guard: Guard) -> bool:
    """*part* has gone along to another directory, or was given up: nothing in this one is to name us as an owner.

    :returns: whether nothing does, as far as that can be reached; else somebody is busy there: try again
    """

    def clear(hold: Hold) -> None:
        found = place.directory.read(part.filename)
        if found is not None and (found[0] == part.raw or part.is_ours(decode(found[0], guard.resource.shown))):
            place.directory.unlink(part.filename)
        part.blank(hold, hold.read(), place)

    try:
        locked([guard], 0.0, SYSTEM_CLOCK, clear, patient=False, anywhere=True)
    except (OSError, OwnershipError, DirectoryChanged, Busy, Interrupting):
        return place.directory.is_deleted() or not place.directory.descriptor.intact()
    return True


def has_left_all(part: Movable) -> bool:
    """Whether nothing of *part* is left in directories that were moved away, by another look."""
    part.behind[:] = [(place, guard) for place, guard in part.behind if not leave_behind(part, place, guard)]
    return not part.behind
