"""Evicting owners: reclaim on proof, break by decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import AlreadyOwnedError
from ownership._eviction import after_end, run_out
from ownership._examine import Examined, Examiner
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._inspect import examiner_of
from ownership._inspection import Inspection, inspection_of, nobody
from ownership._location import pin_registry
from ownership._locking import locked
from ownership._models import MAX_TOKEN, GuardState, ending
from ownership._paths import Resource, StrPath, resolve
from ownership._pinned import DirectoryChanged
from ownership._place import existing, pinned
from ownership._process import ProcessTable
from ownership._refusal import argument, refusal
from ownership._request import StopRequest, withdraw, withdraw_dead
from ownership._station import Place
from ownership._verdict import Verdict
from ownership._waiting import settles

_FOLLOWED = 8  # times that a changed directory is followed before giving up


class Unsettled(Exception):
    """A malformed record, and the guard names nobody."""

    def __init__(self, examined: Examined) -> None:
        super().__init__()
        self.examined = examined


_Decision = Callable[[Place, Hold, GuardState, Examined], None]


def reclaim(
    resource: StrPath,
    *,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Inspection:
    """Remove the record of an owner that is proven gone or expired, without becoming the owner.

    :returns: what was there; verdict ``free`` if there was nothing
    :raises AlreadyOwnedError: its owner is live, stopped, or nobody can tell
    """
    shared = pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    if existing(found, shared) is None:
        return nobody(found, shared)
    examiner = examiner_of(clock, processes)

    def decide(place: Place, hold: Hold, remembered: GuardState, examined: Examined) -> None:
        if not examined.may_be_taken and not examined.unsettled:
            raise refusal(found, examined, place)
        evict(place, found, hold, remembered, examined, examiner)

    return _decided(found, shared, examiner, decide)


def evict_stopped(resource: Resource, registry: str | None, token: int, examiner: Examiner) -> None:
    """Break the claim of an owner that is stopped; nothing if it runs again, or if another one owns by now.

    :raises GuardTimeoutError: it was stopped inside the guard
    """

    def decide(place: Place, hold: Hold, remembered: GuardState, examined: Examined) -> None:
        record = examined.record
        if examined.verdict is Verdict.STOPPED and record is not None and record.token == token:
            greater = max(remembered.token, token) + 1
            _evict_living(place, resource, hold, remembered, examined, greater, examiner.clock.wall_ns())

    _decided(resource, registry, examiner, decide)


def break_claim(
    resource: StrPath,
    *,
    token: int,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Inspection:
    """Evict the owner whose token is *token*, by decision: it may be alive, and learns of it at its next ``verify()``.

    Guaranteed: the next owner's token is greater, and a later owner than the one meant is never hit.

    Not guaranteed: that the evicted owner stops working before it looks.

    :param token: as shown by ``inspect`` (for a malformed record: the guard's); that of a request to go (see
        :func:`replace`): the request is withdrawn, its asker gives up, and the owner goes on
    :returns: what was there; verdict ``free`` if there was nothing. :attr:`Inspection.withdrawn` says that it was a
        request, :attr:`Inspection.request` which
    :raises AlreadyOwnedError: somebody owns it by another token
    """
    if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= MAX_TOKEN:
        raise ValueError(f"token must be a whole number up to 2^53, got {token!r}")
    shared = pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    if existing(found, shared) is None:
        return nobody(found, shared)
    examiner = examiner_of(clock, processes)
    gone: list[StopRequest] = []

    def decide(place: Place, hold: Hold, remembered: GuardState, examined: Examined) -> None:
        if remembered.requested and (request := withdraw(examiner, place, hold, token)) is not None:
            gone.append(request)
            return
        if examined.owner is None and not examined.unsettled:
            return
        known = examined.record.token if examined.record else remembered.token
        if known != token:
            error = refusal(found, examined, place)
            raise AlreadyOwnedError(
                f"{found.shown} is not owned by token {token} but by {known}; nothing was broken: {error.message}",
                resource=found.path,
                record=examined.record,
                verdict=examined.verdict,
                reason=error.reason,
                hint=f"look again: leasectl show {argument(found, place)}",
            )
        _evict_living(place, found, hold, remembered, examined, max(remembered.token, known) + 1, clock.wall_ns())

    one = _decided(found, shared, examiner, decide)
    return replace(one, request=gone[0], withdrawn=True) if gone else one


def _decided(resource: Resource, registry: str | None, examiner: Examiner, decide: _Decision) -> Inspection:
    """Look and decide under the guard; what was seen there. Where there is nothing, nothing is made."""
    settled = False

    def act(place: Place, hold: Hold) -> Inspection:
        remembered = hold.read()
        examined = examiner.examine(place, resource, remembered)
        if examined.unsettled and not settled:
            raise Unsettled(examined)
        decide(place, hold, remembered, examined)
        return inspection_of(resource, registry, remembered, examined)

    for _ in range(_FOLLOWED):
        place = pinned(resource, registry)
        if not any(place.directory.signature(f"{resource.name}.{kind}") for kind in ("json", "guard")):
            return nobody(resource, registry)
        until = examiner.clock.monotonic() + PATIENCE
        try:
            return locked([place.guard(resource)], until, examiner.clock, partial(act, place))
        except DirectoryChanged:
            continue
        except Interrupting as interrupting:
            raise interrupting.told() from None
        except Unsettled as waiting:
            settled = settles(place, resource, waiting.examined, examiner.clock)
    raise OSError(11, "its lock directory keeps being changed from outside", resource.path)


def evict(
    place: Place, resource: Resource, hold: Hold, remembered: GuardState, examined: Examined, examiner: Examiner
) -> None:
    withdraw_dead(examiner, place, hold, remembered)
    if examined.verdict is Verdict.FREE or examined.signature is None:
        return
    token = max(remembered.token, examined.record.token if examined.record else 0)
    if examined.verdict is Verdict.EXPIRED:  # it may be alive: its keeper must find a greater token
        wall_ns = examiner.clock.wall_ns()
        _evict_living(place, resource, hold, remembered, examined, token + 1, wall_ns, expired=True)
        return
    place.directory.remove(f"{resource.name}.json", examined.signature)
    if examined.owner is not None:
        place.directory.unlink_temporary(resource.name, examined.owner.instance_id)
    remembered = after_end(remembered, examined, examiner.clock.wall_ns(), examiner.processes.current().boot_id)
    hold.write(remembered._replace(token=token, owner=None))


def _evict_living(
    place: Place,
    resource: Resource,
    hold: Hold,
    remembered: GuardState,
    examined: Examined,
    token: int,
    wall_ns: int,
    *,
    expired: bool = False,
) -> None:
    """A greater token and nobody's name into the guard, then the record away; and look again.

    :raises DirectoryChanged: directory or guard were replaced meanwhile, the owner may be back: do it again there
    """
    owner = examined.owner
    if owner is not None and examined.verdict.is_dead:
        place.directory.unlink_temporary(resource.name, owner.instance_id)
    who = f"pid {owner.pid}, {examined.verdict.value}" if owner else "whoever made the record"
    end = ending("broken", f"evicted by decision: {who}", wall_ns)
    if expired and owner is not None:
        end = ending("expired", run_out(owner), wall_ns)
    hold.write(remembered._replace(token=token, owner=None, previous=end))
    if examined.signature is not None:
        place.directory.remove(f"{resource.name}.json", examined.signature)
    if not hold.is_at_path():
        raise DirectoryChanged
