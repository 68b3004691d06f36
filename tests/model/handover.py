"""Handing a claim on: a parent offers it and stays the owner until a child puts its own record in the parent's place.

`offer`: P writes the hash of a secret into its record. `adopt`: a child that knows the secret replaces the record; the
hash stays in it. `close`: P sees an adoption, or takes the hash out again. The hash is a number here; the children,
whose names begin with K, have it from the moment of the offer, as if forked then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model.protocol import Protocol, Rules
from tests.model.world import NOBODY, NONE, File, Process, Publication, Scenario, State, Thread, World

GAP = "no contender gets in between parent and child"
ANSWER = "the parent learns what became of its offer"
KEPT = "a parent whose heir failed keeps owning"
SECRET = 1


@dataclass(frozen=True)
class HandoverRules(Rules):
    """The rules of the protocol and those of a handover; False removes one rule."""

    parent_stays: bool = True  # until the adoption; it does not release first
    close_takes_guard: bool = True
    close_blanks: bool = True  # a parent that is no longer the owner blanks its identity in the guard
    adopt_takes_guard: bool = True
    adopt_checks_hash: bool = True
    adopt_checks_parent: bool = True  # the record is still the parent's, with the parent's token
    adopt_replaces: bool = True  # by rename: at no time is there no record
    adopt_draws_token: bool = True  # a higher one, as in an acquire
    adopt_stamps: bool = True  # token and identity into the guard
    adopt_renames_first: bool = True  # only then the guard: a child that dies before leaves it to its parent
    adopt_post_check: bool = True
    adopt_blanks: bool = True  # if it fails after it wrote the guard
    adoption_noted: bool = True  # a parent's keeper that sees the hash in a foreign record remembers it
    guard_remembers: bool = True  # the guard keeps the hash of the last adoption, whatever follows


class Handover(Protocol):
    """The moves of one scenario, in which P offers and K may adopt."""

    rules: HandoverRules

    def __init__(self, scenario: Scenario, rules: HandoverRules | None = None) -> None:
        super().__init__(scenario, rules if rules is not None else HandoverRules())
        self.parent = self.names.index("P")
        self.heirs = [number for number, name in enumerate(self.names) if name.startswith("K")]
        self.steps |= {
            "offer": self._offer,
            "adopt stamp": self._adopt_stamp,
            "adopt unlink": self._adopt_unlink,
            "adopt": self._adopt,
            "adopt post": self._adopt_post,
            "close": self._close,
        }

    def may_begin(self, process: Process, op: str) -> bool:
        """The child was forked inside the offer; closing ends an offer."""
        if op == "offer":
            return bool(process.held)
        if op in ("adopt", "close"):
            return bool(process.heir)
        return super().may_begin(process, op)

    def takes_guard(self, op: str) -> bool:
        """Every change is made inside the guard."""
        if op == "close":
            return self.rules.close_takes_guard
        if op == "adopt":
            return self.rules.adopt_takes_guard
        return super().takes_guard(op)

    def _read(self, world: World, index: int, thread: Thread) -> str:
        number = world.record_at(thread.directory)
        record = world.file(number) if number != NONE else None
        if thread.op == "offer":
            return self._read_offer(world, index, thread, record)
        if thread.op == "adopt":
            world.thread(index, judged=number)
            return self._read_adopt(world, index, record)
        if thread.op == "close":
            return self._read_close(world, index, thread, record)
        return super()._read(world, index, thread)

    # -- the parent

    def _read_offer(self, world: World, index: int, thread: Thread, record: File | None) -> str:
        if record is None or not record.intact or (record.owner, record.token) != (thread.process, thread.token):
            world.finish(index)
            return "the record is not ours"
        world.thread(index, at="offer")
        return "the record is ours"

    def _offer(self, world: World, index: int, thread: Thread) -> str:
        if not world.directory(thread.directory).removed:
            if self.rules.parent_stays:
                number = world.create(File(thread.process, thread.token, heir=SECRET))
                world.name(thread.directory, record=number)
            else:
                world.name(thread.directory, record=NONE)
                world.process(thread.process, held=0)
                world.files[thread.guard] = world.file(thread.guard)._replace(owner=NOBODY)
        world.process(thread.process, heir=SECRET)
        for number in self.heirs:
            world.process(number, heir=SECRET)
        world.finish(index)
        return "puts the hash into its record"

    def _read_close(self, world: World, index: int, thread: Thread, record: File | None) -> str:
        held = world.processes[thread.process].held
        noted = world.processes[thread.process].answer == "adopted"
        guard = world.file(thread.guard) if thread.guard != NONE else File()
        if record is not None and record.intact and (record.owner, record.token) == (thread.process, held):
            world.thread(index, at="close")
            return "the record is ours"
        marked = record is not None and record.intact and record.heir == SECRET
        if guard.heir == SECRET or marked or noted:
            self._answer(world, index, "adopted")
        elif not held or guard.token > held or (record is not None and record.intact and record.token >= held):
            self._answer(world, index, "lost")
        else:
            self._answer(world, index, "kept")
        return "the record is not ours"

    def _close(self, world: World, index: int, thread: Thread) -> str:
        entry = world.directory(thread.directory)
        if not entry.removed:
            if entry.record != NONE:
                self._note_removal(world, thread, entry.record)
            number = world.create(File(thread.process, thread.token))
            world.name(thread.directory, record=number)
        self._answer(world, index, "kept")
        return "takes the hash out of its record"

    def _took(self, world: World) -> bool:
        """Has a child replaced the record at some time?"""
        return any(world.processes[number].answer == "took" for number in self.heirs)

    def _answer(self, world: World, index: int, answer: str) -> None:
        thread = world.threads[index]
        took = self._took(world)
        returned = any(entry.process in self.heirs and entry.returned for entry in world.published)
        if (answer == "adopted" and not took) or (answer != "adopted" and returned):
            world.violate(ANSWER)
        held = world.processes[thread.process].held if answer == "kept" else 0
        world.process(thread.process, heir=0, answer=answer, held=held)
        named = thread.guard != NONE and world.file(thread.guard).owner == thread.process
        if named and not held and self.rules.close_blanks:
            world.thread(index, at="blank")
        else:
            world.finish(index)

    # -- the child

    def _read_adopt(self, world: World, index: int, record: File | None) -> str:
        offered = record is not None and record.intact
        if record is not None and self.rules.adopt_checks_parent:
            offered = offered and record.owner == self.parent
        if record is None or not offered or (self.rules.adopt_checks_hash and record.heir != SECRET):
            world.finish(index)
            return "the record does not name this heir: fails"
        world.thread(index, token=record.token)
        if not self.rules.adopt_renames_first and self.rules.adopt_stamps:
            world.thread(index, at="adopt stamp")
        else:
            world.thread(index, at="adopt" if self.rules.adopt_replaces else "adopt unlink")
        return "the record names this heir"

    def _adopted_token(self, world: World, index: int) -> int:
        thread = world.threads[index]
        if not self.rules.adopt_draws_token or thread.guard == NONE:
            return thread.token
        return self._next_token(world, thread, above_record=True)

    def _adopt_stamp(self, world: World, index: int, thread: Thread) -> str:
        token = thread.token if self.rules.adopt_renames_first else self._adopted_token(world, index)
        remembered = SECRET if self.rules.guard_remembers else 0
        guard = world.file(thread.guard)
        world.files[thread.guard] = guard._replace(owner=thread.process, token=token, heir=remembered)
        if self.rules.adopt_renames_first:
            world.thread(index, at=self._after_adoption())
        else:
            world.thread(index, token=token, at="adopt" if self.rules.adopt_replaces else "adopt unlink")
        return f"token {token}, identity and hash into the guard"

    def _after_adoption(self) -> str:
        return "adopt post" if self.rules.adopt_post_check else "return"

    def _adopt_unlink(self, world: World, index: int, thread: Thread) -> str:
        world.name(thread.directory, record=NONE)
        world.thread(index, at="adopt")
        return "unlinks the parent's record"

    def _adopt(self, world: World, index: int, thread: Thread) -> str:
        entry = world.directory(thread.directory)
        if entry.removed:
            world.finish(index)
            return "no such directory: fails"
        renames_first = self.rules.adopt_renames_first or not self.rules.adopt_stamps
        token = self._adopted_token(world, index) if renames_first else thread.token
        if entry.record != NONE:
            self._note_adoption(world, thread, entry.record)
        number = world.create(File(thread.process, token, heir=SECRET))
        world.name(thread.directory, record=number)
        if world.path == thread.directory:
            world.published = (*world.published, Publication(thread.process, token))
            world.process(thread.process, answer="took")
            if world.processes[self.parent].heir and world.processes[self.parent].held:
                world.process(self.parent, evicted="handover")
        stamps = self.rules.adopt_stamps and self.rules.adopt_renames_first and thread.guard != NONE
        world.thread(index, token=token, at="adopt stamp" if stamps else self._after_adoption())
        return f"renames its record, token {token}, over the parent's"

    def _note_adoption(self, world: World, thread: Thread, number: int) -> None:
        record = world.file(number)
        if record.owner != self.parent:
            self._note_removal(world, thread, number)

    def _adopt_post(self, world: World, index: int, thread: Thread) -> str:
        number = world.record_at(thread.directory)
        record = world.file(number) if number != NONE else None
        ours = record is not None and (record.owner, record.token) == (thread.process, thread.token)
        if ours and (thread.guard == NONE or self._still_there(world, thread)):
            world.thread(index, at="return")
            return "directory, guard and record are those at the path"
        world.thread(index, at="withdraw", leaving=True)
        return "directory, guard or record at the path changed: withdraws"

    def _withdraw_unlink(self, world: World, index: int, thread: Thread) -> str:
        if thread.op == "adopt":
            mine = Publication(thread.process, thread.token)
            world.published = tuple(entry for entry in world.published if entry != mine)
            if world.processes[self.parent].held:
                world.process(self.parent, evicted="outside")
        return super()._withdraw_unlink(world, index, thread)

    def _republished(self, world: World, index: int, thread: Thread) -> None:
        """Whoever died before its adoption returned never owned."""
        adopted = any(entry.process in self.heirs and entry.returned for entry in world.published)
        if world.processes[thread.process].evicted == "handover" and not adopted:
            world.process(thread.process, evicted="")
        super()._republished(world, index, thread)

    def lose(self, world: World, process: int, record: File | None) -> None:
        """While an offer is open, the hash in the foreign record says that it was adopted."""
        super().lose(world, process, record)
        adopted = record is not None and record.heir == SECRET and world.processes[process].heir
        if adopted and self.rules.adoption_noted and process == self.parent:
            world.process(process, answer="adopted")

    def _directory(self, world: World, index: int, thread: Thread) -> str:
        if thread.op == "close" and world.path == NONE:
            process = world.processes[thread.process]
            self._answer(world, index, process.answer or ("kept" if process.held else "lost"))
            return "no lock directory"
        return super()._directory(world, index, thread)

    def _blank(self, world: World, index: int, thread: Thread) -> str:
        text = super()._blank(world, index, thread)
        if thread.op == "adopt" and thread.leaving:
            world.finish(index)
        return text

    def _blanks(self, world: World, thread: Thread) -> bool:
        if thread.op == "adopt":
            return self.rules.adopt_blanks and self._named(world, thread)
        return super()._blanks(world, thread)

    def _return(self, world: World, index: int, thread: Thread) -> str:
        parent = world.processes[self.parent]
        evicted = parent.evicted or world.processes[thread.process].evicted
        if thread.op == "adopt":
            world.process(thread.process, heir=0)
        elif parent.alive and parent.heir and thread.process != self.parent and not (evicted or self._took(world)):
            world.violate(GAP)
        return super()._return(world, index, thread)

    def at_rest(self, state: State) -> Iterator[str]:
        """The parent does not lose its claim because its heir failed."""
        yield from super().at_rest(state)
        parent = state.processes[self.parent]
        outside = any(state.budget[position] != initial for position, initial in self._outsiders())
        others = any(entry.process not in (self.parent, NOBODY) for entry in state.published)
        if parent.alive and parent.answer == "lost" and not (outside or others or parent.evicted == "break"):
            yield KEPT

    def _interrupts(self, state: State) -> Iterator[tuple[str, World]]:
        yield from super()._interrupts(state)
        for index, thread in enumerate(state.threads):
            if thread.op == "adopt" and thread.at not in ("idle", "withdraw", "withdraw unlink", "blank"):
                world = World(state)
                world.spend("interrupt")
                if thread.at in ("adopt stamp", "adopt post", "return") and self.rules.adopt_renames_first:
                    world.thread(index, at="withdraw", leaving=True)
                else:
                    world.finish(index)
                yield f"{self.names[thread.process]} adopt: interrupted", world

    def _outsiders(self) -> Iterator[tuple[int, int]]:
        for position, initial in enumerate(self.initial().budget):
            if position > 2:
                yield position, initial
