"""Releasing a claim, also one whose release was interrupted."""

from __future__ import annotations

import os
from functools import partial

from ownership import _closing, _keeper
from ownership._critical import waits
from ownership._holding import Holding
from ownership._state import State


def release(holding: Holding, reason: str) -> None:
    """See :meth:`ownership.Claim.release`."""
    if holding.process != os.getpid():
        return
    if holding.inside is not None and waits(
        holding, partial(_make_inert, holding), partial(_withdraw_quietly, holding, reason)
    ):
        return
    if _make_inert(holding) or _is_unfinished(holding):
        how, ending = holding.ended
        if holding.withdraw(how, reason or ending):
            _keeper.KEEPER.drop(holding)
    elif holding.state is State.LOST and holding.withdraw_quietly("released", "another resource of the claim was lost"):
        _keeper.KEEPER.drop(holding)


def _make_inert(holding: Holding) -> bool:
    return holding.retire(State.RELEASED) or _closing.reopen(holding)


def _is_unfinished(holding: Holding) -> bool:
    """Whether it was released, and an exception, of a signal handler for instance, has broken that off."""
    return holding.state is State.RELEASED and holding in _keeper.KEEPER.holdings


def _withdraw_quietly(holding: Holding, reason: str) -> None:
    how, ending = holding.ended
    if holding.withdraw_quietly(how, reason or ending):
        _keeper.KEEPER.drop(holding)
