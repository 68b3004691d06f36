"""Releasing a claim, also one whose release was interrupted."""

from __future__ import annotations

import os
from functools import partial

from ownership import _closing, _keeper
from ownership._critical import waits
from ownership._errors import OwnershipError
from ownership._holding import Holding
from ownership._leaving import unfinished
from ownership._state import State

_MOMENT = 0.05  # seconds that another release waits for a guard: the first has waited, or was told not to


def release(holding: Holding, reason: str) -> None:
    """See :meth:`ownership.Claim.release`."""
    if holding.process != os.getpid():
        return
    if (holding.inside is not None or unfinished) and waits(
        holding, partial(_make_inert, holding), partial(_withdraw_quietly, holding, reason)
    ):
        return
    if _make_inert(holding):
        how, ending = holding.ended
        if holding.withdraw(how, reason or ending):
            _keeper.KEEPER.drop(holding)
    elif holding.state is State.RELEASED and holding in _keeper.KEEPER.holdings:  # that was broken off, or failed
        _withdraw_quietly(holding, reason, _MOMENT)
    elif holding.state is State.LOST and holding.withdraw_quietly("released", "another resource of the claim was lost"):
        _keeper.KEEPER.drop(holding)


def _make_inert(holding: Holding) -> bool:
    return holding.retire(State.RELEASED) or _closing.reopen(holding)


def _withdraw_quietly(holding: Holding, reason: str, wait: float = 0.0) -> None:
    """One more attempt; the keeper comes back for what is left."""
    how, ending = holding.ended
    try:
        if holding.withdraw(how, reason or ending, wait=wait):
            _keeper.KEEPER.drop(holding)
    except (OSError, OwnershipError):
        pass
