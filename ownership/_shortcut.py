"""What makes another look for the lock directory of a parent directory unnecessary."""

from __future__ import annotations

import os
from typing import Generic, NamedTuple, Protocol, TypeVar

from ownership._directory import LockDirectory
from ownership._paths import Facts, facts_of
from ownership._system import euid


class _HasDirectory(Protocol):
    directory: LockDirectory


_Place = TypeVar("_Place", bound=_HasDirectory)


class Known(NamedTuple, Generic[_Place]):
    """The place of resources in a parent directory, as long as that, its lock directory and we are the same."""

    place: _Place
    above: Facts
    own: Facts
    user: int

    def is_current(self, above: Facts) -> bool:
        """That the path still leads to this lock directory, the look at its guard says."""
        try:
            own = facts_of(os.fstat(self.place.directory.descriptor.number))
        except OSError:
            return False
        return self.own == own and self.above == above and self.user == euid()
