"""Leases: a holder renews without the guard, a contender evicts under it. One step per read or write.

Time is CLOCK_MONOTONIC and passes between any two steps. The holder H writes its heartbeat, a contender C reads it; C
may live in another time namespace, where the clock is `SHIFT` ahead, and the heartbeat may be deleted by a cleaner and
put back by H. `until` is the deadline that H believes in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

TTL, END, RENEWALS, SHIFT = 2, 5, 2, 5
MISSING = -1

EARLY = "no lease is evicted before the deadline that its holder believes in"
AFTERWARDS = "no holder believes that it renewed what was taken over"
TAKEN = "a lease that is not renewed is taken over in the end"


@dataclass(frozen=True)
class LeaseRules:
    """The rules of leases; False removes one."""

    holder_looks_again: bool = True  # at the clock, after the write: if the deadline has passed, it does not count
    late_takes_guard: bool = True  # a late holder enters the guard,
    late_verifies: bool = True  # and renews only what is still its own
    contender_takes_guard: bool = True
    clock_first: bool = True  # the contender reads its clock before the heartbeat
    other_clock_is_watched: bool = True  # its renewal has to be seen unchanged for a whole ttl
    watch_begins_after: bool = True  # the first look at the heartbeat, not before it
    missing_is_watched: bool = True  # a heartbeat that is not there proves nothing by itself
    beat_is_visible: bool = True  # a heartbeat renews only if, after the clock was read, the file is at its path


class State(NamedTuple):
    """Everything: the clock, the heartbeat, who is in the record and in the guard, and where H and C stand."""

    time: int = 0
    beat: int = 0
    until: int = TTL
    record: str = "H"
    guard: str = ""
    h: str = "idle"
    began: int = 0
    old: int = 0
    renewals: int = RENEWALS
    c: str = "out"
    clock: int = 0
    seen: int = 0
    watched: int | None = None  # which heartbeat C has watched
    since: int = 0
    deletions: int = 0
    hidden: bool = False  # H's file is not the one at the path


Move = tuple[str, State, tuple[str, ...]]


class Leasing:
    """The moves of one scenario.

    :param shifted: C lives in another time namespace
    :param deletions: how often the witness may be deleted
    :param renewals: how often H renews
    """

    def __init__(
        self,
        rules: LeaseRules | None = None,
        *,
        shifted: bool = False,
        deletions: int = 0,
        renewals: int = RENEWALS,
    ) -> None:
        self.rules = rules if rules is not None else LeaseRules()
        self.shifted = shifted
        self.initial = State(deletions=deletions, renewals=renewals)

    def moves(self, state: State) -> Iterator[Move]:
        """Every step that may come next."""
        if state.time < END:
            yield f"time {state.time + 1}", state._replace(time=state.time + 1), ()
        if state.deletions and not state.hidden:
            yield "a cleaner deletes the witness", state._replace(deletions=state.deletions - 1, hidden=True), ()
        yield from self._holder(state)
        yield from self._contender(state)

    def broken(self, state: State) -> Iterator[str]:
        """The properties that *state* violates by itself."""
        if state.record == "C" and state.h == "idle" and state.until > state.time:
            yield AFTERWARDS

    # -- the holder

    def _holder(self, state: State) -> Iterator[Move]:
        rules, now = self.rules, state.time
        if state.h == "idle" and state.renewals and state.until > 0:
            after = state._replace(renewals=state.renewals - 1, began=now, old=state.until, h="look")
            yield f"H: reads the clock: {now}", after, ()
        elif state.h == "look":
            if rules.beat_is_visible:  # its keeper puts the witness back
                yield "H: sees the witness at its path", state._replace(hidden=False, h="write"), ()
            else:
                yield "H: does not look where its witness is", state._replace(h="write"), ()
        elif state.h == "write":
            after = state._replace(beat=state.began, h="again")
            if not rules.holder_looks_again:
                after = after._replace(until=state.began + TTL, h="idle")
            yield f"H: writes heartbeat {state.began}", after, ()
        elif state.h == "again":
            if now < state.old:
                yield "H: in time", state._replace(until=state.began + TTL, h="idle"), ()
            else:
                yield "H: late", state._replace(h="late"), ()
        elif state.h == "late" and (not state.guard or not rules.late_takes_guard):
            taken = state.guard if not rules.late_takes_guard else "H"
            yield "H: takes the guard", state._replace(guard=taken, h="verify"), ()
        elif state.h == "verify":
            mine = state.record == "H" or not rules.late_verifies
            free = "" if state.guard == "H" else state.guard
            if mine:
                yield "H: the record is ours", state._replace(h="renew"), ()
            else:
                yield "H: loss", state._replace(guard=free, until=0, h="lost"), ()
        elif state.h == "renew":
            free = "" if state.guard == "H" else state.guard
            after = state._replace(beat=now, until=now + TTL, hidden=False, guard=free, h="idle")
            yield f"H: renews under the guard: {now}", after, ()

    # -- the contender

    def _contender(self, state: State) -> Iterator[Move]:
        rules = self.rules
        if state.c == "out" and (not state.guard or not rules.contender_takes_guard):
            taken = "C" if rules.contender_takes_guard else state.guard
            yield "C: takes the guard; the record says H", state._replace(guard=taken, c="first"), ()
        elif state.c in ("first", "second"):
            if (state.c == "first") is rules.clock_first:
                now = state.time + (SHIFT if self.shifted else 0)
                after = state._replace(clock=now)
                label = f"C: reads its clock: {now}"
            else:
                seen = MISSING if state.hidden else state.beat
                after = state._replace(seen=seen)
                label = "C: sees no heartbeat" if seen == MISSING else f"C: reads heartbeat {seen}"
            yield label, after._replace(c="second" if state.c == "first" else "judge"), ()
        elif state.c == "judge":
            yield from self._judge(state)
        elif state.c == "take":
            early = state.until > state.time and state.h not in ("late", "verify", "renew")
            after = state._replace(record="C", guard=_left(state), c="done")
            yield "C: publishes its record", after, (EARLY, TAKEN) if early else (TAKEN,)

    def _judge(self, state: State) -> Iterator[Move]:
        rules = self.rules
        watches = (self.shifted and rules.other_clock_is_watched) or (
            state.seen == MISSING and rules.missing_is_watched
        )
        out = state._replace(guard=_left(state), c="out" if state.time < END else "done")
        if not watches:
            if state.seen == MISSING or state.clock >= state.seen + TTL:
                yield "C: it has run out", state._replace(c="take"), ()
            else:
                yield "C: it holds", out, ()
        elif state.watched != state.seen:
            now = state.time + (SHIFT if self.shifted else 0)
            since = now if rules.watch_begins_after else state.clock
            yield f"C: watches it from {since}", out._replace(watched=state.seen, since=since), ()
        elif state.clock >= state.since + TTL:
            yield "C: seen unchanged for a ttl", state._replace(c="take"), ()
        else:
            yield "C: not long enough", out, ()


def _left(state: State) -> str:
    return "" if state.guard == "C" else state.guard
