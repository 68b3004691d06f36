"""A lock directory that its path does not lead to any more: deleted, or moved, and then it may come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ownership._clock import SYSTEM_CLOCK
from ownership._errors import OwnershipError
from ownership._guard import Busy, Guard, Interrupting
from ownership._hold import Hold
from ownership._locking import locked
from ownership._models import GuardState
from ownership._pinned import DirectoryChanged
from ownership._place import Place


class Movable(Protocol):
    """What was published in a directory."""

    filename: str
    raw: bytes

    def blank(self, hold: Hold, remembered: GuardState, place: Place | None = None) -> None:
        """Take our name out of the guard of *place*."""
        ...


def anywhere(guard: Guard, action: Callable[[Hold], object]) -> None:
    """*action* under *guard*, wherever its directory is by now; best effort."""
    try:
        locked([guard], 0.0, SYSTEM_CLOCK, action, patient=False, anywhere=True)
    except (OSError, OwnershipError, DirectoryChanged, Busy, Interrupting):
        pass


def leave_behind(part: Movable, place: Place, guard: Guard) -> None:
    """*part* has gone along to another directory: nothing in this one is to name us as an owner."""

    def clear(hold: Hold) -> None:
        found = place.directory.read(part.filename)
        if found is not None and found[0] == part.raw:
            place.directory.unlink(part.filename)
        part.blank(hold, hold.read(), place)

    anywhere(guard, clear)
    place.leave(part)
    place.move_out()
