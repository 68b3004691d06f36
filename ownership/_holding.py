"""What this process owns: the state behind a claim, and everything that can happen to it."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

from ownership._callbacks import call, prepared
from ownership._clock import Clock
from ownership._errors import OwnershipError, OwnershipLostError
from ownership._flag import Flag
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._inside import Inside
from ownership._locking import locked
from ownership._log import log, tell
from ownership._loss import lost_error, not_ours, reason_of
from ownership._models import NO_GUARD_STATE, GuardState, Malformed, OwnerRecord
from ownership._part import Part
from ownership._paths import Resource
from ownership._pinned import DirectoryChanged
from ownership._process import Identity, printable
from ownership._removing import withdrawn
from ownership._state import ADOPTED, KEPT, OWNING, State, adopted_by

OnLoss = Callable[[OwnershipLostError], object]
_Result = TypeVar("_Result")

_FOLLOWED = 8  # times that a changed directory is followed before giving up

UNSETTLED: set[Holding] = set()  # whatever the keeper has to look at in its next tick


class Holding:
    """All resources of one claim: owned together, lost together.

    :ivar heir: the hash of the secret by which a descendant may adopt it
    :ivar handle: the claim, which the keeper holds weakly
    :ivar abandoned: nobody has the handle any more, or acquiring failed: the keeper withdraws what is left
    :ivar reason: why it was lost
    :ivar lost_part: what of it was found to be another's first
    :ivar ending: why it was closed
    :ivar leased: its parts have a term
    :ivar inside: the thread that holds its guards for longer than a call, and how (:mod:`ownership._critical`)
    """

    state = State.ACQUIRING
    reason = ""
    ending: str | None = None
    heir: str | None = None
    lost_part: Part | None = None
    abandoned = leased = False
    inside: Inside | None = None
    _event: Flag | None = None
    handle: weakref.ref[object] | None = None
    _on_loss: tuple[OnLoss, ...] = ()

    def __init__(self, me: Identity, clock: Clock, primary: Resource, process: int) -> None:
        self.me = me
        self.clock = clock
        self.primary = primary
        self.parts: list[Part] = []
        self.process = process
        self.mutex: Any = threading.RLock()

    @property
    def part(self) -> Part:
        """The claim's own resource, not one of ``also``."""
        return next(part for part in self.parts if part.resource.path == self.primary.path)

    @property
    def lost(self) -> threading.Event:
        """Made when somebody asks for it, or when it has to be set."""
        with self.mutex:
            self._event = self._event or Flag()
            return self._event

    def on_loss(self, callback: OnLoss) -> None:
        """Have *callback* called on the second thread once this is lost; soon, if it is already."""
        callback = prepared(callback)
        with self.mutex:
            if self.state is State.LOST:
                call(callback, self.loss())
            else:
                self._on_loss += (callback,)

    def under_guard(
        self, part: Part, action: Callable[[Hold], _Result], *, wait: float = PATIENCE, follow: bool = True
    ) -> _Result:
        """Run *action* under *part*'s guard; if the directory was replaced, in the one that is there now.

        :raises DirectoryChanged: the path leads to another directory, or none, and *follow* is off
        """
        deadline = self.clock.monotonic() + wait
        if part.place is None:
            self._require_place(part)
        if self.inside is not None and (hold := self.inside.hold_of(part)) is not None:
            try:
                return action(hold)
            except DirectoryChanged:
                what = "its lock directory was deleted or replaced while its guard was held"
                raise OSError(errno.ESTALE, what, part.guard.path) from None
        for _ in range(_FOLLOWED):
            try:
                if not part.place.directory.descriptor.intact():
                    part.place.directory.ensure_open()
                return locked([part.guard], deadline, self.clock, action)
            except DirectoryChanged:
                if not follow and not part.place.directory.is_at_path():  # else only the guard was replaced
                    raise
            if self.process != os.getpid():  # we were forked from it just now: it is our parent's
                self.require_held()
            if follow:
                part.follow()
        raise OSError(11, "its lock directory keeps being changed from outside", part.resource.path)

    def _require_place(self, part: Part) -> None:
        """:raises OwnershipLostError: given up by another thread, or a signal handler, since this call began"""
        if part.place is None:
            self.require_held()
            raise not_ours(self.primary, "this handle was released")

    def retire(self, state: State) -> bool:
        """Make the handle inert at once; false if it already was."""
        with self.mutex:
            if was_owning := self.state in OWNING:
                UNSETTLED.add(self)
                self.state = state
            return was_owning

    def withdraw(self, how: str, reason: str, *, wait: float = PATIENCE) -> bool:
        """Remove our records, never another's. True when none is left; else the keeper goes on.

        :raises OSError: what stood in the way, after every part was tried
        """
        return withdrawn(self, how, reason and printable(reason), wait)

    def withdraw_quietly(self, how: str, reason: str) -> bool:
        """One attempt without waiting; the keeper comes back for what is left."""
        try:
            return self.withdraw(how, reason, wait=0.0)
        except (OSError, OwnershipError):
            return False

    @property
    def ended(self) -> tuple[str, str]:
        """How our ownership ended, and why, for what could not be withdrawn at once."""
        return ("released", "") if self.ending is None else ("closed", self.ending)

    # -- is it still ours

    def require_held(self) -> None:
        """:raises OwnershipLostError: this handle stands for nothing here and now"""
        if self.process != os.getpid():
            why = f"it belongs to process {self.process}, of which this is a forked child"
            raise not_ours(self.primary, why, State.FORKED)
        if self.state is State.HELD:
            return
        if self.state is State.LOST:
            raise self.loss()
        raise not_ours(self.primary, f"this handle was {self.state.told}", self.state)

    def verify(self) -> None:
        """:raises OwnershipLostError: it is not; :raises OSError: it cannot be told now, which ends nothing"""
        for part in self.parts:
            if not part.is_untouched():
                self.look(part)

    def look(self, part: Part, *, wait: float = PATIENCE) -> None:
        """Read the record, and do the keeper's step if it is not ours."""
        record = self._glance(part)
        if part.is_ours(record):
            return
        if self.heir is None and isinstance(record, OwnerRecord) and record.token >= part.token:
            raise self.lose(part, record)
        try:
            self.under_guard(part, partial(self.repair, part), wait=wait)
        except Interrupting:
            return  # our own thread is inside and will see for itself

    def _glance(self, part: Part) -> OwnerRecord | Malformed | None:
        self._require_place(part)
        try:
            part.place.directory.ensure_open()
            return part.look(self.clock.wall_ns())
        except DirectoryChanged:  # deleted or moved: as if the record were missing
            return None

    def repair(self, part: Part, hold: Hold) -> None:
        """The keeper's step: put our record back unless somebody owned after us, or we gave it up."""
        self._require_kept()
        remembered = hold.read()
        record, signature = part.read()
        if part.is_ours(record):
            if part.term is not None:
                part.term.heed(record)
            part.signature, part.confirmed = signature, False
            self._own(part)
            return
        if part.is_before(remembered.owner, remembered.token) or (
            isinstance(record, OwnerRecord) and part.is_before(record, record.token)
        ):
            part.blank(hold, remembered)
            came_by = {remembered.adopted, record.heir if isinstance(record, OwnerRecord) else None}
            raise self.lose(part, record, came_by, remembered)
        part.place.settle_in(part.instance_id)
        with part.place.mutex:  # another thread may be putting it back too
            part.place.witness.restore()
        hold.write(remembered._replace(token=part.token, owner=part.place.identity(self.me)))
        if signature is not None:
            part.place.directory.remove(part.filename, signature)
        part.renew_by_hand(self.clock.monotonic())
        self._own(part)
        part.publish(hold)
        tell(log.info, "%s: its record was %s; put back", self.primary.shown, "gone" if record is None else "not ours")
        if self.state not in KEPT:  # given up or lost by another thread meanwhile
            part.withdraw(hold)
            self._require_kept()

    def _own(self, part: Part) -> None:
        if not part.closed:
            part.place.owned.enter(part.name, part)
        if self.state not in KEPT:  # given up or lost by another thread just before
            part.disclaim()

    def _require_kept(self) -> None:
        if self.state is not State.CLOSED or self.process != os.getpid():
            self.require_held()

    def lose(
        self,
        part: Part,
        record: OwnerRecord | Malformed | None,
        came_by: Collection[str | None] = (),
        remembered: GuardState = NO_GUARD_STATE,
    ) -> OwnershipLostError:
        """End our ownership, for good, because of *part*; the error that says so.

        :param came_by: how the owners after us came in; if one is our own heir, nothing was lost
        """
        ran_out = any(one.term is not None and one.term.is_over for one in self.parts)
        reason = reason_of(part.token, record, remembered, ran_out)
        with self.mutex:
            adopted = self.heir is not None and bool({adopted_by(self.heir), self.heir[:ADOPTED]} & set(came_by))
            if self.state is State.CLOSED:  # nobody is to be told
                UNSETTLED.add(self)
                self.state = State.RELEASED
                return self.loss(record)
            if self.state is State.HELD:
                UNSETTLED.add(self)
                self.lost_part, self.reason = part, reason
                self.state = State.HANDED_OVER if adopted else State.LOST
            callbacks, self._on_loss = self._on_loss, ()
            if not adopted:
                self.lost.set()
                for callback in callbacks if self.state is State.LOST else ():
                    call(callback, self.loss(record))
        return self.loss(record if self.lost_part in (None, part) else None)

    def loss(self, record: OwnerRecord | Malformed | None = None) -> OwnershipLostError:
        part = self.lost_part or self.part
        return lost_error(self.primary, part.resource, part.token, self.reason or "owner-replaced", record)

    def disown(self) -> None:
        """We are a forked child: our parent owns it, not we."""
        self.mutex = threading.RLock()
        self._event, self._on_loss = None, ()
        if self.state in OWNING:
            self.state = State.FORKED
            self.lost.set()
