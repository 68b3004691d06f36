"""How many processes wait for what."""

from __future__ import annotations

from pathlib import Path

from ownership._errors import OwnershipError
from ownership._inspect import lock_directories, resource_of
from ownership._paths import StrPath
from ownership._place import opened
from ownership._process import lock_sharers, locked_file


def waiters(directory: StrPath, *, registry: bool = False) -> dict[Path, int]:
    """How many processes wait for each resource in *directory* for which any does. Writes nothing.

    Not guaranteed: that all are counted. Only those are that our pid namespace shows, on systems with ``/proc/locks``,
    and a process counts once, however many of its threads wait.

    :param directory: where the resources are; or a lock directory itself
    :param registry: *directory* is a shared registry itself
    :raises OSError: *directory* itself cannot be listed
    """
    sharers = lock_sharers()
    counts: dict[Path, int] = {}
    for path in lock_directories(directory, registry=registry) if sharers else ():
        try:
            place = opened(path, registry=registry)
            for name in place.directory.names(".json"):
                signature = place.directory.signature(f"{name}.json")
                pids = sharers.get(locked_file(*signature[:2])) if signature is not None else None
                if pids:
                    counts[Path(resource_of(place, name).path)] = len(pids)
        except (OSError, OwnershipError):  # another account's, for instance
            continue
    return counts
