"""Several guards at once, and a look at one from outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from ownership._clock import Clock
from ownership._directory import LockDirectory
from ownership._guard import Guard, Hold, Interrupting
from ownership._models import NO_GUARD_STATE, GuardState
from ownership._paths import Resource
from ownership._record import MAX_GUARD_BYTES, decode_guard

_Result = TypeVar("_Result")


def locked(
    guards: Sequence[Guard],
    deadline: float,
    clock: Clock,
    action: Callable[[list[Hold]], _Result],
    *,
    patient: bool = True,
) -> _Result:
    """Run *action* with all *guards* held; everybody locks them in the order of the canonical paths.

    :param patient: wait at all; else :class:`ownership._guard.Busy` at once
    """

    def inside(hold: Hold) -> _Result:
        if not rest:
            return action([hold])
        return locked(rest, deadline, clock, lambda holds: action([hold, *holds]), patient=patient)

    first, rest = guards[0], guards[1:]
    try:
        return first.run(deadline, clock, inside, patient=patient)
    except Interrupting:
        raise first.timeout(os.getpid()) from None


def peek(directory: LockDirectory, resource: Resource) -> GuardState:
    """What the guard remembers, read without it: for reports. Unreadable counts as nothing."""
    try:
        found = directory.read(f"{resource.name}.guard", MAX_GUARD_BYTES)
    except PermissionError:
        return NO_GUARD_STATE
    return NO_GUARD_STATE if found is None else decode_guard(found[0], resource.path)
