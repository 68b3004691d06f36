"""What the keeper looks at in a tick: everything while it is little, else what changed, and the rest by turns."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator

from ownership._holding import Holding
from ownership._notices import Changes, Notices
from ownership._place import Place
from ownership._state import State

_FEW = 64  # claims that are looked at one by one; a look is one stat
_TURNS, _QUIET_TURNS = 16, 64  # ticks in which each of many is looked at once; the latter while the kernel tells all
_SETTLING_NS = 20_000_000  # a directory changed more recently than that may have changed again unseen

_Stamp = tuple[int, int, int, int]


class Rounds:
    """Chooses the holdings of a tick. Many claims in a directory do not cost a system call each.

    :param notify: use inotify(7) where the system has it
    """

    def __init__(self, *, notify: bool = True) -> None:
        self._notify = notify
        self._notices = Notices()
        self._stamps: dict[str, _Stamp] = {}
        self._queue: list[Holding] = []

    def due(self, holdings: set[Holding], places: Iterable[Place]) -> Collection[Holding]:
        """Those that have to be looked at now."""
        if len(holdings) <= _FEW:
            self._notices.close()
            self._stamps.clear()
            self._queue.clear()
            return list(holdings)
        names, changed, told = self._changes([place for place in places if place.users])
        everything, held = list(holdings), State.HELD
        chosen = {one for one in everything if one.state is not held or one.abandoned}
        chosen.update(self._turn(everything, holdings, _QUIET_TURNS if told else _TURNS))
        if names or changed:
            chosen.update(_touched(everything, names, changed))
        return chosen

    def _changes(self, places: list[Place]) -> tuple[Collection[str], set[Place], bool]:
        """The files of ours that changed, the places where any may have, and whether the kernel tells of all."""
        changes = self._notices.read() if self._notify else Changes(frozenset(), False)
        changed, told = set(), True
        for place in places:
            known = changes.complete and self._notices.knows(place.directory)
            told = told and known
            if not known and self._notify:
                self._notices.watch(place.directory)  # from the next tick on
            if not place.directory.is_at_path() or (not known and self._is_stamped_anew(place)):
                changed.add(place)
        ours = [name for name in changes.names if any(name.removesuffix(".json") in place.owned for place in places)]
        return frozenset(ours), changed, told

    def _is_stamped_anew(self, place: Place) -> bool:
        """Whether names came or went since the last look, by the directory's own times."""
        try:
            found = place.directory.stat()
        except OSError:
            return True
        stamp = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
        before = self._stamps.get(place.directory.path)
        self._stamps[place.directory.path] = stamp
        return stamp != before or time.time_ns() - found.st_mtime_ns < _SETTLING_NS

    def _turn(self, everything: list[Holding], holdings: set[Holding], turns: int) -> list[Holding]:
        if not self._queue:
            self._queue = everything.copy()
        count = max(1, len(everything) // turns)
        chosen = [one for one in self._queue[-count:] if one in holdings]
        del self._queue[-count:]
        return chosen


def _touched(everything: list[Holding], names: Collection[str], changed: set[Place]) -> Iterator[Holding]:
    """Those with a record in *names*, and of those in *changed* places the ones whose record is not as it was.

    Here a look at each costs just its system call, relative to the directory, which is compared with its path before;
    if that leads elsewhere, all were swept. Whatever changes a file changes its ctime.
    """
    lstat = os.lstat
    descriptors = {place: place.directory.fd if place.directory.is_at_path() else -1 for place in changed}
    for one in everything:
        for part in one.parts:
            descriptor = descriptors.get(part.place)
            if descriptor is None:
                if part.filename in names:
                    yield one
                continue
            seen = part.signature
            try:
                found = lstat(part.filename, dir_fd=descriptor)
                if seen is None or found.st_ctime_ns != seen[3] or found.st_ino != seen[1]:
                    yield one
            except OSError:
                yield one
