"""What an earlier image of this process left us across exec: its witness, still locked, named in ``LEASES_KEPT``."""

from __future__ import annotations

import os

from ownership._fork import Descriptor

VARIABLE = "LEASES_KEPT"

_kept: dict[str, list[Descriptor]] | None = None
_ids: frozenset[str] | None = None  # its keys


def announce(pid: int, instance_id: str, numbers: list[int]) -> None:
    """Name our witnesses, and those that were kept for us, in the environment of the next image."""
    entries = {instance_id: numbers}
    for earlier, descriptors in _found().items():
        for descriptor in descriptors:
            if descriptor.intact():
                os.set_inheritable(descriptor.number, True)
                entries.setdefault(earlier, []).append(descriptor.number)
    named = ";".join(f"{name}={','.join(map(str, found))}" for name, found in entries.items())
    os.environ[VARIABLE] = f"{pid}:{named}"


def kept() -> frozenset[str]:
    """Instance ids of earlier images whose witness we still hold; the variable is read once and removed.

    A child that merely inherited the variable is another process: it has kept nothing.
    """
    global _ids
    if _ids is None:
        _ids = frozenset(_found())
    return _ids


def _found() -> dict[str, list[Descriptor]]:
    global _kept
    if _kept is None:
        _kept = _read(os.environ.pop(VARIABLE, ""))
    return _kept


def _read(text: str) -> dict[str, list[Descriptor]]:
    pid, _, entries = text.partition(":")
    found: dict[str, list[Descriptor]] = {}
    if pid != str(os.getpid()):
        return found
    for entry in entries.split(";"):
        instance_id, _, numbers = entry.partition("=")
        for number in numbers.split(","):
            descriptor = Descriptor()
            try:
                descriptor.adopt(int(number))
                os.set_inheritable(descriptor.number, False)
            except (ValueError, OSError):
                continue
            found.setdefault(instance_id, []).append(descriptor)
    return found
