"""A section in which nobody can take over: the guard is held for as long as it lasts."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TypeAlias

from ownership._errors import OwnershipLostError
from ownership._guard import Interrupting
from ownership._hold import Hold
from ownership._holding import Holding
from ownership._inside import Inside
from ownership._leaving import drop, free, leave_stale
from ownership._pinned import DirectoryChanged
from ownership._renewal import renew_late

Leaving: TypeAlias = "weakref.ref[Callable[..., None]]"

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
        if not section.is_used:  # it is about to be entered: by this thread, if another one is not faster
            section.looked_up[weakref.ref(leaving, section.dropped)] = threading.get_ident()
        return leaving


class Critical:
    """``with claim.critical()``: every guard of *holding* is held meanwhile.

    Whatever a signal handler raises on the way in or out leaves the guards free: what is done here is undone here, and
    what is not is undone when the ``with`` statement lets go of our ``__exit__``, whoever keeps the exception.

    Not guaranteed: that at once where ``__enter__`` was called in another way (``contextlib.ExitStack``): then it
    counts as being inside until it is left or dropped. Whoever does so and looks ``__exit__`` up before must keep it.

    :ivar leaving: what the ``with`` statement is going to call
    :ivar looked_up: what any is going to call, and its thread
    :ivar told: what to raise for a loss instead
    """

    told: Callable[[OwnershipLostError], Exception] | None = None
    leaving: Leaving | None = None
    _inside: Inside | None = None  # what we are inside of, perhaps with others around us
    _given_up: list[Callable[[], object]] | None = None  # to give it up inside is refused

    def __init__(self, holding: Holding, timeout: float) -> None:
        self._member = object()
        self.looked_up: dict[Leaving, int] = {}
        self._used: dict[None, object] = {}  # by one ``with`` statement at a time: whoever is first
        self._timeout = timeout
        self._holding = holding

    def __enter__(self) -> None:
        """See :meth:`ownership.Claim.critical`."""
        leave_stale(self._holding)
        me = object()
        if self._used.setdefault(None, me) is not me:
            shown = self._holding.primary.shown
            raise RuntimeError(f"this section of {shown} is entered already: call critical() again")
        try:
            self.leaving = self._looked_up_here()
            self._enter()
        except BaseException as error:
            self.leave()
            if self.told is not None and isinstance(error, OwnershipLostError):
                raise self.told(error) from None
            raise

    __exit__ = _Leaving()

    @property
    def is_used(self) -> bool:
        return bool(self._used)

    def _looked_up_here(self) -> Leaving | None:
        """What the ``with`` statement that has just begun in this thread looked up last."""
        here = threading.get_ident()
        return next((one for one, thread in reversed(list(self.looked_up.items())) if thread == here and one()), None)

    def put_off(self, given_up: list[Callable[[], object]]) -> None:
        """To be called before it is entered: it is the section of a call of this library, not one of the program.

        What a signal handler gives up inside is carried out afterwards, and in *given_up* meanwhile.
        """
        self._given_up = given_up

    def _enter(self) -> None:
        holding = self._holding
        holding.require_held()
        self.__class__ = _Entering
        deadline = holding.clock.monotonic() + self._timeout
        while not self._joins(holding.inside):
            leave_stale(holding)
            if holding.inside is None or not holding.inside.is_here:
                self._inside = inside = Inside(self._given_up)
                self._lock(inside, deadline)
                self._become_member(inside)
                holding.inside = inside
                break
        self.__class__ = Critical
        holding.verify()
        renew_late(holding)
        holding.require_held()

    def _joins(self, inside: Inside | None) -> bool:
        """Whether this thread is in *inside* already, and we are now, too."""
        if inside is None or not inside.is_here:
            return False
        self._inside = inside
        self._become_member(inside)
        if self._holding.inside is inside and not inside.leaver:
            return True
        drop(self._holding, inside, self._member)  # another thread has just dropped the last section of this one
        return False

    def _become_member(self, inside: Inside) -> None:
        gone = weakref.ref(self, partial(drop, self._holding, inside, self._member))
        inside.members[self._member] = partial(_is_over, gone, self.leaving)

    def _lock(self, inside: Inside, deadline: float) -> None:
        holding = self._holding
        for _ in range(_FOLLOWED):
            try:
                for part in holding.parts:  # in the order in which everybody locks guards
                    if part.place is None:
                        holding.require_held()
                    if inside.thread in part.guard.inside:
                        leave_stale(holding)  # by another thread, perhaps, that has just dropped a section of this one
                    if inside.thread in part.guard.inside:
                        raise Interrupting(part.guard).told()
                    part.place.directory.ensure_open()
                    hold = inside.holds[part.guard] = Hold(part.guard, inside.thread)
                    hold.enter(deadline, holding.clock, True)
                return
            except DirectoryChanged:
                free(holding, inside)
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

    def dropped(self, leaving: Leaving) -> None:
        """A ``with`` statement is over, and did not leave it. Whatever a handler raises here is lost."""
        self.looked_up.pop(leaving, None)
        if leaving is self.leaving:  # else it is another one that has entered it
            self.leave()

    def _leave(self) -> None:
        """May be repeated until it is done. The guards are held until the last one inside has left."""
        if self._inside is not None:
            drop(self._holding, self._inside, self._member)
        if self.leaving is not None:
            self.looked_up.pop(self.leaving, None)  # or its end would be told, where what a handler raises is lost
        self._inside = self.leaving = None
        self.__class__ = Critical
        self._used.clear()


def _exit(
    section: Critical, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    section.leave()


def _is_over(section: weakref.ref[Critical], leaving: Leaving | None) -> bool:
    """Whether nobody can be in *section* any more: it is gone, or nobody is left to leave it."""
    return section() is None or (leaving is not None and leaving() is None)


class _Entering(Critical):
    """Left by its finaliser if handlers raised, one while another was cleaned up after, before anybody was inside."""

    def __del__(self) -> None:
        self.leave()


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
        inside.given_up = []
