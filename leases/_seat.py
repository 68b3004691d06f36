"""Seats: what a driving process owns beside a roster as long as it lives, so that everybody can tell whether it does.

A pid says nothing about a process of another boot or pid namespace, and a witness is swept once no record names it. The
record of a seat names it; and whoever has a seat after another, by a greater token, proves that the other one is gone.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any, NamedTuple

from leases._roster_draft import stem
from ownership import (
    AlreadyOwnedError,
    Claim,
    Inspection,
    Judgement,
    OwnerIdentity,
    OwnershipError,
    Verdict,
    acquire,
    inspect,
)

_MOST = 4096  # processes that drive at one time

_held: dict[tuple[int, str, str | None, int], tuple[Seat, Claim, Any]] = {}
_mutex: Any = threading.RLock()


class Seat(NamedTuple):
    """Which one it is, and the token it is owned by."""

    number: int
    token: int


class Seats:
    """The seats beside one roster."""

    def __init__(self, path: str, registry: str | None, seams: dict[str, Any]) -> None:
        self._path, self._registry, self._seams = path, registry, seams

    def _resource(self, number: int) -> str:
        return f"{os.path.dirname(self._path)}/{stem(self._path)}.driver-{number}"

    def take(self) -> Seat:
        """The seat of this process: the one it has, or else the first that is free.

        :raises OwnershipError: it cannot be told whether one is
        :raises OSError: none can be taken
        """
        processes = self._seams.get("processes")
        key = (os.getpid(), self._path, self._registry, id(processes))
        known = _held.get(key)
        if known is not None and known[1].held:
            return known[0]
        with _mutex:
            known = _held.get(key)
            if known is None or not known[1].held:
                seat, claim = self._taken()
                known = _held.get(key)
                if known is not None and known[1].held:  # a signal handler was here meanwhile
                    claim.release()
                else:
                    known = _held[key] = seat, claim, processes
            return known[0]

    def _taken(self) -> tuple[Seat, Claim]:
        for number in range(1, _MOST):
            try:
                claim = acquire(
                    self._resource(number),
                    registry=self._registry,
                    labels={"roster": "drives tasks"},
                    **self._seams,
                )
            except AlreadyOwnedError as error:
                refused = error
                continue
            return Seat(number, claim.token), claim
        raise refused

    def proof(self, driver: dict[str, Any], owner: OwnerIdentity, found: Judgement) -> Judgement | None:
        """That *owner* is gone, if its seat proves that; its process may live on as another image, after exec.

        :param driver: its line
        :param found: what is known of it otherwise: nothing against a process that is seen to live
        """
        seat = _seat(driver)
        if seat is None:
            return None
        try:
            one = inspect(self._resource(seat.number), registry=self._registry, **self._seams)
        except (OSError, OwnershipError):
            return None
        return _proof(one, seat, owner, found.verdict)


def _proof(one: Inspection, seat: Seat, owner: OwnerIdentity, known: Verdict) -> Judgement | None:
    has = one.owner
    if has is not None and has.instance_id == owner.instance_id:
        return Judgement(one.verdict, one.reason) if one.verdict.is_dead else None
    if one.token < seat.token or (has is not None and one.token == seat.token):
        return None  # guard and record were deleted: nothing is known
    if has is not None and (has.pid, has.start_id, has.boot_id) == (owner.pid, owner.start_id, owner.boot_id):
        return Judgement(Verdict.GONE, f"pid {has.pid} has become another program since (exec)")
    if known is not Verdict.UNKNOWN:
        return None
    if has is None:
        how = f": {one.previous.how}" if one.previous is not None else ""
        return Judgement(Verdict.GONE, f"it does not own its seat {seat.number} any more{how}")
    return Judgement(Verdict.GONE, f"pid {has.pid} has its seat {seat.number} by now")


def _seat(driver: dict[str, Any]) -> Seat | None:
    """What the line says, which anybody may have written."""
    told = driver.get("seat")
    if isinstance(told, list) and len(told) == 2 and all(type(one) is int and one > 0 for one in told):
        return Seat(*told)
    return None


def _fork() -> None:
    global _mutex
    _mutex = threading.RLock()


def _leave() -> None:
    for (process, *_), (_, claim, _) in list(_held.items()):
        if process == os.getpid():
            try:
                claim.release("its process has ended")
            except (OSError, OwnershipError):
                pass


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)
atexit.register(_leave)
