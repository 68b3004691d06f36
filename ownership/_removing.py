"""Removing our records, never another's, wherever they are by now."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ownership._errors import OwnershipError
from ownership._guard import Interrupting
from ownership._moved import anywhere
from ownership._pinned import DirectoryChanged

if TYPE_CHECKING:
    from ownership._holding import Holding


def withdrawn(holding: Holding, how: str, reason: str, wait: float) -> bool:
    """See :meth:`ownership._holding.Holding.withdraw`."""
    failure: Exception | None = None
    left = False
    for part in holding.parts:
        if holding.process != os.getpid():  # we were forked from it, perhaps just now: it is our parent's
            return False
        if part.retired:
            continue
        part.disclaim()
        remove = partial(part.remove, how, reason, holding.clock.wall_ns())
        try:
            if part.stamped:
                holding.under_guard(part, remove, wait=wait, follow=False)
        except Interrupting:  # this thread is inside; carried out when it leaves
            part.guard.afterwards.append(lambda: holding.withdraw_quietly(how, reason))
            left = True
            continue
        except (DirectoryChanged, FileNotFoundError):
            anywhere(part.guard, remove)  # the directory was deleted, and our record with it; or moved
        except (OSError, OwnershipError) as error:
            failure = failure or error
            continue
        part.retire()
    if failure is not None:
        raise failure
    return not left
