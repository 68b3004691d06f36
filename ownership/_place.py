"""The places this process works in, by the paths of their directories."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from ownership import _fork
from ownership._errors import explained
from ownership._guard import forget_guards, forget_guards_but
from ownership._location import Location, locate, locate_registry
from ownership._making import make_directory, make_named_parent
from ownership._paths import Facts, Resource, facts_of
from ownership._pinned import DirectoryChanged
from ownership._shortcut import Known
from ownership._station import Place, at_path
from ownership._system import euid, require_supported

_outlived: dict[Place, None] = {}  # by another directory at their path; until what is owned there has gone along
_known: dict[str, Known[Place]] = {}


def pinned(resource: Resource, registry: str | None = None, *, above: Facts | None = None) -> Place:
    """The place of *resource*, made if it is missing, compared with its path just now.

    :param registry: as :func:`ownership._location.pin_registry` gave it
    :param above: what ``stat`` of the parent said just now
    :raises OSError: the parent is missing, unsafe, or another account's
    """
    if above is not None and registry is None:
        known = _known.get(resource.parent)
        if known is not None and known.is_current(above):
            return known.place
    require_supported(resource.path)
    for _ in range(16):
        location = locate_registry(registry) if registry is not None else _located(resource.parent)
        if location.facts is None:
            make_directory(location)
            continue
        try:
            place = _pin(location)
        except FileNotFoundError:
            continue
        if location.heir and place.directory.give_away(location.heir):
            continue
        _remember(resource.parent, place, registry)
        return place
    raise explained(OSError(errno.EAGAIN, "the lock directory keeps vanishing"), resource.parent)


def _remember(parent: str, place: Place, registry: str | None) -> None:
    """Where the lock directory is the first that is looked for, a look at it and at the parent is enough next time."""
    if registry is None and not place.directory.path[-1].isdigit():
        with suppress(OSError):
            own = facts_of(os.fstat(place.directory.descriptor.number))
            _known[parent] = Known(place, facts_of(os.stat(parent)), own, euid())
        if len(_known) > 256:
            _known.clear()


def _unlearn(place: Place) -> None:
    """It is not kept for the next time."""
    for parent in [parent for parent, known in list(_known.items()) if known.place is place]:
        _known.pop(parent, None)


def existing(resource: Resource, registry: str | None = None) -> Place | None:
    """The place of *resource* for reading; ``None`` if there is none, which means that nobody owns it."""
    try:
        location = locate_registry(registry) if registry is not None else locate(resource.parent, looking=True)
        return None if location.facts is None else _pin(location)
    except FileNotFoundError:
        if registry is not None:
            raise
        return None


def opened(path: str, *, registry: bool = False) -> Place:
    """The place that is the lock directory or registry *path* itself, for reading whoever owns it."""
    if registry:
        return _pin(locate_registry(path))
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    known = at_path.get(path)
    if known is not None and known.directory.is_at(facts_of(found)):
        return _pin(known.directory.location)
    account = (found.st_uid, found.st_gid) if euid() == 0 and found.st_uid != 0 else None
    return _pin(Location(path, facts_of(found), account))


def _located(parent: str) -> Location:
    try:
        return locate(parent)
    except FileNotFoundError:
        make_named_parent(parent)
        return locate(parent)


def _pin(location: Location) -> Place:
    assert location.facts is not None
    if location.path not in at_path:
        _make_room()
    with _fork.gate:
        while True:
            place = at_path.get(location.path)
            if place is not None and place.directory.is_at(location.facts):
                place.directory.location = location
                with suppress(DirectoryChanged):
                    place.directory.ensure_open()
                    return place
            _fork.install()
            made = _made(location)
            if place is not None and place is not made:
                if not place.directory.is_at(location.facts) and (place.users or place.witness.held):
                    _outlived[place] = None
                taken = at_path.pop(location.path, None)
                if taken is not None and taken is not place:  # by a signal handler, just now
                    made = taken
                _unlearn(place)
            if at_path.setdefault(location.path, made) is made:
                _outlived.pop(made, None)
                return made


def _made(location: Location) -> Place:
    """The place of that directory, if it was moved away and back, else a new one."""
    assert location.facts is not None
    same = next((one for one in places() if one.directory.is_at(location.facts)), None)
    if same is not None and same.directory.path == location.path and same.directory.descriptor.intact():
        same.directory.location = location
        return same
    place = Place(location, same)  # the same directory by another path, for instance a bind mount
    place.directory.open()
    return place


def _make_room() -> None:
    """Another directory is about to be opened: let go of those that nothing uses if there are many."""
    if len(at_path) >= 64:
        forget_unused()
    if not _fork.may_hold():  # now, what the keeper does with those that nobody has used for a while
        for place in [place for place in places() if not place.users]:
            with suppress(OSError):
                place.move_out_if_idle()
                forget(place)


def forget(place: Place) -> None:
    """Nothing here uses *place* any more: let go of its directory, whose filesystem may want to be unmounted."""
    with _fork.gate:
        if not place.users and not place.witness.held:
            if at_path.get(place.directory.path) is place:
                at_path.pop(place.directory.path, None)
            _outlived.pop(place, None)
            _unlearn(place)
            if place.users:  # by now
                at_path.setdefault(place.directory.path, place)
    forget_guards(place.directory)


def forget_unused() -> None:
    """Let go of every directory that nothing here uses: for processes without a keeper, which does it in time."""
    for place in [place for place in places() if not place.users and not place.witness.held]:
        forget(place)
    forget_strays()


def forget_strays() -> None:
    """Let go of guards in directories that nobody uses or looks after any more."""
    forget_guards_but({place.directory for place in places()})


def places() -> list[Place]:
    """Every lock directory this process has open, those included that are not at their path any more."""
    return [*at_path.values(), *_outlived]


def _child() -> None:
    at_path.clear()
    _outlived.clear()
    _known.clear()


_fork.in_child(_child)
