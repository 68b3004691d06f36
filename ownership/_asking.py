"""Asking an owner to go: our request, from its publication to its end."""

from __future__ import annotations

import datetime as dt
import weakref
from functools import partial

from ownership import _keeper
from ownership._draft import new_token, template_of
from ownership._errors import AlreadyOwnedError, OwnershipError
from ownership._examine import Examined, Examiner
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._holding import Holding
from ownership._locking import locked, peek
from ownership._models import LeaseTerms, OwnerRecord, timestamp
from ownership._paths import Resource
from ownership._pinned import DirectoryChanged
from ownership._place import pinned
from ownership._process import printable
from ownership._record import encode
from ownership._refusal import argument, describe, refusal
from ownership._refusing import Refused
from ownership._request import SUFFIX, Asker, Request, asker_of
from ownership._state import State
from ownership._station import Place
from ownership._withdrawal import give_up

_REASON = 120  # characters
_ENDLESS = 1e9  # seconds; a lease needs a number


class Asking:
    """What we ask, of one owner at a time.

    :ivar holding: whom it belongs to: withdrawn like whatever an acquire that failed has published
    :ivar seconds: how long it stands at the most, should we be stopped
    :ivar asked: what was seen of the owner that was asked last
    """

    labels: dict[str, str]
    seconds: float = _ENDLESS
    token = 0
    asked: Examined | None = None
    _since: dt.datetime | None = None  # also if our request was deleted, and is made again
    _marked: tuple[int, int] | None = None  # the guard, when we asked

    def __init__(self, holding: Holding, registry: str | None, reason: str) -> None:
        self.holding = holding
        self.registry = registry
        self.reason = reason[:_REASON]
        self.labels = {}
        holding.handle = weakref.ref(self)  # should even the withdrawal be interrupted, the keeper goes on with it

    def told(self, pid: int) -> str:
        """What the next owners are told about the end of the one that was asked."""
        return f"replaced by pid {pid}" + (f": {self.reason}" if self.reason else "")

    def has_asked(self, refused: Refused) -> bool:
        """Whether this owner was asked, and our request still stands where it can be found."""
        if self.asked is None or not is_same_owner(self.asked, refused.examined):
            return False
        try:
            part = self.holding.parts[0]
            return part.is_there() and peek(refused.place.directory, refused.resource).requested
        except (OSError, OwnershipError, DirectoryChanged):
            return True  # it cannot be told now

    def ask(self, examiner: Examiner, refused: Refused) -> Refused | None:
        """Publish our request, or again if somebody deleted it, unless there is nobody to be asked any more.

        :param refused: by whom; under the guard it may be another one by now
        :returns: who is asked now, if that is another owner than before
        :raises AlreadyOwnedError: somebody else asks already; or ours was withdrawn by decision
        """
        before = self.asked
        clock, resource = self.holding.clock, refused.resource
        _keeper.KEEPER.add(self.holding)
        place = pinned(resource, self.registry)
        until = clock.monotonic() + PATIENCE
        try:
            locked([place.guard(resource)], until, clock, partial(self._ask, examiner, place, resource))
        except DirectoryChanged:  # the next look finds the other one
            self.asked = None
        except Interrupting as interrupting:
            raise interrupting.told() from None
        if self.asked is None or (before is not None and is_same_owner(before, self.asked)):
            return None
        return Refused(place, resource, self.asked)

    def _ask(self, examiner: Examiner, place: Place, resource: Resource, hold: Hold) -> None:
        remembered = hold.read()
        examined = examiner.examine(place, resource, remembered)
        if examined.may_be_taken or examined.unsettled:
            return
        asker = asker_of(examiner, place, resource)
        if asker is not None and asker.stands and asker.record.token != self.token:
            raise self._refused(resource, place, asker, examined.record)
        if self._marked == hold.file and not self._stands() and (asker is not None or not remembered.requested):
            raise self._withdrawn(resource, place, examined)
        place.directory.discard(resource.name + SUFFIX)  # our own, or one that nobody stands for
        self._forget()
        wall_ns = self.holding.clock.wall_ns()
        judged = max(examined.record.token if examined.record else 0, asker.record.token if asker else 0, self.token)
        token = new_token(place, resource, remembered.token, judged, wall_ns)
        request = Request(place, hold.guard, self.registry, self.holding.me.instance_id, token, self._raw(token, place))
        self.holding.parts.append(request)
        request.ask(hold)
        self._marked = hold.file
        self.token = token
        self.asked = examined

    def may_stop(self) -> bool:
        """Whether our request stands, as far as can be told without the guard; else nobody is stopped before a look
        inside has told whether it was withdrawn.
        """
        try:
            return self._stands()
        except (OSError, OwnershipError, DirectoryChanged):
            return False  # it cannot be told now

    def _stands(self) -> bool:
        return any(part.is_there() for part in self.holding.parts)

    def _forget(self) -> None:
        """Nothing of ours is there any more."""
        for part in self.holding.parts:
            part.disclaim()
            part.retire()
        self.holding.parts = []

    def _raw(self, token: int, place: Place) -> bytes:
        clock = self.holding.clock
        now = timestamp(clock.wall_ns())
        self._since = self._since or now
        terms = LeaseTerms(ttl=min(self.seconds, _ENDLESS), auto_renew=False, renewed_at=clock.monotonic())
        record = OwnerRecord(
            **template_of(self.holding.me),
            token=token,
            phase="request",
            resource=self.holding.primary.shown,
            device=place.directory.descriptor.device,
            acquired_at=self._since,
            updated_at=now,
            lease=terms,
            labels=self.labels,
            reason=self.reason,
        )
        return encode(record)

    def _refused(self, resource: Resource, place: Place, asker: Asker, record: OwnerRecord | None) -> AlreadyOwnedError:
        one, judgement = asker.record, asker.judgement
        who = describe(one, judgement.elsewhere)
        why = f" ({printable(one.reason)})" if one.reason else ""
        path = argument(resource, place)
        return AlreadyOwnedError(
            f"{resource.shown}: its owner was asked to go before us, by {who}{why}: {judgement.verdict.value}, "
            f"{judgement.reason}; token {one.token}",
            resource=resource.path,
            record=record,
            owner=one,
            verdict=judgement.verdict,
            reason=judgement.reason,
            hint=f"see what it comes to (leasectl wait {path}), then ask the new owner; "
            f"leasectl break {path} --token {one.token} withdraws the other request",
        )

    def _withdrawn(self, resource: Resource, place: Place, examined: Examined) -> AlreadyOwnedError:
        error = refusal(resource, examined, place)
        return AlreadyOwnedError(
            f"{resource.shown}: our request to its owner does not stand any more, by decision (leasectl break --token "
            f"{self.token}), or since we were stopped for too long; {error.message}",
            resource=resource.path,
            record=examined.record,
            owner=examined.owner,
            verdict=examined.verdict,
            reason=error.reason,
            hint=f"find out who decided that before asking again; or wait: leasectl wait {argument(resource, place)}",
        )

    def done(self) -> None:
        """We own what we asked for. Our request went when we acquired, unless its mark had been deleted."""
        try:
            left = self._stands()
        except (OSError, OwnershipError):
            left = True
        if left:
            give_up(self.holding)
            return
        self._forget()
        self.holding.retire(State.RELEASED)
        _keeper.KEEPER.drop(self.holding)


def is_same_owner(one: Examined, other: Examined) -> bool:
    """Whether both are about one ownership; a record that is missing at the moment says nothing against it."""
    if one.owner is None or other.owner is None or one.owner.instance_id != other.owner.instance_id:
        return False
    return one.record is None or other.record is None or one.record.token == other.record.token
