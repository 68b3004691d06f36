"""The way into the guard and out of it, the same for every operation."""

from __future__ import annotations

from collections.abc import Callable

from tests.model.rules import MAX_TRIES, NEED_CLAIM, Rules
from tests.model.world import NOBODY, NONE, File, Process, Scenario, State, Thread, World

Step = Callable[[World, int, Thread], "str | None"]


class Guarded:
    """A scenario under given rules: directory, guard, lock, check."""

    def __init__(self, scenario: Scenario, rules: Rules | None = None) -> None:
        self.scenario = scenario
        self.rules = rules if rules is not None else Rules()
        self.names = scenario.names()
        self.steps: dict[str, Step] = {
            "directory": self._directory,
            "guard": self._guard,
            "lock": self._lock,
            "check": self._check,
        }

    def initial(self) -> State:
        """The state the scenario starts in."""
        return self.scenario.initial()

    def step(self, world: World, index: int) -> str | None:
        """One system call of a thread; None if it is blocked or has nothing to do."""
        thread = world.threads[index]
        text = self.steps[thread.at](world, index, thread)
        if text is None:
            return None
        op = thread.op or world.begun
        return f"{self.names[thread.process]}{'.keeper' if thread.keeper else ''} {op}: {text}"

    def may_begin(self, process: Process, op: str) -> bool:
        """A handle that is released or lost is inert."""
        return bool(process.held) or op not in NEED_CLAIM

    def takes_guard(self, op: str) -> bool:
        """Every change is made inside the guard."""
        if op == "release":
            return self.rules.release_takes_guard
        return op != "update" or self.rules.update_takes_guard

    def _directory(self, world: World, index: int, thread: Thread) -> str:
        text = "opens the lock directory"
        if world.path == NONE:
            if thread.op not in ("acquire", "verify", "keep") or (thread.op == "keep" and not thread.token):
                if thread.op == "keep":
                    world.process(thread.process, leftover=0)
                world.finish(index)
                return "no lock directory"
            world.make_directory()
            text = "makes the lock directory"
        world.thread(index, directory=world.path, at="guard" if self.takes_guard(thread.op) else "read")
        return text

    def _guard(self, world: World, index: int, thread: Thread) -> str:
        entry = world.directory(thread.directory)
        if entry.removed:
            self._again(world, index)
            return "open guard: no such directory, starts again"
        guard = entry.guard
        text = "opens the guard"
        if guard == NONE:
            guard = world.create(File())
            world.name(thread.directory, guard=guard)
            text = "creates the guard"
        world.thread(index, guard=guard, at="lock")
        return text

    def _lock(self, world: World, index: int, thread: Thread) -> str | None:
        if self.rules.lock_guard:
            if world.file(thread.guard).locked != NOBODY:
                if thread.op == "keep":
                    self._tick(world, index)
                    return "the guard is busy, comes back next tick"
                return None
            world.files[thread.guard] = world.file(thread.guard)._replace(locked=index)
        world.thread(index, at="check")
        return "locks the guard"

    def _check(self, world: World, index: int, thread: Thread) -> str:
        if self.rules.check_after_lock and not self._still_there(world, thread):
            self._again(world, index)
            return "directory or guard at the path is another, starts again"
        world.thread(index, at="read")
        return "directory and guard are those at the path"

    def _still_there(self, world: World, thread: Thread) -> bool:
        return world.path == thread.directory and world.directory(thread.directory).guard == thread.guard

    def _again(self, world: World, index: int) -> None:
        """Let the guard go and start again; a keeper comes back with its next tick."""
        thread = world.threads[index]
        world.unlock(index)
        if thread.op == "keep":
            self._tick(world, index)
        elif thread.tries == MAX_TRIES:
            if thread.op == "release":
                world.process(thread.process, leftover=thread.token)
            world.finish(index)
        else:
            token = 0 if thread.op in ("acquire", "break", "adopt") else thread.token
            world.threads[index] = Thread(
                thread.process, thread.todo, False, thread.op, "directory", token=token, tries=thread.tries + 1
            )

    def _tick(self, world: World, index: int) -> None:
        """The end of a keeper's tick or of a verify."""
        thread = world.threads[index]
        ticks = world.processes[thread.process].ticks
        if thread.keeper and ticks:
            world.process(thread.process, ticks=ticks - 1)
        world.finish(index)

    def _named(self, world: World, thread: Thread) -> bool:
        """Does the locked guard name this process and token?"""
        guard = world.file(thread.guard)
        return guard.owner == thread.process and guard.token == thread.token

    def _kept(self, world: World) -> list[int]:
        """Live owners whose keeper is running."""
        keepers = {thread.process for thread in world.threads if thread.keeper}
        return [number for number in keepers if world.processes[number].alive and world.processes[number].held]
