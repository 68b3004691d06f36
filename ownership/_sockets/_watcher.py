"""What the keeper sends round for a listener, which it must not keep from being garbage-collected."""

from __future__ import annotations

import weakref
from typing import Protocol


class Watched(Protocol):
    """A listener, as the keeper sees it."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to be done."""
        ...

    def look(self) -> None:
        """Look at it, waiting for nothing."""
        ...

    def claim_lost(self) -> None:
        """Its claim is lost."""
        ...


class Watcher:
    """One listener's."""

    handle = -1
    last_error: Exception | None = None

    def __init__(self, listener: Watched) -> None:
        self._listener = weakref.ref(listener)

    @property
    def over(self) -> bool:
        listener = self._listener()
        return listener is None or listener.done

    def look(self, *, hinted: bool = False) -> None:
        listener = self._listener()
        if listener is not None:
            listener.look()

    def claim_lost(self, _error: object) -> None:
        listener = self._listener()
        if listener is not None:
            listener.claim_lost()
