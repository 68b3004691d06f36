"""One resource of a claim: what we published for it, where, and whether that is still there."""

from __future__ import annotations

import os
from typing import Any

from ownership import _fork
from ownership._errors import OwnershipError
from ownership._fork import Descriptor
from ownership._guard import Guard
from ownership._heartbeat import Term
from ownership._hold import Hold
from ownership._loss import is_later
from ownership._models import GuardState, Malformed, OwnerIdentity, OwnerRecord, ending, timestamp
from ownership._moved import follow
from ownership._owned import Owned
from ownership._pinned import DirectoryChanged, Signature, is_settled, signature_of
from ownership._record import changed, decode, encode
from ownership._station import Place


class Part:
    """One resource of a claim.

    :ivar raw: the bytes of our record
    :ivar confirmed: ``signature`` needs no read to be believed
    :ivar stamped: the guard may name us; said before it does
    :ivar published: the record may be there; said before it is
    :ivar made_witness: our witness in this directory was made for this claim
    :ivar owns_in: where a handle of this process owns it by our token
    :ivar closed: our record says that it is
    :ivar retired: nothing of ours is left there
    :ivar moved: it has gone along to another directory
    :ivar behind: directories that were moved away, and name us still
    :ivar term: until when it is ours, if it is leased
    """

    signature: Signature | None = None
    confirmed = stamped = published = closed = retired = made_witness = moved = False
    owns_in: Owned | None = None
    term: Term | None = None
    _record: OwnerRecord | None = None
    _open: Descriptor | None = None  # our record, while it is the file that we published

    def __init__(
        self, place: Place, guard: Guard, registry: str | None, instance_id: str, token: int, raw: bytes
    ) -> None:
        self.resource = guard.resource
        self.registry = registry
        self.instance_id = instance_id
        self.token, self.raw = token, raw
        self.behind: list[tuple[Place, Guard]] = []
        self.put(place, guard)

    def put(self, place: Place, guard: Guard) -> None:
        """It is there from now on."""
        self.guard: Guard = guard  # first: whoever reads the place first never has that of the other directory with it
        self.place: Place = place
        self.name, self.directory = guard.resource.name, place.directory.path
        self.filename, self.path = guard.record_name, guard.record_path
        if self.term is not None:
            self.term.move(place.heartbeat)

    @property
    def temporary(self) -> str:
        return f"{self.resource.name}.{self.instance_id}.new"

    @property
    def record(self) -> OwnerRecord:
        """Our record as we last published it."""
        if self._record is None:
            record = decode(self.raw, self.resource.shown)
            assert isinstance(record, OwnerRecord)
            self._record = record
        return self._record

    def write_down(self, raw: bytes) -> None:
        """From now on our record is *raw*."""
        self.raw, self._record = raw, None

    # -- looking

    def is_ours(self, record: OwnerRecord | Malformed | None) -> bool:
        return isinstance(record, OwnerRecord) and record.token == self.token and record.instance_id == self.instance_id

    def is_before(self, owner: OwnerIdentity | None, token: int) -> bool:
        """Whether *owner*, by *token*, came after us."""
        return is_later(owner, token, self.token, self.instance_id)

    def read(self) -> tuple[OwnerRecord | Malformed | None, Signature | None]:
        found = self.place.directory.read(self.filename)
        return (None, None) if found is None else (decode(found[0], self.resource.shown), found[1])

    def is_there(self) -> bool:
        """Whether our record is at its place: the file that we hold open, or else by what it says."""
        held = self._open
        if held is not None and held.number >= 0:
            intact = held.intact()
            there = intact and self._leads_to(held)
            held.close(intact=intact)
            self._open = None
            if there:
                return True
        found = self.place.directory.read(self.filename)
        return found is not None and (found[0] == self.raw or self.is_ours(decode(found[0], self.resource.shown)))

    def _leads_to(self, held: Descriptor) -> bool:
        """Whether the path leads to the file that we hold open: nobody else can have its inode."""
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return found.st_ino == held.inode and found.st_dev == held.device

    def is_untouched(self) -> bool:
        """Whether the path leads to the very file that a read has confirmed. One system call."""
        try:
            return self.confirmed and signature_of(os.lstat(self.path)) == self.signature
        except OSError:
            return False  # the look that follows says why

    def look(self, wall_ns: int) -> OwnerRecord | Malformed | None:
        """Read what is there; remember its signature if it is ours and the path leads to it.

        :param wall_ns: the wall clock, read before
        """
        record, signature = self.read()
        if self.is_ours(record) and signature is not None:
            if self.term is not None:
                self.term.heed(record)
            if self.place.directory.signature(self.filename) != signature:
                return None  # the pinned directory is not at its path any more
            self.signature, self.confirmed = signature, is_settled(signature, wall_ns)
        return record

    # -- changing, under the guard

    def publish(self, hold: Hold) -> None:
        """Link our record to its name, and look whether everything is still in its place.

        :raises DirectoryChanged: something has that name by now, or directory or guard are others: start again
        """
        directory = self.place.directory
        self.published = True
        mine = Descriptor() if len(_fork.held) < _fork.room() else None
        with _fork.gate:
            self._let_go()
            self._open = mine
        try:
            published = directory.publish(self.filename, self.raw, self.temporary, mine)
        except FileExistsError:
            raise DirectoryChanged from None
        finally:
            if mine is not None and self._open is not mine:  # another thread has published it elsewhere meanwhile
                mine.close()
        self._check(published, hold)

    def change(self, changes: dict[str, Any], wall_ns: int, hold: Hold) -> None:
        """Put our record, with *changes*, over what is there.

        :raises ValueError: naming what cannot be recorded
        :raises DirectoryChanged: directory or guard are others by now
        """
        self.write_down(encode(changed(self.as_renewed(), {**changes, "updated_at": timestamp(wall_ns)})))
        self.replace(hold)

    def renew_by_hand(self, now: float) -> None:
        """Say in our record, which is about to be put back, that it is renewed: who knows who had renewed it since."""
        if self.term is not None and self.term.heartbeat is None:
            self.term.renew(now)
            self.write_down(encode(self.as_renewed()))

    def as_renewed(self) -> OwnerRecord:
        """Our record, with what others have renewed for us."""
        return self.record if self.term is None else self.term.renewed(self.record)

    def recheck(self, hold: Hold) -> None:
        """:raises DirectoryChanged: directory or guard are others by now"""
        self._let_go()
        self.signature, self.confirmed = self.place.directory.signature(self.filename), False
        if self.signature is None or not hold.is_at_path():
            raise DirectoryChanged

    def replace(self, hold: Hold) -> None:
        """Put our record over what is there.

        :raises DirectoryChanged: directory or guard are others by now
        """
        self.published = True
        self._let_go()
        self._check(self.place.directory.replace(self.filename, self.raw, self.temporary), hold)

    def _let_go(self) -> None:
        if self._open is not None:
            self._open.close()

    def _check(self, published: tuple[int, int], hold: Hold) -> None:
        found = self.place.directory.signature(self.filename)
        self.signature, self.confirmed = found, False
        if found is None or found[:2] != published or not hold.is_at_path():
            raise DirectoryChanged

    def remove(self, how: str, reason: str, wall_ns: int, hold: Hold) -> None:
        """Remove our record, if it is ours, and remember in the guard how that ownership ended."""
        if not self.is_there():
            self.blank(hold, hold.read())
            return
        remembered = hold.recall(self.token)
        token, end = max(remembered.token, self.token), ending(how, reason[:120], wall_ns)  # type: ignore[arg-type]
        # the guard first: a waiter that sees the record go must not find a guard that still names a live owner
        hold.write(GuardState(token, None, end, (), remembered.adopted))
        self.place.directory.discard(self.filename)
        self.place.owned.drop(self.name, self)

    def blank(self, hold: Hold, remembered: GuardState, place: Place | None = None) -> None:
        """Take our name out of the guard: it would speak for whatever lies at the record's path when we own no more."""
        place = place or self.place
        owned = place.owned.token(self.name)  # another handle of ours may own it by now
        place.owned.drop(self.name, self)
        owner = remembered.owner
        ours = owner is not None and owner.instance_id == self.instance_id and remembered.token <= self.token
        if ours and owned in (None, self.token):
            hold.write(remembered._replace(owner=None))

    def withdraw(self, hold: Hold) -> None:
        """Undo a publication that failed half-way, as far as it can be undone now. Never raises."""
        self.disclaim()
        try:
            if self.published and self.is_there():
                self.place.directory.discard(self.filename)
            self.blank(hold, hold.read())
        except (OSError, OwnershipError):
            if self.stamped:
                return  # the keeper goes on trying
        self.retire()

    def disclaim(self) -> None:
        """No handle of this process owns it by our token any more."""
        self.owns_in = None

    def retire(self) -> None:
        """Nothing of ours is left there."""
        self._let_go()
        self.retired = True
        self.place.users.discard(self)
        if self.closed:
            self.place.owned.closed.discard(self.name)
        if self.term is not None:
            self.term.end()

    def ended(self) -> Part:
        """What is left to say of it once nothing is left there: it keeps no directory open, which may be unmounted."""
        rest = Part.__new__(Part)
        rest.__dict__.update(self.__dict__, place=None, guard=None)
        return rest

    def forsake(self) -> None:
        """Nothing of ours was ever there: a failed acquire takes its witness along."""
        if self.made_witness and self.place is not None:  # else the keeper was faster
            self.place.move_out()

    def follow(self) -> None:
        """The path leads to another directory than the pinned one: that one was deleted or moved. Go along.

        Two threads may do this at once, and a third give us up meanwhile.
        """
        follow(self)
