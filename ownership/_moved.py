"""A lock directory that its path does not lead to any more: deleted, or moved, and then it may come back."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ownership._clock import SYSTEM_CLOCK
from ownership._errors import GuardTimeoutError, OwnershipError, RecordError
from ownership._guard import Busy, Guard, Interrupting
from ownership._hold import Hold
from ownership._locking import locked
from ownership._models import GuardState, Malformed, OwnerRecord
from ownership._owned import Owned
from ownership._paths import Resource
from ownership._pinned import DirectoryChanged, Signature
from ownership._place import pinned, places
from ownership._record import decode
from ownership._station import Place

_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN, errno.EINTR)


class Movable(Protocol):
    """What was published in a directory."""

    resource: Resource
    registry: str | None
    place: Place
    guard: Guard
    closed: bool
    confirmed: bool
    retired: bool
    signature: Signature | None
    owns_in: Owned | None
    token: int
    name: str
    behind: list[tuple[Place, Guard]]
    moved: bool
    filename: str
    raw: bytes

    def is_ours(self, record: OwnerRecord | Malformed | None) -> bool:
        """Whether *record* says what we published."""
        ...

    def put(self, place: Place, guard: Guard) -> None:
        """It is there from now on."""
        ...

    def disclaim(self) -> None:
        """No handle of this process owns it by our token any more."""
        ...

    def blank(self, hold: Hold, remembered: GuardState, place: Place | None = None) -> None:
        """Take our name out of the guard of *place*."""
        ...


def leave_behind(part: Movable, place: Place, guard: Guard) -> bool:
    """*part* has gone along to another directory, or was given up: nothing in this one is to name us as an owner.

    :returns: whether nothing does, as far as that can be reached; else try again: somebody is busy there, or what is
        ours cannot be removed
    """
    inside: list[Hold] = []

    def is_there() -> bool:
        found = place.directory.read(part.filename)
        return found is not None and (found[0] == part.raw or part.is_ours(decode(found[0], guard.resource.shown)))

    def clear(hold: Hold) -> None:
        inside.append(hold)
        if is_there():
            place.directory.discard(part.filename)
        part.blank(hold, hold.read(), place)

    try:
        locked([guard], 0.0, SYSTEM_CLOCK, clear, patient=False, anywhere=True)
    except (OSError, OwnershipError, DirectoryChanged, Busy, Interrupting) as error:
        if isinstance(error, RecordError) or not (inside or may_pass(error) or _answer(is_there)):
            return True
        return place.directory.is_deleted() or not place.directory.descriptor.intact()
    return True


def _answer(look: Callable[[], bool]) -> bool:
    """What *look* says; no if it cannot be told."""
    try:
        return look()
    except (OSError, OwnershipError):
        return False


def may_pass(error: Exception) -> bool:
    """Whether it is worth while to try again."""
    if isinstance(error, OSError) and not isinstance(error, GuardTimeoutError):
        return error.errno in _PASSING
    return not isinstance(error, RecordError)


def has_left_all(part: Movable) -> bool:
    """Whether nothing of *part* is left in directories that were moved away, by another look."""
    if part.moved:
        _leave_others(part)
    for one in list(part.behind):
        if leave_behind(part, *one):
            with suppress(ValueError):  # by another thread
                part.behind.remove(one)
    return not part.behind


def follow(part: Movable) -> None:
    """See :meth:`ownership._part.Part.follow`. Without a lock, for signal handlers and finalisers come here too."""
    place = pinned(part.resource, part.registry)
    if part.place is None:
        return
    if part.place is not place:
        part.moved = True
        try:
            place.enter(part)
        except DirectoryChanged:  # that was let go of meanwhile: whoever comes back finds the next
            return
        if part.closed:
            place.owned.closed.add(part.name)
        else:
            place.owned.offer(part.name, part)
        part.put(place, place.guard(part.resource))
        place.users.add(part)  # again: another thread may have found it there, before it was there
        part.signature, part.confirmed = None, False
    _leave_others(part)
    if part.retired:
        place.leave(part)
        part.disclaim()


def _leave_others(part: Movable) -> None:
    """It is in no place but its own any more. Whatever breaks this off, the next call goes on with."""
    for other in places():
        if other.users is part.place.users or part not in other.users:
            continue
        guard = other.guard(part.resource)
        if not leave_behind(part, other, guard):
            part.behind.append((other, guard))
        other.leave(part)
        if other is part.place:  # by now: another thread has brought it here
            other.users.add(part)
            continue
        other.move_out()
