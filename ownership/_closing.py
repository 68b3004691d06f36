"""Giving a claim up other than by a release: closed until the process ends, or dropped by everybody."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any

from ownership._errors import OwnershipError, OwnershipLostError
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._holding import UNSETTLED, Holding
from ownership._models import CLOSED
from ownership._part import Part
from ownership._process import printable
from ownership._state import State
from ownership._updating import update_one

_REASON = 120  # characters


def retire(holding: Holding, reason: str) -> bool:
    """Make the handle inert at once, to be closed; false if it was given up or lost before."""
    with holding.mutex:
        if holding.state is not State.HELD:
            return False
        holding.ending = printable(reason)[:_REASON]
        UNSETTLED.add(holding)
        holding.state = State.CLOSED
        return True


def reopen(holding: Holding) -> bool:
    """From now on its record is to go, process or not; false if it was not closed, or is not any more."""
    with holding.mutex:
        if holding.state is not State.CLOSED:
            return False
        UNSETTLED.add(holding)
        holding.state = State.RELEASED
        return True


def close(holding: Holding, *, wait: float = PATIENCE) -> None:
    """Let our records say that they are closed; what does not say so yet, the keeper comes back for.

    :raises OSError: what stood in the way, after every record was tried
    """
    failure: Exception | None = None
    for part in list(holding.parts):
        if holding.process != os.getpid() or holding.state is not State.CLOSED:
            return
        if part.closed and part.owns_in is None:
            continue
        try:
            holding.under_guard(part, partial(_close, holding, part), wait=wait)
        except Interrupting:  # this thread is inside; carried out when it leaves
            part.guard.afterwards.append(partial(close_quietly, holding))
        except OwnershipLostError:  # somebody owns it by now: nothing is left to be closed
            return
        except (OSError, OwnershipError) as error:
            failure = failure or error
    if failure is not None:
        raise failure


def close_quietly(holding: Holding) -> None:
    """One attempt without waiting; the keeper comes back for what is left."""
    try:
        close(holding, wait=0.0)
    except (OSError, OwnershipError):
        pass


def _close(holding: Holding, part: Part, hold: Hold) -> None:
    # no lease: it ends with the process, and with nothing else
    changes: dict[str, Any] = {"phase": CLOSED, "reason": holding.ending, "lease": None, "heir": None}
    update_one(holding, part, changes, hold)
    if part.term is not None:
        part.term.end()
        part.term = None
    holding.leased = any(one.term is not None for one in holding.parts)
    part.closed = True
    part.place.owned.closed.add(part.name)
    part.disclaim()  # from now on this process may acquire it again


def is_homeless(holding: Holding) -> bool:
    """Whether the directories of everything it owned are gone for good: then there is nobody to be kept out.

    One that was moved away may come back.
    """
    if any(os.path.lexists(part.registry or part.resource.parent) for part in holding.parts):
        return False
    directories = [part.place.directory for part in holding.parts if part.place is not None]
    return all(directory.is_deleted() or not directory.descriptor.intact() for directory in directories)


def forsake(holding: Holding) -> None:
    """Look after it no more."""
    for part in holding.parts:
        part.disclaim()
        part.retire()


def abandon(holding: Holding, claim: object = None) -> bool:
    """Nobody has the handle any more: say so, once; false if it was given up or lost before."""
    is_claim = holding.state is State.HELD
    if not holding.retire(State.RELEASED):
        return False
    holding.abandoned = True
    if not is_claim:
        return True
    told = f"unreleased claim on {holding.primary.shown} was garbage-collected"
    warnings.warn(told, ResourceWarning, source=claim, stacklevel=3)
    return True
