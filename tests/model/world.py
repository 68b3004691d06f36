"""What the model is about: a lock directory, guard and record files, processes with threads, and an outside world.

A `State` is an immutable tuple of tuples. A `World` is one state opened for a step; `freeze` closes it into the next.
File and directory numbers are slots: a slot that nothing refers to is free again, as an inode is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

NOBODY = -1
NONE = -1

FAULTS = (
    "death",  # a process dies between two steps
    "interrupt",  # an exception unwinds the main thread of a process between two steps
    "failure",  # unlinking our own record, or blanking the guard, fails
    "record deleted",
    "record damaged",
    "record planted",  # an empty file appears under the name of the record
    "guard deleted",  # while nobody is inside it
    "guard deleted beside record",  # while nobody is inside it and a record is there
    "guard deleted inside",  # at any time: outside the promise
    "directory removed",
    "directory moved",  # it lives on elsewhere: pinned descriptors go on working in it
    "directory moved under keeper",  # while a keeper or verify is about to republish there
    "clock back",
    "clock stands",  # two tokens are drawn in the same microsecond
)
INDEX = {name: index for index, name in enumerate(FAULTS)}
FAR_BACK = 8


class File(NamedTuple):
    """A guard (who published last, its token, the thread that has it locked) or a record (its owner and token)."""

    owner: int = NOBODY
    token: int = 0
    intact: bool = True
    locked: int = NOBODY
    heir: int = 0


class Directory(NamedTuple):
    """Names in a lock directory; `temps` are the processes that have a named temporary file there."""

    guard: int = NONE
    record: int = NONE
    temps: tuple[int, ...] = ()
    removed: bool = False


class Process(NamedTuple):
    """One process image. `held` is the token of the claim its program believes in, 0 for none."""

    alive: bool = True
    held: int = 0
    evicted: str = ""  # what an outsider or the operator did to its claim
    leftover: int = 0  # token of a record that it failed to withdraw
    ticks: int = 0  # keeper ticks that a settling contender waits for
    heir: int = 0  # secret of the handover it has open or was given
    answer: str = ""  # what its handover ended with; "took" for a child that replaced the record
    pinned: int = NONE  # directory of its claim, where a broken rule makes it matter


class Thread(NamedTuple):
    """A program counter with the descriptors and values it holds."""

    process: int
    todo: tuple[str, ...] = ()
    keeper: bool = False
    op: str = ""
    at: str = "idle"
    directory: int = NONE
    guard: int = NONE
    judged: int = NONE
    token: int = 0
    tries: int = 0
    leaving: bool = False  # unwinding: afterwards the operation ends instead of starting again
    settled: bool = False


class Publication(NamedTuple):
    """A record that was linked at some time, in order; `returned` once its acquire gave out a claim."""

    process: int
    token: int
    returned: bool = False


class State(NamedTuple):
    """Everything that distinguishes two moments."""

    path: int
    directories: tuple[Directory | None, ...]
    files: tuple[File | None, ...]
    clock: int
    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    budget: tuple[int, ...]
    published: tuple[Publication, ...]


@dataclass(frozen=True)
class Scenario:
    """Who runs what, and how often the outside may interfere.

    `programs` maps a process to the operations of its main thread; `keepers` names the processes that also have a
    keeper thread, ticking whenever it likes. `dead_owner` starts with the record of a process that is gone. `gap=False`
    takes "compare the record, then unlink it" as one step. `named_temps` is the form for systems without unnamed files.
    `promised=False` lets outsiders delete a guard or directory even before a broken owner had its next tick.
    """

    programs: Mapping[str, tuple[str, ...]]
    faults: Mapping[str, int] = field(default_factory=dict)
    keepers: tuple[str, ...] = ()
    dead_owner: bool = False
    gap: bool = True
    named_temps: bool = False
    promised: bool = True

    def names(self) -> tuple[str, ...]:
        """Processes in order of their number; Z is the dead owner, F a fresh contender when all is at rest."""
        return (*self.programs, *(("Z",) if self.dead_owner else ()), "F")

    def initial(self) -> State:
        """The lock directory exists and is empty, or holds the record and guard of a dead owner."""
        names = list(self.programs)
        processes = [Process() for _ in names]
        threads = [Thread(number, todo) for number, todo in enumerate(self.programs.values())]
        threads += [Thread(names.index(name), keeper=True) for name in self.keepers]
        directory, files, published = Directory(), (), ()
        if self.dead_owner:
            dead = len(processes)
            processes.append(Process(alive=False))
            return State(
                0,
                (Directory(guard=0, record=1),),
                (File(dead, 5), File(dead, 5)),
                10,
                tuple(processes),
                tuple(threads),
                self._budget(),
                (Publication(dead, 5, returned=True),),
            )
        return State(0, (directory,), files, 10, tuple(processes), tuple(threads), self._budget(), published)

    def _budget(self) -> tuple[int, ...]:
        unknown = set(self.faults) - set(FAULTS)
        if unknown:
            raise ValueError(f"faults={sorted(unknown)} are not among {FAULTS}")
        return tuple(self.faults.get(name, 0) for name in FAULTS)


PLACES = {kind: {name: at for at, name in enumerate(kind._fields)} for kind in (File, Directory, Process, Thread)}
Entry = TypeVar("Entry", File, Directory, Process, Thread)


def changed(entry: Entry, fields: Mapping[str, object]) -> Entry:
    """The entry with other values in some fields, as ``_replace`` makes it, in half the time."""
    kind = type(entry)
    places = PLACES[kind]
    values: list[Any] = list(entry)
    for name, value in fields.items():
        values[places[name]] = value
    return tuple.__new__(kind, values)


class World:
    """One state, opened for a step."""

    __slots__ = (
        "begun",
        "broken",
        "budget",
        "clock",
        "directories",
        "files",
        "path",
        "processes",
        "published",
        "threads",
    )

    def __init__(self, state: State) -> None:
        self.path = state.path
        self.directories = list(state.directories)
        self.files = list(state.files)
        self.clock = state.clock
        self.processes = list(state.processes)
        self.threads = list(state.threads)
        self.budget = state.budget
        self.published = state.published
        self.broken: tuple[str, ...] = ()
        self.begun = ""

    # -- files and directories

    def file(self, number: int) -> File:
        """The file in a slot that something refers to."""
        file = self.files[number]
        assert file is not None
        return file

    def directory(self, number: int) -> Directory:
        """The directory in a slot that something refers to."""
        directory = self.directories[number]
        assert directory is not None
        return directory

    def create(self, file: File) -> int:
        """Put a new file into the first free slot."""
        for number, old in enumerate(self.files):
            if old is None:
                self.files[number] = file
                return number
        self.files.append(file)
        return len(self.files) - 1

    def make_directory(self) -> int:
        """Make a new directory at the path."""
        for number, old in enumerate(self.directories):
            if old is None:
                self.directories[number] = Directory()
                break
        else:
            number = len(self.directories)
            self.directories.append(Directory())
        self.path = number
        return number

    def name(self, directory: int, **names: object) -> None:
        """Change what names in a directory lead to."""
        self.directories[directory] = changed(self.directory(directory), names)

    def record_at(self, directory: int) -> int:
        """The record's file number in a directory, or NONE."""
        return NONE if directory == NONE else self.directory(directory).record

    # -- threads and processes

    def thread(self, index: int, **fields: object) -> None:
        """Change a thread."""
        self.threads[index] = changed(self.threads[index], fields)

    def process(self, number: int, **fields: object) -> None:
        """Change a process."""
        self.processes[number] = changed(self.processes[number], fields)

    def unlock(self, index: int) -> None:
        """Let go of whatever guard the thread has locked."""
        guard = self.threads[index].guard
        if guard != NONE and self.file(guard).locked == index:
            self.files[guard] = self.file(guard)._replace(locked=NOBODY)

    def finish(self, index: int) -> None:
        """Unlock, close, and come to the end of the operation."""
        self.unlock(index)
        old = self.threads[index]
        self.threads[index] = Thread(old.process, old.todo, old.keeper)

    def die(self, number: int) -> None:
        """End a process where it stands; the kernel closes its descriptors."""
        self.process(number, alive=False, held=0, leftover=0, ticks=0, evicted="")
        for index, thread in enumerate(self.threads):
            if thread.process == number:
                self.unlock(index)
                self.threads[index] = Thread(number, (), thread.keeper)

    def spend(self, fault: str) -> None:
        """Take one from the budget of a fault."""
        position = INDEX[fault]
        self.budget = (*self.budget[:position], self.budget[position] - 1, *self.budget[position + 1 :])

    # -- properties

    def violate(self, name: str) -> None:
        """Note that the step breaks a property."""
        self.broken = (*self.broken, name)

    def evict(self, record: File, how: str) -> None:
        """Remember that the claim behind a record or guard was ended from outside; a break or adoption stays one."""
        if record.owner == NOBODY or not self.processes[record.owner].alive:
            return
        if how == "break" or self.processes[record.owner].evicted not in ("break", "handover"):
            self.process(record.owner, evicted=how)

    def check_owners(self) -> None:
        """At most one live process believes it owns, not counting one that was evicted from outside."""
        owners = 0
        for process in self.processes:
            if process.held and not process.evicted:
                owners += 1
        if owners > 1:
            self.violate("at most one owner")

    def freeze(self) -> State:
        """The state after the step, with the slots free that nothing refers to."""
        files, directories = self._referenced()
        return State(
            self.path,
            tuple(directories),
            tuple(files),
            self.clock,
            tuple(self.processes),
            tuple(self.threads),
            self.budget,
            self.published,
        )

    def _referenced(self) -> tuple[list[File | None], list[Directory | None]]:
        held = [self.path, *[process.pinned for process in self.processes]]
        used: list[int] = []
        for thread in self.threads:
            if thread.directory != NONE:
                held.append(thread.directory)
                used += thread.guard, thread.judged
        directories = self.directories
        for number, entry in enumerate(directories):
            if entry is None:
                continue
            if number in held:
                used += entry.guard, entry.record
            else:
                directories[number] = None
        files = self.files
        for number in range(len(files)):
            if number not in used:
                files[number] = None
        while files and files[-1] is None:
            files.pop()
        while directories and directories[-1] is None:
            directories.pop()
        return files, directories
