"""Looking at who owns a resource: record, guard, process, witness and lease brought together for ``judge``."""

from __future__ import annotations

from typing import NamedTuple

from ownership._clock import Clock
from ownership._directory import LockDirectory
from ownership._errors import explained
from ownership._locking import peek
from ownership._models import NO_GUARD_STATE, GuardState, LeaseTerms, Malformed, OwnerIdentity, OwnerRecord
from ownership._paths import Resource
from ownership._pinned import Signature
from ownership._process import Identity, ProcessTable, lock_holder, parse_linux_start_id
from ownership._record import decode
from ownership._station import Place
from ownership._system import is_local
from ownership._verdict import (
    Judgement,
    Observation,
    Self,
    Verdict,
    WitnessState,
    is_our_process,
    judge,
    same_namespace,
)
from ownership._vigil import Vigil, outlook
from ownership._witness import ask


class Examined(NamedTuple):
    """What is at a resource's record, and the verdict on its owner.

    :ivar record: the record, ``None`` if there is none or it is malformed
    :ivar owner: whom the verdict is about: the record, or for a malformed one whoever the guard names
    :ivar raw: the bytes of the record
    :ivar directory: where the record is
    :ivar unsettled: malformed, and the guard names nobody: nothing can be decided before a live keeper had its tick
    :ivar request: nobody owns it, but this is the request of somebody, the ``owner`` here, who alone may acquire
    :ivar ends_at: when its lease runs out if it is not renewed, by our clock; ``None`` if that cannot be told
    :ivar ends_in: the same in seconds from the look on
    """

    judgement: Judgement
    record: OwnerRecord | None = None
    malformed: Malformed | None = None
    signature: Signature | None = None
    owner: OwnerIdentity | None = None
    unsettled: bool = False
    raw: bytes | None = None
    directory: str | None = None
    request: OwnerRecord | None = None
    ends_at: float | None = None
    ends_in: float | None = None

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def may_be_taken(self) -> bool:
        return self.verdict is Verdict.FREE or self.verdict.may_be_evicted


FREE = Examined(Judgement(Verdict.FREE, "nobody owns it"))


class Examiner(NamedTuple):
    """Who looks, and through what.

    :ivar asking: the token of our own request, which is not in our own way
    :ivar vigil: what a contender that waits remembers of leases whose clock is not ours
    :ivar outside: we wait, outside the guard, for a moment at which somebody could take over: not while its owner is
        inside, whatever the lease says
    """

    processes: ProcessTable
    clock: Clock
    kept: frozenset[str] = frozenset()
    acquiring: bool = False
    asking: int = 0
    vigil: Vigil | None = None
    outside: bool = False

    def examine(self, place: Place, resource: Resource, guard: GuardState) -> Examined:
        """The verdict on whoever owns *resource*. Reading only.

        :param guard: what its guard remembers
        :raises InvalidRecordError: at the record's path is something that is never removed
        :raises OSError: the record cannot be read; that is not absence
        """
        filename = f"{resource.name}.json"
        for _ in range(4):
            found = place.directory.read(filename)
            if found is None:
                examined = FREE if guard.owner is None else self._examine_missing(place, resource, guard.owner)
                break
            examined, missing = self._examine(place, resource, guard, *found)
            # without a witness the owner may just have left: then its record has changed
            if not missing or place.directory.signature(filename) == found[1]:
                break
        return self.mind(place, resource, examined) if guard.requested else examined

    def mind(self, place: Place, resource: Resource, examined: Examined) -> Examined:
        """What whoever asks for *resource* makes of it; nothing for those who only look."""
        return examined

    def look(self, place: Place, resource: Resource) -> tuple[GuardState, Examined]:
        """What its guard remembers, read without it, and the verdict. Who may not read the guard asks the record alone.

        :raises OSError: as in :meth:`examine`; or only the guard could tell who owns it, and it cannot be read
        """
        try:
            remembered = peek(place.directory, resource)
        except PermissionError:
            remembered = NO_GUARD_STATE
            examined = self.examine(place, resource, remembered)
            if examined.record is None:
                raise
            return remembered, examined
        return remembered, self.examine(place, resource, remembered)

    def _examine(
        self, place: Place, resource: Resource, guard: GuardState, raw: bytes, signature: Signature
    ) -> tuple[Examined, bool]:
        record = decode(raw, resource.shown)
        if isinstance(record, Malformed):
            return self._examine_malformed(place, resource, guard, record, signature), False
        judgement, seen = self.judge(place, resource, record, record)
        missing = seen.witness is not None and seen.witness.state is WitnessState.MISSING
        one = Examined(judgement, record, None, signature, record, raw=raw, directory=place.directory.path)
        if seen.ends_at is not None:
            one = one._replace(ends_at=seen.ends_at, ends_in=seen.ends_at - self.clock.monotonic())
        return one, missing

    def _examine_missing(self, place: Place, resource: Resource, last: OwnerIdentity) -> Examined:
        """No record, but the guard names an owner: unless that one is gone, its record was deleted, and it still owns.

        One that can only be asked by a witness that is missing is gone: sweeping removes the witness of a dead process
        that no record names, and of no other.
        """
        judgement, seen = self.judge(place, resource, last, None)
        swept = seen.witness is not None and seen.witness.state is WitnessState.MISSING
        if judgement.verdict.may_be_evicted or (judgement.verdict is Verdict.UNKNOWN and swept):
            return FREE
        told = judgement._replace(reason=f"its record was deleted, the guard names pid {last.pid}: {judgement.reason}")
        return Examined(told, owner=last)

    def _examine_malformed(
        self, place: Place, resource: Resource, guard: GuardState, malformed: Malformed, signature: Signature
    ) -> Examined:
        """A record that says nothing: the guard knows who published last."""
        what = f"malformed record ({malformed.fault}; it begins '{malformed.head}')"
        if guard.owner is None:
            judgement = Judgement(Verdict.UNKNOWN, f"{what}, and its guard names nobody")
            return Examined(judgement, malformed=malformed, signature=signature, unsettled=True)
        judgement, _ = self.judge(place, resource, guard.owner, None)
        told = judgement._replace(reason=f"{what}; pid {guard.owner.pid} published last: {judgement.reason}")
        if not judgement.verdict.may_be_evicted:
            told = told._replace(verdict=Verdict.UNKNOWN)
        return Examined(told, malformed=malformed, signature=signature, owner=guard.owner)

    def judge(
        self, place: Place, resource: Resource, owner: OwnerIdentity, record: OwnerRecord | None
    ) -> tuple[Judgement, Observation]:
        try:
            identity = self.processes.current()
            seen = self._observe(place, resource.name, owner, record.lease if record else None, identity)
        except OSError as error:
            raise (error if error.filename else explained(error, resource.path)) from None
        holds = place.owned.token(resource.name)
        me = Self(
            identity,
            holds=holds is not None and (record is None or record.token == holds),
            kept=self.kept,
            acquiring=self.acquiring,
        )
        return judge(owner, seen, me), seen

    def _observe(
        self, place: Place, name: str, owner: OwnerIdentity, lease: LeaseTerms | None, me: Identity
    ) -> Observation:
        ours = owner.instance_id == me.instance_id
        if ours and lease is None:
            return Observation()
        directory = place.directory
        here = same_namespace(owner, me)
        now = self.clock.monotonic()  # before the heartbeat is read, or a renewal in between would count for nothing
        process = self.processes.observe(owner.pid) if here and not ours else None
        asks = not here or (lease is not None and lease.auto_renew) or is_our_process(owner, me)
        witness = ask(directory, owner.instance_id) if asks else None
        free = not here and witness is not None and witness.state is WitnessState.FREE
        key = (directory.descriptor.inode, name, owner.instance_id, getattr(owner, "token", 0))
        same_clock = lease is not None and reads_same_clock(owner, me)
        expired, ends_at = outlook(lease, witness, now, self.clock, same_clock, self.vigil, key)
        inside = expired and self.outside and _is_inside(directory, name, owner.pid if here else None)
        return Observation(
            process=process,
            witness=witness,
            believable=free and is_local(directory.fd, directory.path),
            device=directory.descriptor.device,
            expired=expired,
            inside=inside,
            ends_at=None if inside else ends_at,
        )


def reads_same_clock(owner: OwnerIdentity, me: Identity) -> bool:
    """Whether owner and we read one CLOCK_MONOTONIC: same boot, same time namespace (time_namespaces(7))."""
    if owner.boot_id is None or owner.boot_id != me.boot_id:
        return False
    theirs, ours = parse_linux_start_id(owner.start_id), parse_linux_start_id(me.start_id)
    if theirs is None or ours is None:
        return theirs is ours
    return theirs.time_namespace is not None and theirs.time_namespace == ours.time_namespace


def _is_inside(directory: LockDirectory, name: str, pid: int | None) -> bool:
    """Whether *pid*, ``None`` if its number means nothing here, holds its guard; false where that cannot be told."""
    found = directory.signature(f"{name}.guard")
    holder = None if found is None else lock_holder(*found[:2])
    return holder is not None and pid in (holder, None)
