"""What is to be stopped: an owner's process, with its group if it leads one. Looked at again before every signal."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial

from ownership._models import OwnerIdentity
from ownership._process import (
    CONTINUE,
    Comparison,
    GroupListing,
    ProcessObservation,
    ProcessState,
    ProcessTable,
    compare_start_ids,
)
from ownership._report import Scope
from ownership._watch import Watch

_LOOKS = 4


class Standing(enum.Enum):
    """What became of the process that owns or owned."""

    THERE = "there"  # it has its number, be it as a zombie
    ABSENT = "absent"  # nobody has its number as a process
    REPLACED = "replaced"  # another process has its number: then nobody of its group is left either
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Remains:
    """Who is left at the moment of a look.

    :ivar alive: everybody of the target who has not ended, or of whom that cannot be told; the owner first
    :ivar ours: they certainly belong to the target
    :ivar fault: why there may be more, empty when there are not
    """

    alive: tuple[ProcessObservation, ...] = ()
    ours: bool = True
    fault: str = ""

    @property
    def over(self) -> bool:
        """Nobody is left. An unlistable group counts as live, zombies do not."""
        return not self.alive and not self.fault


class Target:
    """Everybody whom stopping *owner* is about.

    The number of a process group belongs to the owner's group as long as its leader has it, be it as a zombie; as long
    as a pidfd of the leader, opened while it existed, still finds the group (Linux 6.9); or as long as somebody lives
    in it who was seen there while one of these was true. Numbers are given out again only when no process and no group
    has them (alloc_pid in kernel/pid.c), so another process with the leader's number proves that its group is over.

    :param hold: holds the pidfd of the leader; the caller's to close
    """

    def __init__(self, owner: OwnerIdentity, processes: ProcessTable, hold: Watch) -> None:
        self._owner = owner
        self._processes = processes
        self._hold = hold
        self._members: dict[int, str] = {}
        self._continued: set[tuple[int, str]] = set()
        try:
            hold.process(partial(processes.open_handle, owner.pid, owner.start_id))
        except ProcessLookupError:
            pass
        self.scope: Scope = self._choose_scope()

    def _choose_scope(self) -> Scope:
        """The group if the owner leads one that is not ours; of an owner that is gone that is not known any more."""
        own, (standing, seen) = self._processes.own_group(), self._leader()
        if own is None or own == self._owner.pid or self._owner.pid == 1:
            return "process"
        return "group" if standing is Standing.ABSENT or seen.group == self._owner.pid else "process"

    def look(self) -> Remains:
        """Who is left now."""
        for _ in range(_LOOKS):
            before = self._leader()
            if self.scope == "process":
                return Remains(_living(before))
            listing = self._processes.list_group(self._owner.pid)
            after = self._leader()
            if bool(_living(before)) == bool(_living(after)):
                break  # else it ended in between, and may have left a child that was not there for the listing
        return self._sum_up(listing, *after)

    def _sum_up(self, listing: GroupListing, standing: Standing, seen: ProcessObservation) -> Remains:
        held = self._still_has_its_number(standing, listing.members)
        if standing is Standing.REPLACED or (standing is Standing.ABSENT and held is False):
            return Remains()
        others = tuple(one for one in listing.members if one.pid != seen.pid and one.state is not ProcessState.ZOMBIE)
        if held:
            self._members.update({one.pid: one.start_id for one in others if one.start_id is not None})
        return Remains((*_living((standing, seen)), *others), bool(held), listing.fault)

    def _leader(self) -> tuple[Standing, ProcessObservation]:
        seen = self._processes.observe(self._owner.pid)
        if seen.exists is False:
            return Standing.ABSENT, seen
        known = Comparison.UNKNOWN if seen.start_id is None else compare_start_ids(self._owner.start_id, seen.start_id)
        if known is Comparison.SAME:
            return Standing.THERE, seen
        return Standing.REPLACED if known is Comparison.DIFFERENT else Standing.UNKNOWN, seen

    def _still_has_its_number(self, standing: Standing, members: tuple[ProcessObservation, ...]) -> bool | None:
        """Whether the group number is still that of the owner's group; false on proof, ``None`` in doubt."""
        if standing in (Standing.THERE, Standing.REPLACED):
            return standing is Standing.THERE
        found = self._send_through_handle(0)
        if found is not None:
            return found
        return True if any(self._is_known(one) for one in members) else None

    def _send_through_handle(self, number: int) -> bool | None:
        """Signal the group through the leader's pidfd; false when nobody is left in it, ``None`` without one."""
        if self._hold.handle is None:
            return None
        try:
            owner = self._owner
            sent = self._processes.send_group_of(self._hold.handle, owner.pid, owner.start_id, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            if number == 0:
                return True  # there they are
            raise
        return True if sent else None

    def _is_known(self, one: ProcessObservation) -> bool:
        """Whether *one* lives, is in the group, and was so when the group was certainly the owner's."""
        known = self._members.get(one.pid)
        return (
            known is not None
            and one.start_id is not None
            and one.exists is True
            and one.state is not ProcessState.ZOMBIE
            and one.group == self._owner.pid
            and compare_start_ids(known, one.start_id) is Comparison.SAME
        )

    # signals

    def signal(self, number: int) -> list[tuple[Scope, int]]:
        """Send *number* to whoever is left and certainly belongs to the target; what it was sent to.

        :raises PermissionError: we may signal none of them; nothing was sent
        """
        remains, pid = self.look(), self._owner.pid
        if not remains.ours or remains.over:
            return []
        if self.scope == "process":
            return [("process", pid)] if self._signal_process(number) else []
        sent: list[tuple[Scope, int]] = []
        standing, seen = self._leader()
        if standing is Standing.THERE and seen.group not in (pid, None) and self._signal_process(number):
            sent.append(("process", pid))  # it left the group that it led
        if self._signal_group(number):
            sent.append(("group", pid))
        return sent

    def may_signal_owner(self) -> None:
        """:raises PermissionError: we may not signal the owner's process, which lives"""
        if _living(self._leader()):
            self._signal_process(0)

    def _signal_process(self, number: int) -> bool:
        try:
            return self._processes.send(self._owner.pid, self._owner.start_id, number)
        except ProcessLookupError:
            return False

    def _signal_group(self, number: int) -> bool:
        sent = self._send_through_handle(number)
        if sent is not None:
            return sent
        standing, _ = self._leader()  # by number, so only right after a look that finds it to be the right one
        known = (self._processes.observe(pid) for pid in list(self._members) if standing is Standing.ABSENT)
        if standing is not Standing.THERE and not any(map(self._is_known, known)):
            return False
        try:
            self._processes.send_group(self._owner.pid, number)
        except ProcessLookupError:
            return False
        return True

    def resume(self, remains: Remains) -> list[int]:
        """Let those of *remains* go on that are certainly stopped by a signal, each once; their numbers.

        Not one that a tracer holds or whose cgroup is frozen.
        """
        resumed = []
        for one in remains.alive if remains.ours and CONTINUE is not None else ():
            key = (one.pid, one.start_id or "")
            if one.state is not ProcessState.STOPPED or one.start_id is None or key in self._continued:
                continue
            self._continued.add(key)
            try:
                if self._processes.send(one.pid, one.start_id, CONTINUE or 0):
                    resumed.append(one.pid)
            except (OSError, ValueError):  # it has just gone, or may not be signalled: KILL does not need it to run
                pass
        return resumed


def _living(found: tuple[Standing, ProcessObservation]) -> tuple[ProcessObservation, ...]:
    """The owner's process, unless it has certainly ended."""
    standing, seen = found
    ended = standing in (Standing.ABSENT, Standing.REPLACED) or seen.state is ProcessState.ZOMBIE
    return () if ended else (seen,)
