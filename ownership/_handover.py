"""Handing a claim to a descendant: it writes its own record over ours under the guard, so there is always an owner."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from ownership import _keeper
from ownership._acquire import give_up, new_token, template_of
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._directory import DirectoryChanged
from ownership._errors import HandoverError, OwnershipLostError
from ownership._guard import PATIENCE, Guard, GuardChanged, locked
from ownership._holding import Holding, Part, State, adopted_by, identity_of, timestamp
from ownership._paths import Resource, pinned_resource
from ownership._place import Place, pinned
from ownership._process import ProcessTable, system_processes
from ownership._record import GuardState, OwnerRecord, Previous, encode
from ownership._watch import Watch

VARIABLE = "LEASES_HEIR"
_POLL = 0.05

_Claim = TypeVar("_Claim")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Target:
    """One resource of a claim that is handed over, and the token it is owned by."""

    path: str
    registry: str | None
    token: int

    @property
    def resource(self) -> Resource:
        return pinned_resource(self.path, whole=self.registry is not None)


@dataclass(frozen=True, slots=True)
class Heir(Generic[_Claim]):
    """The right to adopt one claim, once. Whoever has the secret may: hand it to descendants only.

    :ivar targets: every resource of the claim, the claim's own first
    """

    secret: str
    targets: tuple[Target, ...]
    claim_of: Callable[[Holding], _Claim]

    def to_env(self) -> dict[str, str]:
        """The environment variable for a descendant that execs: there, ``ownership.adopt()``."""
        targets = [
            [os.fsencode(one.path).hex(), one.registry and os.fsencode(one.registry).hex(), one.token]
            for one in self.targets
        ]
        return {VARIABLE: json.dumps({"secret": self.secret, "targets": targets})}

    def adopt(self, *, clock: Clock = SYSTEM_CLOCK, processes: ProcessTable | None = None) -> _Claim:
        """Own the claim from now on, in this process.

        :raises HandoverError: too late: it was taken back, adopted by another, or acquired by somebody
        """
        table = processes or system_processes()
        holding = Holding(table.current(), clock, self.targets[0].resource)
        try:
            _Adoption(holding, self.targets, _hash(self.secret)).run()
            return self.claim_of(holding)
        except BaseException:
            give_up(holding)
            raise


def heir_from(environ: Mapping[str, str], claim_of: Callable[[Holding], _Claim]) -> Heir[_Claim]:
    """The right that ``to_env()`` put into *environ*.

    :raises LookupError: there is none
    :raises ValueError: there is one that cannot be read
    """
    text = environ.get(VARIABLE)
    if text is None:
        raise LookupError(f"{VARIABLE} is not set: no claim was handed to this process")
    try:
        fields = json.loads(text)
        targets = tuple(
            Target(_path(path), None if registry is None else _path(registry), int(token))
            for path, registry, token in fields["targets"]
        )
        return Heir(str(fields["secret"]), targets, claim_of)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{VARIABLE} cannot be read: {error}") from None


def _path(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text))


@dataclass(slots=True)
class _Adoption:
    """Own what *targets* name, if they are still owned by the tokens and carry the hash."""

    holding: Holding
    targets: tuple[Target, ...]
    heir: str

    def run(self) -> None:
        targets = sorted(self.targets, key=lambda one: one.path)
        for _ in range(8):
            try:
                places = [pinned(one.resource, one.registry) for one in targets]
                guards = [place.guard(one.resource.name) for place, one in zip(places, targets, strict=True)]
                until = self.holding.clock.monotonic() + PATIENCE
                locked(guards, until, self.holding.clock, lambda: self._adopt(places, targets, guards))  # noqa: B023
                return
            except (GuardChanged, DirectoryChanged):
                continue
        raise HandoverError(f"{targets[0].path}: its lock directory keeps being changed", resource=targets[0].path)

    def _adopt(self, places: list[Place], targets: list[Target], guards: list[Guard]) -> None:
        parts = []
        for place, target, guard in zip(places, targets, guards, strict=True):
            parts.append(self._part(place, target, guard.read(target.path)))
        _keeper.KEEPER.add(self.holding)
        for part, guard in zip(parts, guards, strict=True):
            self._take(part, guard)
        self.holding.state = State.HELD

    def _part(self, place: Place, target: Target, remembered: GuardState) -> Part:
        part = Part(place, target.resource, target.registry, target.token, _NOBODY)
        record, _ = part.read()
        if (
            not isinstance(record, OwnerRecord)
            or record.token != target.token
            or record.heir is None
            or not hmac.compare_digest(record.heir, self.heir)
        ):
            raise HandoverError(
                f"{target.resource.shown}: too late to adopt it: its record does not carry this hand-over any more",
                resource=target.path,
                hint="the predecessor took it back or ended; acquire it as anybody else would",
            )
        part.token = new_token(place, target.resource, remembered.token, record.token, self.holding.clock)
        changes = {
            **template_of(self.holding.me),
            "token": part.token,
            "heir": adopted_by(self.heir),
            "updated_at": timestamp(self.holding.clock),
            "device": place.directory.descriptor.device,
        }
        part.record = OwnerRecord.model_validate({**record.model_dump(), **changes})
        return part

    def _take(self, part: Part, guard: Guard) -> None:
        place, remembered = part.place, guard.read(part.resource.shown)
        self.holding.parts.append(part)
        place.enter(part)
        part.made_witness = place.settle_in(part.record.instance_id)
        previous = Previous(
            how="released", reason="handed over", at=timestamp(self.holding.clock), heir=adopted_by(self.heir)
        )
        guard.write(
            GuardState(token=part.token, owner=identity_of(part.record), previous=previous, deaths=remembered.deaths)
        )
        place.owned[part.resource.name] = part.token
        part.published = True
        place.directory.replace(part.filename, encode(part.record), part.temporary)
        part.signature = place.directory.signature(part.filename)
        if part.signature is None or not guard.is_at_path():
            raise DirectoryChanged


_NOBODY = OwnerRecord(pid=1, start_id="-", instance_id="--------", token=1)


@dataclass(slots=True)
class HandingOver(Generic[_Claim]):
    """``with claim.handover()``: offers the claim, and waits at the end of the block for somebody to adopt it."""

    holding: Holding
    timeout: float
    claim_of: Callable[[Holding], _Claim]
    process: int = 0

    def __enter__(self) -> Heir[_Claim]:
        secret = secrets.token_hex(32)
        self.process = os.getpid()
        holding = self.holding
        holding.heir = _hash(secret)
        try:
            holding.update({"heir": holding.heir})
        except BaseException:
            holding.heir = None
            raise
        first, rest = holding.part, [part for part in holding.parts if part is not holding.part]
        targets = tuple(
            Target(part.resource.path, None if part.registry is None else os.fsdecode(part.registry), part.token)
            for part in (first, *rest)
        )
        return Heir(secret, targets, self.claim_of)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self.process:
            return
        try:
            if error is None and self._wait():
                return
        finally:
            taken_back = self._take_back()
        if error is None and taken_back:
            raise HandoverError(
                f"{self.holding.primary.shown}: nobody adopted it within {self.timeout:g} s; it is still ours",
                resource=self.holding.primary.path,
                hint="see that the descendant calls heir.adopt() or ownership.adopt()",
            )

    def _wait(self) -> bool:
        """Whether it was adopted in time."""
        holding, part = self.holding, self.holding.part
        deadline = holding.clock.monotonic() + self.timeout
        watch = Watch()
        try:
            watch.file(part.place.directory.file(part.filename))
            while not self._is_adopted():
                left = deadline - holding.clock.monotonic()
                if left <= 0:
                    return False
                if holding.clock.wait(min(left, _POLL), watch.wait):
                    watch.file(part.place.directory.file(part.filename))
        finally:
            watch.close()
        return True

    def _is_adopted(self) -> bool:
        try:
            self.holding.verify()
        except OwnershipLostError:
            if self.holding.state is not State.HANDED_OVER:
                raise
        return self.holding.state is State.HANDED_OVER

    def _take_back(self) -> bool:
        """Withdraw the offer under the guards; false if it was adopted meanwhile.

        :raises OwnershipLostError: somebody else owns it
        """
        holding = self.holding
        try:
            if holding.state is State.HELD:
                holding.update({"heir": None})
        except OwnershipLostError:
            pass
        if holding.state is State.HANDED_OVER:
            holding.heir = None
            return False
        holding.heir = None
        if holding.state is not State.HELD:
            raise holding.loss()
        return True
