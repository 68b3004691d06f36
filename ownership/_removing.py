"""Removing our records, never another's, wherever they are by now."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from ownership._clock import Clock
from ownership._errors import OwnershipError
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._moved import has_left_all, leave_behind, may_pass
from ownership._part import Part
from ownership._pinned import DirectoryChanged
from ownership._place import existing

_Result = TypeVar("_Result")


class Removable(Protocol):
    """What owns something by its parts."""

    clock: Clock
    parts: list[Part]
    process: int

    def under_guard(
        self, part: Part, action: Callable[[Hold], _Result], *, wait: float = PATIENCE, follow: bool = True
    ) -> _Result:
        """Run *action* under the guard of *part*."""
        ...

    def withdraw_quietly(self, how: str, reason: str) -> bool:
        """One attempt without waiting."""
        ...


def withdrawn(holding: Removable, how: str, reason: str, wait: float) -> bool:
    """See :meth:`ownership._holding.Holding.withdraw`."""
    failure: Exception | None = None
    left = False
    for part in holding.parts:
        if holding.process != os.getpid():  # we were forked from it, perhaps just now: it is our parent's
            return False
        if part.retired:
            continue
        part.disclaim()
        place, guard = part.place, part.guard
        try:
            if part.stamped:
                remove = partial(part.remove, how, reason, holding.clock.wall_ns())
                holding.under_guard(part, remove, wait=wait, follow=False)
        except Interrupting:  # this thread is inside; carried out when it leaves
            part.guard.afterwards.append(lambda: holding.withdraw_quietly(how, reason))
            left = True
            continue
        except (DirectoryChanged, FileNotFoundError):
            # it was deleted, and our record with it; or moved, and perhaps a copy of it put in its place
            if not leave_behind(part, place, guard) or not _is_cleared_at_path(part):
                left = True
                continue
        except (OSError, OwnershipError) as error:
            failure = failure or error
            continue
        if has_left_all(part):
            part.retire()
        else:
            left = True
    if failure is not None:
        raise failure
    return not left


def _is_cleared_at_path(part: Part) -> bool:
    """Whether nothing names us as the owner where the path leads by now."""
    try:
        place = existing(part.resource, part.registry)
        if place is None or not any(place.directory.signature(name) for name in (part.filename, part.guard.filename)):
            return True
        return leave_behind(part, place, place.guard(part.resource))
    except (OSError, OwnershipError) as error:
        return not may_pass(error)  # what cannot be looked at for good, nobody can own anything in
