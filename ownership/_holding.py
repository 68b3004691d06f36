"""What this process owns: the state behind a claim, and everything that can happen to it under its guard."""

from __future__ import annotations

import datetime as dt
import enum
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ownership._clock import Clock
from ownership._directory import DirectoryChanged, Signature
from ownership._errors import OwnershipError, OwnershipLostError
from ownership._guard import PATIENCE, Guard, GuardChanged, Interrupting
from ownership._paths import Resource, StrPath
from ownership._place import Place, pinned
from ownership._process import Identity
from ownership._record import GuardState, Malformed, OwnerIdentity, OwnerRecord, Previous, decode, encode

_Result = TypeVar("_Result")

# A signature is trusted once a read has confirmed it this long after its ctime: inodes are reused at once, and coarse
# timestamps hide a change within a tick. Filesystems without nanoseconds need their whole second, twice.
_FINE_NS, _COARSE_NS = 20_000_000, 2_100_000_000


class State(enum.Enum):
    ACQUIRING = "acquiring"
    HELD = "held"
    RELEASED = "released"
    HANDED_OVER = "handed over"
    LOST = "lost"
    FORKED = "forked"


@dataclass(slots=True, eq=False)
class Part:
    """One resource of a claim.

    :ivar published: the record may be there; said before it is
    :ivar made_witness: our witness in this directory was made for this claim
    :ivar confirmed: ``signature`` needs no read to be believed
    """

    place: Place
    resource: Resource
    registry: StrPath | None
    token: int
    record: OwnerRecord
    signature: Signature | None = None
    confirmed: bool = False
    published: bool = False
    retired: bool = False
    made_witness: bool = False

    @property
    def filename(self) -> str:
        return f"{self.resource.name}.json"

    @property
    def temporary(self) -> str:
        return f"{self.resource.name}.{self.record.instance_id}.new"

    def is_ours(self, record: OwnerRecord | Malformed | None) -> bool:
        return (
            isinstance(record, OwnerRecord)
            and record.token == self.token
            and record.instance_id == self.record.instance_id
        )

    def withdraw_under(self, guard: Guard) -> None:
        """Undo a publication that failed half-way, as far as it can be undone now. Never raises."""
        self.place.owned.pop(self.resource.name, None)
        try:
            if self.published:
                record, signature = self.read()
                if self.is_ours(record) and signature is not None:
                    self.place.directory.remove(self.filename, signature)
            remembered = guard.read(self.resource.shown)
            if remembered.owner is not None and remembered.owner.instance_id == self.record.instance_id:
                guard.write(remembered.model_copy(update={"owner": None}))
        except (OSError, OwnershipError, DirectoryChanged):
            if self.published:
                return  # the keeper goes on trying
        self.retired = True
        self.place.leave(self)
        if self.made_witness:
            self.place.move_out()

    def read(self) -> tuple[OwnerRecord | Malformed | None, Signature | None]:
        found = self.place.directory.read(self.filename)
        return (None, None) if found is None else (decode(found[0], self.resource.shown), found[1])


@dataclass(slots=True, eq=False)
class Holding:
    """All resources of one claim: owned together, lost together.

    :ivar heir: the hash of the secret by which a descendant may adopt it
    :ivar abandoned: nobody has the handle any more, or acquiring failed: the keeper withdraws what is left
    """

    me: Identity
    clock: Clock
    primary: Resource
    parts: list[Part] = field(default_factory=list)
    state: State = State.ACQUIRING
    lost: threading.Event = field(default_factory=threading.Event)
    reason: str = ""
    heir: str | None = None
    abandoned: bool = False
    process: int = field(default_factory=os.getpid)
    mutex: Any = field(default_factory=threading.RLock)

    @property
    def part(self) -> Part:
        """The claim's own resource, not one of ``also``."""
        return next(part for part in self.parts if part.resource.path == self.primary.path)

    # -- under the guard

    def under_guard(self, part: Part, action: Callable[[Guard], _Result], *, wait: float = PATIENCE) -> _Result:
        """Run *action* under *part*'s guard; if the directory was replaced, once more in the one that is there now."""
        deadline = self.clock.monotonic() + wait
        for attempt in range(8):
            try:
                with part.place.guard(part.resource.name).held(deadline, self.clock) as guard:
                    return action(guard)
            except (GuardChanged, DirectoryChanged):
                if attempt == 7:
                    raise
            self._follow(part)
        raise AssertionError  # not reached

    def _follow(self, part: Part) -> None:
        """The path leads to another directory than the pinned one: that one was deleted or moved. Go along."""
        place = pinned(part.resource, part.registry)
        if place is part.place:
            return
        place.enter(part)
        place.owned[part.resource.name] = part.token
        part.place.owned.pop(part.resource.name, None)
        part.place.leave(part)
        part.place, part.signature, part.confirmed = place, None, False

    # -- release

    def retire(self, state: State) -> bool:
        """Make the handle inert at once; false if it already was."""
        with self.mutex:
            if self.state not in (State.HELD, State.ACQUIRING):
                return False
            self.state = state
            return True

    def withdraw(self, how: str, reason: str, *, wait: float = PATIENCE) -> bool:
        """Remove our records, never another's. True when none is left; else the keeper goes on.

        :raises OSError: what stood in the way, after every part was tried
        """
        failure: Exception | None = None
        for part in self.parts:
            if part.retired:
                continue
            part.place.owned.pop(part.resource.name, None)
            if part.published:
                try:
                    self.under_guard(part, partial(_remove, part, how, reason), wait=wait)
                except Interrupting:  # this thread is inside; carried out when it leaves
                    part.place.guard(part.resource.name).afterwards.append(lambda: self.withdraw_quietly(how, reason))
                    continue
                except FileNotFoundError:
                    pass  # the directory above is gone, and our record with it
                except (OSError, OwnershipError, GuardChanged, DirectoryChanged) as error:
                    failure = failure or error
                    continue
            part.retired = True
            part.place.leave(part)
        if failure is not None:
            raise failure
        return all(part.retired for part in self.parts)

    def withdraw_quietly(self, how: str, reason: str) -> bool:
        """One attempt without waiting; the keeper comes back for what is left."""
        try:
            return self.withdraw(how, reason, wait=0.0)
        except (OSError, OwnershipError, GuardChanged, DirectoryChanged):
            return False

    # -- is it still ours

    def verify(self) -> None:
        """:raises OwnershipLostError: it is not; :raises OSError: it cannot be told now, which ends nothing"""
        for part in self.parts:
            found = part.place.directory.signature(part.filename)
            if found is None or found != part.signature or not part.confirmed:
                self.look(part)

    def look(self, part: Part, *, wait: float = PATIENCE) -> None:
        """Read the record, and do the keeper's step if it is not ours."""
        wall = self.clock.wall_ns()
        record, signature = part.read()
        if part.is_ours(record):
            assert signature is not None
            if part.place.directory.signature(part.filename) == signature:  # the path leads to the pinned directory
                part.signature, part.confirmed = signature, _settled(signature, wall)
                return
        if isinstance(record, OwnerRecord) and record.token > part.token:
            raise self.lose("owner-replaced", record, record.heir)
        try:
            self.under_guard(part, lambda guard: self.repair(part, guard), wait=wait)
        except Interrupting:
            return  # our own thread is inside and will see for itself

    def repair(self, part: Part, guard: Guard) -> None:
        """The keeper's step: put our record back unless somebody owned after us."""
        directory = part.place.directory
        remembered = guard.read(part.resource.shown)
        record, signature = part.read()
        if part.is_ours(record):
            part.signature, part.confirmed = signature, False
            return
        if isinstance(record, OwnerRecord) and record.token > part.token:
            raise self.lose("owner-replaced", record, record.heir)
        if remembered.token > part.token:
            came_by = remembered.previous.heir if remembered.previous else None
            raise self.lose("owner-replaced" if isinstance(record, OwnerRecord) else "broken", record, came_by)
        part.place.settle_in(part.record.instance_id)
        part.place.witness.restore()
        guard.write(remembered.model_copy(update={"token": part.token, "owner": identity_of(part.record)}))
        if signature is not None:
            directory.remove(part.filename, signature)
        try:
            directory.publish(part.filename, encode(part.record), part.temporary)
        except FileExistsError:
            raise DirectoryChanged from None
        part.signature, part.confirmed = directory.signature(part.filename), False
        if not directory.is_at_path() or part.signature is None:
            raise DirectoryChanged

    def lose(
        self, reason: str, record: OwnerRecord | Malformed | None = None, came_by: str | None = None
    ) -> OwnershipLostError:
        """End our ownership, for good; the error that says so.

        :param came_by: how the present owner came in; if it is our own heir, nothing was lost
        """
        with self.mutex:
            adopted = self.heir is not None and came_by == adopted_by(self.heir)
            if self.state is State.HELD:
                self.state, self.reason = (State.HANDED_OVER if adopted else State.LOST), reason
            if not adopted:
                self.lost.set()
        return self.loss(record)

    def loss(self, record: OwnerRecord | Malformed | None = None) -> OwnershipLostError:
        reason = self.reason or "owner-replaced"
        fact = _LOSSES.get(reason, reason)
        if isinstance(record, OwnerRecord):
            fact += f" by pid {record.pid} ({record.command}), token {record.token}"
        return OwnershipLostError(
            f"{self.primary.shown} is not ours any more (our token {self.part.token}): {fact}",
            reason=reason,
            resource=self.primary.path,
            hint="stop working on it; acquire it again if it is still needed",
        )

    # -- update

    def update(self, changes: dict[str, Any]) -> None:
        """Replace our records, under their guards."""
        for part in self.parts:
            self.under_guard(part, partial(self._update, part, changes))

    def _update(self, part: Part, changes: dict[str, Any], guard: Guard) -> None:
        self.repair(part, guard)
        fields = {**part.record.model_dump(), **changes, "updated_at": timestamp(self.clock)}
        record = OwnerRecord.model_validate(fields)
        part.place.directory.replace(part.filename, encode(record), part.temporary)
        part.record = record
        part.signature, part.confirmed = part.place.directory.signature(part.filename), False

    def disown(self) -> None:
        """We are a forked child: our parent owns it, not we."""
        self.mutex = threading.RLock()
        self.lost = threading.Event()
        if self.state in (State.HELD, State.ACQUIRING):
            self.state = State.FORKED
            self.lost.set()


def adopted_by(heir: str) -> str:
    """What the record of an heir carries: by which hand-over it came in."""
    return f"adopted:{heir}"


_LOSSES = {
    "owner-replaced": "it was taken over",
    "broken": "its owner was evicted by an operator's break, or another one owned it in between",
    "record-missing": "its record is gone",
    "expired": "its lease ran out",
}


def _remove(part: Part, how: str, reason: str, guard: Guard) -> None:
    record, signature = part.read()
    if not part.is_ours(record) or signature is None:
        return
    part.place.directory.remove(part.filename, signature)
    remembered = guard.read(part.resource.shown)
    previous = Previous(how=how, reason=reason[:120], at=_now(), heir=part.record.heir)  # type: ignore[arg-type]
    guard.write(GuardState(token=max(remembered.token, part.token), previous=previous, deaths=remembered.deaths))


def _settled(signature: Signature, wall_ns: int) -> bool:
    changed = signature[3]
    age = wall_ns - changed
    return age >= (_COARSE_NS if changed % 1_000_000_000 == 0 else _FINE_NS)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def timestamp(clock: Clock) -> dt.datetime:
    return dt.datetime.fromtimestamp(clock.wall_ns() // 1000 / 1e6, dt.UTC)


def identity_of(record: OwnerRecord) -> OwnerIdentity:
    return OwnerIdentity(
        pid=record.pid,
        start_id=record.start_id,
        instance_id=record.instance_id,
        boot_id=record.boot_id,
        pid_namespace=record.pid_namespace,
        device=record.device,
    )
