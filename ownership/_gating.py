"""Gates as acquire sees them: anything that can be asked whether somebody new may own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from ownership._location import pin_registry
from ownership._paths import Resource, resolve


class Gate(Protocol):
    """Anything with ``check()``.

    If it has a ``path``, and perhaps a ``registry``, it rules the lock directory that *path* is in, and no other.
    """

    def check(self) -> object:
        """Raise what acquire is to raise, while nobody new may own."""
        ...


def checked_gate(gate: Gate, resources: Iterable[Resource], registry: str | None) -> Gate:
    """*gate*, if every one of *resources* is in the lock directory that it rules.

    :raises ValueError: it is none, or rules another one
    """
    if not callable(getattr(gate, "check", None)):
        raise ValueError(f"gate must have a method check(), got {gate!r}")
    path = getattr(gate, "path", None)
    if path is None:
        return gate
    pinned = pin_registry(getattr(gate, "registry", None))
    ruled = resolve(path, whole=pinned is not None, parameter="gate")
    for one in resources:
        if not _are_one(pinned or ruled.parent, registry or one.parent) or (pinned is None) is not (registry is None):
            raise ValueError(
                f"gate must rule the lock directory of {one.shown}, got {gate!r}, which rules that of {ruled.shown}: "
                "name one beside the resource, or in its registry"
            )
    return gate


def _are_one(path: str, other: str) -> bool:
    """Whether both lead to one directory."""
    if path == other:
        return True
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
