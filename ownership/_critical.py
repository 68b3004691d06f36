"""A section in which nobody can take over: the guard is held for as long as it lasts."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from ownership import _fork
from ownership._errors import OwnershipLostError
from ownership._guard import Interrupting
from ownership._hold import Hold
from ownership._holding import Holding
from ownership._inside import Inside
from ownership._pinned import DirectoryChanged
from ownership._renewal import renew_late

_FOLLOWED = 8  # times that a changed directory is followed before giving up

unfinished: dict[Inside, Holding] = {}  # that nobody is in any more, and whose guards may still be locked


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
        if section.leaving is None and not section.is_used:  # it is about to be entered
            section.leaving = weakref.ref(leaving, section.dropped)
        return leaving


class Critical:
    """``with claim.critical()``: every guard of *holding* is held meanwhile.

    Whatever a signal handler raises on the way in or out leaves the guards free: what is done here is undone here, and
    what is not is undone when the ``with`` statement lets go of our ``__exit__``, whoever keeps the exception.

    Not guaranteed: that at once where ``__enter__`` was called in another way (``contextlib.ExitStack``): then it
    counts as being inside until it is left or dropped. Whoever does so and looks ``__exit__`` up before must keep it.

    :ivar leaving: what the ``with`` statement is going to call
    :ivar told: what to raise for a loss instead
    """

    told: Callable[[OwnershipLostError], Exception] | None = None
    leaving: weakref.ref[Callable[..., None]] | None = None
    _inside: Inside | None = None  # what we are inside of, perhaps with others around us
    _given_up: list[Callable[[], object]] | None = None  # to give it up inside is refused

    def __init__(self, holding: Holding, timeout: float) -> None:
        self._member = object()
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

    def put_off(self, given_up: list[Callable[[], object]]) -> None:
        """To be called before it is entered: it is the section of a call of this library, not one of the program.

        What a signal handler gives up inside is carried out afterwards, and in *given_up* meanwhile.
        """
        self._given_up = given_up

    def _enter(self) -> None:
        holding = self._holding
        holding.require_held()
        self.__class__ = _Entering
        inside = holding.inside
        if inside is not None and inside.is_here:
            self._inside = inside
        else:
            self._inside = inside = Inside(self._given_up)
            self._lock(inside, holding.clock.monotonic() + self._timeout)
        gone = weakref.ref(self, partial(_drop, holding, inside, self._member))
        inside.members[self._member] = partial(_is_over, gone, self.leaving)
        holding.inside = inside
        self.__class__ = Critical
        holding.verify()
        renew_late(holding)
        holding.require_held()

    def _lock(self, inside: Inside, deadline: float) -> None:
        holding = self._holding
        for _ in range(_FOLLOWED):
            try:
                for part in holding.parts:  # in the order in which everybody locks guards
                    if part.place is None:
                        holding.require_held()
                    if inside.thread in part.guard.inside:
                        raise Interrupting(part.guard).told()
                    part.place.directory.ensure_open()
                    hold = inside.holds[part.guard] = Hold(part.guard, inside.thread)
                    hold.enter(deadline, holding.clock, True)
                return
            except DirectoryChanged:
                _free(holding, inside)
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
        if self._inside is not None:
            _drop(self._holding, self._inside, self._member)
        self._inside = self.leaving = None
        self.__class__ = Critical
        self._used.clear()


def _exit(
    section: Critical, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    section.leave()


def _is_over(section: weakref.ref[Critical], leaving: weakref.ref[Callable[..., None]] | None) -> bool:
    """Whether nobody can be in *section* any more: it is gone, or nobody is left to leave it."""
    return section() is None or (leaving is not None and leaving() is None)


def _drop(holding: Holding, inside: Inside, member: object, _: object = None) -> None:
    """*member* is not inside any more; perhaps since nothing is left of its section, which nobody has left.

    That is not for its finaliser to find: what a handler raises in one may be kept by whoever collects lost exceptions,
    and the section with it.
    """
    inside.members.pop(member, None)
    if not inside.members:
        _free(holding, inside)


def _free(holding: Holding, inside: Inside) -> None:
    """May be repeated until it is done, but not by a handler in the midst of it."""
    if inside.is_being_left:
        return
    inside.is_being_left = True
    try:
        unfinished[inside] = holding
        if holding.inside is inside:  # as long as the guard is locked no other thread is
            holding.inside = None
        for hold in list(inside.holds.values()):
            hold.leave()
        for guard in list(inside.holds):
            guard.catch_up()  # what was put off until it is free
        inside.holds.clear()
        unfinished.pop(inside, None)
    finally:
        inside.is_being_left = False
    while inside.given_up:
        inside.given_up.pop()()


class _Entering(Critical):
    """Left by its finaliser if handlers raised, one while another was cleaned up after, before anybody was inside."""

    def __del__(self) -> None:
        self.leave()


def leave_stale(holding: Holding) -> None:
    """Leave what this thread is inside only because signal handlers raised, one while another was cleaned up after."""
    inside: Any = holding.inside
    if inside is not None and inside.is_of_this_thread and inside.is_over:
        inside.members.clear()
        _free(holding, inside)
    for left in [one for one, of in list(unfinished.items()) if of is holding and one.is_of_this_thread]:
        _free(holding, left)


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


_fork.in_child(unfinished.clear)
