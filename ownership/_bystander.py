"""A process as people have to know it who are to do something about it: what it is, and who lets it go on."""

from __future__ import annotations

from typing import NamedTuple

from ownership._finding import Fact
from ownership._paths import quoted, shown
from ownership._process import ProcessState, ProcessTable, Surroundings, printable

HALTED = frozenset({ProcessState.STOPPED, ProcessState.TRACED, ProcessState.FROZEN})


class Bystander(NamedTuple):
    """One look at whoever has a number now. For messages: what is decided, ``judge`` has decided.

    :ivar exists: as in :class:`ownership._process.ProcessObservation`
    """

    pid: int
    exists: bool | None
    state: ProcessState
    start_id: str | None = None
    command: str | None = None
    around: Surroundings | None = None

    @property
    def named(self) -> str:
        return f"pid {self.pid} ({self.command})" if self.command else f"pid {self.pid}"

    @property
    def doing(self) -> str:
        """What it does, in a word."""
        return "gone" if self.exists is False else self.state.value

    def facts(self, prefix: str = "") -> dict[str, Fact]:
        """The facts by name, each with *prefix*: what is not known is left out."""
        told: dict[str, Fact] = {f"{prefix}pid": self.pid}
        if self.command:
            told[f"{prefix}command"] = self.command
        told[f"{prefix}state"] = self.doing
        if self.around is not None:
            told[f"{prefix}state_source"] = f"{self.around.source}: {self.around.state}"
        return told


def look_at(processes: ProcessTable, pid: int) -> Bystander:
    """Who has the number *pid*, and what that process is doing."""
    seen = processes.observe(pid)
    if seen.exists is False:
        return Bystander(pid, False, seen.state)
    return Bystander(
        pid, seen.exists, seen.state, seen.start_id, processes.command_of(pid), processes.surroundings_of(pid)
    )


class Way(NamedTuple):
    """How a process that cannot run gets to run again."""

    what: str
    advice: str
    remedy: str
    facts: dict[str, Fact]


def way_on(processes: ProcessTable, halted: Bystander) -> Way | None:
    """What keeps *halted* from running, and what lets it go on; ``None`` if nothing keeps it."""
    match halted.state:
        case ProcessState.STOPPED:
            return Way("is stopped by a signal", "SIGCONT lets it go on", f"kill -CONT {halted.pid}", {})
        case ProcessState.TRACED:
            return _past_tracer(processes, halted)
        case ProcessState.FROZEN:
            return _out_of_freezer(halted)
        case _:
            return None


def _past_tracer(processes: ProcessTable, halted: Bystander) -> Way:
    number = halted.around.tracer if halted.around else None
    what = "is held by a tracer"
    if number is None:
        advice = "who traces it is not to be seen from here, perhaps from outside this pid namespace"
        return Way(what, advice, f"ps -o pid,stat,lstart,args -p {halted.pid}", {})
    tracer = look_at(processes, number)
    what, facts = f"is held by its tracer, {tracer.named}", tracer.facts("tracer_")
    if halted.around is not None and number == halted.around.parent:
        advice = "its tracer started it, and would take it along: let it go on there"
        return Way(what, advice, f"ps -o pid,tty,stat,lstart,args -p {number}", facts)
    return Way(what, "detach there; a tracer that ends lets go of what it attached to", f"kill {number}", facts)


def _out_of_freezer(halted: Bystander) -> Way:
    switches = halted.around.frozen_by if halted.around else ()
    if not switches:
        advice = "thaw it where it was frozen (docker unpause, systemctl thaw); the cgroup cannot be read from here"
        return Way("is in a frozen cgroup", advice, f"ps -o pid,stat,cgroup,args -p {halted.pid}", {})
    words = {True: "THAWED", False: "0"}
    remedy = " && ".join(f"echo {words[one.endswith('.state')]} > {quoted(one)}" for one in switches)
    advice = "thaw it, or let whoever froze it do so (docker unpause, systemctl thaw)"
    return Way("is in a frozen cgroup", advice, remedy, {"frozen_by": [printable(shown(one)) for one in switches]})
