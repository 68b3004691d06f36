"""The end of being inside guards, by whichever thread it comes, whatever signal handlers raise meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any

from ownership import _fork
from ownership._holding import Holding
from ownership._inside import Inside

_PATIENCE = 1.0  # seconds that another thread may take to free guards
_SOON = 0.0005

unfinished: dict[Inside, Holding] = {}  # that nobody is in any more, and whose guards may still be locked


def drop(holding: Holding, inside: Inside, member: object, _: object = None) -> None:
    """*member* is not inside any more; perhaps since nothing is left of its section, which nobody has left.

    That is not for its finaliser to find: what a handler raises in one may be kept by whoever collects lost exceptions,
    and the section with it.
    """
    inside.members.pop(member, None)
    if not inside.members:
        free(holding, inside)


def free(holding: Holding, inside: Inside) -> None:
    """May be repeated until it is done, but not by a handler in the midst of it. Whoever joins meanwhile stays in."""
    while (inside.holds or inside in unfinished) and not inside.members:
        turn = [threading.get_ident()]
        try:
            if inside.leaver.setdefault(None, turn) is not turn:
                return
            if not inside.members:
                _unlock(holding, inside)
        finally:  # in one step: no signal handler runs in between
            if None in inside.leaver and inside.leaver[None] is turn:
                inside.leaver = {}
    while inside.given_up and not inside.members:
        inside.given_up.pop()()


def _unlock(holding: Holding, inside: Inside) -> None:
    unfinished[inside] = holding
    if holding.inside is inside:  # as long as the guard is locked no other thread is
        holding.inside = None
    for hold in list(inside.holds.values()):
        hold.leave()
    for guard in list(inside.holds):
        guard.catch_up()  # what was put off until it is free
    inside.holds.clear()
    unfinished.pop(inside, None)


def leave_stale(holding: Holding) -> None:
    """Leave what this thread is inside only because signal handlers raised, one while another was cleaned up after.

    If another thread does so at this moment, since it has dropped the last section, wait until it has.
    """
    inside: Any = holding.inside
    if inside is not None and inside.is_of_this_thread and inside.is_over:
        inside.members.clear()
        _let_free(holding, inside)
    for left in [one for one, of in list(unfinished.items()) if of is holding and one.is_of_this_thread]:
        _let_free(holding, left)


def _let_free(holding: Holding, inside: Inside) -> None:
    free(holding, inside)
    until = time.monotonic() + _PATIENCE
    while inside.is_left_by_another and time.monotonic() < until:
        time.sleep(_SOON)


_fork.in_child(unfinished.clear)
