"""Ending an owner: TERM, a while to comply, KILL. By identity, so that whoever has the number later is never hit."""

from __future__ import annotations

import datetime as dt
import errno
import signal as signals
from collections.abc import Callable

from ownership._arguments import checked_seconds
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._ending import Ending
from ownership._errors import AlreadyOwnedError, StopTimeoutError, explained
from ownership._inspection import Running
from ownership._models import OwnerIdentity, OwnerRecord
from ownership._paths import argument_of
from ownership._process import KILL, TERMINATE, ProcessObservation, ProcessTable, printable, system_processes
from ownership._ref import OwnerRef
from ownership._refusal import describe
from ownership._report import Scope, SentSignal, StopReport, Survivor
from ownership._system import euid
from ownership._target import Remains, Target
from ownership._verdict import (
    Judgement,
    Observation,
    Self,
    Testimony,
    Verdict,
    WitnessState,
    is_our_process,
    judge,
    same_namespace,
)
from ownership._watch import Watch

GRACE = 0.5  # seconds between TERM and KILL
AFTER_KILL = 5.0  # seconds that whoever was killed has to be gone
_SAFETY = 0.25  # seconds between looks while somebody's handle is watched
_SOON = 0.05  # the same while it need not end, if only it lets go
_POLL = 0.02  # the same without a handle, at most
_AGAIN = (0.01, 0.05, 0.25)  # seconds between attempts to send a signal that is due and could not be sent
_NAMED = 20  # survivors named in a message; all are in the report
_OUT_OF_REACH = Testimony(WitnessState.UNTESTABLE, "no process there can be signalled from here")


def stop(
    ref: OwnerRef | OwnerIdentity | Running | None,
    grace: float = GRACE,
    *,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> StopReport:
    """End the owner named by *ref*: TERM, *grace* seconds to comply, KILL. Returns only when it is gone.

    If it leads its process group (its pid is the number of the group), and that is not ours, the whole group is meant,
    and gone means that the owner is gone and nobody else of the group lives; otherwise the owner's process alone.
    Zombies do not count as living; whoever cannot be told to be gone does. Nothing but *ref* is consulted, so it works
    for anybody, also for an owner that has lost its record; no file is read, changed or removed.

    Only that very process and its group are ever signalled: the owner's start id is compared before every signal, and
    once the owner has gone its group gets one only while it is certainly still that group, and somebody lives in it.
    After TERM whoever is stopped by a signal is continued, so that it can comply. Never signalled are pid 1, this
    process, its group, and anybody of another boot or pid namespace.

    Not guaranteed: anything about processes that left the group (``setsid``), or about descendants where ``scope`` is
    ``process``; before Linux 6.9, that a number is not given out again in the microseconds between the look and the
    signal. An owner that was gone from the start has a group that nobody can tell from a later one of that number:
    then nothing is signalled, and it is an error if somebody lives in it.

    :param ref: whom to stop: what :func:`find` gives (``None``: nobody), a reference, a record, or the identity in one
    :param grace: seconds from TERM to KILL; over at once when nobody is left
    :returns: what was signalled when; ``gone`` is true
    :raises StopTimeoutError: somebody is left, 5 s after KILL or beyond the reach of signals
    :raises AlreadyOwnedError: it cannot be told whether that process is the owner, or it must not be signalled;
        nothing was
    :raises PermissionError: we may not signal it; nothing was
    :raises ValueError: *ref* names this process, or *grace* is not a time

    Sources: kill(2), pidfd_send_signal(2), setpgid(2), proc_pid_stat(5).
    """
    seconds = checked_seconds(grace, "grace")
    if ref is None:
        return StopReport("process", (), (), True, 0.0)
    ref = ref.ref if isinstance(ref, Running) else ref
    if not isinstance(ref, OwnerRef | OwnerIdentity):
        raise ValueError(
            f"ref must be what find() gives, a reference, a record or an identity, got a {type(ref).__name__}"
        )
    hold = Watch()
    try:
        return _Stopping(ref, clock, processes or system_processes(), hold).run(seconds)
    finally:
        hold.close()


def stop_until(
    owner: OwnerIdentity, grace: float, until: Callable[[], bool], clock: Clock, processes: ProcessTable
) -> StopReport:
    """:func:`stop`, but it is over as soon as *until* says so: nothing is signalled from then on."""
    hold = Watch()
    try:
        return _Stopping(owner, clock, processes, hold, until).run(grace)
    finally:
        hold.close()


class _Stopping:
    """One call of :func:`stop`.

    :param until: what else may end it, looked at every 50 ms
    """

    def __init__(
        self,
        ref: OwnerRef | OwnerIdentity,
        clock: Clock,
        processes: ProcessTable,
        hold: Watch,
        until: Callable[[], bool] | None = None,
    ) -> None:
        self._until = until
        self._begun = clock.monotonic()
        self._ref = ref
        self._owner = ref.owner if isinstance(ref, OwnerRef) else ref
        self._clock = clock
        self._processes = processes
        self._hold = hold
        self._sent: list[SentSignal] = []

    def run(self, grace: float) -> StopReport:
        target = self._aim()
        for number, patience in ((TERMINATE, grace), (KILL, AFTER_KILL)):
            remains = self._end(target, number, patience)
            if remains.over or self._is_enough():
                break
        report = self._report(target.scope, remains)
        if not (report.gone or self._is_enough()):
            raise self._survived(report, remains)
        return report

    def _aim(self) -> Target:
        """The target, if it may be one."""
        owner, me = self._owner, self._processes.current()
        if owner.instance_id == me.instance_id or is_our_process(owner, me):
            raise ValueError(f"ref must name another process, pid {me.pid} is this one")
        if not same_namespace(owner, me):
            judgement = judge(owner, Observation(witness=_OUT_OF_REACH), Self(me))
            raise self._refused(judgement, "stop it where it runs")
        target = Target(owner, self._processes, self._hold)  # before anything else: it may go at any moment
        judgement = judge(owner, Observation(process=self._processes.observe(owner.pid)), Self(me))
        if judgement.verdict is Verdict.UNKNOWN:
            raise self._refused(judgement, f"look whether it is: ps -o pid,lstart,user,args -p {owner.pid}")
        if owner.pid == 1 and not judgement.verdict.is_dead:
            never = Judgement(judgement.verdict, "pid 1 is never signalled")
            raise self._refused(never, "end its pid namespace by what made it: stop the container, shut down")
        try:
            target.may_signal_owner()
        except PermissionError as error:
            raise self._denied(error) from None
        return target

    def _end(self, target: Target, number: int, patience: float) -> Remains:
        """Signal and wait. A look that fails for want of descriptors, say, is taken again before nothing is sent."""
        for pause in _AGAIN:
            if self._signal(target, number):
                return self._wait(target, patience)
            remains = target.look()
            if remains.over or not (remains.ours or any(one.detail for one in remains.alive)):
                return remains
            self._clock.wait(pause)
        return target.look()

    def _is_enough(self) -> bool:
        """Whether what it was to be ended for has come without that."""
        return self._until is not None and self._until()

    def _signal(self, target: Target, number: int) -> bool:
        try:
            reached = target.signal(number)
        except PermissionError as error:
            if self._sent:
                return False  # they are told of as survivors, with what was sent
            raise self._denied(error) from None
        for scope, receiver in reached:
            self._note(number, scope, receiver)
        return bool(reached)

    def _note(self, number: int, scope: Scope, receiver: int) -> None:
        seconds, nanoseconds = divmod(self._clock.wall_ns(), 10**9)
        when = dt.datetime.fromtimestamp(seconds, dt.UTC).replace(microsecond=nanoseconds // 1000)
        after = self._clock.monotonic() - self._begun
        self._sent.append(SentSignal(when, after, signals.Signals(number).name, scope, receiver))

    def _wait(self, target: Target, seconds: float) -> Remains:
        """Wait until nobody is left, at most *seconds*; who is left then."""
        deadline, woken, poll = self._clock.monotonic() + seconds, set[int](), _POLL / 16
        while True:
            remains = target.look()
            if remains.over or self._is_enough():
                return remains
            for pid in target.resume(remains):
                self._note(signals.SIGCONT, "process", pid)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return remains
            watched = next((one for one in remains.alive if one.start_id and one.pid not in woken), None)
            if watched is None:
                self._clock.wait(min(left, poll))
                poll = min(poll * 2, _POLL)
            elif self._wait_for(watched, left):
                woken.add(watched.pid)  # should it be found alive nevertheless, then not watched again

    def _wait_for(self, one: ProcessObservation, left: float) -> bool:
        """Wait for the end of *one*, of whom there can be no end before; true if watching it again is of no use."""
        ending = Ending(self._processes, one.pid, one.start_id or "", clock=self._clock, poll=_POLL)
        try:
            return ending.wait(min(left, _SAFETY if self._until is None else _SOON))
        finally:
            ending.close()

    # what is told

    def _report(self, scope: Scope, remains: Remains) -> StopReport:
        survivors = tuple(
            Survivor(one.pid, one.start_id, one.state.value, self._processes.command_of(one.pid))
            for one in remains.alive
        )
        took = self._clock.monotonic() - self._begun
        return StopReport(scope, tuple(self._sent), survivors, remains.over, took)

    @property
    def _resource(self) -> str:
        return self._ref.resource if isinstance(self._ref, OwnerRef | OwnerRecord) else ""

    def _who(self) -> str:
        of = f" of {printable(self._resource)}" if self._resource else ""
        return f"the owner{of}, {describe(self._owner)}"

    def _refused(self, judgement: Judgement, way_out: str) -> AlreadyOwnedError:
        ref = self._ref
        if isinstance(ref, OwnerRef) and judgement.verdict is Verdict.UNKNOWN:
            where = argument_of(ref.resource, ref.registry)
            way_out += f"; if you know that it is gone: leasectl break {where} --token {ref.token}"
        return AlreadyOwnedError(
            f"{self._who()}, was not signalled: {judgement.verdict.value}, {judgement.reason}; "
            f"start id {printable(self._owner.start_id)}; instance {self._owner.instance_id}",
            resource=self._resource,
            record=self._owner if isinstance(self._owner, OwnerRecord) else None,
            owner=self._owner,
            verdict=judgement.verdict,
            reason=judgement.reason,
            hint=way_out,
        )

    def _denied(self, error: PermissionError) -> OSError:
        fact = f"{describe(self._owner)} may not be signalled by uid {euid()}, nothing was sent"
        hint = f"do it as root, or as its account, which ps -o user= -p {self._owner.pid} names"
        return explained(PermissionError(error.errno or errno.EPERM, fact), self._resource, hint)

    def _survived(self, report: StopReport, remains: Remains) -> StopTimeoutError:
        left = ", ".join(f"pid {one.pid} ({one.detail or one.state.value})" for one in remains.alive[:_NAMED])
        if len(report.survivors) > _NAMED:
            left += f" and {len(report.survivors) - _NAMED} more"
        if remains.fault:
            left += f"{' and ' if left else ''}perhaps others ({remains.fault})"
        owner = self._owner.pid
        pids = ",".join(str(one.pid) for one in report.survivors[:_NAMED]) or str(owner)
        sent = ", ".join(dict.fromkeys(one.signal for one in report.signalled)) or "nothing"
        if remains.ours or any(one.pid == owner for one in report.survivors):
            fact = f"{self._who()}, is not gone after {report.took:.1f} s, {sent} was sent"
            hint = f"see what holds them, or whose they are: ps -o pid,stat,wchan,user,args -p {pids}"
        else:
            fact = f"{self._who()}, is gone, {sent} was sent; whether group {owner} is still its own cannot be told"
            hint = f"end those that are meant yourself: ps -o pid,pgid,lstart,user,args -p {pids}"
        return StopTimeoutError(f"{fact}; left: {left}", report=report, resource=self._resource or None, hint=hint)
