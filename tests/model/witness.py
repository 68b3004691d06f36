"""The witness: a file locked for as long as an instance lives, asked by processes that cannot see the instance itself.

Z is an owner in another pid namespace, with a main thread and a keeper. C acquires, R only looks, G sweeps the
directory, K is a forked child of Z. Any of them may stay where it is for ever. Files under Z's witness name are
numbered slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.explorer import Move

NONE = -1
NOBODY, FOREIGN = 0, -1  # records; a positive number is the n-th record of Z

WITNESSED = "a record's witness is there, locked while its owner lives"
LIVE = "a live owner is never called gone"
DEAD = "a dead owner does not block"
LEFT = "an owner that has just left is not called unknown"
BACK = "a deleted witness comes back while its owner lives"
SWEPT = "leftovers are swept by the next acquire"

Z, K = 1, 2  # who has a copy of the locked descriptor
TESTERS = ("C", "R", "G", "F", "H")
BIT = {name: 1 << number for number, name in enumerate(TESTERS)}


@dataclass(frozen=True)
class WitnessRules:
    """The defaults are the design, False removes one rule."""

    visible_once_locked: bool = True  # made unnamed, locked, then linked
    before_record: bool = True  # the witness is there before the record is published
    idle_under_lock: bool = True  # idle removal and ensuring exclude each other inside the process
    pending_counts: bool = True  # a publication in progress counts as owning
    owns_until_unlinked: bool = True  # a release in progress counts as owning until its record is gone
    unlink_then_close: bool = True  # idle removal unlinks while it still has the lock
    hook_spares_owned: bool = True  # the exit hook leaves the witness while a record is left
    restored: bool = True  # the keeper puts a deleted witness back
    test_shared: bool = True  # testers use the shared lock
    tester_checks_path: bool = True  # free counts only if the locked file is still the one at the path
    missing_is_unknown: bool = True  # a missing witness proves nothing
    rereads_record: bool = True  # a missing witness: look at the record once more
    sweeper_tests_first: bool = True  # first find it free, then see that no record names it
    sweeper_checks_path: bool = True  # what it found free is still the file at the path
    sweeper_reads_records: bool = True
    sweep_after_eviction: bool = True  # an acquire that evicted a dead owner sweeps
    sweep_after_creation: bool = True  # so does one that has just made its own witness
    child_closes: bool = True  # a forked child closes its copy of the descriptor
    child_never_unlocks: bool = True  # and does not unlock it
    kept_across_exec: bool = True  # exec leaves the descriptor open


class Slot(NamedTuple):
    """A file: copies of Z's locked descriptor, and testers that have it locked."""

    held: int = 0
    tested: int = 0


class Tester(NamedTuple):
    """C, R or G: where it is, the witness it has open, the record it read."""

    at: str = "end"
    slot: int = NONE
    seen: int = NOBODY


class State(NamedTuple):
    """Everything that distinguishes two moments."""

    todo: tuple[str, ...]
    testers: tuple[Tester, ...]
    budget: tuple[tuple[str, int], ...]
    path: int = NONE  # the slot at Z's witness name
    slots: tuple[Slot | None, ...] = ()
    record: int = NOBODY
    published: int = 0
    guard: str = ""
    alive: bool = True
    executed: bool = False
    main: str = "idle"
    keeper: str = "idle"
    inner: str = ""  # who of main and keeper has the process's own lock
    mine: int = NONE  # the slot of Z's own descriptor
    owns: bool = False
    pending: bool = False
    child: str = "none"
    touched: bool = False  # an outsider deleted a witness


@dataclass(frozen=True)
class WitnessScenario:
    """Z's program, which others run along, and how often there is a death, a child death, or a witness deleted."""

    program: tuple[str, ...]
    others: str = ""
    faults: dict[str, int] = field(default_factory=dict)

    def initial(self) -> State:
        """Nothing is there yet."""
        begins = {"C": "lock guard", "R": "read", "G": "open"}
        testers = tuple(Tester(begins.get(name, "end") if name in self.others else "end") for name in TESTERS)
        return State(self.program, testers, tuple(sorted(self.faults.items())))


def _put(state: State, slot: int, value: Slot) -> State:
    return state._replace(slots=(*state.slots[:slot], value, *state.slots[slot + 1 :]))


def _slot(state: State, number: int) -> Slot:
    slot = state.slots[number]
    assert slot is not None
    return slot


def _create(state: State, value: Slot) -> tuple[State, int]:
    for number, old in enumerate(state.slots):
        if old is None:
            return _put(state, number, value), number
    return state._replace(slots=(*state.slots, value)), len(state.slots)


def _collect(state: State) -> State:
    used = {state.path, state.mine} | {tester.slot for tester in state.testers}
    slots = [slot if number in used or (slot is not None and slot.held) else None for number, slot in
             enumerate(state.slots)]  # fmt: skip
    while slots and slots[-1] is None:
        slots.pop()
    return state._replace(slots=tuple(slots))


class Witness:
    """The moves of one scenario under given rules."""

    def __init__(self, scenario: WitnessScenario, rules: WitnessRules | None = None) -> None:
        self.scenario = scenario
        self.rules = rules if rules is not None else WitnessRules()

    def initial(self) -> State:
        """The state the scenario starts in."""
        return self.scenario.initial()

    def moves(self, state: State) -> Iterator[Move[State]]:
        """Every step that anybody can make."""
        for label, after, broken in self._all(state):
            after = _collect(after)
            if not self._witnessed(after):
                broken = (*broken, WITNESSED)
            yield label, after, broken

    def _all(self, state: State) -> Iterator[Move[State]]:
        if state.alive and not state.executed:
            yield from self._main(state)
            yield from self._keeper(state)
        for index, name in enumerate(TESTERS):
            if state.testers[index].at != "end":
                yield from self._tester(state, index, name)
        yield from self._outside(state)

    def _witnessed(self, state: State) -> bool:
        """Unless an outsider deleted it, the witness of a record is there, and locked while its owner lives."""
        if state.record <= 0 or state.touched:
            return True
        if state.path == NONE:
            return False
        return not state.alive or bool(_slot(state, state.path).held & Z)

    # -- Z

    def _main(self, state: State) -> Iterator[Move[State]]:
        step = getattr(self, "_main_" + state.main.replace(" ", "_"))
        yield from step(state)

    def _main_idle(self, state: State) -> Iterator[Move[State]]:
        if not state.todo:
            return
        op, rest = state.todo[0], state.todo[1:]
        state = state._replace(todo=rest)
        if op == "acquire":
            yield from self._main_lock(state._replace(main="lock"))
        elif op == "release":
            if state.owns:
                inert = state if self.rules.owns_until_unlinked else state._replace(owns=False)
                yield "Z release: the handle is inert", inert._replace(main="release"), ()
            else:
                yield "Z release: holds nothing", state, ()
        elif op == "fork":
            copied = state._replace(child="forked")
            if state.mine != NONE:
                slot = _slot(state, state.mine)
                copied = _put(copied, state.mine, slot._replace(held=slot.held | K))
            yield "Z forks", copied, ()
        elif op == "exec":
            after = state._replace(executed=True, inner="")
            if not self.rules.kept_across_exec and state.mine != NONE:
                slot = _slot(state, state.mine)
                after = _put(after, state.mine, slot._replace(held=slot.held & ~Z))
            yield "Z executes another program and still owns", after, ()
        else:
            yield from self._main_exit_hook(state._replace(main="exit hook"))

    def _main_lock(self, state: State) -> Iterator[Move[State]]:
        if state.guard:
            yield "Z acquire: begins", state, ()
            return
        if state.record != NOBODY:
            yield "Z acquire: refused", state._replace(main="idle"), ()
            return
        ensure = "ensure" if self.rules.before_record else "publish"
        yield "Z acquire: locks the guard, no record", state._replace(guard="Z", main=ensure), ()

    def _main_ensure(self, state: State) -> Iterator[Move[State]]:
        if state.inner:
            return
        pending = state._replace(pending=True)
        done = "publish" if self.rules.before_record else "leave"
        if state.mine != NONE and state.mine == state.path:
            yield "Z acquire: its witness is there", pending._replace(main=done), ()
        elif self.rules.visible_once_locked:
            yield "Z acquire: links a locked witness", self._new(pending, Z)._replace(main=done), ()
        else:
            made = self._new(pending, 0)._replace(main="lock witness", inner="main")
            yield "Z acquire: creates its witness", made, ()

    def _new(self, state: State, held: int) -> State:
        """A new file at the witness name is Z's; its old descriptor is closed."""
        if state.mine != NONE:
            slot = _slot(state, state.mine)
            state = _put(state, state.mine, slot._replace(held=slot.held & ~Z))
        state, number = _create(state, Slot(held))
        return state._replace(path=number, mine=number)

    def _main_lock_witness(self, state: State) -> Iterator[Move[State]]:
        slot = _slot(state, state.mine)
        if not slot.tested:
            locked = _put(state, state.mine, slot._replace(held=Z))
            done = "publish" if self.rules.before_record else "leave"
            yield "Z acquire: locks its witness", locked._replace(main=done, inner=""), ()

    def _main_publish(self, state: State) -> Iterator[Move[State]]:
        number = state.published + 1
        after = state._replace(record=number, published=number, owns=True)
        if self.rules.before_record:
            yield "Z acquire: links its record", after._replace(main="leave"), ()
        else:
            yield "Z acquire: links its record", after._replace(main="ensure"), ()

    def _main_leave(self, state: State) -> Iterator[Move[State]]:
        yield "Z acquire: unlocks the guard", state._replace(main="idle", guard="", pending=False), ()

    def _main_release(self, state: State) -> Iterator[Move[State]]:
        if not state.guard:
            yield "Z release: locks the guard", state._replace(guard="Z", main="unlink"), ()

    def _main_unlink(self, state: State) -> Iterator[Move[State]]:
        record = NOBODY if state.record > 0 else state.record
        after = state._replace(record=record, owns=False, guard="", main="idle")
        yield "Z release: unlinks its record", after, ()

    def _main_exit_hook(self, state: State) -> Iterator[Move[State]]:
        spared = state.owns and self.rules.hook_spares_owned
        after = state._replace(main="exit")
        if state.mine != NONE and state.path == state.mine and not spared:
            yield "Z exits: unlinks its witness", after._replace(path=NONE), ()
        else:
            yield "Z exits: leaves its witness", after, ()

    def _main_exit(self, state: State) -> Iterator[Move[State]]:
        yield "Z exits", self._die(state), ()

    def _die(self, state: State) -> State:
        slots = tuple(slot._replace(held=slot.held & ~Z) if slot is not None else None for slot in state.slots)
        guard = "" if state.guard == "Z" else state.guard
        return state._replace(
            alive=False, slots=slots, guard=guard, mine=NONE, owns=False, pending=False, inner="", main="idle",
            keeper="idle", todo=(),
        )  # fmt: skip

    def _keeper(self, state: State) -> Iterator[Move[State]]:
        if state.keeper == "idle":
            if state.inner and self.rules.idle_under_lock:
                return
            busy = state.owns or (state.pending and self.rules.pending_counts)
            if state.mine != NONE and not busy:
                inner = "keeper" if self.rules.idle_under_lock else state.inner
                first = "unlink" if self.rules.unlink_then_close else "close"
                yield "Z.keeper: has owned nothing for a while", state._replace(keeper=first, inner=inner), ()
            if state.owns and state.path == NONE and self.rules.restored and not state.inner:
                back = self._new(state, Z)._replace(touched=False)
                yield "Z.keeper: puts its witness back, locked", back, ()
        elif state.keeper == "unlink":
            after = state if state.path == NONE else state._replace(path=NONE)
            yield "Z.keeper: unlinks its witness", self._kept(after, "close", self.rules.unlink_then_close), ()
        else:
            after = state
            if state.mine != NONE:
                slot = _slot(state, state.mine)
                after = _put(state, state.mine, slot._replace(held=slot.held & ~Z))._replace(mine=NONE)
            yield "Z.keeper: closes its witness", self._kept(after, "unlink", not self.rules.unlink_then_close), ()

    def _kept(self, state: State, following: str, more: bool) -> State:
        if more:
            return state._replace(keeper=following)
        inner = "" if state.inner == "keeper" else state.inner
        return state._replace(keeper="idle", inner=inner)

    # -- testers

    def _tester(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        step = getattr(self, "_test_" + state.testers[index].at.replace(" ", "_"))
        yield from step(state, index, name)

    def _at(self, state: State, index: int, at: str, **fields: int) -> State:
        tester = state.testers[index]._replace(at=at, **fields)
        return state._replace(testers=(*state.testers[:index], tester, *state.testers[index + 1 :]))

    def _ends(self, state: State, index: int) -> State:
        """Close everything; an acquire lets the guard go."""
        tester = state.testers[index]
        if tester.slot != NONE:
            slot = _slot(state, tester.slot)
            state = _put(state, tester.slot, slot._replace(tested=slot.tested & ~BIT[TESTERS[index]]))
        if state.guard == TESTERS[index]:
            state = state._replace(guard="")
        return self._at(state, index, "end", slot=NONE, seen=NOBODY)

    def _test_lock_guard(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if not state.guard:
            yield f"{name}: locks the guard", self._at(state._replace(guard=name), index, "read"), ()

    def _test_read(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if state.record > 0:
            yield f"{name}: the record names Z", self._at(state, index, "open", seen=state.record), ()
        elif state.record == NOBODY and name not in "RG":
            yield f"{name}: no record", self._at(state, index, "publish"), ()
        else:
            yield f"{name}: no record of Z", self._ends(state, index), ()

    def _test_open(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if state.path != NONE:
            after = "list first" if name == "G" and not self.rules.sweeper_tests_first else "test"
            yield f"{name}: opens the witness", self._at(state, index, after, slot=state.path), ()
        elif name == "G":
            yield "G: no witness", self._ends(state, index), ()
        else:
            yield from self._missing(state, index, name, "the witness is missing")

    def _missing(self, state: State, index: int, name: str, why: str) -> Iterator[Move[State]]:
        if not self.rules.missing_is_unknown:
            yield from self._gone(state, index, name, why)
        elif self.rules.rereads_record:
            yield f"{name}: {why}", self._at(state, index, "read again"), ()
        else:
            yield from self._unknown(state, index, name, why)

    def _test_read_again(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if state.record == state.testers[index].seen:
            yield from self._unknown(state, index, name, "the record is still there")
        else:
            yield f"{name}: the record is another by now", self._ends(state, index), ()

    def _unknown(self, state: State, index: int, name: str, why: str) -> Iterator[Move[State]]:
        broken = () if state.record == state.testers[index].seen else (LEFT,)
        yield f"{name}: {why}: unknown", self._ends(state, index), broken

    def _gone(self, state: State, index: int, name: str, why: str) -> Iterator[Move[State]]:
        broken = (LIVE,) if state.alive and state.record > 0 else ()
        if name in "RG":
            yield f"{name}: {why}: gone", self._ends(state, index), broken
        else:
            yield f"{name}: {why}: gone", self._at(state, index, "evict"), broken

    def _test_test(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        tester = state.testers[index]
        slot = _slot(state, tester.slot)
        others = slot.tested & ~BIT[name]
        if slot.held or (others and not self.rules.test_shared):
            broken = () if slot.held or state.alive or name == "G" else (DEAD,)
            yield f"{name}: the witness is held: live", self._ends(state, index), broken
            return
        locked = _put(state, tester.slot, slot._replace(tested=slot.tested | BIT[name]))
        checks = self.rules.sweeper_checks_path if name == "G" else self.rules.tester_checks_path
        after = self._at(locked, index, "check" if checks else "free")
        yield f"{name}: the witness is free, keeps it locked", after, ()

    def _test_check(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if state.testers[index].slot == state.path:
            yield f"{name}: it is still the file at the path", self._at(state, index, "free"), ()
        elif name == "G":
            yield "G: it is no longer the file at the path", self._ends(state, index), ()
        else:
            yield from self._missing(state, index, name, "it is no longer the file at the path")

    def _test_free(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if name == "G":
            if self.rules.sweeper_tests_first and self.rules.sweeper_reads_records:
                yield from self._test_list(state, index, name)
            else:
                yield from self._test_sweep(state, index, name)
        else:
            yield from self._gone(state, index, name, "nobody has it locked")

    def _test_list_first(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if state.record > 0 and self.rules.sweeper_reads_records:
            yield f"{name}: a record names it", self._ends(state, index), ()
        else:
            yield f"{name}: no record names it", self._at(state, index, "test"), ()

    def _test_list(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        if state.record > 0:
            yield f"{name}: a record names it", self._ends(state, index), ()
        else:
            yield f"{name}: no record names it", self._at(state, index, "sweep"), ()

    def _test_sweep(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        swept = state._replace(path=NONE)
        if name == "G":
            yield "G: unlinks the witness", self._ends(swept, index), ()
        else:
            yield f"{name}: unlinks the witness", self._at(swept, index, "publish"), ()

    def _test_evict(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        following = "sweep" if self._sweeps(name, evicted=True) else "publish"
        after = self._at(state._replace(record=NOBODY), index, following)
        yield f"{name}: removes the record", after, ()

    def _sweeps(self, name: str, evicted: bool) -> bool:
        """H had its own witness before; the others have just made theirs."""
        created = name != "H" and self.rules.sweep_after_creation
        return created or (evicted and self.rules.sweep_after_eviction)

    def _test_publish(self, state: State, index: int, name: str) -> Iterator[Move[State]]:
        yield f"{name}: links its record", self._ends(state._replace(record=FOREIGN), index), ()

    # -- the outside

    def _outside(self, state: State) -> Iterator[Move[State]]:
        budget = dict(state.budget)

        def spent(fault: str) -> State:
            left = {**budget, fault: budget[fault] - 1}
            return state._replace(budget=tuple(sorted(left.items())))

        if budget.get("death") and state.alive:
            yield "Z dies", self._die(spent("death")), ()
        if budget.get("witness deleted") and state.path != NONE:
            deleted = spent("witness deleted")._replace(path=NONE, touched=True)
            yield "an outsider deletes the witness", deleted, ()
        if state.child == "forked":
            if not self.rules.child_never_unlocks:
                yield "K: unlocks its copy", self._child(state, "idle", Z | K), ()
            elif self.rules.child_closes:
                yield "K: closes its copy", self._child(state, "idle", K), ()
        if budget.get("child death") and state.child != "none":
            yield "K dies", self._child(spent("child death"), "none", K), ()

    def _child(self, state: State, child: str, drops: int) -> State:
        slots = tuple(slot._replace(held=slot.held & ~drops) if slot is not None and slot.held & K else slot
                      for slot in state.slots)  # fmt: skip
        return state._replace(child=child, slots=slots)

    # -- when all is at rest

    def at_rest(self, state: State) -> Iterator[str]:
        """Z is dead and its child has done its duty; C and R may stand still for ever. Can a fresh process acquire?"""
        idle = state.main == "idle" and state.keeper == "idle" and not state.inner
        lacks = state.alive and not state.executed and state.owns and state.path == NONE
        if idle and lacks and not any(self._keeper(state)):
            yield BACK
        waiting = state.child == "forked" and self.rules.child_closes
        if state.alive or state.guard or waiting or state.record == FOREIGN:
            return
        for name in ("F", "H"):
            evicts = state.record > 0
            after = self._alone(state, name)
            if after.record != FOREIGN:
                if not state.touched:
                    yield DEAD
            elif after.path != NONE and (name == "F" or evicts):
                yield SWEPT

    def _alone(self, state: State, name: str) -> State:
        index = TESTERS.index(name)
        state = self._at(state, index, "lock guard")
        while state.testers[index].at != "end":
            _, state, _ = next(self._tester(state, index, name))
            if state.record == FOREIGN and self._sweeps(name, evicted=False) and state.path != NONE:
                slot = _slot(state, state.path)
                if not slot.held:
                    state = state._replace(path=NONE)
        return state
