"""A section in which nobody can take over: the guard is held for as long as it lasts."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from ownership._guard import Guard, Interrupting
from ownership._hold import Hold, Inside
from ownership._holding import Holding
from ownership._pinned import DirectoryChanged
from ownership._renewal import renew_late

_FOLLOWED = 8  # times that a changed directory is followed before giving up


class _Leaving:
    """``__exit__`` of a section: an object of its own for every ``with`` statement, which keeps it until it is over.

    Once it is gone nobody can be in the block, nor is anybody left to leave it: a signal handler has raised right
    before the block began, or when it was over. Neither a traceback nor whoever keeps the exception holds it; a
    generator that is suspended inside does.
    """

    def __get__(self, section: Critical | None, _: object = None) -> Callable[..., None]:
        if section is None:
            return _exit
        leaving = partial(_exit, section)
        if section.leaving is None and section.__class__ is Critical:  # it is about to be entered
            section.leaving = weakref.ref(leaving, section.dropped)
        return leaving


class Critical:
    """``with claim.critical()``: every guard of *holding* is held meanwhile.

    Whatever a signal handler raises on the way in or out leaves the guards free: what is done here is undone here, and
    what is not is undone when the ``with`` statement lets go of our ``__exit__``, whoever keeps the exception.

    Not guaranteed: that at once where ``__enter__`` was called in another way (``contextlib.ExitStack``): then it
    counts as being inside until it is left or dropped. Whoever does so and looks ``__exit__`` up before must keep it.

    :ivar leaving: what the ``with`` statement is going to call
    """

    leaving: weakref.ref[Callable[..., None]] | None = None
    _inside: Inside | None = None  # what we are inside of, perhaps with others around us
    _given_up: list[Callable[[], object]] | None = None  # to give it up inside is refused

    def __init__(self, holding: Holding, timeout: float) -> None:
        self._holds: dict[Guard, Hold] = {}
        self._member = object()
        self._timeout = timeout
        self._holding = holding

    def __enter__(self) -> None:
        """See :meth:`ownership.Claim.critical`."""
        try:
            self._enter()
        except BaseException:
            self.leave()
            raise

    __exit__ = _Leaving()

    def put_off(self, given_up: list[Callable[[], object]]) -> None:
        """To be called before it is entered: it is the section of a call of this library, not one of the program.

        What a signal handler gives up inside is carried out afterwards, and in *given_up* meanwhile.
        """
        self._given_up = given_up

    def _enter(self) -> None:
        holding = self._holding
        leave_stale(holding)
        holding.require_held()
        self.__class__ = _Entered
        is_over = partial(_is_over, weakref.ref(self), self.leaving)
        inside = holding.inside
        if inside is None or not inside.is_here:
            self._lock(holding.clock.monotonic() + self._timeout)
            inside = Inside(threading.get_ident(), self._holds, {}, self._given_up)
        self._inside = inside
        inside.members[self._member] = is_over
        holding.inside = inside
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

    def leave(self) -> None:
        try:
            self._leave()
        except BaseException:
            self._leave()  # again: a signal may have come on the way out
            raise

    def dropped(self, _: object) -> None:
        """The ``with`` statement is over, and did not leave it. Whatever a handler raises here is lost."""
        self.leave()

    def _leave(self) -> None:
        """May be repeated until it is done. The guards are held until the last one inside has left."""
        inside = self._inside
        if inside is not None:
            inside.members.pop(self._member, None)
        if inside is None or not inside.members:
            _free(self._holding, self._holds if inside is None else inside.holds)
        self._holds = {}
        self._inside = self.leaving = None
        self.__class__ = Critical


def _exit(
    section: Critical, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    section.leave()


def _is_over(section: weakref.ref[Critical], leaving: weakref.ref[Callable[..., None]] | None) -> bool:
    """Whether nobody can be in *section* any more: it is gone, or nobody is left to leave it."""
    return section() is None or (leaving is not None and leaving() is None)


def _free(holding: Holding, holds: dict[Guard, Hold]) -> None:
    """May be repeated until it is done."""
    inside = holding.inside
    given_up = None
    if inside is not None and inside.holds is holds:
        given_up = inside.given_up
        holding.inside = None
    for hold in list(holds.values()):
        hold.leave()
    for guard in list(holds):
        guard.catch_up()  # what was put off until it is free
    holds.clear()
    while given_up:
        given_up.pop()()


class _Entered(Critical):
    """Left by its finaliser if a signal handler raised before the block began, or after it was over.

    Of its own only meanwhile: whatever a handler raises inside a finaliser is lost.
    """

    def __del__(self) -> None:
        self.leave()


def leave_stale(holding: Holding) -> None:
    """Leave what this thread is inside only because signal handlers raised, one while another was cleaned up after."""
    inside: Any = holding.inside
    if inside is not None and inside.is_here and inside.is_over:
        _free(holding, inside.holds)


def waits(holding: Holding, give_up: Callable[[], bool], rest: Callable[[], object]) -> bool:
    """Whether giving *holding* up has to wait until this thread, which was interrupted inside the section of a call of
    this library, has left that: then the handle is inert, and *rest* follows.

    :param give_up: make the handle inert; whether it was not before
    :raises RuntimeError: it is inside a section that it has entered itself
    """
    leave_stale(holding)
    inside = holding.inside
    if inside is None or not inside.is_here:
        return False
    if inside.given_up is None:
        raise RuntimeError(
            f"{holding.primary.shown} cannot be released inside its own critical section: leave that first"
        )
    if give_up():
        inside.given_up.append(rest)
    return True


def let_wait(holding: Holding) -> None:
    """Whatever section this thread is inside, giving *holding* up waits for its end from now on."""
    inside = holding.inside
    if inside is not None and inside.is_here and inside.given_up is None:
        holding.inside = inside._replace(given_up=[])
