"""Looking at a directory again and again, at the cost of what changed. Reading only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

from ownership import _keeper
from ownership._arguments import checked_seconds
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import OwnershipError
from ownership._examine import Examined, Examiner
from ownership._inspect import examiner_of, listable, lock_directories, resource_of
from ownership._inspection import Inspection, inspection_of
from ownership._models import NO_GUARD_STATE
from ownership._once_seen import OnceSeen
from ownership._paths import Resource, StrPath, spelled_path
from ownership._pinned import Signature, is_settled, signature_of
from ownership._process import ProcessTable
from ownership._request import stop_request_of
from ownership._station import Place
from ownership._verdict import Verdict, same_namespace


class _Name(NamedTuple):
    """A record, by the names of its files."""

    directory: str
    name: str


class _Signatures(NamedTuple):
    """What record and guard look like from outside; ``None``: not there, or it cannot be told."""

    record: Signature | None
    guard: Signature | None

    def are_settled(self, wall_ns: int) -> bool:
        """Whether neither file can have changed without showing it since *wall_ns*."""
        guarded = self.guard is None or is_settled(self.guard, wall_ns)
        return guarded and self.record is not None and is_settled(self.record, wall_ns)


@dataclass(slots=True)
class _Seen:
    """What was seen of a record.

    :ivar signatures: as they were before it was inspected; ``None`` where too young to be believed
    :ivar pid: whose answer to signal 0 says that nothing is over, 0 if nobody's does
    :ivar at: when its owner was looked at last
    """

    resource: Resource
    inspection: Inspection
    signatures: _Signatures | None
    pid: int
    at: float


class Survey:
    """What :func:`inspect_all` tells of a directory, again and again, at the cost of what changed. Writes nothing.

    A record is read again only if it or its guard may have changed since it was read, which their signatures say. Its
    owner is looked at again only then, when no process has its number any more, and before what was seen of it is older
    than *confirm_interval*; these looks are spread over the calls, so that none of them costs all at once.

    Not guaranteed: that everything is told as it is at this moment. What shows in no file (an owner that was stopped or
    resumed, that is a zombie, whose number was reused, whose lease ran out, or that ended in another pid namespace) is
    told by the first look that is at least *confirm_interval* seconds after the last one that saw it otherwise. To act
    on something, :func:`inspect` it. One thread at a time; after a fork the child makes its own.

    :param directory: where the resources are, or a lock directory itself; need not exist yet
    :param registry: *directory* is a shared registry itself
    :param confirm_interval: seconds; 0: look at every owner every time
    :raises ValueError: *directory* is empty or holds NUL, or *confirm_interval* is no number of seconds
    """

    def __init__(
        self,
        directory: StrPath,
        *,
        registry: bool = False,
        confirm_interval: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        processes: ProcessTable | None = None,
    ) -> None:
        self._path = os.path.abspath(spelled_path(directory, "directory"))
        self._interval = checked_seconds(confirm_interval, "confirm_interval")
        self._registry = registry
        self._clock = clock
        self._processes = processes
        self._seen: dict[_Name, _Seen] = {}  # in the order in which their owners were looked at
        self._looked_at = clock.monotonic()
        self._share = 0.0  # of the looks at owners that are to be made early, what did not come to a whole one yet

    def __repr__(self) -> str:
        return f"a survey of {self._path}"

    def look(self) -> list[Inspection]:
        """Every resource that has a record now, in the order of :func:`inspect_all`.

        An inspection is the very object of the last look if what was seen then was found to be so still, or was not
        looked at again. A record that cannot be read, or a lock directory that cannot be listed, is one with an
        ``error``, tried again at every look.

        :raises OSError: the directory itself cannot be listed; the next look begins anew
        """
        try:
            paths = lock_directories(self._path, registry=self._registry)
            return list(self._look(paths))
        except OSError:
            self._seen.clear()
            raise
        finally:
            _keeper.KEEPER.tidy()

    def _look(self, paths: list[str]) -> Iterator[Inspection]:
        now = self._clock.monotonic()
        due = self._due(now)
        full = examiner_of(self._clock, self._processes)
        quick = full._replace(processes=cast(ProcessTable, OnceSeen(full.processes)))
        present: set[_Name] = set()
        for path in paths:
            wall_ns = self._clock.wall_ns()
            try:
                place = listable(path, registry=self._registry)
                names = sorted(place.directory.names(".json"))
            except OSError as error:  # another account's, for instance; the others are looked at all the same
                yield Inspection(Path(path), Verdict.UNKNOWN, str(error), error=error)
                continue
            for name in names:
                key = _Name(path, name)
                present.add(key)
                signatures = _signatures(place, name)
                seen = self._seen.get(key)
                if seen is None or seen.signatures != signatures:
                    seen = self._inspect(key, place, full, signatures, now, wall_ns)
                elif key in due or (seen.pid and not quick.processes.answers(seen.pid)):
                    seen = self._confirm(key, seen, place, quick, now)
                if seen.inspection.verdict is not Verdict.FREE:  # else it left while we were listing
                    yield seen.inspection
        for gone in self._seen.keys() - present:
            del self._seen[gone]

    def _due(self, now: float) -> set[_Name]:
        """Whose owners are looked at now: those seen too long ago, and as many more as keep them from piling up."""
        count, elapsed = len(self._seen), now - self._looked_at
        self._looked_at = now
        fraction = min(elapsed / self._interval, 1.0) if self._interval else 1.0
        self._share += count * max(fraction, 0.0)
        whole = int(self._share)
        self._share -= whole
        due: set[_Name] = set()
        for key, seen in self._seen.items():
            if len(due) >= whole and now - seen.at < self._interval:
                break
            due.add(key)
        return due

    def _inspect(
        self, key: _Name, place: Place, examiner: Examiner, signatures: _Signatures, now: float, wall_ns: int
    ) -> _Seen:
        """Read it and look at its owner."""
        resource = resource_of(place, key.name)
        settled = signatures if signatures.are_settled(wall_ns) else None
        try:
            remembered, examined = examiner.look(place, resource)
            request = stop_request_of(examiner, place, resource, remembered)
            one = inspection_of(resource, key.directory if self._registry else None, remembered, examined, request)
        except (OSError, OwnershipError) as error:
            one, settled = Inspection(Path(resource.path), Verdict.UNKNOWN, str(error), error=error), None
        return self._remember(key, _Seen(resource, one, settled, _pid_to_ask(one, examiner), now))

    def _confirm(self, key: _Name, seen: _Seen, place: Place, examiner: Examiner, now: float) -> _Seen:
        """Look at the owner of a record that is as it was when it was read."""
        before = seen.inspection
        try:
            one = _judged_again(seen.resource, before, place, examiner)
        except (OSError, OwnershipError) as error:
            one = Inspection(before.resource, Verdict.UNKNOWN, str(error), error=error)
            return self._remember(key, _Seen(seen.resource, one, None, 0, now))
        return self._remember(key, replace(seen, inspection=one, pid=_pid_to_ask(one, examiner), at=now))

    def _remember(self, key: _Name, seen: _Seen) -> _Seen:
        self._seen.pop(key, None)
        self._seen[key] = seen  # the last one
        return seen


def _signatures(place: Place, name: str) -> _Signatures:
    fd = place.directory.fd
    return _Signatures(_signature(f"{name}.json", fd), _signature(f"{name}.guard", fd))


def _signature(filename: str, fd: int) -> Signature | None:
    try:
        return signature_of(os.stat(filename, dir_fd=fd, follow_symlinks=False))
    except OSError:
        return None  # what is wrong with it, the inspection says


def _judged_again(resource: Resource, before: Inspection, place: Place, examiner: Examiner) -> Inspection:
    record, registry = before.record, place.directory.path if place.directory.location.whole else None
    if record is None or before.request is not None:  # who owns it, only the guard knows
        remembered, examined = examiner.look(place, resource)
        request = stop_request_of(examiner, place, resource, remembered)
        return inspection_of(resource, registry, remembered, examined, request)
    judgement, _ = examiner.judge(place, resource, record, record)
    if (judgement.verdict, judgement.reason) == (before.verdict, before.reason):
        return before
    again = Examined(judgement, record, owner=record, directory=place.directory.path)
    one = inspection_of(resource, registry, NO_GUARD_STATE, again)
    return replace(one, previous=before.previous)


def _pid_to_ask(one: Inspection, examiner: Examiner) -> int:
    """Whose end signal 0 would tell first; that a process is gone already, it need not tell again."""
    owner = one.owner
    if owner is None or one.verdict is Verdict.GONE:
        return 0
    try:
        return owner.pid if same_namespace(owner, examiner.processes.current()) else 0
    except OSError:
        return 0
