"""Judging an owner that no record here names: of something that outlives its process, for instance a task."""

from __future__ import annotations

from ownership import _keeper
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import OwnershipError
from ownership._inspect import examiner_of
from ownership._location import pin_registry
from ownership._models import OwnerIdentity
from ownership._paths import Resource, StrPath, resolve
from ownership._place import existing
from ownership._process import ProcessTable
from ownership._station import Place
from ownership._verdict import Judgement, Observation, Self, Testimony, Verdict, WitnessState, judge, same_namespace


def judge_owner(
    owner: OwnerIdentity,
    *,
    beside: StrPath,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Judgement:
    """What has become of the process image *owner*, by the full-strength look and the rules that judge every record.

    Guaranteed: ``gone``, ``zombie`` or ``reused`` (``verdict.is_dead``) only on proof; doubt is ``unknown``, errors
    that may pass included. Writes nothing. Once dead it stays dead: whatever it wrote is there to be read *after* this
    call.

    Not guaranteed: an answer about an owner of another boot or pid namespace, for which only its witness speaks: that
    is there as long as it owns something in the lock directory of *beside*, and after its death until that is taken
    over. Nor that it still lives when this returns.

    :param owner: as ``claim.ref.owner`` says it, or a record
    :param beside: a resource of the lock directory where its witness is asked
    :param registry: the shared registry, if *beside* is one of its resources
    :returns: the verdict and the fact behind it; an earlier image of this process, before exec, is ``gone``
    """
    if not isinstance(owner, OwnerIdentity):
        raise ValueError(f"owner must be an OwnerIdentity (claim.ref.owner), got {owner!r}")
    shared = pin_registry(registry)
    resource = resolve(beside, whole=shared is not None, parameter="beside")
    examiner = examiner_of(clock, processes)._replace(acquiring=True)
    try:
        me = examiner.processes.current()
        if owner.instance_id == me.instance_id:
            return Judgement(Verdict.LIVE, "this process")
        place, said = _witnesses(resource, shared)
        if place is not None:
            return examiner.judge(place, resource, owner, None)[0]
        process = examiner.processes.observe(owner.pid) if same_namespace(owner, me) else None
        return judge(owner, Observation(process=process, witness=said), Self(me, kept=examiner.kept, acquiring=True))
    except OSError as error:
        return Judgement(Verdict.UNKNOWN, f"pid {owner.pid} cannot be looked at: {error}")
    finally:
        _keeper.KEEPER.tidy()


def _witnesses(resource: Resource, registry: str | None) -> tuple[Place | None, Testimony]:
    """Where witnesses are asked, or what is said instead: another account's directory keeps nobody from a look."""
    try:
        return existing(resource, registry), Testimony(WitnessState.MISSING)
    except (OSError, OwnershipError) as error:
        return None, Testimony(WitnessState.UNTESTABLE, f"its witness cannot be asked: {error}")
