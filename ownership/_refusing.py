"""Why an attempt to acquire did not succeed, for whoever decides what to do about it."""

from __future__ import annotations

from ownership._errors import AlreadyOwnedError
from ownership._examine import Examined
from ownership._paths import Resource
from ownership._refusal import refusal
from ownership._station import Place


class Unsettled(Exception):
    """A malformed record, and the guard names nobody."""

    def __init__(self, place: Place, resource: Resource, examined: Examined) -> None:
        super().__init__()
        self.place, self.resource, self.examined = place, resource, examined


class Refused(Exception):
    """Somebody owns it who may not be evicted."""

    def __init__(self, place: Place, resource: Resource, examined: Examined) -> None:
        super().__init__()
        self.place, self.resource, self.examined = place, resource, examined

    def error(self) -> AlreadyOwnedError:
        """What to tell the caller."""
        return refusal(self.resource, self.examined, self.place)
