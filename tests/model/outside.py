"""What may happen from outside at any moment, as often as a scenario allows."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.deciding import Deciding
from tests.model.world import FAR_BACK, INDEX, NOBODY, NONE, Directory, File, State, World


class Outside(Deciding):
    """Deaths, interruptions, failures, deletions, damage, and the wall clock."""

    def _faults(self, state: State) -> Iterator[tuple[str, World]]:
        budget = state.budget
        if budget[INDEX["death"]]:
            for number, process in enumerate(state.processes):
                if process.alive and self._begun(state, number):
                    world = World(state)
                    world.spend("death")
                    world.die(number)
                    yield f"{self.names[number]} dies", world
        if budget[INDEX["interrupt"]]:
            yield from self._interrupts(state)
        if budget[INDEX["failure"]]:
            yield from self._failures(state)
        if budget[INDEX["clock back"]]:
            world = World(state)
            world.spend("clock back")
            world.clock -= FAR_BACK
            yield "the wall clock steps back", world
        if state.path != NONE:
            entry = state.directories[state.path]
            assert entry is not None
            yield from self._record_faults(state, entry)
            yield from self._guard_faults(state, entry)
            yield from self._directory_faults(state, entry)

    def _begun(self, state: State, number: int) -> bool:
        """Has the process done anything yet? Death before that is the same as never having been started."""
        todo = tuple(self.scenario.programs.values())[number]
        return any(thread.process == number and (thread.at != "idle" or thread.todo != todo) and not thread.keeper
                   for thread in state.threads)  # fmt: skip

    def _interrupts(self, state: State) -> Iterator[tuple[str, World]]:
        for index, thread in enumerate(state.threads):
            if thread.keeper or thread.leaving or thread.at in ("idle", "inert", "unlink guard"):
                continue
            if thread.op not in ("acquire", "release", "update"):
                continue
            world = World(state)
            world.spend("interrupt")
            if thread.op == "acquire":
                self._unwind(world, index, leaving=True)
            elif thread.op == "update" and thread.process in world.directory(thread.directory).temps:
                world.thread(index, at="drop temp", leaving=True)
            else:
                if thread.op == "release" and self.rules.retry_withdrawal:
                    world.process(thread.process, leftover=thread.token)
                world.finish(index)
            yield f"{self.names[thread.process]} {thread.op}: interrupted", world

    def _failures(self, state: State) -> Iterator[tuple[str, World]]:
        for index, thread in enumerate(state.threads):
            withdrawing = thread.at == "withdraw unlink" and thread.op == "acquire"
            blanking = thread.at in ("blank", "blank first") and thread.op != "break"
            if withdrawing or blanking or (thread.at == "unlink" and thread.op == "release"):
                world = World(state)
                world.spend("failure")
                if self.rules.retry_withdrawal and thread.token:
                    world.process(thread.process, leftover=thread.token)
                world.finish(index)
                what = "writing the guard" if blanking else "unlinking its record"
                yield f"{self.names[thread.process]} {thread.op}: {what} fails", world

    def _record_faults(self, state: State, entry: Directory) -> Iterator[tuple[str, World]]:
        budget = state.budget
        if entry.record == NONE:
            if budget[INDEX["record planted"]]:
                world = World(state)
                world.spend("record planted")
                world.name(state.path, record=world.create(File(intact=False)))
                yield "an outsider creates an empty file under the record's name", world
            return
        if budget[INDEX["record deleted"]]:
            world = World(state)
            world.spend("record deleted")
            record = world.file(entry.record)
            if entry.guard == NONE or world.file(entry.guard).owner != record.owner:
                world.evict(record, "outside")  # the guard was deleted too: nothing names it any more
            world.name(state.path, record=NONE)
            yield "an outsider deletes the record", world
        if budget[INDEX["record damaged"]]:
            world = World(state)
            record = world.file(entry.record)
            if record.intact:
                world.spend("record damaged")
                world.files[entry.record] = record._replace(intact=False)
                self._unprotected(world, state.path)
                yield "an outsider damages the record", world

    def _guard_faults(self, state: State, entry: Directory) -> Iterator[tuple[str, World]]:
        if entry.guard == NONE:
            return
        guard = state.files[entry.guard]
        assert guard is not None
        allowed = {
            "guard deleted": guard.locked == NOBODY and not self._unaware(state),
            "guard deleted beside record": guard.locked == NOBODY and entry.record != NONE,
            "guard deleted inside": True,
        }
        for fault, possible in allowed.items():
            if state.budget[INDEX[fault]] and possible:
                world = World(state)
                world.spend(fault)
                if entry.record == NONE and self._meddled(state):
                    world.evict(guard, "outside")
                world.name(state.path, guard=NONE)
                self._unprotected(world, state.path)
                yield "an outsider deletes the guard", world

    def _meddled(self, state: State) -> bool:
        """Has an outsider touched the record before? Then deleting the guard too ends what protects a claim."""
        return any(
            state.budget[INDEX[fault]] < self.scenario.faults.get(fault, 0)
            for fault in ("record deleted", "record damaged", "record planted")
        )

    def _unprotected(self, world: World, directory: int) -> None:
        """A damaged record whose guard does not name its owner protects it only while its keeper runs."""
        entry = world.directory(directory)
        if entry.record == NONE or world.file(entry.record).intact:
            return
        record = world.file(entry.record)
        named = entry.guard != NONE and world.file(entry.guard).owner == record.owner
        if not named and record.owner not in self._kept(world):
            world.evict(record, "outside")

    def _directory_faults(self, state: State, entry: Directory) -> Iterator[tuple[str, World]]:
        for fault in ("directory removed", "directory moved", "directory moved under keeper"):
            if not state.budget[INDEX[fault]] or self._unaware(state):
                continue
            if fault == "directory moved under keeper" and not self._keeper_inside(state, entry):
                continue
            world = World(state)
            world.spend(fault)
            for number in (entry.guard, entry.record):
                if number != NONE:
                    world.evict(world.file(number), "outside")
            if fault == "directory removed":
                world.directories[state.path] = Directory(removed=True)
            world.path = NONE
            yield f"an outsider {'removes' if fault == 'directory removed' else 'moves'} the lock directory", world

    def _keeper_inside(self, state: State, entry: Directory) -> bool:
        """Has a keeper or verify decided to republish, with this directory's guard locked?"""
        guard = state.files[entry.guard] if entry.guard != NONE else None
        if guard is None or guard.locked == NOBODY:
            return False
        thread = state.threads[guard.locked]
        return thread.op in ("keep", "verify") and thread.at in ("stamp", "compare", "unlink", "temp", "link")

    def _unaware(self, state: State) -> bool:
        """Is there an owner, broken or adopted from, that has not noticed? Nothing is promised for deletions then."""
        return self.scenario.promised and any(
            process.held and process.evicted in ("break", "handover") for process in state.processes
        )
