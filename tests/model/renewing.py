"""Renewing by hand, also on behalf of the owner. One step per read or write.

The lease is in the record. A worker W renews it; its owner H changes the record, and puts it back after a cleaner
deleted it; a contender C evicts. Each enters the guard first. H also reads the record without the guard, for what it
believes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

TTL, END, RENEWALS, CHANGES = 2, 5, 2, 1
GONE = -1

KEPT = "no lease is evicted within its ttl after a renewal that its worker was told of"
EARLY = "no lease is evicted before the deadline that its owner believes in"
OTHERS = "nobody's record is replaced by that of another"
TAKEN = "a lease that is not renewed is taken over in the end"


@dataclass(frozen=True)
class RenewRules:
    """The rules of renewing by hand; False removes one."""

    worker_takes_guard: bool = True
    worker_verifies: bool = True  # that the record is its owner's, under the guard
    worker_looks_again: bool = True  # at where directory and guard are, before it believes to have renewed
    change_keeps_renewal: bool = True  # of others, which the owner reads under the guard first
    put_back_renews: bool = True  # the record: a renewal that the owner has not seen went with the one before


class State(NamedTuple):
    """Who is in the record and until when it is renewed there; what each believes, and where it stands.

    :ivar at: the renewal in the record; GONE: there is none
    :ivar moved: the directory was moved away: whoever is inside writes into what nobody sees
    :ivar told: the last renewal that W was told of
    """

    time: int = 0
    owner: str = "H"
    at: int = 0
    guard: str = ""
    moved: bool = False
    w: str = "out"
    read: int = 0
    renewals: int = RENEWALS
    told: int = 0
    h: str = "out"
    believed: int = 0
    written: int = 0
    changes: int = CHANGES
    c: str = "out"
    clock: int = 0
    faults: int = 1


Move = tuple[str, State, tuple[str, ...]]


class Renewing:
    """The moves of the one scenario."""

    def __init__(self, rules: RenewRules | None = None) -> None:
        self.rules = rules if rules is not None else RenewRules()
        self.initial = State()

    def moves(self, state: State) -> Iterator[Move]:
        """Every step that may come next."""
        if state.time < END:
            yield f"time {state.time + 1}", state._replace(time=state.time + 1), ()
        if state.faults and state.w == "verify" and state.guard == "W" and state.owner == "H":
            gone = _left(state, "W")._replace(faults=0, moved=True, at=GONE)
            yield "the directory is moved away, W in it", gone, ()
        if state.faults and state.owner == "H" and not state.guard:
            yield "a cleaner deletes the record", state._replace(faults=0, at=GONE), ()
        yield from self._worker(state)
        yield from self._holder(state)
        yield from self._contender(state)

    # -- the worker

    def _worker(self, state: State) -> Iterator[Move]:
        rules, now = self.rules, state.time
        if state.w == "out" and state.renewals and not (state.guard and rules.worker_takes_guard):
            guard = "W" if rules.worker_takes_guard else state.guard
            yield "W: takes the guard", state._replace(guard=guard, w="verify", renewals=state.renewals - 1), ()
        elif state.w == "verify":
            mine = state.moved or (state.owner == "H" and state.at != GONE) or not rules.worker_verifies
            if mine:
                yield f"W: reads the clock: {now}", state._replace(w="write", read=now), ()
            else:
                yield "W: not the owner's record", _left(state, "W")._replace(w="out"), ()
        elif state.w == "write":
            if state.moved:
                seen = rules.worker_looks_again
                after = state._replace(moved=False, w="out", told=state.told if seen else state.read)
                yield "W: writes where nobody sees it", after, ()
                return
            broken = (OTHERS,) if state.owner != "H" else ()
            after = _left(state, "W")._replace(owner="H", at=state.read, told=state.read, w="out")
            yield f"W: renews: {state.read}", after, broken

    # -- the owner

    def _holder(self, state: State) -> Iterator[Move]:
        rules = self.rules
        if state.owner == "H" and state.at > state.believed:
            yield f"H: sees the renewal {state.at}", state._replace(believed=state.at), ()
        if state.owner != "H":
            return
        if state.h == "out" and not state.guard and state.changes and state.at != GONE:
            yield "H: takes the guard", state._replace(guard="H", h="change", changes=state.changes - 1), ()
        elif state.h == "change":
            known = max(state.believed, state.at) if rules.change_keeps_renewal else state.written
            after = _left(state, "H")._replace(at=known, written=known, h="out")
            yield f"H: changes its record, renewed {known}", after._replace(believed=max(state.believed, known)), ()
        elif state.h == "out" and not state.guard and state.at == GONE:
            known = state.time if rules.put_back_renews else state.believed
            after = state._replace(at=known, written=known, believed=known)
            yield f"H: puts its record back, renewed {known}", after, ()

    # -- the contender

    def _contender(self, state: State) -> Iterator[Move]:
        now = state.time
        if state.c == "out" and not state.guard and state.owner == "H":
            yield f"C: takes the guard at {now}", state._replace(guard="C", c="judge", clock=now), ()
        elif state.c == "judge":
            if state.at == GONE or state.clock < state.at + TTL:  # the guard names H, which lives
                yield "C: it holds", _left(state, "C")._replace(c="out"), ()
            else:
                yield "C: it has run out", state._replace(c="take"), ()
        elif state.c == "take":
            broken = [TAKEN]
            if state.clock < state.told + TTL and state.told <= state.clock and state.told:
                broken.append(KEPT)
            if state.clock < state.believed + TTL:
                broken.append(EARLY)
            yield "C: publishes its record", _left(state, "C")._replace(owner="C", at=now, c="done"), tuple(broken)


def _left(state: State, who: str) -> State:
    return state._replace(guard="") if state.guard == who else state
