"""Evicting owners: reclaim on proof, break by decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import AlreadyOwnedError, OwnershipError
from ownership._eviction import after_end
from ownership._examine import FREE, Examined, Examiner, argument, refusal
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._inspect import Inspection, examiner_of, inspection_of, lock_directories, resource_of
from ownership._location import pin_registry
from ownership._locking import locked
from ownership._models import MAX_TOKEN, GuardState, ending
from ownership._paths import Resource, StrPath, resolve
from ownership._pinned import DirectoryChanged
from ownership._place import Place, existing, opened, pinned
from ownership._process import ProcessTable
from ownership._sweep import sweep
from ownership._verdict import Verdict
from ownership._waiting import SETTLE, settles

_FOLLOWED = 8  # times that a changed directory is followed before giving up


class _Unsettled(Exception):
    """A malformed record, and the guard names nobody."""

    def __init__(self, examined: Examined) -> None:
        super().__init__()
        self.examined = examined


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
    examiner = examiner_of(clock, processes)

    def decide(place: Place, hold: Hold, remembered: GuardState, examined: Examined) -> None:
        if not examined.may_be_taken and not examined.unsettled:
            raise refusal(found, examined, place)
        _evict(place, found, hold, remembered, examined, examiner)

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
    examiner = examiner_of(clock, processes)

    def decide(place: Place, hold: Hold, remembered: GuardState, examined: Examined) -> None:
        if examined.owner is None and not examined.unsettled:
            return
        known = examined.record.token if examined.record else remembered.token
        if known != token:
            error = refusal(found, examined, place)
            raise AlreadyOwnedError(
                f"{found.shown} is not owned by token {token} but by {known}; nothing was broken: {error.message}",
                resource=found.path,
                record=examined.record,
                verdict=examined.verdict,
                reason=error.reason,
                hint=f"look again: leasectl show {argument(found, place)}",
            )
        _evict_living(place, found, hold, remembered, examined, max(remembered.token, known) + 1, clock.wall_ns())

    return _decided(found, shared, examiner, decide)


def _decided(resource: Resource, registry: str | None, examiner: Examiner, decide: _Decision) -> Inspection:
    """Look and decide under the guard; what was seen there. Where there is nothing, nothing is made."""
    settled = False

    def act(place: Place, hold: Hold) -> Inspection:
        remembered = hold.read()
        examined = examiner.examine(place, resource, remembered)
        if examined.unsettled and not settled:
            raise _Unsettled(examined)
        decide(place, hold, remembered, examined)
        return inspection_of(resource, registry, remembered, examined)

    for _ in range(_FOLLOWED):
        place = pinned(resource, registry)
        if not any(place.directory.signature(f"{resource.name}.{kind}") for kind in ("json", "guard")):
            return inspection_of(resource, registry, GuardState(), FREE)
        until = examiner.clock.monotonic() + PATIENCE
        try:
            return locked([place.guard(resource)], until, examiner.clock, partial(act, place))
        except DirectoryChanged:
            continue
        except Interrupting as interrupting:
            raise interrupting.told() from None
        except _Unsettled as waiting:
            settled = settles(place, resource, waiting.examined, examiner.clock)
    raise OSError(11, "its lock directory keeps being changed from outside", resource.path)


def _evict(
    place: Place, resource: Resource, hold: Hold, remembered: GuardState, examined: Examined, examiner: Examiner
) -> None:
    if examined.verdict is Verdict.FREE or examined.signature is None:
        return
    token = max(remembered.token, examined.record.token if examined.record else 0)
    if examined.verdict is Verdict.EXPIRED:  # it may be alive: its keeper must find a greater token
        _evict_living(place, resource, hold, remembered, examined, token + 1, examiner.clock.wall_ns())
        return
    place.directory.remove(f"{resource.name}.json", examined.signature)
    if examined.owner is not None:
        place.directory.unlink_temporary(resource.name, examined.owner.instance_id)
    remembered = after_end(remembered, examined, examiner.clock.wall_ns(), examiner.processes.current().boot_id)
    hold.write(remembered._replace(token=token, owner=None))


def _evict_living(
    place: Place, resource: Resource, hold: Hold, remembered: GuardState, examined: Examined, token: int, wall_ns: int
) -> None:
    """A greater token and nobody's name into the guard, then the record away; and look again.

    :raises DirectoryChanged: directory or guard were replaced meanwhile, the owner may be back: do it again there
    """
    owner = examined.owner
    if owner is not None and examined.verdict.is_dead:
        place.directory.unlink_temporary(resource.name, owner.instance_id)
    who = f"pid {owner.pid}, {examined.verdict.value}" if owner else "whoever made the record"
    end = ending("broken", f"evicted by decision: {who}", wall_ns)
    hold.write(remembered._replace(token=token, owner=None, previous=end))
    if examined.signature is not None:
        place.directory.remove(f"{resource.name}.json", examined.signature)
    if not hold.is_at_path():
        raise DirectoryChanged


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
    examiner = examiner_of(clock, processes)
    for path in lock_directories(directory, registry=registry):
        try:
            place = opened(path, registry=registry)
            names = sorted(place.directory.names(".json"))
        except OSError as error:
            yield Inspection(Path(path), Verdict.UNKNOWN, str(error), error=error), False
            continue
        shared = path if registry else None
        resources = [resource_of(place, name) for name in names]
        settling = _Settling(place, examiner.clock)
        for resource in chain(resources, settling):
            try:
                one, removed = _reclaim_named(place, resource, shared, examiner, settling, dry_run)
            except _Unsettled as waiting:
                settling.add(resource, waiting.examined)
            except (OSError, OwnershipError, DirectoryChanged, Interrupting) as error:
                yield Inspection(Path(resource.path), Verdict.UNKNOWN, str(error), error=error), False
            else:
                if one.verdict is not Verdict.FREE:
                    yield one, removed
        sweep(place, limit=None, dry=dry_run)


class _Settling:
    """Malformed records that nobody is known to own, looked at again when all had a second for their keepers."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place, self._clock = place, clock
        self._found: dict[Resource, Examined] = {}
        self._settled = False

    def add(self, resource: Resource, examined: Examined) -> None:
        self._found[resource] = examined

    def has_settled(self, resource: Resource, examined: Examined) -> bool:
        return self._settled and self._found[resource].signature == examined.signature

    def __iter__(self) -> Iterator[Resource]:
        if self._found:
            self._clock.wait(SETTLE)
            self._settled = True
        yield from self._found


def _reclaim_named(
    place: Place,
    resource: Resource,
    registry: str | None,
    examiner: Examiner,
    settling: _Settling,
    dry_run: bool,
) -> tuple[Inspection, bool]:
    """What was there, and whether it was (in a dry run: would be) removed."""

    def may_go(examined: Examined) -> bool:
        settled = examined.unsettled and settling.has_settled(resource, examined)
        if examined.unsettled and not settled:
            raise _Unsettled(examined)
        return examined.may_be_taken or settled

    def act(hold: Hold) -> tuple[Inspection, bool]:
        remembered = hold.read()
        examined = examiner.examine(place, resource, remembered)
        taken = may_go(examined)
        if taken:
            _evict(place, resource, hold, remembered, examined, examiner)
        return inspection_of(resource, registry, remembered, examined), taken

    remembered, examined = examiner.look(place, resource)
    taken = may_go(examined)
    if dry_run or not taken:
        return inspection_of(resource, registry, remembered, examined), taken
    return locked([place.guard(resource)], examiner.clock.monotonic() + PATIENCE, examiner.clock, act)
