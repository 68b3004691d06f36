"""A section in which nobody can take over: the guard is held for as long as it lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ownership._guard import Guard, Interrupting
from ownership._hold import Hold, Inside
from ownership._holding import Holding
from ownership._pinned import DirectoryChanged
from ownership._renewal import renew_late

_FOLLOWED = 8  # times that a changed directory is followed before giving up


@contextmanager
def critical(holding: Holding, timeout: float) -> Iterator[None]:
    """Hold every guard of *holding* meanwhile.

    :raises OwnershipLostError: it was not ours any more
    :raises GuardTimeoutError: somebody else was inside for *timeout* seconds
    """
    holding.require_held()
    if holding.inside is not None and holding.inside.is_here:
        _confirm(holding)
        yield
        return
    holds: dict[Guard, Hold] = {}
    try:
        try:
            _enter(holding, holds, holding.clock.monotonic() + timeout)
            holding.inside = Inside(threading.get_ident(), holds)
            _confirm(holding)
            yield
        finally:
            _leave(holding, holds)
    except BaseException:
        _leave(holding, holds)  # again: a signal may have come on the way out
        _catch_up(holds)
        raise
    _catch_up(holds)


def _enter(holding: Holding, holds: dict[Guard, Hold], deadline: float) -> None:
    thread = threading.get_ident()
    for _ in range(_FOLLOWED):
        try:
            for part in holding.parts:  # in the order of the canonical paths, in which everybody locks guards
                if part.place is None:
                    holding.require_held()
                if thread in part.guard.inside:
                    raise Interrupting(part.guard).told()
                part.place.directory.ensure_open()
                hold = holds[part.guard] = Hold(part.guard, thread)
                hold.enter(deadline, holding.clock, True)
            return
        except DirectoryChanged:
            _release(holds)
            for part in holding.parts:
                holding.require_held()
                part.follow()
    raise OSError(11, "its lock directory keeps being changed from outside", holding.primary.path)


def _confirm(holding: Holding) -> None:
    """Nobody has taken over so far, and nobody can now."""
    holding.verify()
    renew_late(holding)
    holding.require_held()


def _release(holds: dict[Guard, Hold]) -> None:
    for hold in list(holds.values()):
        hold.leave()
    holds.clear()


def _leave(holding: Holding, holds: dict[Guard, Hold]) -> None:
    inside = holding.inside
    if inside is not None and inside.holds is holds:
        holding.inside = None
    for hold in holds.values():
        hold.leave()


def _catch_up(holds: dict[Guard, Hold]) -> None:
    """Do what was put off until the guards are free."""
    for guard in holds:
        guard.catch_up()


def require_outside(holding: Holding) -> None:
    """:raises RuntimeError: this thread is inside a critical section of *holding*"""
    if holding.inside is not None and holding.inside.is_here:
        raise RuntimeError(
            f"{holding.primary.shown} cannot be released inside its own critical section: leave that first"
        )
