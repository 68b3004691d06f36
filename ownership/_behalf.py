"""Renewing a lease on behalf of its owner: by a worker that proves its progress."""

from __future__ import annotations

import errno
from functools import partial

from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._confirmations import Confirmations
from ownership._errors import UnsupportedRecordError
from ownership._examine import reads_same_clock
from ownership._guard import PATIENCE, Interrupting
from ownership._hold import Hold
from ownership._locking import locked
from ownership._models import VERSION, OwnerRecord, timestamp
from ownership._pinned import DirectoryChanged
from ownership._process import ProcessTable, system_processes
from ownership._record import changed, decode, encode
from ownership._ref import OwnerRef
from ownership._sentry import Sentry
from ownership._station import Place

_PATIENCE = 3.0  # seconds for an owner that runs to put back what was deleted
_PAUSE = 0.05  # seconds between two looks meanwhile


def renew(ref: OwnerRef, *, clock: Clock = SYSTEM_CLOCK, processes: ProcessTable | None = None) -> bool:
    """Renew the lease of an owner that did not choose to have it renewed by itself, on its behalf.

    For work that has to prove its progress: the owner acquired with ``auto_renew=False``, and whoever does the work
    renews after each step. Work that is stuck then loses the lease although its processes live.

    Guaranteed: only that owner's lease is renewed, under the guard; after true, nobody takes over before the ttl has
    passed again, unless the owner ends or is broken; false is for good. A lease that has run out is renewed if nobody
    has taken over. The owner itself knows of it within 250 ms.

    Not guaranteed: anything about the other resources of a claim with ``also=``: each has a lease of its own.

    :param ref: the owner, from :attr:`Claim.ref` or :meth:`OwnerRef.from_env`
    :param clock: where time comes from, for tests: that of the owner
    :param processes: where process facts come from, for tests
    :returns: whether it is still its owner's. Of a lease that its owner renews by itself, and of a claim without a ttl,
        it says only that
    :raises GuardTimeoutError: another process was inside the guard for a whole second
    :raises OSError: it cannot be told or renewed at the moment; nothing is lost by that
    :raises RuntimeError: this process reads another CLOCK_MONOTONIC than the owner (time_namespaces(7))
    :raises ValueError: *ref* is no reference
    """
    if not isinstance(ref, OwnerRef):
        raise ValueError(f"ref must be an OwnerRef (claim.ref, OwnerRef.from_env()), got {ref!r}")
    table = processes or system_processes()
    sentry = Sentry(ref, 0.0, clock, table, Confirmations(table))
    try:
        return _renewed(sentry, clock, table)
    finally:
        sentry.close()
        sentry.look()


def _renewed(sentry: Sentry, clock: Clock, processes: ProcessTable) -> bool:
    until = clock.monotonic() + _PATIENCE
    while True:
        sentry.look(full=True)
        if sentry.loss is not None:
            return False
        if _is_renewed(sentry, clock, processes):
            return True
        if clock.monotonic() >= until:
            shown, pid = sentry.resource.shown, sentry.ref.owner.pid
            why = str(sentry.last_error or "its record is missing or damaged")
            raise OSError(errno.EAGAIN, f"{shown}: the lease of pid {pid} cannot be renewed now: {why}")
        clock.wait(_PAUSE)


def _is_renewed(sentry: Sentry, clock: Clock, processes: ProcessTable) -> bool:
    place = sentry.find()
    if place is None or place.directory.signature(f"{sentry.resource.name}.json") is None:
        return False
    deadline = clock.monotonic() + PATIENCE
    try:
        return locked([place.guard(sentry.resource)], deadline, clock, partial(_renew, place, sentry, clock, processes))
    except (DirectoryChanged, FileNotFoundError):  # also a temporary file that was swept: it is not the owner's
        return False
    except Interrupting as interrupting:
        raise interrupting.told() from None


def _renew(place: Place, sentry: Sentry, clock: Clock, processes: ProcessTable, hold: Hold) -> bool:
    """Under the guard; false if the record does not say that it is the owner's."""
    resource = sentry.resource
    filename = f"{resource.name}.json"
    found = place.directory.read(filename)
    record = None if found is None else decode(found[0], resource.shown)
    if not isinstance(record, OwnerRecord) or not sentry.is_meant(record) or record.is_closed:
        return False
    if record.version > VERSION:
        raise UnsupportedRecordError(
            f"{resource.shown}: a record of version {record.version} (this library knows {VERSION}) by pid {record.pid}"
            " cannot be changed by others",
            resource=resource.path,
            hint="upgrade this library, or renew with that of the owner",
        )
    if record.lease is None or record.lease.auto_renew:
        return True
    me = processes.current()
    if not reads_same_clock(record, me):
        raise RuntimeError(
            f"{resource.shown}: the lease of pid {record.pid} is measured by a clock that is not known to be ours "
            "(another time namespace, or a /proc that does not show this process): renew it from where its owner is"
        )
    lease = {**record.lease.model_dump(), "renewed_at": clock.monotonic()}
    raw = encode(changed(record, {"lease": lease, "updated_at": timestamp(clock.wall_ns())}))
    place.directory.replace(filename, raw, f"{resource.name}.{me.instance_id}.new")
    if not hold.is_at_path():
        raise DirectoryChanged
    return True
