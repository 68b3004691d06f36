"""Taking back what an acquire that failed or was interrupted may have published."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ownership import _keeper
from ownership._errors import OwnershipError
from ownership._hold import Hold
from ownership._holding import UNSETTLED, Holding
from ownership._state import State


def undo(holding: Holding, holds: Sequence[Hold]) -> None:
    """Withdraw what was published, while the guards are held; what cannot be withdrawn now the keeper takes on."""
    if holding.process != os.getpid():  # a child that was forked in between: it is its parent's
        return
    for part, hold in zip(list(holding.parts), holds, strict=False):
        part.withdraw(hold)
    left = [part for part in holding.parts if not part.retired]
    for part in holding.parts:
        if part.retired:
            part.forsake()
    holding.parts[:] = left
    if left:
        holding.abandoned = True
        UNSETTLED.add(holding)
    else:
        _keeper.KEEPER.forget(holding)


def give_up(holding: Holding) -> None:
    """Withdraw whatever an interrupted acquire may have published; the keeper goes on with what is left."""
    if holding.process != os.getpid():
        return
    holding.abandoned = True
    holding.retire(State.RELEASED)
    try:
        done = holding.withdraw("released", "acquire was interrupted")
    except (OSError, OwnershipError):
        done = False
    if done:
        for part in holding.parts:
            part.forsake()
        _keeper.KEEPER.drop(holding)
