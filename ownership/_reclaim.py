"""Evicting owners: reclaim on proof, break by decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ownership import _kept
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._directory import DirectoryChanged
from ownership._errors import AlreadyOwnedError, OwnershipError
from ownership._examine import FREE, Examined, Examiner, refusal
from ownership._guard import PATIENCE, Hold, locked, peek
from ownership._inspect import Inspection, inspection_of, lock_directories, resource_of
from ownership._location import pin_registry
from ownership._paths import Resource, StrPath, resolve
from ownership._place import Place, existing, opened, pinned
from ownership._process import ProcessTable, system_processes
from ownership._record import MAX_TOKEN, GuardState, Previous, timestamp
from ownership._sweep import sweep
from ownership._verdict import Verdict

_Decision = Callable[[Place, Hold, GuardState, Examined], None]


def reclaim(
    resource: StrPath,
    *,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Inspection:
    """Remove the record of an owner that is proven gone or expired, without becoming the owner.

    :returns: what was there; verdict ``free`` if there was nothing
    :raises AlreadyOwnedError: its owner is live, stopped, or nobody can tell
    """
    shared = pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    if existing(found, shared) is None:
        return inspection_of(found, shared, GuardState(), FREE)
    examiner = Examiner(processes or system_processes(), clock, _kept.kept())

    def decide(place: Place, hold: Hold, remembered: GuardState, examined: Examined) -> None:
        if not examined.may_be_taken:
            raise refusal(found, examined, place.directory.file(f"{found.name}.json"))
        _evict(place, found, hold, remembered, examined, examiner.clock)

    return _decided(found, shared, examiner, decide)


def break_claim(
    resource: StrPath,
    *,
    token: int,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Inspection:
    """Evict the owner whose token is *token*, by decision: it may be alive, and learns of it at its next ``verify()``.

    Guaranteed: the next owner's token is greater, and a later owner than the one meant is never hit.

    Not guaranteed: that the evicted owner stops working before it looks.

    :param token: as shown by ``inspect`` (for a malformed record: the guard's)
    :returns: what was there; verdict ``free`` if there was nothing
    :raises AlreadyOwnedError: somebody owns it by another token
    """
    if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= MAX_TOKEN:
        raise ValueError(f"token must be a whole number up to 2^53, got {token!r}")
    shared = pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    if existing(found, shared) is None:
        return inspection_of(found, shared, GuardState(), FREE)
    examiner = Examiner(processes or system_processes(), clock, _kept.kept())

    def decide(place: Place, hold: Hold, remembered: GuardState, examined: Examined) -> None:
        if examined.verdict is Verdict.FREE:
            return
        known = examined.record.token if examined.record else remembered.token
        if known != token:
            error = refusal(found, examined, place.directory.file(f"{found.name}.json"))
            raise AlreadyOwnedError(
                f"{found.shown} is not owned by token {token} but by {known}; nothing was broken: {error.message}",
                resource=found.path,
                record=examined.record,
                verdict=examined.verdict,
                reason=error.reason,
                hint=f"look again: leasectl show {found.shown}",
            )
        hold.write(remembered._replace(token=max(remembered.token, known) + 1))
        assert examined.signature is not None
        place.directory.remove(f"{found.name}.json", examined.signature)

    return _decided(found, shared, examiner, decide)


def _decided(resource: Resource, registry: str | None, examiner: Examiner, decide: _Decision) -> Inspection:
    """Look and decide under the guard; what was seen there."""

    def act(place: Place, holds: list[Hold]) -> Inspection:
        hold = holds[0]
        remembered = hold.read(resource.shown)
        examined = examiner.examine(place, resource, remembered)
        decide(place, hold, remembered, examined)
        return inspection_of(resource, registry, remembered, examined)

    for attempt in range(8):
        place = pinned(resource, registry)
        guard = place.guard(resource.name)
        try:
            until = examiner.clock.monotonic() + PATIENCE
            return locked([guard], until, examiner.clock, partial(act, place))
        except DirectoryChanged:
            if attempt == 7:
                raise OSError(11, "its lock directory keeps being changed from outside", resource.path) from None
    raise AssertionError  # not reached


def _evict(
    place: Place, resource: Resource, hold: Hold, remembered: GuardState, examined: Examined, clock: Clock
) -> None:
    if examined.verdict is Verdict.FREE or examined.signature is None:
        return
    token = max(remembered.token, examined.record.token if examined.record else 0)
    if examined.verdict is Verdict.EXPIRED:  # it may be alive: its keeper must find a greater token
        hold.write(remembered._replace(token=token + 1))
        place.directory.remove(f"{resource.name}.json", examined.signature)
        return
    place.directory.remove(f"{resource.name}.json", examined.signature)
    previous = Previous(how="died", reason=examined.judgement.reason[:80], at=timestamp(clock.wall_ns()))
    if examined.owner is not None:
        place.directory.unlink_temporary(resource.name, examined.owner.instance_id)
    hold.write(GuardState(token, None, previous, remembered.deaths))


def reclaim_all(
    directory: StrPath,
    *,
    registry: bool = False,
    dry_run: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Iterator[tuple[Inspection, bool]]:
    """Remove every record in *directory* whose owner is proven gone or expired, then the leftovers of dead processes.

    Each is judged and removed under its own guard, so that no acquire going on at the same time is disturbed.

    :param directory: where the resources are, or a lock directory itself
    :param registry: *directory* is a shared registry itself
    :param dry_run: change nothing
    :returns: each inspection, and whether it was removed (would be, in a dry run)
    """
    examiner = Examiner(processes or system_processes(), clock, _kept.kept())
    for path in lock_directories(directory, registry=registry):
        place = opened(path)
        for name in sorted(place.directory.names(".json")):
            resource = resource_of(place, name, registry=registry)
            try:
                one = _reclaim_named(place, resource, path if registry else None, examiner, dry_run)
            except (OSError, OwnershipError, DirectoryChanged) as error:
                yield Inspection(Path(resource.path), Verdict.UNKNOWN, str(error), error=error), False
                continue
            if one.verdict is not Verdict.FREE:
                yield one, one.verdict.may_be_evicted
        sweep(place, limit=None, dry=dry_run)


def _reclaim_named(
    place: Place, resource: Resource, registry: str | None, examiner: Examiner, dry_run: bool
) -> Inspection:
    guard = place.guard(resource.name)

    def act(holds: list[Hold]) -> Inspection:
        hold = holds[0]
        remembered = hold.read(resource.shown)
        examined = examiner.examine(place, resource, remembered)
        if examined.may_be_taken and not dry_run:
            _evict(place, resource, hold, remembered, examined, examiner.clock)
        return inspection_of(resource, registry, remembered, examined)

    if dry_run:
        remembered = peek(place.directory, resource.name, resource.shown)
        return inspection_of(resource, registry, remembered, examiner.examine(place, resource, remembered))
    return locked([guard], examiner.clock.monotonic() + PATIENCE, examiner.clock, act)
