"""Waiting for an owner to go: woken at once where the system can, by polling where it cannot. No order is promised."""

from __future__ import annotations

import random
from functools import partial

from ownership._clock import Clock
from ownership._errors import AcquireTimeoutError, AlreadyOwnedError, OwnershipError
from ownership._examine import Examined, Examiner
from ownership._locking import peek
from ownership._paths import Resource
from ownership._place import Place
from ownership._verdict import Verdict, same_namespace
from ownership._watch import Watch

SETTLE = 1.0  # seconds a malformed record that nobody is known to own is left for its keeper
POLL = 0.25  # seconds between looks at what cannot be watched
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
        hint=error.hint,
    )


def wait_for_change(place: Place, resource: Resource, examined: Examined, examiner: Examiner, deadline: float) -> None:
    """Return when *examined* may be out of date: its record changed, its owner ended, or *deadline* has passed.

    Looks without the guard, so that waiters do not queue for it while nothing has changed.
    """
    watch = Watch()
    try:
        _wait(place, resource, examined, examiner, deadline, watch)
    finally:
        watch.close()


def _wait(
    place: Place, resource: Resource, examined: Examined, examiner: Examiner, deadline: float, watch: Watch
) -> None:
    filename, clock = f"{resource.name}.json", examiner.clock
    watched = watch.file(place.directory.file(filename)) and _watch_process(examined, examiner, watch)
    while place.directory.signature(filename) == examined.signature and not _may_be_over(place, resource, examiner):
        left = deadline - clock.monotonic()
        if left <= 0:
            return
        tick = _SAFETY if watched else POLL * random.uniform(0.8, 1.2)
        if clock.wait(min(left, tick), watch.wait) and place.directory.signature(filename) == examined.signature:
            if _may_be_over(place, resource, examiner):
                return
            watch.forget_process()  # woken for nothing: not again for the same
            watched = False


def _watch_process(examined: Examined, examiner: Examiner, watch: Watch) -> bool:
    owner = examined.owner
    if owner is None or examined.verdict is Verdict.UNKNOWN or not same_namespace(owner, examiner.processes.current()):
        return False
    if examined.record is not None and examined.record.lease is not None:
        return False  # time may end it
    try:
        return watch.process(partial(examiner.processes.open_handle, owner.pid, owner.start_id))
    except ProcessLookupError:
        return False  # it has just ended: the next look says so


def _may_be_over(place: Place, resource: Resource, examiner: Examiner) -> bool:
    try:
        remembered = peek(place.directory, resource)
        return examiner.examine(place, resource, remembered).may_be_taken
    except (OSError, OwnershipError):
        return True  # the look under the guard raises it
