"""A section in which nobody can take over: the guard is held for as long as it lasts."""

from __future__ import annotations

import threading
from types import TracebackType

from ownership._guard import Guard, Interrupting
from ownership._hold import Hold, Inside
from ownership._holding import Holding
from ownership._pinned import DirectoryChanged
from ownership._renewal import renew_late

_FOLLOWED = 8  # times that a changed directory is followed before giving up


class Critical:
    """``with claim.critical()``: every guard of *holding* is held meanwhile.

    Whatever a signal handler raises on the way in or out leaves the guards free: what is done here is undone here.
    """

    def __init__(self, holding: Holding, timeout: float) -> None:
        self._holds: dict[Guard, Hold] = {}
        self._timeout = timeout
        self._holding = holding

    def __enter__(self) -> None:
        """See :meth:`ownership.Claim.critical`."""
        try:
            self._enter()
        except BaseException:
            self._exit()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit()

    def _enter(self) -> None:
        holding = self._holding
        holding.require_held()
        if holding.inside is None or not holding.inside.is_here:
            self.__class__ = _Entered
            self._lock(holding.clock.monotonic() + self._timeout)
            holding.inside = Inside(threading.get_ident(), self._holds)
        holding.verify()
        renew_late(holding)
        holding.require_held()

    def _lock(self, deadline: float) -> None:
        holding, thread = self._holding, threading.get_ident()
        for _ in range(_FOLLOWED):
            try:
                for part in holding.parts:  # in the order in which everybody locks guards
                    if part.place is None:
                        holding.require_held()
                    if thread in part.guard.inside:
                        raise Interrupting(part.guard).told()
                    part.place.directory.ensure_open()
                    hold = self._holds[part.guard] = Hold(part.guard, thread)
                    hold.enter(deadline, holding.clock, True)
                return
            except DirectoryChanged:
                self._leave()
                for part in holding.parts:
                    holding.require_held()
                    part.follow()
        raise OSError(11, "its lock directory keeps being changed from outside", holding.primary.path)

    def _exit(self) -> None:
        try:
            self._leave()
        except BaseException:
            self._leave()  # again: a signal may have come on the way out
            raise

    def _leave(self) -> None:
        """May be repeated until it is done."""
        inside, holds = self._holding.inside, self._holds
        if inside is not None and inside.holds is holds:
            self._holding.inside = None
        for hold in holds.values():
            hold.leave()
        for guard in holds:
            guard.catch_up()  # what was put off until it is free
        self._holds = {}
        self.__class__ = Critical


class _Entered(Critical):
    """Left by its finaliser if a signal handler raised before the block began, or after it was over.

    Of its own only meanwhile: whatever a handler raises inside a finaliser is lost.
    """

    def __del__(self) -> None:
        self._leave()


def require_outside(holding: Holding) -> None:
    """:raises RuntimeError: this thread is inside a critical section of *holding*"""
    if holding.inside is not None and holding.inside.is_here:
        raise RuntimeError(
            f"{holding.primary.shown} cannot be released inside its own critical section: leave that first"
        )
