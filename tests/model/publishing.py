"""Under the guard: drawing a token, taking a record out of the way, publishing our own, and unwinding."""

from __future__ import annotations

from tests.model.guarded import Guarded
from tests.model.rules import BROKEN, FOREIGN, GROWING, LATER, WOKEN, Rules
from tests.model.world import INDEX, NOBODY, NONE, File, Publication, Scenario, Thread, World


class Publishing(Guarded):
    """What an operation does once it has decided."""

    def __init__(self, scenario: Scenario, rules: Rules | None = None) -> None:
        super().__init__(scenario, rules)
        self.steps |= {
            "sweep": self._sweep,
            "stamp": self._stamp,
            "compare": self._compare,
            "unlink": self._unlink,
            "temp": self._temp,
            "link": self._link,
            "untemp": self._untemp,
            "late stamp": self._late_stamp,
            "late sweep": self._sweep,
            "post": self._post,
            "return": self._return,
            "withdraw": self._withdraw,
            "withdraw unlink": self._withdraw_unlink,
            "drop temp": self._drop_temp,
            "blank": self._blank,
            "blank first": self._blank_first,
            "rename": self._rename,
            "bump": self._bump,
            "inert": self._inert,
            "unlink guard": self._unlink_guard,
        }

    # -- tokens and temporary files

    def _next_token(self, world: World, thread: Thread, above_record: bool) -> int:
        token = world.clock + 1 if self.rules.token_from_clock else 1
        if world.budget[INDEX["clock stands"]] and world.published:
            world.spend("clock stands")
            token -= 1
        else:
            world.clock += 1
        if self.rules.token_above_guard:
            token = max(token, world.file(thread.guard).token + 1)
        if above_record and thread.judged != NONE and world.file(thread.judged).intact:
            token = max(token, world.file(thread.judged).token + 1)
        return token

    def _dead_temps(self, world: World, thread: Thread) -> tuple[int, ...]:
        """Processes whose temporary file a successor unlinks: the one the guard names, and the evicted owner."""
        temps = world.directory(thread.directory).temps
        if not temps:
            return ()
        named = []
        if self.rules.sweep_guard_identity:
            named.append(world.file(thread.guard).owner)
        if thread.judged != NONE and world.file(thread.judged).intact and self.rules.sweep_evicted_owner:
            named.append(world.file(thread.judged).owner)
        return tuple(owner for owner in named if owner in temps and not world.processes[owner].alive)

    def _sweep(self, world: World, index: int, thread: Thread) -> str:
        dead = self._dead_temps(world, thread)
        if dead:
            self._remove_temp(world, thread.directory, dead[0])
        if not self._dead_temps(world, thread):
            after = "blank" if thread.op == "break" else "stamp"
            world.thread(index, at=after if thread.at == "sweep" else "return")
        return "unlinks the temporary file of a dead process"

    def _stamp(self, world: World, index: int, thread: Thread) -> str:
        if thread.op == "keep" or thread.op == "verify":
            guard = world.file(thread.guard)
            world.files[thread.guard] = guard._replace(owner=thread.process, token=thread.token)
        else:
            token = self._next_token(world, thread, self.rules.token_above_record)
            world.thread(index, token=token)
            if self.rules.stamp_before_link:
                self._write_guard(world, thread, token)
        world.thread(index, at="compare")
        if thread.judged == NONE:
            self._publish_next(world, index)
        return f"token {world.threads[index].token} and identity into the guard"

    def _write_guard(self, world: World, thread: Thread, token: int) -> None:
        guard = world.file(thread.guard)
        world.files[thread.guard] = guard._replace(
            owner=thread.process if self.rules.stamp_identity else NOBODY,
            token=token if self.rules.stamp_token else guard.token,
        )

    def _bump(self, world: World, index: int, thread: Thread) -> str:
        token = self._next_token(world, thread, self.rules.bump_above_record)
        world.files[thread.guard] = world.file(thread.guard)._replace(token=token)
        world.thread(index, at="compare", token=token)
        if thread.judged == NONE:
            self._leave_guard(world, index)
        return f"token {token} into the guard"

    def _temp(self, world: World, index: int, thread: Thread) -> str:
        entry = world.directory(thread.directory)
        if not entry.removed and thread.process not in entry.temps:
            world.name(thread.directory, temps=tuple(sorted((*entry.temps, thread.process))))
        world.thread(index, at="rename" if thread.op == "update" else "link")
        return "writes the temporary file"

    def _remove_temp(self, world: World, directory: int, process: int) -> None:
        entry = world.directory(directory)
        world.name(directory, temps=tuple(owner for owner in entry.temps if owner != process))

    # -- taking a record out of the way

    def _compare(self, world: World, index: int, thread: Thread) -> str:
        """Is the record at the path still the one that was judged? Without a gap the unlink belongs to this step."""
        current = world.record_at(thread.directory)
        if self.rules.remove_only_judged and current != thread.judged:
            if thread.op in ("release", "break"):
                self._leave_guard(world, index)
                return "the record is another by now"
            if thread.op == "keep" and not thread.token:
                self._cleaned(world, index)
                return "the leftover is gone by now"
            if current != NONE:
                self._unwind(world, index, leaving=False)
                return "the record is another by now, starts again"
            self._publish_next(world, index)
            return "the record is gone by now"
        if not self.scenario.gap:
            return self._unlink(world, index, thread)
        world.thread(index, at="unlink")
        return "the record is the judged one"

    def _unlink(self, world: World, index: int, thread: Thread) -> str:
        number = world.record_at(thread.directory)
        if number != NONE:
            self._note_removal(world, thread, number)
            world.name(thread.directory, record=NONE)
            self._note_release(world, thread)
        if thread.op in ("release", "break"):
            self._leave_guard(world, index)
        elif thread.op == "keep" and not thread.token:
            self._cleaned(world, index)
        else:
            self._publish_next(world, index)
        return "unlinks the record"

    def _note_removal(self, world: World, thread: Thread, number: int) -> None:
        """Check that the record that goes may go, and remember an eviction."""
        record = world.file(number)
        at_path = world.path == thread.directory
        foreign = record.owner not in (NOBODY, thread.process) and world.processes[record.owner].alive and at_path
        if thread.op in ("acquire", "break") and number == thread.judged:
            if thread.op == "break" and (at_path or not self.rules.break_post_check):
                world.evict(record, "break")
            return
        if foreign:
            if thread.op in ("keep", "verify") and (record.token < thread.token or not record.intact):
                world.evict(record, "outside")  # it got in only because our files were deleted
            else:
                world.violate(FOREIGN)

    def _note_release(self, world: World, thread: Thread) -> None:
        """Whoever waits for the record to go looks at the guard next, without locking it."""
        releases = thread.op == "release" or (thread.op == "keep" and not thread.token)
        if releases and thread.guard != NONE and world.file(thread.guard).owner == thread.process:
            world.violate(WOKEN)

    def _blank_or_compare(self, world: World, index: int) -> None:
        """Our own record may go: before it does, the guard stops naming us."""
        first = self.rules.blank_before_unlink and self._blanks(world, world.threads[index])
        world.thread(index, at="blank first" if first else "compare")

    def _leave_guard(self, world: World, index: int) -> None:
        """After a release or break: blank the identity where it is the ended claim's, then unlock."""
        thread = world.threads[index]
        if thread.guard == NONE or not self._blanks(world, thread):
            self._done(world, index)
        elif thread.op == "break" and self._dead_temps(world, thread):
            world.thread(index, at="sweep")
        else:
            world.thread(index, at="blank")

    def _blanks(self, world: World, thread: Thread) -> bool:
        if thread.guard == NONE:
            return False
        guard = world.file(thread.guard)
        if thread.op == "break":
            broken = world.file(thread.judged).owner if thread.judged != NONE else guard.owner
            return self.rules.blank_after_break and guard.owner != NOBODY and guard.owner == broken
        named = guard.owner == thread.process and not world.processes[thread.process].held
        if thread.op == "keep" and not thread.token:
            return named
        if thread.op == "release":
            return (self.rules.blank_at_release and named) or (
                self.rules.token_at_release and guard.token < thread.token
            )
        return self.rules.blank_after_failure and bool(thread.token) and self._named(world, thread)

    def _blank_first(self, world: World, index: int, thread: Thread) -> str:
        self._write_nobody(world, thread)
        world.thread(index, at="compare")
        return "blanks the identity in the guard"

    def _write_nobody(self, world: World, thread: Thread) -> None:
        guard = world.file(thread.guard)
        token = max(guard.token, thread.token) if self.rules.token_at_release else guard.token
        owner = NOBODY if thread.op != "release" or self.rules.blank_at_release else guard.owner
        world.files[thread.guard] = guard._replace(owner=owner, token=token)

    def _blank(self, world: World, index: int, thread: Thread) -> str:
        if thread.op == "break" and self._still_there(world, thread) and world.record_at(world.path) == NONE:
            world.evict(world.file(thread.guard), "break")
        self._write_nobody(world, thread)
        if thread.op == "keep" and not thread.token:
            world.process(thread.process, leftover=0)
        if thread.op == "acquire":
            self._unwound(world, index)
        elif thread.op in ("release", "break"):
            self._done(world, index)
        else:
            self._tick(world, index)
        return "blanks the identity in the guard"

    def _done(self, world: World, index: int) -> None:
        thread = world.threads[index]
        if thread.op == "release" and not self.rules.guard_stays and thread.guard != NONE:
            world.thread(index, at="unlink guard")
        elif thread.op == "break" and thread.token and self.rules.break_post_check:
            world.thread(index, at="post")
        elif thread.op == "release" and not self.rules.inert_first:
            world.unlock(index)
            world.thread(index, at="inert")
        else:
            world.finish(index)

    def _unlink_guard(self, world: World, index: int, thread: Thread) -> str:
        if world.directory(thread.directory).guard == thread.guard:
            world.name(thread.directory, guard=NONE)
        world.finish(index)
        return "unlinks the guard"

    def _inert(self, world: World, index: int, thread: Thread) -> str:
        world.process(thread.process, held=0)
        world.finish(index)
        return "the handle is inert"

    def _cleaned(self, world: World, index: int) -> None:
        thread = world.threads[index]
        if world.processes[thread.process].leftover and self._blanks(world, thread):
            world.thread(index, at="blank")
        else:
            world.process(thread.process, leftover=0)
            self._tick(world, index)

    # -- publishing

    def _publish_next(self, world: World, index: int) -> None:
        world.thread(index, at="temp" if self.scenario.named_temps else "link")

    def _link(self, world: World, index: int, thread: Thread) -> str:
        entry = world.directory(thread.directory)
        if entry.removed:
            self._unwind(world, index, leaving=False)
            return "link: no such directory, starts again"
        if entry.record != NONE:
            if self.rules.link_never_replaces:
                self._unwind(world, index, leaving=False)
                return "link: a record is there, starts again"
            self._note_removal(world, thread, entry.record)
        number = world.create(File(thread.process, thread.token))
        world.name(thread.directory, record=number)
        if thread.op == "acquire":
            world.process(thread.process, evicted="", leftover=0)
            if world.path == thread.directory:
                world.published = (*world.published, Publication(thread.process, thread.token))
        world.thread(index, at="untemp" if self.scenario.named_temps else self._after_link(thread))
        return f"links its record, token {thread.token}"

    def _after_link(self, thread: Thread) -> str:
        if thread.op == "acquire":
            if not self.rules.stamp_before_link:
                return "late stamp"
            return "post" if self.rules.post_check else "return"
        return "post"

    def _late_stamp(self, world: World, index: int, thread: Thread) -> str:
        self._write_guard(world, thread, thread.token)
        world.thread(index, at="post" if self.rules.post_check else "return")
        return f"token {thread.token} and identity into the guard"

    def _untemp(self, world: World, index: int, thread: Thread) -> str:
        self._remove_temp(world, thread.directory, thread.process)
        world.thread(index, at=self._after_link(thread))
        return "unlinks its temporary file"

    def _post(self, world: World, index: int, thread: Thread) -> str:
        if thread.op == "break":
            return self._post_break(world, index, thread)
        keeping = thread.op != "acquire"
        number = world.record_at(thread.directory)
        record = world.file(number) if number != NONE else None
        ours = record is not None and record.owner == thread.process and record.token == thread.token
        if keeping and not self.rules.keeper_post_check:
            ours = True
        elif ours:
            ours = self._still_there(world, thread)
        if keeping and world.processes[thread.process].held != thread.token:
            ours = False
        if not ours:
            world.thread(index, at="withdraw")
            return "directory, guard or record at the path changed: withdraws"
        if keeping:
            self._republished(world, index, thread)
            return "directory, guard and record are those at the path: republished"
        late = not self.rules.sweep_before_stamp and self._dead_temps(world, thread)
        world.thread(index, at="late sweep" if late else "return")
        return "directory, guard and record are those at the path"

    def _post_break(self, world: World, index: int, thread: Thread) -> str:
        if self._still_there(world, thread):
            world.finish(index)
            return "directory and guard are those at the path: done"
        self._again(world, index)
        return "directory or guard at the path is another, starts again"

    def _return(self, world: World, index: int, thread: Thread) -> str:
        process = thread.process
        mine = Publication(process, thread.token)
        if mine not in world.published:
            world.published = (*world.published, mine)
        position = len(world.published) - 1 - world.published[::-1].index(mine)
        for number, other in enumerate(world.published):
            counts = other.returned or not world.processes[other.process].alive
            if number != position and counts and (number < position) != (other.token < thread.token):
                world.violate(GROWING)
        published = list(world.published)
        published[position] = mine._replace(returned=True)
        world.published = tuple(published)
        world.process(process, held=thread.token)
        if not self.rules.verify_by_path:
            world.process(process, pinned=thread.directory)
        world.finish(index)
        return "unlocks and returns a claim"

    def _rename(self, world: World, index: int, thread: Thread) -> str:
        entry = world.directory(thread.directory)
        if not entry.removed:
            if entry.record != NONE:
                self._note_removal(world, thread, entry.record)
            heir = world.file(thread.judged).heir if thread.judged != NONE else 0
            number = world.create(File(thread.process, thread.token, heir=heir))
            world.name(thread.directory, record=number)
            self._remove_temp(world, thread.directory, thread.process)
        world.finish(index)
        return "renames over the record"

    def _republished(self, world: World, index: int, thread: Thread) -> None:
        """The own record is back; whatever an outsider did to it is undone."""
        if world.processes[thread.process].held != thread.token:
            self._tick(world, index)
            return
        if world.processes[thread.process].evicted == "outside":
            world.process(thread.process, evicted="")
        self._passes(world, index, thread)

    def _passes(self, world: World, index: int, thread: Thread) -> None:
        """The record is ours; for verify this is a promise to the caller."""
        if thread.op == "verify":
            process = world.processes[thread.process]
            mine = Publication(thread.process, process.held, returned=True)
            later = world.published[world.published.index(mine) + 1 :]
            if any(other.returned for other in later):
                world.violate(LATER)
            if process.evicted == "break":
                world.violate(BROKEN)
        self._tick(world, index)

    # -- unwinding

    def _unwind(self, world: World, index: int, leaving: bool) -> None:
        """Leave the guard without a claim: after a failure for good, else to start again."""
        thread = world.threads[index]
        if leaving and not thread.token:
            world.finish(index)
            return
        world.thread(index, leaving=leaving)
        if leaving and self.rules.withdraw_on_failure:
            world.thread(index, at="withdraw")
        else:
            self._withdrawn(world, index)

    def _withdraw(self, world: World, index: int, thread: Thread) -> str:
        number = world.record_at(thread.directory)
        record = world.file(number) if number != NONE else None
        ours = record is not None and record.owner == thread.process and record.token == thread.token
        if record is not None and (ours or not self.rules.withdraw_only_own):
            if self.scenario.gap:
                world.thread(index, at="withdraw unlink")
                return "the record is there to withdraw"
            return self._withdraw_unlink(world, index, thread)
        self._withdrawn(world, index)
        return "no record of ours to withdraw"

    def _withdraw_unlink(self, world: World, index: int, thread: Thread) -> str:
        number = world.record_at(thread.directory)
        if number != NONE:
            self._note_removal(world, thread, number)
            world.name(thread.directory, record=NONE)
            if thread.op in ("keep", "verify") and not self._still_there(world, thread):
                world.evict(File(thread.process), "outside")  # its guard was deleted, or its directory
        if thread.op == "acquire":
            mine = Publication(thread.process, thread.token)
            world.published = tuple(entry for entry in world.published if entry != mine)
        self._withdrawn(world, index)
        return "withdraws the record"

    def _withdrawn(self, world: World, index: int) -> None:
        thread = world.threads[index]
        if thread.process in world.directory(thread.directory).temps:
            world.thread(index, at="drop temp")
        else:
            self._blank_withdrawn(world, index)

    def _blank_withdrawn(self, world: World, index: int) -> None:
        thread = world.threads[index]
        if thread.op in ("acquire", "adopt") and self._blanks(world, thread):
            world.thread(index, at="blank")
        else:
            self._unwound(world, index)

    def _drop_temp(self, world: World, index: int, thread: Thread) -> str:
        self._remove_temp(world, thread.directory, thread.process)
        self._blank_withdrawn(world, index)
        return "unlinks its temporary file"

    def _unwound(self, world: World, index: int) -> None:
        thread = world.threads[index]
        if thread.leaving:
            world.finish(index)
        else:
            self._again(world, index)
