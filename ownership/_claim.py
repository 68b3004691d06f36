"""The claim: the handle of an owner, and the only object that can act for it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ownership import _keeper, _kept
from ownership._acquire import (
    Acquisition,
    OnWait,
    give_up,
)
from ownership._arguments import checked_labels, checked_resources, checked_timeout
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import OwnershipError, with_path
from ownership._examine import Examiner
from ownership._handover import VARIABLE, HandingOver, Heir, heir_from
from ownership._holding import Holding, State
from ownership._location import pin_registry
from ownership._models import OwnerRecord
from ownership._paths import StrPath
from ownership._process import ProcessTable, printable, system_processes
from ownership._ref import OwnerRef

_OWNING = (State.HELD, State.ACQUIRING)


class Claim:
    """The handle of an owner.

    Guaranteed: while :meth:`verify` passes, nobody else owns the resource by the rules of this library. It stays with
    this process until it is released, handed over, broken by somebody's decision, or the process ends. As a context
    manager it is released at the end of the block. Methods may be called from any thread and from signal handlers. A
    forked child's copy is inert.

    Not guaranteed: anything against programs that ignore the records; that a process paused between ``verify()`` and
    its next write still owns at that write (pass :attr:`token` along where it matters).
    """

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    # -- facts

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
        """The record as we last published it."""
        return self._holding.part.record

    @property
    def ref(self) -> OwnerRef:
        """Who owns, as a value that can be handed to workers."""
        part = self._holding.part
        return OwnerRef.of(part.resource.path, part.record, part.registry)

    @property
    def lost(self) -> threading.Event:
        """Set once this claim has lost its resource; never cleared. A release is no loss."""
        return self._holding.lost

    @property
    def held(self) -> bool:
        """Whether this handle still stands for an ownership, as far as it knows."""
        return self._holding.state is State.HELD and self._holding.process == os.getpid()

    # -- acts

    def verify(self) -> None:
        """Make sure that the resource is still ours, by looking; 3 µs when nothing changed.

        A record that was deleted or damaged while nobody else owns is put back first.

        :raises OwnershipLostError: it is not, with the reason; from then on always
        :raises OSError: it cannot be told at the moment; nothing is lost by that
        """
        self._holding.require_held()
        self._holding.verify()
        self._holding.require_held()

    def announce(
        self,
        phase: str | None = None,
        *,
        endpoint: str | None = None,
        data: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Publish facts about this owner for whoever looks it up; what is left out stays as it is.

        Readers see the old record or the new one. Meant for rare events: it replaces a file.

        :param phase: what the owner is doing, at most 64 characters
        :param endpoint: where it can be reached, for instance ``tcp:127.0.0.1:8123``
        :param data: anything that JSON can say
        :raises OwnershipLostError: it is not ours any more
        :raises ValueError: a value that cannot be recorded, or more than 64 KiB altogether
        """
        given = {
            "phase": phase,
            "endpoint": endpoint,
            "data": None if data is None else dict(data),
            "labels": None if labels is None else checked_labels(labels),
        }
        self._holding.require_held()
        changes = {name: value for name, value in given.items() if value is not None}
        if changes:
            self._holding.update(changes)

    def release(self, reason: str = "") -> None:
        """Give it up. Only what is still ours is removed; a second release does nothing.

        The handle is inert from the first moment on, even if this raises: the keeper then goes on trying.

        :param reason: kept as the reason why the last ownership ended, at most 120 characters
        :raises GuardTimeoutError: another process was inside the guard for a whole second
        :raises OSError: the record cannot be removed
        """
        holding = self._holding
        if holding.process != os.getpid():
            return
        if holding.state is State.LOST:  # what else it owned goes with it
            if holding.withdraw_quietly("released", "another resource of the claim was lost"):
                _keeper.KEEPER.holdings.discard(holding)
            return
        if not holding.retire(State.RELEASED):
            return
        if holding.withdraw("released", reason):
            _keeper.KEEPER.holdings.discard(holding)

    def handover(self, timeout: float = 10.0) -> contextlib.AbstractContextManager[Heir[Claim]]:
        """Pass the claim on to a descendant: there is an owner at every moment.

        Inside ``with claim.handover() as heir:`` fork or start it; it calls ``heir.adopt()`` (after exec, given
        ``heir.to_env()``: ``ownership.adopt()``). Leaving the block waits for that; then this handle counts as
        released. In a process forked inside, leaving the block does nothing.

        :param timeout: seconds to wait for the adoption
        :raises HandoverError: nobody adopted it in time; it is still ours
        """
        self._holding.require_held()
        return HandingOver(self._holding, checked_timeout(timeout), Claim)

    def keep_across_exec(self, command: str | None = None) -> None:
        """Prepare for replacing this program by another one in the same process (exec).

        pid and start id survive exec, so the new program owns on. Our witness is kept open for it (``LEASES_KEPT``),
        for readers in other pid namespaces. Call it directly before ``os.exec*``.

        Not guaranteed: anything after exec but that the process owns until it ends: nothing is repaired any more.

        :param command: what the record is to show from now on
        """
        self._holding.require_held()
        if command is not None:
            self._holding.update({"command": printable(command)})
        places = {part.place for part in self._holding.parts}
        numbers = [place.witness.keep_across_exec() for place in places]
        _kept.announce(os.getpid(), self.record.instance_id, numbers)

    # -- life

    def __enter__(self) -> Self:
        self._holding.require_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except (OSError, OwnershipError):
            if error is None:  # the body's own exception is not masked
                raise

    def __del__(self) -> None:
        holding = getattr(self, "_holding", None)
        if holding is None or holding.state not in _OWNING:
            return
        if holding.process != os.getpid() or sys.is_finalizing():
            return
        if holding.retire(State.RELEASED):
            holding.abandoned = True
            told = f"unreleased claim on {holding.primary.shown} was garbage-collected"
            warnings.warn(told, ResourceWarning, source=self, stacklevel=2)
            if holding.withdraw_quietly("released", "the claim was garbage-collected"):
                _keeper.KEEPER.holdings.discard(holding)

    def __repr__(self) -> str:
        return f"<Claim {self._holding.primary.shown} {self._holding.state.value}>"


def acquire(
    resource: StrPath,
    *,
    timeout: float | None = 0.0,
    also: Iterable[StrPath] = (),
    registry: StrPath | None = None,
    labels: Mapping[str, str] | None = None,
    on_wait: OnWait | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Claim:
    """Become the one owner of *resource*, or say who is.

    Guaranteed: at most one live owner per resource among cooperating programs on this machine; an owner that has
    exited, reaped or not, or whose pid was reused, never blocks; tokens grow; a call that raises, for whatever reason
    and at whatever point, leaves no record of ours.

    Not guaranteed: exclusion between hosts, or between accounts without a shared *registry*; order among waiters.

    :param resource: a path; it need not exist, its directory must. Symlinks are resolved now and the result pinned
    :param timeout: seconds to wait for the present owner: 0 not at all, ``None`` for ever
    :param also: further resources, all or nothing; losing one is losing the claim
    :param registry: an existing directory for the records, to share them between accounts
    :param labels: short facts for people that are shown to whoever is refused
    :param on_wait: called once per owner that is waited for, with the error that would be raised otherwise
    :param clock: where time comes from, for tests
    :param processes: where process facts come from, for tests
    :returns: a handle; use it as a context manager
    :raises AlreadyOwnedError: somebody else owns it; :class:`AcquireTimeoutError` after waiting
    :raises GuardTimeoutError: another process was inside the guard all the time: nothing was decided
    :raises RecordError: what is there cannot be used, see the subclass
    :raises OSError: the directory is missing, read-only, full, or another account's
    :raises ValueError: an argument that cannot be right
    """
    table = processes or system_processes()
    shared = pin_registry(registry)
    found = checked_resources(resource, also, shared)
    me = table.current()
    acquisition = Acquisition(
        sorted(found, key=lambda one: one.path) if len(found) > 1 else found,
        shared,
        checked_timeout(timeout),
        on_wait,
        clock,
        table,
        Examiner(table, clock, _kept.kept(), acquiring=True),
        me,
        checked_labels(labels),
    )
    holding = Holding(me, clock, found[0], me.pid if processes is None else os.getpid())
    try:
        acquisition.run(holding)
        return Claim(holding)
    except BaseException as error:
        give_up(holding)
        raise with_path(error, found[0].path)  # noqa: B904 the same one, or one that says all that it says


def adopt(environ: MutableMapping[str, str] | None = None) -> Claim:
    """Own the claim handed to this process in ``LEASES_HEIR``; the variable is read and removed.

    :raises LookupError: nothing was handed over
    :raises HandoverError: too late: it was taken back, adopted by another, or acquired by somebody
    """
    variables = os.environ if environ is None else environ
    return heir_from(variables.pop(VARIABLE, None), Claim).adopt()
