"""Asking who owns what. Reading only: the directory is byte-identical afterwards."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from ownership import _keeper, _kept
from ownership._acquire import OnWait
from ownership._arguments import checked_callback, checked_timeout
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import OwnershipError, UnsafeDirectoryError
from ownership._examine import Examiner
from ownership._inspection import Inspection, Running, inspection_of, nobody
from ownership._location import locate, pin_registry, refuse_stand_in, refuse_writable
from ownership._models import OwnerRecord
from ownership._paths import DIRECTORY, Resource, StrPath, pinned_resource, resolve, spelled_path
from ownership._place import existing, opened
from ownership._process import ProcessTable, system_processes
from ownership._record import decode
from ownership._refusal import refusal
from ownership._request import stop_request_of
from ownership._station import Place
from ownership._verdict import Verdict
from ownership._vigil import Vigil
from ownership._waiting import Waiter, settles, timed_out


def inspect(
    resource: StrPath,
    *,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Inspection:
    """Who owns *resource* at this moment, and how that is known. Writes nothing.

    Not guaranteed: that it is still so when this returns. To act on it, acquire.

    :raises RecordError: what is there cannot be read as a record; see the subclass
    :raises OSError: it cannot be looked at; that is not absence
    """
    shared = pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    try:
        place = existing(found, shared)
        if place is None:
            return nobody(found, shared)
        return _inspect(place, found, shared, examiner_of(clock, processes))
    finally:
        _keeper.KEEPER.tidy()


def examiner_of(clock: Clock, processes: ProcessTable | None) -> Examiner:
    """Who looks, for a call that is not an acquire."""
    return Examiner(processes or system_processes(), clock, _kept.kept())


def _inspect(place: Place, resource: Resource, registry: str | None, examiner: Examiner) -> Inspection:
    remembered, examined = examiner.look(place, resource)
    request = stop_request_of(examiner, place, resource, remembered)
    return inspection_of(resource, registry, remembered, examined, request)


def find(
    resource: StrPath,
    *,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Running | None:
    """The live owner of *resource*, with what it announced; ``None`` if there is none, or none that is proven to live.

    A stopped owner is found too: it lives, see ``running.verdict``. Raises what :func:`inspect` raises.
    """
    return inspect(resource, registry=registry, clock=clock, processes=processes).running


def running(
    directory: StrPath,
    *,
    registry: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> list[Running]:
    """Every live owner of something directly in *directory*.

    Also one whose lease has ``expired`` (see its ``verdict``): it may go on until somebody takes over.

    Not guaranteed: one that cannot be looked at; :func:`inspect_all` tells of the ``error``.

    :param registry: *directory* is a shared registry itself
    """
    looked = inspect_all(directory, registry=registry, clock=clock, processes=processes)
    return [found for one in looked if (found := one.running or one.overdue) is not None]


def inspect_all(
    directory: StrPath,
    *,
    registry: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Iterator[Inspection]:
    """Look at every resource in *directory* that has a record. A record that cannot be read is one with an ``error``.

    :param directory: where the resources are; or a lock directory itself
    :param registry: *directory* is a shared registry itself
    :raises ValueError: *directory* is empty or holds NUL
    :raises OSError: *directory* itself cannot be listed
    """
    examiner = examiner_of(clock, processes)
    paths = lock_directories(directory, registry=registry)
    if not registry:
        yield from _unsafe(os.path.realpath(spelled_path(directory, "directory")), paths)
    for path in paths:
        try:
            place = listable(path, registry=registry)
            names = sorted(place.directory.names(".json"))
        except OSError as error:  # another account's, for instance; the others are looked at all the same
            yield Inspection(Path(path), Verdict.UNKNOWN, str(error), error=error)
            continue
        for name in names:
            resource = resource_of(place, name)
            try:
                one = _inspect(place, resource, path if registry else None, examiner)
            except (OSError, OwnershipError) as error:
                yield Inspection(Path(resource.path), Verdict.UNKNOWN, str(error), error=error)
                continue
            if one.verdict is not Verdict.FREE:  # else it left while we were listing
                yield one


def _unsafe(parent: str, lock_directories: list[str]) -> Iterator[Inspection]:
    """That others can replace what is in *parent*: what is said of it may be theirs, and nobody can own anything."""
    if parent in lock_directories:
        return
    try:
        locate(parent, looking=True)
    except UnsafeDirectoryError as error:
        if error.resource is not None and os.fspath(error.resource) == parent:
            yield Inspection(Path(parent), Verdict.UNKNOWN, str(error), error=error)
    except OSError:  # said below
        pass


def lock_directories(directory: StrPath, *, registry: bool = False) -> list[str]:
    """The lock directories of *directory* that are there, every account's; *directory* itself if it is one.

    Also what stands where ours should be and is none, or cannot be looked at: nobody is to take that for a directory
    without owners.
    """
    path = os.path.realpath(spelled_path(directory, "directory"))
    if not os.path.isdir(path):
        os.listdir(path)  # raises what is wrong with it
    if registry or os.path.basename(path).startswith(DIRECTORY):
        return [path]
    found = glob.glob(os.path.join(glob.escape(path), DIRECTORY)) + glob.glob(
        os.path.join(glob.escape(path), f"{DIRECTORY}-[0-9]*")
    )
    return sorted({*(one for one in found if os.path.isdir(one) and not os.path.islink(one)), *_in_the_way(path)})


def _in_the_way(parent: str) -> Iterator[str]:
    try:
        locate(parent, looking=True)
    except UnsafeDirectoryError as error:
        if error.resource is not None and os.fspath(error.resource) != parent:
            yield os.fspath(error.resource)
    except OSError:  # that it cannot be looked at, whoever lists it is told
        yield os.path.join(parent, DIRECTORY)


def listable(path: str, *, registry: bool) -> Place:
    """The place that is the lock directory or registry *path*, to be listed.

    :raises UnsafeDirectoryError: it is none, or other accounts could tamper with it
    :raises OSError: it cannot be looked at
    """
    if not registry:
        refuse_stand_in(path, os.lstat(path))
    place = opened(path, registry=registry)
    refuse_writable(path, place.directory.stat())
    return place


def resource_of(place: Place, name: str) -> Resource:
    """The resource whose files are called *name*. For a hashed name its record is believed if it fits the hash."""
    directory = place.directory
    path = directory.resource_path(name) or _told_path(place, name) or directory.file(name)
    return Resource(path, os.path.dirname(path), name)


def _told_path(place: Place, name: str) -> str | None:
    try:
        found = place.directory.read(f"{name}.json")
        record = None if found is None else decode(found[0], name)
    except (OSError, OwnershipError):
        return None
    if not isinstance(record, OwnerRecord) or not os.path.isabs(record.resource):
        return None
    resource = pinned_resource(record.resource, whole=place.directory.location.whole)
    return resource.path if resource.name == name else None


def wait(
    resource: StrPath,
    *,
    timeout: float | None = None,
    registry: StrPath | None = None,
    on_wait: OnWait | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Inspection:
    """Wait until nobody holds *resource*; acquires nothing, so somebody else may be faster.

    A holder whose lease has expired holds it as long as it is inside its critical section (as far as ``/proc/locks``
    tells).

    :param timeout: seconds; ``None`` for ever
    :param on_wait: called once per owner that is waited for
    :returns: what was found at last: free, an owner that may be evicted, or a malformed record that nobody repairs
    :raises AcquireTimeoutError: it was still held when the time was over
    """
    seconds, on_wait = checked_timeout(timeout), checked_callback(on_wait, "on_wait")
    deadline, told = clock.monotonic() + seconds, set()
    shared = pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    examiner = examiner_of(clock, processes)._replace(vigil=Vigil(), outside=True)
    waiter = Waiter(examiner)
    try:
        while True:
            place = existing(found, shared)
            if place is None:
                return nobody(found, shared)
            remembered, examined = examiner.look(place, found)
            if examined.may_be_taken:
                return inspection_of(found, shared, remembered, examined)
            if examined.unsettled:
                if settles(place, found, examined, clock):
                    return inspection_of(found, shared, remembered, examined)
                continue
            error = refusal(found, examined, place)
            if clock.monotonic() >= deadline:
                raise timed_out(error, seconds)
            holder = examined.owner.instance_id if examined.owner else ""
            if on_wait is not None and holder not in told:
                told.add(holder)
                on_wait(error)
            waiter.wait(place, found, examined, deadline)
    finally:
        waiter.close()
        _keeper.KEEPER.tidy()
