"""The claim: the handle of an owner, and the only object that can act for it."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

from ownership import _closing, _keeper, _kept
from ownership._arguments import checked_labels, checked_mapping, checked_timeout
from ownership._asked import Listening
from ownership._critical import Critical, let_wait, waits
from ownership._errors import OwnershipError, OwnershipLostError
from ownership._handle import Handle
from ownership._handover import HandingOver, Heir
from ownership._holding import Holding
from ownership._leaving import leave_stale, unfinished
from ownership._models import CLOSED
from ownership._process import printable
from ownership._releasing import release
from ownership._renewal import renew, renew_late
from ownership._request import StopRequest
from ownership._state import OWNING, State
from ownership._updating import update


class Claim(Handle):
    """The handle of an owner.

    Guaranteed: while :meth:`verify` passes, nobody else owns the resource by the rules of this library. It stays with
    this process until it is released, retired, handed over, broken by somebody's decision, or the process ends. Keep
    it: one that is garbage-collected is released, with a ResourceWarning. As a context manager it is released at the
    end of the block. Methods may be called from any thread and from signal handlers. A forked child's copy is inert.

    With a ttl it is a lease: it may also go to a contender once it was not renewed for that long. The keeper renews it,
    unless that is to be done by hand; whoever was paused past the deadline keeps it if nobody took it meanwhile.

    Not guaranteed: anything against programs that ignore the records; that a process paused between ``verify()`` and
    its next write still owns at that write (pass :attr:`token` along where it matters).
    """

    _listening: Listening | None = None

    def __init__(self, holding: Holding) -> None:
        super().__init__(holding)
        holding.handle = weakref.ref(self)

    # -- acts

    def verify(self) -> None:
        """Make sure that the resource is still ours, by looking; 3 µs when nothing changed.

        A record that was deleted or damaged while nobody else owns is put back first, and a lease that has run out is
        renewed unless somebody has taken over.

        :raises OwnershipLostError: it is not, with the reason; from then on always
        :raises OSError: it cannot be told at the moment; nothing is lost by that
        """
        if self._holding.inside is not None or unfinished:
            leave_stale(self._holding)
        self._holding.require_held()
        self._holding.verify()
        if self._holding.leased:
            renew_late(self._holding)
        self._holding.require_held()

    def renew(self) -> bool:
        """Renew the lease now; whether it was still ours, which is not so for good once it is false.

        Needed only with ``auto_renew=False``; without a ttl there is nothing to renew, and it only looks.

        :raises GuardTimeoutError: another process was inside the guard for a whole second
        :raises OSError: it cannot be renewed at the moment; nothing is lost by that
        """
        try:
            self.verify()
            renew(self._holding)
            self._holding.require_held()
        except OwnershipLostError:
            return False
        return True

    def critical(self, timeout: float | None = 1.0) -> contextlib.AbstractContextManager[None]:
        """A block in which nobody can take over, break or expire it: its guard is held meanwhile.

        Entering makes sure that it is ours, and renews a lease that is late; inside, the ttl may pass. May be entered
        again by the same thread; ``verify``, ``renew`` and ``announce`` work inside, ``release`` does not. Contenders
        get GuardTimeoutError, which names us; ``inspect`` answers. Threads of one process take turns; one that is in a
        signal handler meanwhile is passed over. Keep it short: everybody waits.

        Not guaranteed: any order among processes; anything if the guard file is deleted meanwhile, or our descriptors
        are closed.

        :param timeout: seconds to wait for the guard, not for the block; ``None`` for ever
        :raises OwnershipLostError: it was not ours any more
        :raises GuardTimeoutError: somebody else was inside the guard all the time
        """
        return Critical(self._holding, checked_timeout(timeout))

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

        :param phase: what the owner is doing, at most 64 characters; ``closed`` is what :meth:`retire` publishes
        :param endpoint: where it can be reached, for instance ``tcp:127.0.0.1:8123``
        :param data: anything that JSON can say
        :raises OwnershipLostError: it is not ours any more
        :raises ValueError: a value that cannot be recorded, or more than 64 KiB altogether
        """
        if phase == CLOSED:
            raise ValueError(f"phase must not be {phase!r}, which says that the owner has given it up: use retire()")
        given = {
            "phase": phase,
            "endpoint": endpoint,
            "data": checked_mapping(data, "data"),
            "labels": None if labels is None else checked_labels(labels),
        }
        self._holding.require_held()
        changes = {name: value for name, value in given.items() if value is not None}
        if changes:
            update(self._holding, changes)

    def on_loss(self, callback: Callable[[OwnershipLostError], object]) -> None:
        """Have *callback* called once, with the reason as an error, when this claim has lost its resource.

        The keeper notices within 250 ms of a break, a takeover, or the end of a pause. Callbacks run on a thread of
        their own, in the order of their registration; one that raises is logged, one that blocks delays nobody but
        itself. What they start inherits the signal mask that the calling thread has now. A claim that is lost already
        calls it soon. A release is no loss, nor is a hand-over.

        :raises OSError: the thread for callbacks cannot be started
        :raises ValueError: *callback* cannot be called
        """
        if not callable(callback):
            raise ValueError(f"callback must be callable, got {callback!r}")
        self._holding.on_loss(callback)

    def on_stop_request(self, callback: Callable[[StopRequest], object]) -> None:
        """Have *callback* called once for everybody who asks this owner to go (:func:`replace`), with the request.

        The keeper looks every 250 ms, also for a request that stands already. To comply, :meth:`release` the claim:
        whoever asked then owns at once, and nothing is signalled. Callbacks run as those of :meth:`on_loss` do.

        :raises OSError: the thread for callbacks cannot be started
        :raises ValueError: *callback* cannot be called
        """
        if not callable(callback):
            raise ValueError(f"callback must be callable, got {callback!r}")
        self._holding.require_held()
        if self._listening is None:
            self._listening = Listening(self._holding)
        self._listening.add(callback)

    def release(self, reason: str = "") -> None:
        """Give it up. Only what is still ours is removed; a second release carries on with what the first left, if any.

        The handle is inert from the first moment on, even if this raises: the keeper then goes on trying. A second
        release waits for no more than a moment, and raises nothing. A claim that was retired is released by this before
        the process ends.

        :param reason: kept as the reason why the last ownership ended, at most 120 characters
        :raises GuardTimeoutError: another process was inside the guard for a whole second
        :raises OSError: the record cannot be removed
        :raises RuntimeError: called inside its own critical section; a handler that interrupts that of a call of this
            library may release, which is carried out when that call leaves it
        """
        release(self._holding, reason)

    def retire(self, reason: str = "") -> None:
        """Give it up, and keep everybody else out until this process has ended.

        The handle is inert from the first moment on, as after :meth:`release`, and workers' fences trip; but the record
        stays, says phase ``closed`` and *reason*, and is put back if others delete it. Whoever acquires is refused, or
        waits, until the process is gone; what is found then counts as closed, not as died. This process itself may
        acquire again at once. Again, or after a release or a loss, this does nothing; :meth:`release` still removes
        the record. Leaving the claim's ``with`` block, dropping the handle, or the end of the interpreter does not.

        Not guaranteed: if this raises, that the record says ``closed`` already; the keeper goes on trying.

        :param reason: shown to whoever is refused, and kept as the reason why the last ownership ended, at most 120
            characters
        :raises GuardTimeoutError: another process was inside the guard for a whole second
        :raises OSError: the record cannot be written
        """
        holding = self._holding
        if holding.process != os.getpid():
            return
        inert = partial(_closing.retire, holding, reason)
        if not waits(holding, inert, partial(_closing.close_quietly, holding)) and inert():
            _closing.close(holding)

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

        Not guaranteed: anything after exec but that the process owns until it ends: nothing is repaired any more. A
        lease is renewed by :func:`ownership.renew` alone then.

        :param command: what the record is to show from now on
        :raises RuntimeError: it is a lease that renews itself, which it cannot after exec
        """
        self._holding.require_held()
        if any(part.term is not None and part.term.heartbeat is not None for part in self._holding.parts):
            raise RuntimeError(
                f"{self._holding.primary.shown} is leased, and nothing renews it by itself after exec: "
                "acquire it with auto_renew=False, and have the new program renew it"
            )
        if command is not None:
            update(self._holding, {"command": printable(command)})
        places = {part.place for part in self._holding.parts if part.place is not None}
        numbers = []
        for place in places:
            with place.mutex:
                place.restore()  # the program may have closed every descriptor just now
                numbers.append(place.witness.keep_across_exec())
        _kept.announce(os.getpid(), self.record.instance_id, numbers)

    # -- life

    def __enter__(self) -> Self:
        self._holding.require_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            let_wait(self._holding)  # a section that was entered in here is still to be left, by whoever that may be
        try:
            if self._holding.state is not State.CLOSED:  # that was decided: until the process ends
                self.release()
        except (OSError, OwnershipError):
            if error is None:  # the body's own exception is not masked
                raise

    def __del__(self) -> None:
        holding = getattr(self, "_holding", None)
        if holding is None or holding.state not in OWNING:
            return
        if holding.process != os.getpid() or sys.is_finalizing():
            return
        if _closing.abandon(holding, self) and holding.withdraw_quietly("released", "the claim was garbage-collected"):
            _keeper.KEEPER.drop(holding)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a claim cannot be copied or pickled: pass claim.ref to workers, or hand it over")

    def __repr__(self) -> str:
        more = len(self._holding.parts) - 1
        also = f" and {more} more" if more > 0 else ""
        return f"<Claim {self._holding.primary.shown}{also} {self._holding.state.value}>"
