"""A request: who asks an owner to go, published beside its record, and what that means for everybody who looks.

It is written like a record, by whoever asks. While its asker is judged live, and its time is not over, nobody else may
acquire. That there may be one, a mark beside the guard's content says: without it nobody looks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import NamedTuple

from ownership._errors import OwnershipError
from ownership._examine import Examined, Examiner
from ownership._guard import Guard
from ownership._hold import Hold
from ownership._models import GuardState, OwnerIdentity, OwnerRecord
from ownership._part import Part
from ownership._paths import Resource
from ownership._process import printable
from ownership._record import decode
from ownership._station import Place
from ownership._verdict import Judgement, Verdict, WitnessState

SUFFIX = ".request"


class StopRequest(NamedTuple):
    """Who asks an owner to go: a fact about a moment that is over.

    :ivar identity: of the process that asks
    :ivar verdict: on that process; ``gone`` and the like: nobody asks any more
    :ivar reason: why, in its own words; may be empty
    :ivar since: when it began to ask
    :ivar token: of the request, by which ``break_claim`` withdraws it
    """

    identity: OwnerIdentity
    command: str
    host: str
    labels: Mapping[str, str]
    reason: str
    since: dt.datetime | None
    token: int
    verdict: Verdict

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def stands(self) -> bool:
        """Whether it has to be minded: its asker lives, or that cannot be told."""
        return not self.verdict.may_be_evicted


class Asker(NamedTuple):
    """What is at the place of a request, and the verdict on whoever made it."""

    record: OwnerRecord
    judgement: Judgement

    @property
    def stands(self) -> bool:
        return not self.judgement.verdict.may_be_evicted

    @property
    def request(self) -> StopRequest:
        one = self.record
        identity = OwnerIdentity(**{name: getattr(one, name) for name in OwnerIdentity.model_fields})
        reason, verdict = one.reason or "", self.judgement.verdict
        return StopRequest(identity, one.command, one.host, one.labels, reason, one.acquired_at, one.token, verdict)


def asker_of(examiner: Examiner, place: Place, resource: Resource) -> Asker | None:
    """Who asks the owner of *resource* to go; ``None`` if nobody does, or what is there says nothing.

    One that can only be asked by a witness that is missing is gone: sweeping removes the witness of a dead process that
    no record names, and of no other.

    :raises OSError: it cannot be read
    :raises InvalidRecordError: something is there that is never removed
    """
    found = place.directory.read(resource.name + SUFFIX)
    record = None if found is None else decode(found[0], resource.shown)
    if not isinstance(record, OwnerRecord):
        return None
    judgement, seen = examiner.judge(place, resource._replace(name=_key(resource)), record, record)
    swept = seen.witness is not None and seen.witness.state is WitnessState.MISSING
    if judgement.verdict is Verdict.UNKNOWN and swept:
        judgement = judgement._replace(verdict=Verdict.GONE)
    return Asker(record, judgement)


def stop_request_of(examiner: Examiner, place: Place, resource: Resource, remembered: GuardState) -> StopRequest | None:
    """The same for reports: whoever asked, dead or not; nothing without a mark, or if it cannot be read."""
    try:
        asker = asker_of(examiner, place, resource) if remembered.requested else None
    except (OSError, OwnershipError):  # whoever wants to acquire is told
        return None
    return None if asker is None else asker.request


def _key(resource: Resource) -> str:
    """Under which a place remembers our request: no name of files, which never hold a question mark."""
    return f"?{resource.name}"


class Contender(Examiner):
    """An examiner on behalf of somebody who wants to acquire: whoever has asked before is in the way."""

    def mind(self, place: Place, resource: Resource, examined: Examined) -> Examined:
        if not examined.may_be_taken and not examined.unsettled:
            return examined
        asker = asker_of(self, place, resource)
        if asker is None or not asker.stands or asker.record.token == self.asking:
            return examined
        record, judgement = asker.record, asker.judgement
        why = f" ({printable(record.reason)})" if record.reason else ""
        told = judgement._replace(reason=f"it asked the last owner to go{why}; {judgement.reason}")
        return Examined(told, owner=record, request=record, directory=place.directory.path)


def answer(place: Place, hold: Hold) -> None:
    """Whoever has just acquired removes the request: its own, or one that nobody stands for.

    The mark goes last: a request without one would be found by nobody.
    """
    place.directory.discard(hold.guard.resource.name + SUFFIX)
    hold.clear_mark()


def withdraw_dead(examiner: Examiner, place: Place, hold: Hold, remembered: GuardState) -> None:
    """Remove a request that nobody stands for any more."""
    if remembered.requested:
        asker = asker_of(examiner, place, hold.guard.resource)
        if asker is None or not asker.stands:
            answer(place, hold)


def withdraw(examiner: Examiner, place: Place, hold: Hold, token: int) -> StopRequest | None:
    """Remove a request by decision, if it is the one with *token*: which that was.

    Its asker, if it lives, misses its request and the mark too: a cleaner would have left that.
    """
    asker = asker_of(examiner, place, hold.guard.resource)
    if asker is None or asker.record.token != token:
        return None
    answer(place, hold)
    return asker.request


class Request(Part):
    """Our own request: published, put back and withdrawn like a record."""

    def put(self, place: Place, guard: Guard) -> None:
        """It is there from now on."""
        super().put(place, guard)
        self.name = _key(self.resource)
        self.filename = self.resource.name + SUFFIX
        self.path = place.directory.file(self.filename)

    def ask(self, hold: Hold) -> None:
        """Publish it, with the mark first.

        :raises DirectoryChanged: something has its name by now, or directory or guard are others: start again
        """
        self.place.enter(self)
        self.made_witness = self.place.settle_in(self.instance_id)  # for those who cannot see our process
        self.stamped = True
        self.place.owned.enter(self.name, self)
        hold.mark()
        self.publish(hold)

    def remove(self, how: str, reason: str, wall_ns: int, hold: Hold) -> None:
        """Remove it, if it is there, and then the mark."""
        self.place.owned.drop(self.name, self)
        if self.is_there():
            self.place.directory.discard(self.filename)
        elif self.place.directory.signature(self.filename) is not None:
            return  # another one's
        if hold.read().requested:
            hold.clear_mark()

    def blank(self, hold: Hold, remembered: GuardState, place: Place | None = None) -> None:
        """The guard never named us."""
        (place or self.place).owned.drop(self.name, self)
