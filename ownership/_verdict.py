"""The only place that decides whether an owner is gone. Pure: record × observation → verdict."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ownership._models import OwnerIdentity, OwnerRecord
from ownership._process import Comparison, Identity, ProcessObservation, ProcessState, compare_start_ids, printable

HELD_HERE = "held by this process"


class Verdict(enum.StrEnum):
    """What is known about the owner of a resource.

    ``FREE`` nobody owns it · ``LIVE`` · ``STOPPED`` by a signal, a tracer or a frozen cgroup · ``GONE`` no such
    process · ``ZOMBIE`` exited, not reaped · ``REUSED`` its number belongs to another process · ``EXPIRED`` its lease
    ran out · ``UNKNOWN`` cannot be told. Evicted are only gone, zombie, reused and expired owners.
    """

    FREE = "free"
    LIVE = "live"
    STOPPED = "stopped"
    GONE = "gone"
    ZOMBIE = "zombie"
    REUSED = "reused"
    EXPIRED = "expired"
    UNKNOWN = "unknown"

    @property
    def may_be_evicted(self) -> bool:
        return self in _EVICTED

    @property
    def is_dead(self) -> bool:
        """The owner's process is proven to be over."""
        return self in _DEAD


_DEAD = frozenset({Verdict.GONE, Verdict.ZOMBIE, Verdict.REUSED})
_EVICTED = _DEAD | {Verdict.EXPIRED}


class WitnessState(enum.Enum):
    HELD = "held"
    FREE = "free"
    MISSING = "missing"
    UNTESTABLE = "untestable"


class Testimony(NamedTuple):
    """What a witness says.

    :ivar beat: seconds of the owner's CLOCK_MONOTONIC at its last heartbeat, ``None`` if there is none to read
    :ivar blind: there may be one: that it is not read is an error that may be ours
    """

    state: WitnessState
    detail: str = ""
    beat: float | None = None
    blind: bool = False


class Observation(NamedTuple):
    """The facts about one record's owner, as far as they were looked at.

    :ivar process: a look at its pid, when boot and pid namespace are ours
    :ivar ended: a descriptor that is bound to that very process says that it has ended
    :ivar witness: what its witness says, when they are not, or when the record names our own process
    :ivar believable: a free witness proves death here: the filesystem is known to be local
    :ivar device: of the lock directory, as we see it
    :ivar expired: its lease has certainly run out
    :ivar inside: it holds its guard, as far as that is looked at: in a critical section it cannot be evicted
    :ivar ends_at: when it runs out if it is not renewed, by our clock; ``None`` if that cannot be told
    """

    process: ProcessObservation | None = None
    ended: bool = False
    witness: Testimony | None = None
    believable: bool = False
    device: int | None = None
    expired: bool = False
    inside: bool = False
    ends_at: float | None = None


class Self(NamedTuple):
    """Who asks.

    :ivar holds: this process has a handle that owns by this very record
    :ivar kept: instance ids of earlier images of this process whose witness was kept for us across exec
    :ivar acquiring: we want to own it, and may take over from an earlier image of this process
    """

    identity: Identity
    holds: bool = False
    kept: frozenset[str] = frozenset()
    acquiring: bool = False


class Judgement(NamedTuple):
    """A verdict and the fact behind it, in words for people.

    :ivar elsewhere: whose pids the owner's pid is one of, if it does not mean the same process for us; in words
    :ivar outlived: its lease ran out, and its process is known to exist
    """

    verdict: Verdict
    reason: str
    elsewhere: str = ""
    outlived: bool = False

    @property
    def lives(self) -> bool:
        return self.outlived or self.verdict in (Verdict.LIVE, Verdict.STOPPED)


def same_namespace(record: OwnerIdentity, me: Identity) -> bool:
    """Whether the record's pid means the same process for its owner and for us. Unknown is no."""
    return (
        record.boot_id is not None
        and record.boot_id == me.boot_id
        and record.pid_namespace is not None
        and record.pid_namespace == me.pid_namespace
    )


def is_our_process(record: OwnerIdentity, me: Identity) -> bool:
    """Whether the record names this process, whatever the image."""
    same = record.pid == me.pid and same_namespace(record, me)
    return same and compare_start_ids(record.start_id, me.start_id) is Comparison.SAME


def judge(record: OwnerIdentity, seen: Observation, me: Self) -> Judgement:
    """Whether the owner named by *record* is gone. Fails closed: what was not seen proves nothing.

    The rows in order, the first that applies; then an expired lease turns ``live``, ``stopped`` and ``unknown`` into
    ``expired``.
    """
    judgement = _judge_image(record, me) or (
        _judge_process(record, seen, me) if same_namespace(record, me.identity) else _judge_witness(record, seen, me)
    )
    if seen.expired and not judgement.verdict.may_be_evicted:
        if seen.inside:
            reason = f"its lease ran out, but it is inside its guard, so that nobody takes over; {judgement.reason}"
            return judgement._replace(reason=reason)
        reason = f"its lease ran out unrenewed; {judgement.reason}"
        return Judgement(Verdict.EXPIRED, reason, judgement.elsewhere, judgement.lives)
    if isinstance(record, OwnerRecord) and record.is_closed:
        why = f" ({printable(record.reason)})" if record.reason else ""
        if judgement.verdict.may_be_evicted:
            said = f"closed in good order{why}, its process has ended; {judgement.reason}"
            return judgement._replace(reason=said) if judgement.verdict.is_dead else judgement
        return judgement._replace(reason=f"closed{why}, free once its process has ended; {judgement.reason}")
    return judgement


def _judge_image(record: OwnerIdentity, me: Self) -> Judgement | None:
    """Our own image: instance ids are random, so an equal one is proof whatever namespaces say."""
    if record.instance_id != me.identity.instance_id:
        return None
    if me.holds:
        return Judgement(Verdict.LIVE, HELD_HERE)
    if isinstance(record, OwnerRecord) and record.is_closed and not me.acquiring:
        return Judgement(Verdict.LIVE, "this process itself has not ended")
    return Judgement(Verdict.GONE, "left over from this process, no handle holds it")


def _judge_witness(record: OwnerIdentity, seen: Observation, me: Self) -> Judgement:
    said = seen.witness or Testimony(WitnessState.UNTESTABLE, "its witness was not asked")
    same_kernel = record.boot_id is not None and record.boot_id == me.identity.boot_id
    same_device = record.device is not None and record.device == seen.device
    match said.state:
        case WitnessState.HELD:
            verdict, verb, fact = Verdict.LIVE, "lives in", ", and its witness is held"
        case WitnessState.FREE if seen.believable or (same_kernel and same_device):
            verdict, verb, fact = Verdict.GONE, "belonged to", ", and its witness is free"
        case WitnessState.FREE:
            fact = "; its witness is free, but the filesystem is not known to be local"
            verdict, verb = Verdict.UNKNOWN, "belongs to"
        case WitnessState.MISSING:
            verdict, verb, fact = Verdict.UNKNOWN, "belongs to", ", and there is no witness file to ask"
        case WitnessState.UNTESTABLE:
            verdict, verb, fact = Verdict.UNKNOWN, "belongs to", f", and {said.detail}"
    where, elsewhere = _whereabouts(record, me.identity, verb)
    return Judgement(verdict, where + fact, elsewhere)


def _whereabouts(record: OwnerIdentity, me: Identity, verb: str) -> tuple[str, str]:
    """Where the owner is or was, in a sentence, and whose pids its pid is one of."""
    if record.boot_id is None or me.boot_id is None or record.pid_namespace is None or me.pid_namespace is None:
        unknown = "our own" if me.boot_id is None or me.pid_namespace is None else "its"
        return f"{unknown} boot or pid namespace is unknown (no usable /proc)", "an unknown pid namespace"
    if record.boot_id != me.boot_id:
        return f"it {verb} another boot ({printable(record.boot_id)})", "another boot"
    both = f"{record.pid_namespace}, ours is {me.pid_namespace}"
    where = f"pid namespace {record.pid_namespace} (ours is {me.pid_namespace})"
    return f"it {verb} another pid namespace ({both})", where


def _judge_process(record: OwnerIdentity, seen: Observation, me: Self) -> Judgement:
    judgement = _judge_look(record, seen, me)
    if judgement.verdict is Verdict.UNKNOWN and seen.ended:  # out of descriptors, for instance: none for a full look
        return Judgement(Verdict.GONE, f"pid {record.pid} has ended, as a descriptor of that very process says")
    return judgement


def _judge_look(record: OwnerIdentity, seen: Observation, me: Self) -> Judgement:
    process = seen.process
    if process is None:
        return Judgement(Verdict.UNKNOWN, f"pid {record.pid} was not looked at")
    if process.exists is False:
        return Judgement(Verdict.GONE, f"no process {record.pid}")
    if process.exists is None:
        return Judgement(Verdict.UNKNOWN, f"pid {record.pid} cannot be looked at: {process.detail}")
    same = Comparison.UNKNOWN if process.start_id is None else compare_start_ids(record.start_id, process.start_id)
    if same is Comparison.DIFFERENT:
        return Judgement(Verdict.REUSED, f"pid {record.pid} is another process now (start id {process.start_id})")
    if process.state is ProcessState.ZOMBIE:
        return Judgement(Verdict.ZOMBIE, f"pid {record.pid} has exited, its parent has not reaped it")
    if same is Comparison.UNKNOWN:
        why = process.detail or "its start id cannot be compared"
        return Judgement(Verdict.UNKNOWN, f"pid {record.pid} exists, but whether it is the owner cannot be told: {why}")
    if me.acquiring and is_our_process(record, me.identity) and (earlier := _judge_earlier_image(record, seen, me)):
        return earlier
    return _judge_state(process)


def _judge_earlier_image(record: OwnerIdentity, seen: Observation, me: Self) -> Judgement | None:
    """The record names this very process by another instance id: exec, or a second copy of this library."""
    said = seen.witness.state if seen.witness else WitnessState.MISSING
    if record.instance_id in me.kept or said is WitnessState.FREE:
        return Judgement(Verdict.GONE, "left by an earlier image of this process, before exec")
    if said is WitnessState.HELD:
        return Judgement(Verdict.LIVE, "held by a second copy of this library in this process")
    return None


_STATES = {
    ProcessState.RUNNING: (Verdict.LIVE, "the process is running"),
    ProcessState.DUMPING: (Verdict.LIVE, "the process is still writing a core dump"),
    ProcessState.STOPPED: (Verdict.STOPPED, "the process is stopped by a signal"),
    ProcessState.TRACED: (Verdict.STOPPED, "the process is stopped by a tracer"),
    ProcessState.FROZEN: (Verdict.STOPPED, "the process is in a frozen cgroup"),
}


def _judge_state(process: ProcessObservation) -> Judgement:
    if process.state not in _STATES:
        detail = process.detail or "its state cannot be read"
        return Judgement(Verdict.UNKNOWN, f"pid {process.pid} is the owner, but {detail}")
    verdict, reason = _STATES[process.state]
    return Judgement(verdict, reason)
