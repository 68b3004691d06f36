"""Clearing what dead processes left beside the records: witnesses that no record names, temporary files."""

from __future__ import annotations

import os
from functools import partial
from itertools import islice

from ownership._directory import LockDirectory
from ownership._errors import OwnershipError
from ownership._locking import peek
from ownership._models import Malformed
from ownership._paths import Resource
from ownership._record import decode
from ownership._station import Place
from ownership._system import NO_FOLLOW, lock_shared
from ownership._verdict import WitnessState
from ownership._witness import SUFFIX, ask

SMALL = 256  # records that an acquire is willing to read, and leftovers that it removes at once
LISTED = 4096  # names of a directory that an acquire is willing to list
TEMPORARY = ".new"


def sweep(place: Place, limit: int | None = SMALL, *, dry: bool = False) -> list[str]:
    """Remove leftovers; the names of those removed. Best effort: what cannot be looked at stays.

    A witness goes only if it is found free *first*, and seen *then*, the shared lock kept, to be named by no record.

    :param limit: leftovers to remove at the most, and records to read for it; ``None``: whatever there is
    :param dry: only say what would be removed
    """
    directory = place.directory
    try:
        with os.scandir(directory.path) as entries:
            listed = (entry.name for entry in entries)
            names = list(listed if limit is None else islice(listed, LISTED))
        temporaries = [name for name in names if name.endswith(TEMPORARY)][:limit]
        removed = _sweep_temporaries(directory, temporaries, dry)
        records = sum(name.endswith(".json") for name in names)
        if limit is not None and (records > limit or len(names) == LISTED):
            return removed  # too many to be read
        own = place.witness.instance_id + SUFFIX
        witnesses = [name for name in names if name.endswith(SUFFIX) and name != own][:limit]
        return removed + _sweep_witnesses(directory, witnesses, dry)
    except (OSError, OwnershipError):
        return []


def _sweep_temporaries(directory: LockDirectory, names: list[str], dry: bool) -> list[str]:
    removed = []
    for name in names:
        instance_id = name[: -len(TEMPORARY)].rpartition(".")[2]
        if ask(directory, instance_id).state in (WitnessState.FREE, WitnessState.MISSING) and _is_unlocked(
            directory, name
        ):
            if not dry:
                directory.unlink(name)
            removed.append(name)
    return removed


def _is_unlocked(directory: LockDirectory, name: str) -> bool:
    numbers: list[int] = []
    try:
        return _hold_if_free(directory, name, numbers)
    finally:
        for number in numbers:
            os.close(number)


def _sweep_witnesses(directory: LockDirectory, names: list[str], dry: bool) -> list[str]:
    numbers: list[int] = []
    removed = []
    try:
        free = [(name, numbers[-1]) for name in names if _hold_if_free(directory, name, numbers)]
        if not free:
            return []
        in_use = _instances_named(directory)
        for name, number in free:
            if name[: -len(SUFFIX)] in in_use:
                continue
            there = directory.signature(name)
            if there is not None and there[1] == os.fstat(number).st_ino:
                if not dry:
                    directory.unlink(name)
                removed.append(name)
    finally:
        for number in numbers:
            os.close(number)
    return removed


def _hold_if_free(directory: LockDirectory, name: str, numbers: list[int]) -> bool:
    """Lock *name* shared and keep it so, if nobody holds it."""
    try:
        numbers.extend(map(partial(os.open, dir_fd=directory.fd), (name,), (os.O_RDONLY | NO_FOLLOW,)))
        return lock_shared(numbers[-1])
    except OSError:
        return False


def _instances_named(directory: LockDirectory) -> set[str]:
    """The instance ids that records here name; for a malformed record, whoever its guard names.

    :raises OSError: a record that cannot be read may name anybody
    """
    found: set[str] = set()
    for name in list(directory.names(".json")):
        raw = directory.read(f"{name}.json")
        if raw is None:
            continue
        record = decode(raw[0], name)
        if isinstance(record, Malformed):
            owner = peek(directory, Resource(name, directory.path, name)).owner
            found.update({owner.instance_id} if owner else ())
        else:
            found.add(record.instance_id)
    return found
