"""The owner's side of a request: who asks it to go, to be looked up or to be told of."""

from __future__ import annotations

import os
from collections.abc import Callable

from ownership import _fork, _kept
from ownership._callbacks import call, prepared
from ownership._errors import OwnershipError
from ownership._examine import Examiner
from ownership._holding import Holding
from ownership._log import log, tell
from ownership._pinned import DirectoryChanged, Signature
from ownership._process import system_processes
from ownership._request import SUFFIX, StopRequest, asker_of
from ownership._state import OWNING

OnRequest = Callable[[StopRequest], object]


def request_to(holding: Holding) -> StopRequest | None:
    """Who asks the owner of *holding* to go, by looking; ``None`` also where that cannot be told.

    Takes no lock and no guard, so a signal handler may call it at any moment.
    """
    if holding.process != os.getpid():
        return None
    for part in list(holding.parts):
        place = part.place
        if place is None or part.retired:
            continue
        try:
            examiner = Examiner(system_processes(), holding.clock, _kept.kept())
            asker = asker_of(examiner, place, part.resource)
        except (OSError, OwnershipError, DirectoryChanged):
            continue
        if asker is not None and asker.stands:
            return asker.request
    return None


class Listening:
    """Tells the owner of one claim of every request, once each."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._told: dict[OnRequest, object] = {}  # who asked last, and since when, as each was told
        self._seen: list[Signature | None] = []

    def add(self, callback: OnRequest) -> None:
        """Have *callback* called too, also with a request that stands already.

        :raises OSError: the thread for callbacks cannot be started
        """
        self._told[prepared(callback)] = None
        self._seen = []
        LISTENING.add(self)

    def look(self) -> None:
        """Is there a new one? One look at a directory entry unless something changed."""
        holding = self._holding
        if holding.state not in OWNING:
            LISTENING.discard(self)
            return
        places = [(part.place, part.resource.name) for part in holding.parts if part.place is not None]
        seen = [place.directory.signature(name + SUFFIX) for place, name in places]
        if seen == self._seen:
            return
        request = request_to(holding) if any(seen) else None
        self._seen = seen if request is not None or not any(seen) else []  # not read yet, or dead: look again
        if request is None:
            return
        who = request.identity.instance_id, request.since  # the token is another one if a cleaner deleted it meanwhile
        for callback, told in list(self._told.items()):
            if told != who:
                self._told[callback] = who
                call(callback, request)


LISTENING: set[Listening] = set()


def listen() -> None:
    """One look for every claim whose owner wants to be told. For the keeper, every tick."""
    for one in list(LISTENING):
        try:
            one.look()
        except OSError as error:
            tell(log.debug, "requests cannot be looked for now: %s", error)


_fork.in_child(LISTENING.clear)
