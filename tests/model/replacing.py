"""Replacing an owner: a request beside the record, a mark beside the guard's content, and who may get in meanwhile.

O owns and may let go at any time, or hand over to H. Askers (A, B) publish a request, may stop the owner that they
asked, and acquire or give up. Contenders (C) only acquire. Z is an asker that died before. An operator (W) withdraws
the request of a live asker by decision. Any of them may stay between two steps for ever, or die there. The mark says
that there may be a request: a contender that finds no mark does not look for one. An asker that misses its own request
stops nobody, and looks for the mark inside the guard: without one, or beside another's request, it was withdrawn; else
a cleaner was there, and it asks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.explorer import Move

NOBODY = -1

ONE_OWNER = "at most one owner"
EXCLUSIVE = "nobody but the live asker gets in while its request stands"
STANDS = "no other removes the request of a live asker"
UNASKED = "nobody is stopped who was not asked to go"
FREE = "a fresh acquire succeeds when nobody owns and nobody asks"
ASKABLE = "a fresh asker is heard when nobody else asks"
CLEAN = "an acquire leaves no request and no mark of the dead"
HEEDED = "whoever's request was withdrawn by decision asks and stops nobody any more"
UNDECIDED = "nobody gives up for a withdrawal that nobody decided, before others have asked or acquired"


@dataclass(frozen=True)
class ReplaceRules:
    """The defaults are the design, False removes one rule."""

    ask_takes_guard: bool = True  # look, remove a dead asker's request and link ours inside the guard
    ask_judges_asker: bool = True  # a dead asker's request is removed, a live one's never
    younger_refused: bool = True  # the request of a live asker is in the way of another asker
    ask_marks: bool = True
    mark_first: bool = True  # a request without a mark would be found by nobody,
    mark_outlives: bool = True  # so the mark is cleared after the request has gone
    mark_beside: bool = True  # not in what an owner rewrites when it lets go: it does not know of the mark
    acquire_looks: bool = True  # whoever finds the mark and nobody owning looks who asks
    acquire_judges_asker: bool = True  # a dead asker's request is ignored,
    acquire_clears: bool = True  # and removed, mark and all, by whoever acquires
    own_request_goes: bool = True  # the asker's own goes when it acquires
    withdraw_on_failure: bool = True  # an asker that gives up takes its request away
    withdraw_only_own: bool = True
    retry_withdrawal: bool = True  # if that fails, its keeper goes on trying
    asks_each_owner: bool = True  # another owner than the one asked is asked anew
    request_expires: bool = True  # an asker that is stopped for longer than it may take blocks nobody
    withdrawal_clears: bool = True  # a decision clears the mark, a cleaner that deletes a request does not;
    withdrawal_clears_last: bool = True  # without it nobody would find the request
    others_tell: bool = True  # whoever has asked since has marked the guard again, but its request is there
    missed_asks_again: bool = True  # whose request a cleaner has deleted asks again
    looks_before_it_stops: bool = True


class Actor(NamedTuple):
    """A process: the token it owns by, the token of the owner it asked."""

    at: str = "begin"
    alive: bool = True
    held: int = 0
    asked: int = 0
    token: int = 0
    then: str = ""  # where to go once the guard is held
    withdrawn: bool = False  # its request was, by decision; nobody knows but we
    overtaken: bool = False  # others have asked or acquired since its request went, or after its time


class State(NamedTuple):
    """Everything that distinguishes two moments."""

    actors: tuple[Actor, ...]
    budget: tuple[tuple[str, int], ...]
    locked: int = NOBODY
    last: int = NOBODY  # whom the guard names
    token: int = 1
    mark: bool = False
    record: tuple[int, int] | None = (0, 1)
    request: int = NOBODY
    expired: bool = False


@dataclass(frozen=True)
class Scenario:
    """Who takes part besides O, and how often there is a death, a failure of a withdrawal, an expiry, a cleaner."""

    others: tuple[str, ...]
    faults: dict[str, int] = field(default_factory=dict)
    dead_request: bool = False

    def names(self) -> tuple[str, ...]:
        """Z asked before and is dead."""
        return ("O", *self.others, *(("Z",) if self.dead_request else ()))

    def initial(self) -> State:
        """O owns by token 1."""
        actors = [Actor("own", held=1), *(Actor() for _ in self.others)]
        budget = tuple(sorted(self.faults.items()))
        if not self.dead_request:
            return State(tuple(actors), budget, last=0)
        actors.append(Actor("end", alive=False))
        return State(tuple(actors), budget, last=0, mark=True, request=len(actors) - 1)


class Replacing:
    """The moves of one scenario under given rules."""

    def __init__(self, scenario: Scenario, rules: ReplaceRules | None = None) -> None:
        self.rules = rules if rules is not None else ReplaceRules()
        self.names = scenario.names()
        self.scenario = scenario

    def initial(self) -> State:
        """The state the scenario starts in."""
        return self.scenario.initial()

    def moves(self, state: State) -> Iterator[Move[State]]:
        """Every step that somebody can make."""
        for number, actor in enumerate(state.actors):
            if actor.alive:
                for label, after, broken in self._steps(state, number, actor):
                    owners = sum(bool(one.held) for one in after.actors)
                    yield f"{self.names[number]} {label}", after, (*broken, *((ONE_OWNER,) if owners > 1 else ()))
        yield from self._faults(state)

    # -- helpers

    def _is_asker(self, number: int) -> bool:
        return self.names[number] in ("A", "B", "G")

    def _put(self, state: State, number: int, **changes: object) -> State:
        actors = list(state.actors)
        actors[number] = actors[number]._replace(**changes)
        return state._replace(actors=tuple(actors))

    def _unlock(self, state: State, number: int, at: str, **changes: object) -> State:
        after = self._put(state, number, at=at, **changes)
        return after._replace(locked=NOBODY) if state.locked == number else after

    def _overtaking(self, state: State, number: int) -> State:
        for other, actor in enumerate(state.actors):
            if other != number and actor.asked and self._is_asker(other):
                state = self._put(state, other, overtaken=True)
        return state

    def _die(self, state: State, number: int) -> State:
        after = self._put(state, number, alive=False, held=0, at="end", asked=0, token=0)
        return after._replace(locked=NOBODY) if state.locked == number else after

    def _in_the_way(self, state: State, number: int, judges: bool) -> bool:
        """Does another ask, who is taken to live?"""
        if state.request in (NOBODY, number) or (state.expired and self.rules.request_expires):
            return False
        return state.actors[state.request].alive or not judges

    def _is_withdrawn(self, state: State, number: int) -> bool:
        """As it looks to an asker: its request is gone, and not since a cleaner was there."""
        if state.request == number:
            return False
        if not self.rules.missed_asks_again:
            return True
        return not state.mark or (state.request != NOBODY and self.rules.others_tell)

    def _faults(self, state: State) -> Iterator[Move[State]]:
        for fault, count in state.budget:
            if not count:
                continue
            spent = state._replace(budget=tuple((one, left - (one == fault)) for one, left in state.budget))
            if fault in ("death", "death of who asks"):
                for number, actor in enumerate(state.actors):
                    if actor.alive and (actor.at == "wait" or (fault == "death" and actor.at != "begin")):
                        yield f"{self.names[number]} dies", self._die(spent, number), ()
            elif fault == "expiry" and state.request != NOBODY and not state.expired:
                yield "the request expires", spent._replace(expired=True), ()
            elif fault == "cleaner" and state.request != NOBODY:
                yield "a cleaner unlinks the request", spent._replace(request=NOBODY, expired=False), ()
            elif fault == "failure":
                for number, actor in enumerate(state.actors):
                    if actor.alive and actor.at == "withdraw":
                        at = "retry" if self.rules.retry_withdrawal else "end"
                        yield f"{self.names[number]} cannot unlink", self._unlock(spent, number, at), ()

    # -- steps

    def _steps(self, state: State, number: int, actor: Actor) -> Iterator[Move[State]]:
        match actor.at:
            case "begin" if self.names[number] == "H":
                owner = state.actors[0]
                if owner.at == "own" and owner.alive and state.locked == NOBODY:
                    given = self._put(state._replace(last=number, token=state.token + 1), 0, at="end", held=0)
                    taken = self._put(given, number, at="own", held=given.token)
                    yield "adopts what O hands over", taken._replace(record=(number, given.token)), ()
            case "begin":
                guarded = self.rules.ask_takes_guard or not self._is_asker(number)
                yield "comes", self._put(state, number, at="lock" if guarded else "look", then="look"), ()
            case "own":
                yield "lets go", self._put(state, number, at="lock", then="let go"), ()
            case "lock" if state.locked == NOBODY:
                yield "locks the guard", self._put(state, number, at=actor.then)._replace(locked=number), ()
            case "let go":
                kept = state.mark and self.rules.mark_beside
                after = state._replace(last=NOBODY, mark=kept)
                yield "blanks the guard", self._put(after, number, at="unlink", held=0), ()
            case "unlink":
                yield "unlinks its record", self._unlock(state._replace(record=None), number, "end"), ()
            case "look" if self.names[number] == "W":
                yield self._decide(state, number)
            case "look":
                yield self._look(state, number, actor)
            case "decide" | "tell":
                yield self._tell(state, number, actor)
            case "clear" | "link" | "mark":
                yield self._publish(state, number, actor)
            case "wait":
                yield from self._wait(state, number, actor)
            case "withdraw" | "unmark":
                yield self._withdraw(state, number, actor)
            case "retry":
                yield "'s keeper comes back", self._put(state, number, at="lock", then="withdraw"), ()
            case "stamp" | "remove" | "take" | "answer" | "wipe":
                yield self._take(state, number, actor)

    def _look(self, state: State, number: int, actor: Actor) -> Move[State]:
        owner = state.record[0] if state.record else state.last
        lives = owner != NOBODY and state.actors[owner].alive
        if self._is_asker(number):
            if self.rules.younger_refused and self._in_the_way(state, number, self.rules.ask_judges_asker):
                return "is refused: another asks", self._unlock(state, number, "end"), ()
            if lives:
                stands = state.request == number and not state.expired
                token = state.record[1] if state.record else state.token
                if actor.asked and self._is_withdrawn(state, number):
                    known = () if actor.withdrawn or actor.overtaken else (UNDECIDED,)
                    return "hears that it is to ask no more", self._put(state, number, at="withdraw"), known
                if stands and (actor.asked == token or not self.rules.asks_each_owner):
                    return "sees the owner it asked", self._unlock(state, number, "wait"), ()
                at = self._begins() if state.request == NOBODY else "clear"
                return "sees an owner", self._put(state, number, at=at, asked=token), ()
        elif lives:
            return "is refused: it is owned", self._unlock(state, number, "end"), ()
        elif (
            state.mark and self.rules.acquire_looks and self._in_the_way(state, number, self.rules.acquire_judges_asker)
        ):
            return "is refused: somebody asks", self._unlock(state, number, "end"), ()
        if state.locked != number:
            return "goes for the guard", self._put(state, number, at="lock", then="look"), ()
        return "sees nobody", self._put(state, number, at="stamp"), ()

    def _decide(self, state: State, number: int) -> Move[State]:
        asker = state.request
        if asker == NOBODY or not state.actors[asker].alive or state.expired:
            return "finds nobody asking", self._unlock(state, number, "end"), ()
        at = "decide" if self.rules.withdrawal_clears_last else "tell"
        return "decides against the request", self._put(state, number, at=at, asked=asker), ()

    def _tell(self, state: State, number: int, actor: Actor) -> Move[State]:
        last = self.rules.withdrawal_clears_last
        if actor.at == "decide":
            after = state._replace(request=NOBODY, expired=False)
            if last:
                return "unlinks it", self._put(after, number, at="tell"), ()
            return "unlinks it", self._unlock(after, number, "end"), ()
        known = self._put(state, actor.asked, withdrawn=True)  # else it has not happened
        after = known._replace(mark=state.mark and not self.rules.withdrawal_clears)
        if last:
            return "clears the mark", self._unlock(after, number, "end"), ()
        return "clears the mark", self._put(after, number, at="decide"), ()

    def _begins(self) -> str:
        return "mark" if self.rules.ask_marks and self.rules.mark_first else "link"

    def _publish(self, state: State, number: int, actor: Actor) -> Move[State]:
        if actor.at == "clear":
            removed = state.request
            other = removed not in (NOBODY, number) and state.actors[removed].alive and not state.expired
            after = self._put(state._replace(request=NOBODY, expired=False), number, at=self._begins())
            return "unlinks a request", after, (STANDS,) if other else ()
        if actor.at == "link":
            if state.request != NOBODY:  # link(2) never replaces: starts again
                return "finds a name taken", self._unlock(state, number, "begin"), ()
            after = self._overtaking(state._replace(request=number, expired=False), number)
            again = (HEEDED,) if actor.withdrawn else ()
            if self.rules.ask_marks and not self.rules.mark_first:
                return "links its request", self._put(after, number, at="mark"), again
            return "links its request", self._unlock(after, number, "wait"), again
        marked = state._replace(mark=True)
        if self.rules.mark_first:
            return "marks the guard", self._put(marked, number, at="link"), ()
        return "marks the guard", self._unlock(marked, number, "wait"), ()

    def _wait(self, state: State, number: int, actor: Actor) -> Iterator[Move[State]]:
        yield "looks again", self._put(state, number, at="lock", then="look"), ()
        owner = state.record[0] if state.record else NOBODY
        if owner not in (NOBODY, number) and state.actors[owner].alive and state.record is not None:
            asked = state.record[1] == actor.asked
            heeds = self.rules.looks_before_it_stops and state.request != number
            if (asked or not self.rules.asks_each_owner) and not heeds:
                broken = ((UNASKED,) if not asked else ()) + ((HEEDED,) if actor.withdrawn else ())
                yield "stops the owner", self._die(state, owner), broken
        at = "lock" if self.rules.withdraw_on_failure else "end"
        yield "gives up", self._put(state, number, at=at, then="withdraw"), ()

    def _withdraw(self, state: State, number: int, actor: Actor) -> Move[State]:
        if actor.at == "unmark":
            return "clears the mark", self._unlock(state._replace(mark=False), number, "end"), ()
        if self.rules.withdraw_only_own and state.request != number:
            return "finds no request of its own", self._unlock(state, number, "end"), ()
        other = state.request not in (NOBODY, number) and state.actors[state.request].alive and not state.expired
        if not self.rules.mark_outlives and state.mark:
            return "clears the mark", state._replace(mark=False), ()
        after = self._put(state._replace(request=NOBODY, expired=False), number, at="unmark")
        return "unlinks its request", after, (STANDS,) if other else ()

    def _take(self, state: State, number: int, actor: Actor) -> Move[State]:
        if actor.at == "stamp":
            token = max(state.token, state.record[1] if state.record else 0) + 1
            after = state._replace(last=number, token=token)
            after = self._put(after, number, at="remove", token=token)
            return f"stamps token {token}", after, ()
        if actor.at == "remove":
            return "removes the judged record", self._put(state._replace(record=None), number, at="take"), ()
        if actor.at == "take":
            asking = state.request not in (NOBODY, number) and state.actors[state.request].alive and not state.expired
            linked = self._overtaking(state._replace(record=(number, actor.token)), number)
            after = self._put(linked, number, at="answer")
            return "links its record", after, (EXCLUSIVE,) if asking else ()
        if actor.at == "answer":
            goes = self.rules.own_request_goes if state.request == number else self.rules.acquire_clears
            after = state._replace(request=NOBODY, expired=False) if goes and state.mark else state
            return "removes the request", self._put(after, number, at="wipe"), ()
        wiped = state._replace(mark=False) if self.rules.acquire_clears else state
        return "returns its claim", self._unlock(wiped, number, "end", held=actor.token, asked=0), ()

    # -- when all is at rest

    def at_rest(self, state: State) -> Iterator[str]:
        """Nobody is in the middle of anything; those who still wait ask."""
        if any(one.alive and one.at not in ("end", "own", "begin", "wait") for one in state.actors):
            return
        waiting = [number for number, one in enumerate(state.actors) if one.alive and one.at == "wait"]
        if waiting and not (state.expired and waiting == [state.request]):  # one that is stopped may stay so for ever
            return
        owned = any(one.held for one in state.actors)
        for name in ("F", "G"):
            probe = Replacing(self.scenario, self.rules)
            probe.names = (*self.names, name)
            fresh = state._replace(actors=(*state.actors, Actor()))
            after = self._alone(probe, fresh)
            newest = after.actors[-1]
            if name == "F" and not owned and not newest.held:
                yield FREE
            if name == "G" and owned and newest.at != "wait":
                yield ASKABLE
            if newest.held and (after.request != NOBODY or after.mark):
                yield CLEAN

    def _alone(self, probe: Replacing, state: State) -> State:
        number = len(state.actors) - 1
        for _ in range(30):
            actor = state.actors[number]
            if actor.at in ("end", "wait"):
                break
            step = next(iter(probe._steps(state, number, actor)), None)
            if step is None:
                break
            state = step[1]
        return state
