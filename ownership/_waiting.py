"""Waiting for an owner to go: woken at once where the system can, by polling where it cannot. No order is promised."""

from __future__ import annotations

import random
from functools import partial

from ownership._clock import Clock
from ownership._errors import AcquireTimeoutError, AlreadyOwnedError, OwnershipError
from ownership._examine import Examined, Examiner
from ownership._paths import Resource
from ownership._pinned import DirectoryChanged
from ownership._station import Place
from ownership._stopped import Stopped
from ownership._verdict import Verdict, same_namespace
from ownership._watch import Watch

SETTLE = 1.0  # seconds a malformed record that nobody is known to own is left for its keeper
_MISSING = 0.05  # seconds between looks at a record that is missing, at most
POLL = 0.25  # seconds between looks at what cannot be watched
_CROWD = 16  # how many of our threads poll one record so often; more share those looks among them
_SAFETY = 2.0  # seconds between looks at what is watched


def settles(place: Place, resource: Resource, examined: Examined, clock: Clock) -> bool:
    """Whether a malformed record that nobody is known to own stays as it is for a second.

    A live owner's keeper would put it right within a tick, so long as nobody holds the guard.
    """
    until = clock.monotonic() + SETTLE
    while (left := until - clock.monotonic()) > 0:
        clock.wait(min(left, 0.05))
        if place.directory.signature(f"{resource.name}.json") != examined.signature:
            return False
    return True


def timed_out(error: AlreadyOwnedError, timeout: float) -> AcquireTimeoutError:
    return AcquireTimeoutError(
        f"{error.message} (waited {timeout:g} s)",
        resource=error.resource or "",
        record=error.record,
        owner=error.owner,
        verdict=error.verdict,
        reason=error.reason,
        hint=error.hint.replace("wait for it", "wait longer", 1),
    )


_polling: dict[Waiter, str] = {}  # which record, while its changes cannot be watched


class Waiter:
    """Waits until what is known of an owner may be out of date, looking without the guard.

    So waiters do not queue for the guard while somebody owns the resource, and a crowd that wakes at once finds out by
    itself who was fastest.
    """

    def __init__(self, examiner: Examiner, stopped: Stopped | None = None) -> None:
        self._examiner = examiner
        self._stopped = stopped
        self._watch = Watch()

    def close(self) -> None:
        _polling.pop(self, None)
        self._watch.close()

    def wait(self, place: Place, resource: Resource, examined: Examined, deadline: float) -> Examined | None:
        """Wait for a change of *examined*; what is to be seen then.

        :returns: ``None`` when the look under the guard is to say: *deadline* has passed, the record has just gone, or
            it cannot be looked at
        """
        filename, clock = f"{resource.name}.json", self._examiner.clock
        path = place.directory.file(filename)
        self._watch.queue(path)
        told, ends = self._watch.file(path), self._watch_process(examined)  # of a change of the record; of its end
        watched = told and ends
        if not told:
            _polling[self] = path
        missing, next_look = _MISSING / 64, clock.monotonic() + _SAFETY
        # what is watched from now on, and is what was judged just before, need not be judged again
        known = watched and examined.record is not None and self._is_same(place, filename, examined)
        try:
            while True:
                looked = examined if known else self._look(place, resource)
                if looked is None or looked.may_be_taken or looked.signature != examined.signature:
                    return looked
                known = False
                left = deadline - clock.monotonic()
                if left <= 0:
                    return None
                tick = self._tick(looked, watched)
                if self._stopped is not None:
                    self._stopped.saw(resource, looked)
                    tick = min(tick, self._stopped.due_in())
                if examined.signature is None:  # about to be published, or to be put back by its keeper
                    tick, missing = missing, min(missing * 2, _MISSING)
                if not clock.wait(min(left, tick), self._watch):
                    now = clock.monotonic()
                    known = ends and now < next_look and self._is_steady(place, filename, examined)
                    next_look = next_look if known else now + _SAFETY
                    continue
                signature = place.directory.signature(filename)
                if signature is None and examined.signature is not None:
                    return None  # it has just gone
                if signature == examined.signature:
                    looked = self._look(place, resource)
                    if looked is None or looked.may_be_taken:
                        return looked
                    if self._watch.process_woke:  # for nothing: not again for the same
                        self._watch.forget_process()
                        watched = ends = False
        finally:
            _polling.pop(self, None)
            self._watch.leave_queue()
            self._watch.forget_process()

    def _tick(self, looked: Examined, watched: bool) -> float:
        """Seconds until a look is wanted, if nothing wakes us before."""
        vigil, leased = self._examiner.vigil, looked.record is not None and looked.record.lease is not None
        if not watched or (leased and (looked.ends_at is None or (vigil is not None and vigil.is_kept))):
            crowd = list(_polling.values()).count(_polling.get(self, ""))
            tick = POLL * max(1.0, crowd / _CROWD) * random.uniform(0.8, 1.2)
        else:
            tick = _SAFETY
        if looked.ends_at is not None:  # its lease may run out unrenewed
            left = max(looked.ends_at - self._examiner.clock.monotonic(), 0.0)
            tick = min(tick, left + random.uniform(0.001, 0.005))
        return tick

    def _is_steady(self, place: Place, filename: str, examined: Examined) -> bool:
        """Whether nothing but the end of its owner makes it another case."""
        if self._stopped is not None or examined.record is None or examined.record.lease is not None:
            return False
        try:
            return place.directory.signature(filename) == examined.signature
        except (OSError, OwnershipError):
            return False

    def _is_same(self, place: Place, filename: str, examined: Examined) -> bool:
        """Whether the record is to the byte the one that was examined: a token stands in no other."""
        try:
            place.directory.ensure_open()
            found = place.directory.read(filename)
        except (OSError, OwnershipError, DirectoryChanged):
            return False
        return found is not None and found[0] == examined.raw

    def _look(self, place: Place, resource: Resource) -> Examined | None:
        try:
            place.directory.ensure_open()
            return self._examiner.look(place, resource)[1]
        except (OSError, OwnershipError, DirectoryChanged):
            return None

    def _watch_process(self, examined: Examined) -> bool:
        owner, processes = examined.owner, self._examiner.processes
        if owner is None or examined.verdict is Verdict.UNKNOWN or not same_namespace(owner, processes.current()):
            return False
        try:
            return self._watch.process(partial(processes.open_handle, owner.pid, owner.start_id))
        except ProcessLookupError:
            return False  # it has just ended: the next look says so
