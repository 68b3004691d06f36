"""Adopting a claim: its heir writes its own record over that of its predecessor."""

from __future__ import annotations

import hmac
from functools import partial
from typing import NamedTuple

from ownership import _keeper
from ownership._draft import new_token, template_of
from ownership._errors import HandoverError, OwnershipError
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._holding import Holding
from ownership._locking import locked
from ownership._models import GuardState, OwnerRecord, Previous, timestamp
from ownership._part import Part
from ownership._paths import Resource, pinned_resource
from ownership._pinned import DirectoryChanged
from ownership._place import pinned
from ownership._record import changed, decode, encode
from ownership._renewal import begun, lease_out
from ownership._state import State, adopted_by
from ownership._station import Place
from ownership._withdrawal import undo


class Target(NamedTuple):
    """One resource of a claim that is handed over, and the token it is owned by."""

    path: str
    registry: str | None
    token: int

    @property
    def resource(self) -> Resource:
        return pinned_resource(self.path, whole=self.registry is not None)


class Adoption:
    """Own what *targets* name, if they are still owned by the tokens and carry the hash."""

    def __init__(self, holding: Holding, targets: tuple[Target, ...], heir: str) -> None:
        self.holding = holding
        self.targets = targets
        self.heir = heir

    def run(self) -> None:
        targets = sorted(self.targets, key=lambda one: one.path)
        for _ in range(8):
            try:
                places = [pinned(one.resource, one.registry) for one in targets]
                guards = [place.guard(one.resource) for place, one in zip(places, targets, strict=True)]
                until = self.holding.clock.monotonic() + PATIENCE
                locked(guards, until, self.holding.clock, partial(self._adopt, places, targets))
                return
            except DirectoryChanged:
                if self.holding.abandoned:  # something is left of this attempt, and the keeper takes it away
                    break
            except Interrupting as interrupting:
                raise interrupting.told() from None
        raise HandoverError(f"{targets[0].path}: its lock directory keeps being changed", resource=targets[0].path)

    def _adopt(self, places: list[Place], targets: list[Target], *holds: Hold) -> None:
        found = [
            (place, target, hold, hold.read(), self._offered(place, target))
            for place, target, hold in zip(places, targets, holds, strict=True)
        ]
        _keeper.KEEPER.add(self.holding)
        try:
            for place, target, hold, remembered, record in found:
                self._take(place, target, hold, remembered, record)
            self.holding.state = State.HELD
        except BaseException:
            for part, (_, _, hold, remembered, record) in zip(self.holding.parts, found, strict=False):
                _give_back(part, hold, remembered, record)
            undo(self.holding, holds)
            raise

    def _offered(self, place: Place, target: Target) -> OwnerRecord:
        """The record as it was handed over."""
        found = place.directory.read(f"{target.resource.name}.json")
        record = None if found is None else decode(found[0], target.resource.shown)
        if (
            isinstance(record, OwnerRecord)
            and record.token == target.token
            and record.heir is not None
            and hmac.compare_digest(record.heir, self.heir)
        ):
            return record
        raise HandoverError(
            f"{target.resource.shown}: too late to adopt it: its record does not carry this hand-over any more",
            resource=target.path,
            hint="the predecessor took it back or ended; acquire it as anybody else would",
        )

    def _take(self, place: Place, target: Target, hold: Hold, remembered: GuardState, record: OwnerRecord) -> None:
        """Our own witness, the next token and our identity into the guard, our record over the one handed over."""
        me, wall_ns = self.holding.me, self.holding.clock.wall_ns()
        token = new_token(place, target.resource, remembered.token, record.token, wall_ns)
        changes = {
            **template_of(me),
            "token": token,
            "heir": adopted_by(self.heir),
            "updated_at": timestamp(wall_ns),
            "device": place.directory.descriptor.device,
        }
        terms = record.lease and begun(record.lease, self.holding.clock)
        if terms is not None:
            changes["lease"] = terms.model_dump()
        raw = encode(changed(record, changes))
        part = Part(place, hold.guard, target.registry, me.instance_id, token, raw)
        self.holding.parts.append(part)
        place.enter(part)
        part.made_witness = place.settle_in(me.instance_id)
        if terms is not None:
            lease_out(self.holding, part, terms)
        place.owned.enter(part.name, part)
        part.stamped = part.published = True
        # the record first: a guard that names us while the record still is our predecessor's would, should we die here
        # and the record be damaged, speak for the dead
        part.place.directory.replace(part.filename, part.raw, part.temporary)
        previous = Previous(how="released", reason="handed over", at=timestamp(wall_ns))
        adopted = adopted_by(self.heir).removeprefix("adopted:")
        hold.write(remembered._replace(token=token, owner=place.identity(me), previous=previous, adopted=adopted))
        part.recheck(hold)


def _give_back(part: Part, hold: Hold, remembered: GuardState, record: OwnerRecord) -> None:
    """Undo an adoption that failed half-way: the predecessor never ceased to own. Our token was nobody's yet."""
    try:
        part.place.directory.replace(part.filename, encode(record), part.temporary)
        hold.write(remembered)
        part.published = part.stamped = False
    except (OSError, OwnershipError, DirectoryChanged):
        return  # withdrawn like any other failed acquire
