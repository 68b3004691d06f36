"""Handing a claim to a descendant: it writes its own record over ours under the guard, so there is always an owner."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, Field

from ownership._adoption import Adoption, Target
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import HandoverError, OwnershipLostError, with_path
from ownership._holding import Holding
from ownership._process import ProcessTable, system_processes
from ownership._ref import absolute_path, unreadable
from ownership._state import State
from ownership._updating import update
from ownership._watch import Watch
from ownership._withdrawal import give_up

VARIABLE = "LEASES_HEIR"
_POLL = 0.05

_Claim = TypeVar("_Claim")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Heir(Generic[_Claim]):
    """The right to adopt one claim, once. Whoever has the secret may: hand it to descendants only.

    :ivar targets: every resource of the claim, the claim's own first
    """

    secret: str = field(repr=False)
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
        table, first = processes or system_processes(), self.targets[0]
        try:
            me = table.current()
        except OSError as error:
            raise with_path(error, first.path) from error
        holding = Holding(me, clock, first.resource, os.getpid())
        adoption = Adoption(holding, self.targets, _hash(self.secret))
        holding.handle = weakref.ref(adoption)  # should even giving up be interrupted, the keeper does it
        try:
            adoption.run()
            return self.claim_of(holding)
        except BaseException as error:
            give_up(holding)
            raise with_path(error, first.path)  # noqa: B904 the same one, or one that says all that it says


def heir_from(text: str | None, claim_of: Callable[[Holding], _Claim]) -> Heir[_Claim]:
    """The right that ``to_env()`` wrote as *text*.

    :raises LookupError: there is none
    :raises ValueError: there is one that cannot be read
    """
    if text is None:
        raise LookupError(f"{VARIABLE} is not set: no claim was handed to this process")
    try:
        right = _Right.model_validate_json(text)
        targets = tuple(
            Target(absolute_path(path), registry and absolute_path(registry), token)
            for path, registry, token in right.targets
        )
    except ValueError as error:
        raise unreadable(VARIABLE, text[:80], error) from None
    return Heir(right.secret, targets, claim_of)


class _Right(BaseModel):
    """What travels in the environment: paths as hex, since a path need not be text."""

    secret: str
    targets: Annotated[list[tuple[str, str | None, int]], Field(min_length=1)]


class HandingOver(Generic[_Claim]):
    """``with claim.handover()``: offers the claim, and waits at the end of the block for somebody to adopt it."""

    def __init__(self, holding: Holding, timeout: float, claim_of: Callable[[Holding], _Claim]) -> None:
        self.holding = holding
        self.timeout = timeout
        self.claim_of = claim_of
        self.process = 0

    def __enter__(self) -> Heir[_Claim]:
        secret = secrets.token_hex(32)
        self.process = os.getpid()
        holding = self.holding
        holding.heir = _hash(secret)
        try:
            update(holding, {"heir": holding.heir})
        except BaseException:
            holding.heir = None
            raise
        first, rest = holding.part, [part for part in holding.parts if part is not holding.part]
        targets = tuple(Target(part.resource.path, part.registry, part.token) for part in (first, *rest))
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
            watch.file(part.path)
            while not self._is_adopted():
                left = deadline - holding.clock.monotonic()
                if left <= 0:
                    return False
                if holding.clock.wait(min(left, _POLL), watch):
                    watch.file(part.path)
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
                update(holding, {"heir": None})
        except OwnershipLostError:
            pass
        if holding.state is State.HANDED_OVER:
            holding.heir = None
            return False
        holding.heir = None
        if holding.state is not State.HELD:
            raise holding.loss()
        return True
