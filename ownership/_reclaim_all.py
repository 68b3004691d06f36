"""Clearing a whole directory: every owner that is proven gone, and what dead processes left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import OwnershipError
from ownership._examine import Examined, Examiner
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._inspect import examiner_of, listable, lock_directories, resource_of
from ownership._inspection import Inspection, inspection_of
from ownership._locking import locked
from ownership._paths import Resource, StrPath
from ownership._pinned import DirectoryChanged
from ownership._process import ProcessTable
from ownership._reclaim import Unsettled, evict
from ownership._request import SUFFIX
from ownership._station import Place
from ownership._sweep import sweep
from ownership._verdict import Verdict
from ownership._waiting import SETTLE


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
            place = listable(path, registry=registry)
            names = sorted({*place.directory.names(".json"), *place.directory.names(SUFFIX)})
        except OSError as error:
            yield Inspection(Path(path), Verdict.UNKNOWN, str(error), error=error), False
            continue
        shared = path if registry else None
        resources = [resource_of(place, name) for name in names]
        settling = _Settling(place, examiner.clock)
        for resource in chain(resources, settling):
            try:
                one, removed = _reclaim_named(place, resource, shared, examiner, settling, dry_run)
            except Unsettled as waiting:
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
            raise Unsettled(examined)
        return examined.may_be_taken or settled

    def act(hold: Hold) -> tuple[Inspection, bool]:
        remembered = hold.read()
        examined = examiner.examine(place, resource, remembered)
        taken = may_go(examined)
        if taken:
            evict(place, resource, hold, remembered, examined, examiner)
        return inspection_of(resource, registry, remembered, examined), taken

    remembered, examined = examiner.look(place, resource)
    taken = may_go(examined)
    if dry_run or not taken:
        return inspection_of(resource, registry, remembered, examined), taken
    return locked([place.guard(resource)], examiner.clock.monotonic() + PATIENCE, examiner.clock, act)
