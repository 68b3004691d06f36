"""The places this process works in: each lock directory opened once, with its witness, guards and our claims."""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from typing import Any
from weakref import ReferenceType, ref

from ownership import _fork
from ownership._directory import LockDirectory
from ownership._errors import explained
from ownership._guard import Guard, forget_guards, forget_guards_but
from ownership._heartbeat import Heartbeat
from ownership._location import Location, locate, locate_registry
from ownership._making import make_directory, make_named_parent
from ownership._models import OwnerIdentity
from ownership._owned import Owned
from ownership._paths import Facts, Resource, facts_of
from ownership._pinned import DirectoryChanged
from ownership._process import Identity
from ownership._shortcut import Known
from ownership._system import euid, require_supported
from ownership._witness import Witness

_MANY = 256  # names of guards, the forgotten ones included, before those are cleared away


class Place:
    """A lock directory as this process uses it. Two paths that lead to one share all but the path.

    :ivar heartbeat: renews every lease that we hold here
    :ivar owned: what handles of this process own here
    :ivar users: claims held or being made here; the witness stays while there are any
    :ivar idle_since: since when the keeper has seen no user
    """

    def __init__(self, location: Location, same: Place | None) -> None:
        self.directory = LockDirectory(location)
        self.mutex: Any = same.mutex if same else threading.RLock()
        self.witness: Witness = same.witness if same else Witness(self.directory)
        self.heartbeat: Heartbeat = same.heartbeat if same else Heartbeat(self.mutex)
        self.owned: Owned = same.owned if same else Owned()
        self.users: set[object] = same.users if same else set()
        self.idle_since: float | None = None
        self._identity: OwnerIdentity | None = None
        self._guards: dict[str, ReferenceType[Guard]] = {}

    def identity(self, me: Identity) -> OwnerIdentity:
        """Who we are, as records in this directory say it."""
        known = self._identity
        if known is None or known.instance_id != me.instance_id:
            known = self._identity = OwnerIdentity(
                pid=me.pid,
                start_id=me.start_id,
                instance_id=me.instance_id,
                boot_id=me.boot_id,
                pid_namespace=me.pid_namespace,  # type: ignore[arg-type]
                device=self.directory.descriptor.device,
            )
        return known

    def guard(self, resource: Resource) -> Guard:
        """The one guard object of this process for *resource*."""
        known = self._guards.get(resource.name)
        return (known() if known is not None else None) or self._make_guard(resource)

    def _make_guard(self, resource: Resource) -> Guard:
        with self.mutex:
            known = self._guards.get(resource.name)
            guard = known() if known is not None else None
            if guard is None:
                if len(self._guards) >= _MANY:
                    self._guards = {name: one for name, one in self._guards.items() if one() is not None}
                guard = Guard(self.directory, resource)
                self._guards[resource.name] = ref(guard)
            return guard

    def enter(self, user: object) -> None:
        """*user* is about to publish here. Once or often is the same.

        :raises DirectoryChanged: this place was let go of meanwhile, and another one made for its directory
        """
        with self.mutex, _mutex:
            if _places.setdefault(self.directory.path, self) is not self:
                raise DirectoryChanged
            self.users.add(user)
            self.idle_since = None

    def leave(self, user: object) -> None:
        """*user* has nothing here any more. Once or often is the same."""
        self.users.discard(user)

    def settle_in(self, instance_id: str) -> bool:
        """Have a witness here for *instance_id*, and keep cleaners out; true if the witness had to be made."""
        with self.mutex:
            if not self.witness.ensure(instance_id):
                return False
            self.directory.hold()
            return True

    def restore(self) -> bool:
        """Open and lock again what the program around us closed, and put the witness back; true if it is at its path.

        :raises DirectoryChanged: the path leads to another directory; what is owned follows it
        """
        if not self.directory.descriptor.intact():
            self.directory.ensure_open()
            self.directory.hold()
        at_path = self.directory.is_at_path()
        if at_path:
            self.witness.restore()
        return at_path

    def move_out(self, patient: bool = True) -> None:
        """Remove our witness if we own nothing here any more; not *patient*: unless another thread is busy here."""
        if self.mutex.acquire(blocking=patient):
            try:
                if not self.users:
                    self.witness.remove()
                    self.directory.let_go()
                    self.idle_since = None
            finally:
                self.mutex.release()


_places: dict[str, Place] = {}
_outlived: dict[Place, None] = {}  # by another directory at their path; until what is owned there has gone along
_known: dict[str, Known[Place]] = {}
_mutex = threading.RLock()


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
    known = _places.get(path)
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
    if location.path not in _places:
        _make_room()
    with _mutex:
        place = _places.get(location.path)
        if place is not None and place.directory.is_at(location.facts):
            place.directory.location = location
            with suppress(DirectoryChanged):
                place.directory.ensure_open()
                return place
        _fork.install()
        if place is not None and not place.directory.is_at(location.facts) and (place.users or place.witness.held):
            _outlived[place] = None
        same = next((one for one in places() if one.directory.is_at(location.facts)), None)
        if same is not None and same.directory.path == location.path and same.directory.descriptor.intact():
            _outlived.pop(same, None)  # it was moved back
            place, same.directory.location = same, location
        else:
            place = Place(location, same)  # the same directory by another path, for instance a bind mount
            place.directory.open()
        _places[location.path] = place
        return place


def _make_room() -> None:
    """Another directory is about to be opened: let go of those that nothing uses if there are many."""
    if len(_places) >= 64:
        forget_unused()
    if not _fork.may_hold():  # now, what the keeper does with those that nobody has used for a while
        for place in [place for place in places() if not place.users]:
            with suppress(OSError):
                place.move_out(patient=False)
                forget(place)


def forget(place: Place) -> None:
    """Nothing here uses *place* any more: let go of its directory, whose filesystem may want to be unmounted."""
    with _mutex:
        if not place.users and not place.witness.held and _places.get(place.directory.path) is place:
            del _places[place.directory.path]
            for parent in [parent for parent, known in _known.items() if known.place is place]:
                del _known[parent]
        if not place.users and not place.witness.held:
            _outlived.pop(place, None)
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
    return [*_places.values(), *_outlived]


def _child() -> None:
    global _mutex
    _mutex = threading.RLock()
    _places.clear()
    _outlived.clear()
    _known.clear()


_fork.in_child(_child)
