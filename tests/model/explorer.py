"""Breadth-first exploration of a transition system whose states are hashable values.

Breadth first, so the trace of a violation is a shortest one. A result is a proof for its scenario only if `exhaustive`.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

State = TypeVar("State", bound=Hashable)
Move = tuple[str, State, "tuple[str, ...]"]
"""What happened, the state it leads to, and the properties it violates."""


@dataclass(frozen=True)
class Result:
    """What an exploration found: `violations` maps a property to the shortest trace that violates it."""

    states: int
    exhaustive: bool
    violations: dict[str, tuple[str, ...]]

    @property
    def holds(self) -> bool:
        """True only if everything was seen and nothing was violated."""
        return self.exhaustive and not self.violations

    def __str__(self) -> str:
        lines = [f"{self.states} states, {'exhaustive' if self.exhaustive else 'NOT exhaustive'}"]
        for name, trace in self.violations.items():
            lines.append(f"  violated in {len(trace)} steps: {name}")
            lines.extend(f"    {number:2d}. {label}" for number, label in enumerate(trace, 1))
        return "\n".join(lines)


def explore(
    initial: State,
    moves: Callable[[State], Iterable[Move[State]]],
    at_state: Callable[[State], Iterable[str]] | None = None,
    *,
    limit: int = 2_000_000,
    until: str | None = None,
) -> Result:
    """Visit every state reachable from `initial`.

    `at_state` names the properties a state violates by itself. `until` ends the search at the first violation of that
    property. Beyond `limit` states the search ends and the result is not exhaustive.
    """
    with _uncollected():
        return _explore(initial, moves, at_state, limit, until)


def _explore(
    initial: State,
    moves: Callable[[State], Iterable[Move[State]]],
    at_state: Callable[[State], Iterable[str]] | None,
    limit: int,
    until: str | None,
) -> Result:
    origin: dict[State, tuple[State, str] | None] = {initial: None}
    violations: dict[str, tuple[str, ...]] = {}
    queue = deque([initial])
    while queue:
        state = queue.popleft()
        if at_state is not None:
            for name in at_state(state):
                if name not in violations:
                    violations[name] = _trace(origin, state)
        for label, after, broken in moves(state):
            for name in broken:
                if name not in violations:
                    violations[name] = (*_trace(origin, state), label)
            known = len(origin)
            origin.setdefault(after, (state, label))  # hashed once
            if len(origin) > known:
                queue.append(after)
        if until in violations or len(origin) > limit:
            return Result(len(origin), False, violations)
    return Result(len(origin), True, violations)


@contextmanager
def _uncollected() -> Iterator[None]:
    """States hold no cycles, and looking for some among millions of them would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _trace(origin: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    labels = []
    step = origin[state]
    while step is not None:
        labels.append(step[1])
        step = origin[step[0]]
    return tuple(reversed(labels))
