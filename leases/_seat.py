"""Seats: what a driving process owns beside a roster while it drives, so that everybody can tell whether it lives.

A pid says nothing about a process of another boot or pid namespace, and a witness is swept once no record names it. The
record of a seat names it; and whoever has a seat after another, by a greater token, proves that the other one is gone.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

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

_Key: TypeAlias = tuple[int, str, str | None, int]

_held: dict[_Key, tuple[Seat, Claim, Any]] = {}
_users: dict[_Key, set[int]] = {}  # who may take it at any moment
_driven: dict[_Key, set[str]] = {}  # the tasks that it stands for
_unused: list[_Key] = []
_mutex: Any = threading.RLock()


class Seat(NamedTuple):
    """Which one it is, and the token it is owned by."""

    number: int
    token: int


class _User:
    """May take our seat at any moment, until it is dropped."""

    def __init__(self, key: _Key) -> None:
        with _mutex:  # which whoever gives up a seat has, too
            _users.setdefault(key, set()).add(id(self))
            self.key = key

    def __del__(self) -> None:
        if sys.is_finalizing() or "key" not in self.__dict__:
            return
        if (users := _users.get(self.key)) is not None:
            users.discard(id(self))
            _unused.append(self.key)
            _tidy()


class Seats:
    """The seats beside one roster. Ours is kept until this is dropped, and for as long as it stands for any task."""

    def __init__(self, path: str, registry: str | None, seams: dict[str, Any]) -> None:
        self._path, self._registry, self._seams = path, registry, seams
        self._user: _User | None = None

    def _resource(self, number: int) -> str:
        return f"{os.path.dirname(self._path)}/{stem(self._path)}.driver-{number}"

    def take(self) -> Seat:
        """The seat of this process: the one it has, or else the first that is free.

        :raises OwnershipError: it cannot be told whether one is
        :raises OSError: none can be taken
        """
        key, processes = self._key(), self._seams.get("processes")
        if self._user is None or self._user.key != key:
            self._user = _User(key)
        known = _held.get(key)
        if known is not None and known[1].held:
            return known[0]
        try:
            return self._sit(key, processes)
        finally:
            _tidy()

    def _key(self) -> _Key:
        return os.getpid(), self._path, self._registry, id(self._seams.get("processes"))

    def drives(self, task: str, does: bool) -> None:
        """Whether this process drives *task*: our seat, which was taken before, stands for it."""
        key = self._key()
        if does:
            _driven.setdefault(key, set()).add(task)
        elif key in _driven:
            _driven[key].discard(task)

    def _sit(self, key: _Key, processes: Any) -> Seat:
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


def _tidy() -> None:
    """Give up the seats that nobody can take and that stand for nothing. Never waits: a finaliser comes here."""
    while _unused:
        held: list[Any] = []
        letting_go = map(type(_mutex).release, held)  # in single steps: no handler that raises leaves it locked
        try:
            held.extend(compress((_mutex,), map(_mutex.acquire, (False,))))
            if not held:  # whoever has it does this
                return
            key = _unused.pop()
            if not _users.get(key) and not _driven.get(key):
                _users.pop(key, None), _driven.pop(key, None)
                _give_up(key, "it drives nothing any more")
        except IndexError:  # a signal handler was here meanwhile
            pass
        finally:
            list(letting_go)


def _give_up(key: _Key, reason: str) -> None:
    known = _held.pop(key, None)
    if known is not None and key[0] == os.getpid():
        try:
            known[1].release(reason)
        except (OSError, OwnershipError):  # the keeper goes on trying
            pass


def _fork() -> None:
    global _mutex
    _mutex = threading.RLock()


def _leave() -> None:
    for key in list(_held):
        _give_up(key, "its process has ended")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)
atexit.register(_leave)
