"""What a claim says of itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from ownership._asked import request_to
from ownership._holding import Holding
from ownership._models import OwnerRecord
from ownership._ref import OwnerRef
from ownership._renewal import expires_in, lapses
from ownership._request import StopRequest
from ownership._state import State


class Handle:
    """The facts of a claim."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    @property
    def path(self) -> Path:
        """The canonical path, pinned when it was acquired."""
        return Path(self._holding.primary.path)

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier owner of this resource."""
        return self._holding.part.token

    @property
    def tokens(self) -> Mapping[Path, int]:
        """The token of each resource, those of ``also=`` included."""
        return {Path(part.resource.path): part.token for part in self._holding.parts}

    @property
    def record(self) -> OwnerRecord:
        """Our record as last published."""
        return self._holding.part.record

    @property
    def ref(self) -> OwnerRef:
        """Who owns, as a value that can be handed to workers."""
        part = self._holding.part
        return OwnerRef.of(part.resource.path, part.record, part.registry, part.directory)

    @property
    def lost(self) -> threading.Event:
        """Set once this claim has lost its resource; never cleared. A release is no loss."""
        return self._holding.lost

    @property
    def stop_request(self) -> StopRequest | None:
        """Who asks this owner to go, why, and since when, by looking; ``None`` if nobody does, or it cannot be told.

        To be read at any moment, also in a handler of SIGTERM: whoever replaces an owner asks before it signals. A
        request whose asker has ended, or was stopped for longer than it may take, is none.
        """
        return request_to(self._holding)

    @property
    def held(self) -> bool:
        """Whether this handle still stands for an ownership, as far as it knows."""
        return self._holding.state is State.HELD and self._holding.process == os.getpid()

    @property
    def expires_in(self) -> float | None:
        """Seconds until it may go to a contender unless it is renewed before; 0.0 from then on, or once it was lost.

        ``None`` without a ttl. Not guaranteed: that it is gone then; :meth:`verify` says that, and renews it if not.
        """
        if not self._holding.leased:
            return None
        return max(0.0, expires_in(self._holding)) if self.held else 0.0

    @property
    def lapses(self) -> int:
        """How often it had run out before it was renewed, without anybody having taken it over meanwhile."""
        return lapses(self._holding)
