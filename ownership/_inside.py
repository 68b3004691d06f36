"""A thread that is inside several guards for longer than a call."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Protocol

from ownership._guard import Guard
from ownership._hold import Hold
from ownership._pinned import DirectoryChanged


class Guarded(Protocol):
    """What has a guard."""

    guard: Guard


class Inside:
    """A thread that holds several guards for longer than a call.

    :ivar members: who is inside, one within the other, and whether that one is over
    :ivar leaver: the thread that frees the guards at this moment, which may be another one: taken by whoever is first
    :ivar given_up: inside it, to be carried out afterwards; ``None``: refused
    """

    __slots__ = ("given_up", "holds", "leaver", "members", "thread")

    def __init__(self, given_up: list[Callable[[], object]] | None) -> None:
        self.thread = threading.get_ident()
        self.holds: dict[Guard, Hold] = {}
        self.members: dict[object, Callable[[], bool]] = {}
        self.given_up = given_up
        self.leaver: dict[None, list[int]] = {}

    @property
    def is_of_this_thread(self) -> bool:
        return self.thread == threading.get_ident()

    @property
    def is_here(self) -> bool:
        """Whether this thread is in it, and not about to leave it."""
        return self.is_of_this_thread and bool(self.members)

    @property
    def is_over(self) -> bool:
        """Whether nobody can be in it any more: nobody is left to leave it."""
        return all(is_over() for is_over in list(self.members.values()))

    @property
    def is_left_by_another(self) -> bool:
        """Whether another thread frees the guards at this moment."""
        (leaver,) = list(self.leaver.values()) or ([self.thread],)
        return leaver[0] != threading.get_ident()

    def hold_of(self, part: Guarded) -> Hold | None:
        """That of *part*'s guard, if this is the thread; locked again, should the program have closed it.

        :raises GuardTimeoutError: it was closed, and another process was faster
        :raises OSError: it was deleted or replaced meanwhile
        """
        hold = self.holds.get(part.guard) if self.is_here else None
        if hold is not None:
            try:
                hold.ensure()
            except DirectoryChanged:
                what = "its guard was deleted or replaced while it was held"
                raise OSError(errno.ESTALE, what, hold.guard.path) from None
        return hold
