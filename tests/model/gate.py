"""The gate: K publishes it and passes every guard; A acquires in the same directory and asks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LISTED = "whoever got in is listed once close() has returned"
REFUSED = "nobody gets in after close() has returned"


@dataclass(frozen=True)
class GateRules:
    """The rules of the gate; False removes one."""

    ask_inside_guard: bool = True  # acquire asks it after it has locked the resource's guard
    ask_before_publishing: bool = True
    publish_first: bool = True  # close() publishes the gate before it passes the guards
    pass_guards: bool = True  # close() locks every guard in turn,
    without_records: bool = True  # not only those of resources that have a record


class State(NamedTuple):
    """Who stands where; whether gate, guard file and record of A are there; and what K has listed."""

    a: int = 0
    k: str = "publish"
    closed: bool = False
    file: bool = False
    guard: str = ""
    record: bool = False
    listed: bool = False


Move = tuple[str, State, tuple[str, ...]]


class Closing:
    """The moves of A and K."""

    initial = State()

    def __init__(self, rules: GateRules | None = None) -> None:
        self.rules = rules if rules is not None else GateRules()
        if not self.rules.publish_first:
            self.initial = State(k="look")
        steps = ["make", "lock", "publish", "unlock"]
        if not self.rules.ask_before_publishing:
            steps.insert(3, "ask")
        else:
            steps.insert(2 if self.rules.ask_inside_guard else 0, "ask")
        self.steps = steps

    def moves(self, state: State) -> Iterator[Move]:
        """Every step that may come next."""
        if state.a < len(self.steps):
            yield from self._acquire(state, self.steps[state.a])
        yield from self._close(state)

    def _acquire(self, state: State, step: str) -> Iterator[Move]:
        after = state._replace(a=state.a + 1)
        if step == "ask" and state.closed:
            freed = "" if state.guard == "A" else state.guard
            yield "A: it is closed", state._replace(a=99, guard=freed, record=False), ()
        elif step == "ask":
            yield "A: it is open", after, ()
        elif step == "make":
            yield "A: opens or makes its guard", after._replace(file=True), ()
        elif step == "lock" and not state.guard:
            yield "A: locks its guard", after._replace(guard="A"), ()
        elif step == "publish":
            done = state.k == "done"
            yield "A: publishes its record", after._replace(record=True), (REFUSED,) if done else ()
        elif step == "unlock":
            yield "A: leaves its guard", after._replace(guard=""), ()

    def _close(self, state: State) -> Iterator[Move]:
        if state.k == "publish":
            then = "look" if self.rules.publish_first else "list"
            yield "K: publishes the gate", state._replace(closed=True, k=then), ()
        elif state.k == "look":
            there = state.file if self.rules.without_records else state.record
            then = "lock" if there and self.rules.pass_guards else "passed"
            yield f"K: lists the guards: {'one' if there else 'none'}", state._replace(k=then), ()
        elif state.k == "lock" and not state.guard:
            yield "K: locks A's guard", state._replace(guard="K", k="unlock"), ()
        elif state.k == "unlock":
            yield "K: leaves A's guard", state._replace(guard="", k="passed"), ()
        elif state.k == "passed":
            then = "list" if self.rules.publish_first else "publish"
            yield "K: close() returns" if then == "list" else "K: has passed the guards", state._replace(k=then), ()
        elif state.k == "list":
            yield "K: lists the owners", state._replace(listed=state.record, k="done"), ()

    def broken(self, state: State) -> Iterator[str]:
        """The properties that *state* violates by itself."""
        if state.k == "done" and state.record and not state.listed:
            yield LISTED
