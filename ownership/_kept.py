"""What an earlier image of this process left us across exec: its witness, still locked, named in ``LEASES_KEPT``."""

from __future__ import annotations

import os

from ownership._fork import Descriptor

VARIABLE = "LEASES_KEPT"

_kept: frozenset[str] | None = None
_descriptors: list[Descriptor] = []


def announce(pid: int, instance_id: str, numbers: list[int]) -> None:
    """Name our witnesses in the environment of the next image."""
    os.environ[VARIABLE] = f"{pid}:{instance_id}:{','.join(map(str, numbers))}"


def kept() -> frozenset[str]:
    """Instance ids of earlier images whose witness we still hold; the variable is read once and removed.

    A child that merely inherited the variable is another process: it has kept nothing.
    """
    global _kept
    if _kept is None:
        _kept = _read(os.environ.pop(VARIABLE, ""))
    return _kept


def _read(text: str) -> frozenset[str]:
    pid, _, rest = text.partition(":")
    instance_id, _, numbers = rest.partition(":")
    if pid != str(os.getpid()) or not instance_id:
        return frozenset()
    for number in numbers.split(","):
        descriptor = Descriptor()
        try:
            descriptor.adopt(int(number))
            os.set_inheritable(descriptor.number, False)
        except (ValueError, OSError):
            return frozenset()
        _descriptors.append(descriptor)
    return frozenset({instance_id})
