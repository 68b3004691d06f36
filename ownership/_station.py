"""A lock directory as this process works in it: opened once, with its witness, guards and our claims."""

from __future__ import annotations

from itertools import compress
from typing import Any
from weakref import ReferenceType, ref

from ownership import _fork
from ownership._directory import LockDirectory
from ownership._guard import Guard
from ownership._heartbeat import Heartbeat
from ownership._location import Location
from ownership._models import OwnerIdentity
from ownership._owned import Owned
from ownership._paths import Resource
from ownership._pinned import DirectoryChanged
from ownership._process import Identity
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
        self.witness: Witness = same.witness if same else Witness(self.directory)
        self.heartbeat: Heartbeat = same.heartbeat if same else Heartbeat()
        self.owned: Owned = same.owned if same else Owned()
        self.users: set[object] = same.users if same else set()
        self.idle_since: float | None = None
        self._identity: OwnerIdentity | None = None
        self._guards: dict[str, ReferenceType[Guard]] = {}

    @property
    def mutex(self) -> Any:
        """The one lock of this process for what is opened, made and locked.

        One for all: a signal handler or finaliser that comes while its thread has one lock would take a second one in
        whatever order.
        """
        return _fork.gate

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
        known = user in self.users
        self.users.add(user)  # first: whoever is about to forget this place looks again
        if at_path.setdefault(self.directory.path, self) is not self:
            if not known:
                self.users.discard(user)
            raise DirectoryChanged
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

    def move_out(self) -> None:
        """Remove our witness if we own nothing here any more."""
        with self.mutex:
            self._move_out()

    def move_out_if_idle(self) -> None:
        """The same, unless another thread is busy here. In single steps: no handler that raises leaves it locked."""
        held: list[Any] = []
        letting_go = map(type(self.mutex).release, held)
        try:
            held.extend(compress((self.mutex,), map(self.mutex.acquire, (False,))))
            if held:
                self._move_out()
        finally:
            list(letting_go)

    def _move_out(self) -> None:
        if not self.users:
            self.witness.remove()
            self.directory.let_go()
            self.idle_since = None


at_path: dict[str, Place] = {}  # changed in single steps
