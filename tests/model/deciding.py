"""What an operation makes of the record and of the guard's content."""

from __future__ import annotations

from tests.model.publishing import Publishing
from tests.model.rules import LEFTOVER, RELEASED, WAITED_TICKS, Rules
from tests.model.world import NOBODY, NONE, File, Scenario, Thread, World


class Deciding(Publishing):
    """Reading and judging, with the guard locked or, for a look, without."""

    def __init__(self, scenario: Scenario, rules: Rules | None = None) -> None:
        super().__init__(scenario, rules)
        self.steps |= {"idle": self._begin, "read": self._read, "settle": self._settle}

    def _begin(self, world: World, index: int, thread: Thread) -> str | None:
        process = world.processes[thread.process]
        if thread.keeper:
            if not (process.held or process.leftover):
                return None
            world.begun = "keep"
            world.thread(index, op="keep")
            return self._look(world, index, world.threads[index])
        for position, op in enumerate(thread.todo):
            if not self.may_begin(process, op):
                continue
            world.begun = op
            world.thread(index, op=op, todo=thread.todo[position + 1 :], at="directory")
            thread = world.threads[index]
            if op == "verify":
                return self._look(world, index, thread)
            if op == "release":
                world.thread(index, token=process.held)
                if self.rules.inert_first:
                    world.process(thread.process, held=0)
            if op not in ("acquire", "break", "adopt"):
                world.thread(index, token=process.held)
            return self._directory(world, index, world.threads[index])
        return None

    def _read(self, world: World, index: int, thread: Thread) -> str:
        number = world.record_at(thread.directory)
        world.thread(index, judged=number)
        record = world.file(number) if number != NONE else None
        if thread.op == "acquire":
            return self._judge(world, index, thread, record)
        if thread.op == "release":
            return self._read_release(world, index, thread, record)
        if thread.op == "update":
            return self._read_update(world, index, thread, record)
        if thread.op == "break":
            return self._read_break(world, index, record)
        return self._read_keeper(world, index, thread, record)

    # -- acquire

    def _judge(self, world: World, index: int, thread: Thread, record: File | None) -> str:
        guard = world.file(thread.guard)
        if record is None:
            if guard.owner != NOBODY and self.rules.absent_asks_guard:
                return self._judge_owner(world, index, thread, guard.owner, guard.token, "no record, guard")
            self._take(world, index)
            return "no record"
        if record.intact:
            return self._judge_owner(world, index, thread, record.owner, record.token, "record")
        if guard.owner != NOBODY:
            return self._judge_owner(world, index, thread, guard.owner, guard.token, "record malformed, guard")
        if self.rules.settle and not thread.settled:
            world.unlock(index)
            world.threads[index] = Thread(
                thread.process, thread.todo, False, thread.op, "settle", tries=thread.tries, settled=True
            )
            for number in self._kept(world):
                world.process(number, ticks=WAITED_TICKS)
            return "record malformed, guard names nobody: lets the guard go and waits"
        self._take(world, index)
        return "record malformed and nobody mended it: reclaims"

    def _judge_owner(self, world: World, index: int, thread: Thread, owner: int, token: int, source: str) -> str:
        if owner == thread.process:
            if world.processes[owner].held != token and self.rules.reclaim_own_leftover:
                self._take(world, index)
                return f"{source} names this process without a claim: reclaims"
            if world.processes[owner].held != token:
                world.violate(LEFTOVER)
            world.finish(index)
            return f"{source} names this process: refused"
        if world.processes[owner].alive:
            world.finish(index)
            return f"{source} names {self.names[owner]}, live: refused"
        self._take(world, index)
        return f"{source} names {self.names[owner]}, dead: reclaims"

    def _take(self, world: World, index: int) -> None:
        """Go on to take the resource."""
        world.thread(index, at="stamp")
        if self.rules.sweep_before_stamp and self._dead_temps(world, world.threads[index]):
            world.thread(index, at="sweep")

    def _settle(self, world: World, index: int, thread: Thread) -> str | None:
        if any(world.processes[number].ticks for number in self._kept(world)):
            return None
        world.thread(index, at="directory")
        return "has waited"

    # -- release, update, break

    def _read_release(self, world: World, index: int, thread: Thread, record: File | None) -> str:
        if record is not None and self._ours(world, thread, record):
            self._blank_or_compare(world, index)
            return "the record is ours"
        mine = record is not None and record.owner == thread.process and record.token == thread.token
        if mine and thread.guard != NONE and self._named(world, thread):
            world.violate(RELEASED)
        self._leave_guard(world, index)
        return "the record is not ours"

    def _ours(self, world: World, thread: Thread, record: File) -> bool:
        if thread.op == "release" and not self.rules.release_checks_record:
            return True
        if thread.op == "update" and not self.rules.update_checks_record:
            return True
        if record.intact:
            return record.owner == thread.process and record.token == thread.token
        if thread.guard == NONE or (thread.op == "release" and not self.rules.release_removes_damaged):
            return False
        return self._named(world, thread)

    def _read_update(self, world: World, index: int, thread: Thread, record: File | None) -> str:
        if record is not None and self._ours(world, thread, record):
            world.thread(index, at="temp" if self.scenario.named_temps else "rename")
            return "the record is ours"
        if record is not None and record.intact and record.token >= thread.token:
            self._lose_outside(world, thread.process, record)
        world.finish(index)
        return "the record is not ours"

    def _read_break(self, world: World, index: int, record: File | None) -> str:
        if record is None:
            if world.file(world.threads[index].guard).owner == NOBODY or not self.rules.break_without_record:
                world.finish(index)
                return "no record"
            world.thread(index, at="bump")
            return "no record, the guard names somebody"
        world.thread(index, at="bump" if self.rules.break_bumps else "compare")
        return f"record of {self.names[record.owner] if record.owner != NOBODY else 'nobody'}"

    # -- verify and keeper

    def _look(self, world: World, index: int, thread: Thread) -> str:
        """Look at the record by path, without the guard."""
        process = world.processes[thread.process]
        if not process.held:
            world.thread(index, at="directory", token=0)
            return "a record is left to withdraw"
        world.thread(index, token=process.held)
        pinned = thread.op == "verify" and not self.rules.verify_by_path
        number = world.record_at(process.pinned if pinned else world.path)
        record = world.file(number) if number != NONE else None
        if record is not None and record.intact:
            if record.owner == thread.process and record.token == process.held:
                self._passes(world, index, thread)
                return "the record is ours"
            if self._beats(record.token, process.held) or not self.rules.keeper_replaces_lower:
                self._lose_outside(world, thread.process, record)
                self._tick(world, index)
                return f"the record is {self.names[record.owner]}'s: loss"
        world.thread(index, at="directory")
        return "the record is missing, damaged or has a lower token"

    def lose(self, world: World, process: int, record: File | None) -> None:
        """The claim is lost; `record` is the foreign one that was seen, if any."""
        world.process(process, held=0)

    def _lose_outside(self, world: World, process: int, record: File) -> None:
        """Lost without a look into the guard, which may still name this process: its keeper sees to that."""
        if self.rules.loss_enters_guard:
            world.process(process, leftover=world.processes[process].held)
        self.lose(world, process, record)

    def _beats(self, other: int, own: int) -> bool:
        """Does another's token end a claim with ours?"""
        return other > own or (other == own and self.rules.equal_token_loses)

    def _read_keeper(self, world: World, index: int, thread: Thread, record: File | None) -> str:
        if not thread.token:
            return self._read_leftover(world, index, thread, record)
        held = world.processes[thread.process].held
        if held != thread.token and self.rules.keeper_rechecks_claim:
            self._tick(world, index)
            return "the claim is held no longer"
        own = thread.token
        guard = world.file(thread.guard)
        if record is not None and record.intact and record.owner == thread.process and record.token == own:
            self._passes(world, index, thread)
            return "the record is ours"
        readable = record is not None and record.intact
        other = guard.owner not in (NOBODY, thread.process)
        if self.rules.keeper_obeys_guard and (guard.token > own or (other and self._beats(guard.token, own))):
            return self._lose(world, index, thread, record, f"the guard has token {guard.token}")
        if readable and record is not None and self._beats(record.token, own) and self.rules.keeper_obeys_record:
            return self._lose(world, index, thread, record, f"the record has token {record.token}")
        if readable and not self.rules.keeper_replaces_lower:
            return self._lose(world, index, thread, record, "the record is another's")
        if self._dead_temps(world, thread):
            world.thread(index, at="sweep")
        elif self.rules.keeper_stamps:
            world.thread(index, at="stamp")
        elif record is not None:
            world.thread(index, at="compare")
        else:
            self._publish_next(world, index)
        return "nobody owns with a higher token"

    def _lose(self, world: World, index: int, thread: Thread, record: File | None, why: str) -> str:
        self.lose(world, thread.process, record)
        if self.rules.blank_at_loss and world.file(thread.guard).owner == thread.process:
            world.thread(index, at="blank")
        else:
            self._tick(world, index)
        return f"{why}: loss"

    def _read_leftover(self, world: World, index: int, thread: Thread, record: File | None) -> str:
        leftover = world.processes[thread.process].leftover
        guard = world.file(thread.guard)
        named = guard.owner == thread.process and guard.token == leftover
        mine = record is not None and record.owner == thread.process and record.token == leftover
        if mine and record is not None and leftover and (record.intact or named):
            self._blank_or_compare(world, index)
            return "the leftover is there"
        self._cleaned(world, index)
        return "no leftover of ours"
