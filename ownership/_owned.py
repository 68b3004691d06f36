"""What handles of this process own in a lock directory, by name."""

from __future__ import annotations

from typing import Protocol


class Owning(Protocol):
    """What owns something by a token, here until it says otherwise."""

    owns_in: Owned | None
    token: int


class Owned:
    """Used by any thread, and by signal handlers, without a lock.

    Whoever owns by a name stops to in one step, which is its own; its entry is dropped under the guard of that name,
    where entries are made, too. So nobody ever ends what another one has begun meanwhile.
    """

    def __init__(self) -> None:
        self._owning: dict[str, Owning] = {}
        self.closed: set[str] = set()  # what has been given up, and is kept until the process ends

    def enter(self, name: str, one: Owning) -> None:
        """To be called under the guard of *name*."""
        one.owns_in = self
        self._owning[name] = one

    def offer(self, name: str, one: Owning) -> None:
        """Without the guard: only if nothing else of ours may own by that name."""
        if self._owning.setdefault(name, one) is one:
            one.owns_in = self
        else:
            one.owns_in = None

    def drop(self, name: str, one: Owning) -> None:
        """To be called under the guard of *name*; *one* may have been followed by another, or own still."""
        if one.owns_in is not self and self._owning.get(name) is one:
            self._owning.pop(name, None)

    def token(self, name: str) -> int | None:
        """By which *name* is owned."""
        one = self._owning.get(name)
        return one.token if one is not None and one.owns_in is self else None

    def __contains__(self, name: str) -> bool:
        return self.token(name) is not None
