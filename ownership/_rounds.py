"""What the keeper looks at in a tick: everything while it is little, else what changed, and the rest by turns."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator

from ownership._directory import LockDirectory
from ownership._holding import Holding
from ownership._notices import Changes, Notices
from ownership._part import Part
from ownership._station import Place

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
        self._sheets: dict[Place, _Sheet] = {}
        self._counted = -1

    def due(self, holdings: set[Holding], places: Iterable[Place], changes: int) -> Collection[Holding]:
        """Those that have to be looked at now, besides those known to be unsettled.

        :param changes: how often holdings have come and gone
        """
        if len(holdings) <= _FEW:
            self._forget()
            return list(holdings)
        used = [place for place in places if place.users]
        names, changed, told = self._changes(used)
        chosen = set()
        if len(changed) < len(used) or not used:  # else every record is looked at anyway
            chosen.update(self._turn(holdings, _QUIET_TURNS if told else _TURNS))
        if names:
            chosen.update(one for one in list(holdings) for part in one.parts if part.filename in names)
        if changes != self._counted:
            self._sheets.clear()
            self._counted = changes
        for place in changed:
            if place not in self._sheets:
                self._sheets[place] = _Sheet(list(holdings), place)
            chosen.update(self._sheets[place].touched(place.directory))
        return chosen

    def _forget(self) -> None:
        self._notices.close()
        self._stamps.clear()
        self._queue.clear()
        self._sheets.clear()

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
        ours = [name for name in changes.names if any(_is_kept(name.removesuffix(".json"), place) for place in places)]
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

    def _turn(self, holdings: set[Holding], turns: int) -> list[Holding]:
        if not self._queue:
            self._queue = list(holdings)
        count = max(1, len(holdings) // turns)
        chosen = [one for one in self._queue[-count:] if one in holdings]
        del self._queue[-count:]
        return chosen


class _Sheet:
    """What is known of many records of one place, so that a look at each costs little but its system call."""

    def __init__(self, holdings: Iterable[Holding], place: Place) -> None:
        behind = ((part, one) for one in holdings for part in one.parts if part.place is place)
        # in the order in which the filesystem made them: neighbours there are neighbours in memory
        self._behind = sorted(behind, key=lambda line: line[0].signature[1] if line[0].signature else 0)
        self._lines = [_line_of(part) for part, _ in self._behind]  # apart, since those behind are rarely touched

    def touched(self, directory: LockDirectory) -> Iterator[Holding]:
        """Those whose record is not as it was. Whatever changes a file changes its ctime, or puts another one there."""
        lstat, fd = os.lstat, directory.fd if directory.is_at_path() else -1
        for number, (name, changed, inode) in enumerate(self._lines):
            try:
                found = lstat(name, dir_fd=fd)
                if found.st_ctime_ns == changed and found.st_ino == inode:
                    continue
                self._lines[number] = _line_of(self._behind[number][0])  # we may have changed it ourselves
            except OSError:  # it is not there, or the path leads to another directory by now
                pass
            yield self._behind[number][1]


def _is_kept(name: str, place: Place) -> bool:
    return name in place.owned or name in place.owned.closed


def _line_of(part: Part) -> tuple[bytes, int, int]:
    """The name of its record, its ctime and its inode: copies that lie together."""
    seen = part.signature
    return os.fsencode(part.filename), seen[3] + 0 if seen else 0, seen[1] + 0 if seen else 0
