"""Passing through every guard of a lock directory: whoever was inside one has left it then."""

from __future__ import annotations

from ownership._arguments import checked_timeout
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._guard import Interrupting
from ownership._hold import Hold
from ownership._inspect import resource_of
from ownership._location import pin_registry
from ownership._locking import locked
from ownership._paths import StrPath, resolve
from ownership._pinned import DirectoryChanged
from ownership._place import existing
from ownership._station import Place

_FOLLOWED = 8  # times that a changed directory is followed before giving up


def pass_guards(
    resource: StrPath,
    *,
    timeout: float | None = 1.0,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Lock every guard of the lock directory that *resource* is in, but its own, one after the other.

    Guaranteed: whoever was deciding about any resource there when this was called has decided, and what it published
    can be listed; whoever decides later sees what was published before the call. With records or without.

    Not guaranteed: anything about guards that are deleted meanwhile.

    :param timeout: seconds to wait for each guard, ``None`` for ever
    :returns: how many there are
    :raises GuardTimeoutError: somebody was inside one of them all the time
    :raises OSError: the directory cannot be listed, or a guard cannot be locked
    """
    seconds, shared = checked_timeout(timeout), pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    for _ in range(_FOLLOWED):
        place = existing(found, shared)
        if place is None:
            return 0
        try:
            names = [name for name in place.directory.names(".guard") if name != found.name]
            for name in names:
                _pass(place, name, seconds, clock)
            return len(names)
        except (DirectoryChanged, FileNotFoundError):
            continue
    raise OSError(11, "its lock directory keeps being changed from outside", found.path)


def _pass(place: Place, name: str, seconds: float, clock: Clock) -> None:
    try:
        locked([place.guard(resource_of(place, name))], clock.monotonic() + seconds, clock, _nothing)
    except Interrupting:  # this very thread holds it, in a critical section: so nobody else decides
        pass


def _nothing(hold: Hold) -> None:
    """To have been inside is enough."""
