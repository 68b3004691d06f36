"""Guard, token, record: acquire, release, update, verify, keeper and break, one step per system call.

Any process may stay between two of its steps for ever, so pauses need no moves of their own. A contender knows who is
alive: what is explored is the protocol in the files, for one boot and one pid namespace.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explorer import Move
from tests.model.outside import Outside
from tests.model.rules import BREAKABLE, CONVERGE, FRESH, TEMPS, UNCLAIMED, Rules
from tests.model.world import NOBODY, NONE, Process, Scenario, State, Thread, World

__all__ = ["Protocol", "Rules", "Scenario"]


class Protocol(Outside):
    """The moves of one scenario under given rules, and what must be true when all is at rest."""

    def moves(self, state: State) -> Iterator[Move[State]]:
        """Every step that a thread or the outside can make."""
        world = World(state)
        for index, thread in enumerate(state.threads):
            if not state.processes[thread.process].alive:
                continue
            label = self.step(world, index)
            if label is not None:  # else it has changed nothing
                world.check_owners()
                yield label, world.freeze(), world.broken
                world = World(state)
        if any(state.budget):
            for label, world in self._faults(state):
                world.check_owners()
                yield label, world.freeze(), world.broken

    # -- when all is at rest

    def at_rest(self, state: State) -> Iterator[str]:
        """Properties of a state in which nobody is inside an operation or has one to begin."""
        for thread in state.threads:
            process = state.processes[thread.process]
            if thread.at != "idle":
                return
            if any(self.may_begin(process, op) for op in thread.todo):
                return
        world = World(state)
        highest = max((process.held for process in world.processes), default=0)
        before = {process.held: number for number, process in enumerate(world.processes) if process.held}
        kept = set(self._kept(world))
        self._run_keepers(world)
        after = [number for number, process in enumerate(world.processes) if process.held]
        if kept == set(before.values()) and len(before) > 1:
            newest = before[highest]
            lost = bool(after) and newest not in after and world.processes[newest].evicted != "break"
            if len(after) > 1 or lost:
                yield CONVERGE
        yield from self._at_record(world)
        yield from self._fresh(world)

    def _run_keepers(self, world: World) -> None:
        for _ in range(3):
            for index, thread in enumerate(world.threads):
                if thread.keeper and world.processes[thread.process].alive:
                    self._run(world, index)

    def _run(self, world: World, index: int) -> None:
        """Let one thread finish its operation alone."""
        for _ in range(80):
            if self.step(world, index) is None or world.threads[index].at == "idle":
                return

    def _at_record(self, world: World) -> Iterator[str]:
        number = world.record_at(world.path)
        if number != NONE:
            record = world.file(number)
            owner = world.processes[record.owner] if record.intact else Process(alive=False)
            if owner.alive and owner.held != record.token:
                yield UNCLAIMED

    def _half_broken(self, world: World) -> bool:
        """Did an operator die after the record went, before the guard was blanked? That break is to be repeated."""
        guard = world.directory(world.path).guard if world.path != NONE else NONE
        owner = world.file(guard).owner if guard != NONE else NOBODY
        return world.record_at(world.path) == NONE and owner != NOBODY and bool(world.processes[owner].held)

    def _fresh(self, world: World) -> Iterator[str]:
        """A fresh process acquires, alone."""
        world.broken = ()
        number = len(world.processes)
        world.processes.append(Process())
        world.threads.append(Thread(number, ("acquire",)))
        believers = [process for process in world.processes if process.held and process.evicted != "break"]
        index = len(world.threads) - 1
        self._run(world, index)
        while world.threads[index].at == "settle":
            self._run_keepers(world)
            self._run(world, index)
        world.check_owners()
        yield from world.broken
        if not world.processes[number].held:
            if not believers and not self._half_broken(world):
                yield FRESH
            world.threads[index] = Thread(number, ("break", "acquire"))
            self._run(world, index)
            self._run(world, index)
            if not world.processes[number].held and world.threads[index].at != "settle":
                yield BREAKABLE
        elif world.path != NONE:
            temps = world.directory(world.path).temps
            if any(not world.processes[owner].alive for owner in temps):
                yield TEMPS
