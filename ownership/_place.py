"""The places this process works in: each lock directory opened once, with its witness, guards and our claims."""

from __future__ import annotations

import errno
import os
import stat
import threading
from weakref import WeakValueDictionary

from ownership import _fork
from ownership._directory import LockDirectory
from ownership._errors import explained
from ownership._fork import Descriptor
from ownership._guard import Guard
from ownership._paths import Location, Resource, StrPath, locate, locate_registry, make_named_parent
from ownership._system import DIRECTORY_ONLY, NO_FOLLOW, require_supported
from ownership._witness import Witness


class Place:
    """A lock directory as this process uses it.

    :ivar owned: the tokens by which handles of this process own resources here, by name
    :ivar users: claims held or being made here; the witness stays while there are any
    :ivar idle_since: since when the keeper has seen no user
    """

    def __init__(self, location: Location) -> None:
        self.directory = LockDirectory(location)
        self.mutex = threading.RLock()
        self.witness = Witness(self.directory)
        self.owned: dict[str, int] = {}
        self.users: set[object] = set()
        self.idle_since: float | None = None
        self._guards: WeakValueDictionary[str, Guard] = WeakValueDictionary()

    def guard(self, name: str) -> Guard:
        """The one guard object of this process for *name*."""
        guard = self._guards.get(name)
        if guard is None:
            with self.mutex:
                guard = self._guards.get(name)
                if guard is None:
                    guard = self._guards[name] = Guard(self.directory, name)
        return guard

    def enter(self, user: object) -> None:
        """*user* is about to publish here. Once or often is the same."""
        with self.mutex:
            self.users.add(user)
            self.idle_since = None

    def leave(self, user: object) -> None:
        """*user* has nothing here any more. Once or often is the same."""
        with self.mutex:
            self.users.discard(user)

    def settle_in(self, instance_id: str) -> bool:
        """Have a witness here for *instance_id*, and keep cleaners out; true if the witness had to be made."""
        with self.mutex:
            if not self.witness.ensure(instance_id):
                return False
            self.directory.hold()
            return True

    def move_out(self) -> None:
        """Remove our witness if we own nothing here any more."""
        with self.mutex:
            if not self.users:
                self.witness.remove()
                self.directory.let_go()
                self.idle_since = None


_places: dict[str, Place] = {}
_mutex = threading.RLock()


def pinned(resource: Resource, registry: StrPath | None = None) -> Place:
    """The place of *resource*, made if it is missing, compared with its path just now.

    :raises OSError: the parent is missing, unsafe, or another account's
    """
    require_supported(resource.path)
    for _ in range(16):
        if registry is not None:
            location = locate_registry(registry)
        else:
            location = _located(resource.parent)
            if location.missing:
                _make(location)
                continue
        try:
            return _pin(location)
        except FileNotFoundError:
            continue
    raise explained(OSError(errno.EAGAIN, "the lock directory keeps vanishing"), resource.parent)


def existing(resource: Resource, registry: StrPath | None = None) -> Place | None:
    """The place of *resource* for reading; ``None`` if there is none, which means that nobody owns it."""
    try:
        location = locate_registry(registry) if registry is not None else locate(resource.parent)
        return None if location.missing else _pin(location)
    except FileNotFoundError:
        if registry is not None:
            raise
        return None


def opened(path: str) -> Place:
    """The place that is the lock directory or registry *path* itself, for reading whoever owns it."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    known = _places.get(path)
    mode, account = (0o600, None) if known is None else (known.directory.location.file_mode, None)
    return _pin(Location(path, False, found.st_dev, found.st_ino, account, mode))


def _located(parent: str) -> Location:
    try:
        return locate(parent)
    except FileNotFoundError:
        make_named_parent(parent)
        return locate(parent)


def _pin(location: Location) -> Place:
    with _mutex:
        place = _places.get(location.path)
        if place is not None and place.directory.is_at(location):
            if not place.directory.descriptor.intact():
                place.directory.reopen()
            if place.directory.is_at(location):
                return place
        _fork.install()
        _forget_unused()
        place = Place(location)
        place.directory.open()
        if not place.directory.is_at(location):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location.path)
        _places[location.path] = place
        return place


def _make(location: Location) -> None:
    try:
        os.mkdir(location.path, 0o700)
    except FileExistsError:
        return
    except OSError as error:
        hint = "make it writable for this account, or pass registry=DIR with a directory that is"
        raise explained(error, location.path, hint if error.errno in (errno.EACCES, errno.EROFS) else "") from None
    descriptor = Descriptor()
    try:
        found = descriptor.open(location.path, DIRECTORY_ONLY | NO_FOLLOW)
        if stat.S_IMODE(found.st_mode) & 0o777 != 0o700:
            os.fchmod(descriptor.number, 0o700)
        if location.account:
            os.fchown(descriptor.number, *location.account)
        _ignore(descriptor.number, location)
    except FileNotFoundError:
        return
    finally:
        descriptor.close()


def _ignore(directory: int, location: Location) -> None:
    """Keep version control away; not worth failing for."""
    try:
        number = os.open(".gitignore", os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_FOLLOW, 0o600, dir_fd=directory)
    except OSError:
        return
    try:
        os.write(number, b"*\n")
        if location.account:
            os.fchown(number, *location.account)
    except OSError:
        pass
    finally:
        os.close(number)


def _forget_unused() -> None:
    """Let go of directories that nothing here uses once there are many."""
    if len(_places) >= 64:
        for path, place in list(_places.items()):
            if not place.users and not place.witness.held:
                del _places[path]


def places() -> list[Place]:
    """Every lock directory this process has open."""
    return list(_places.values())


def _child() -> None:
    global _mutex
    _mutex = threading.RLock()
    _places.clear()


_fork.in_child(_child)
