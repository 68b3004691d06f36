"""Replacing an owner: ask it to go, stop it once it has had its time, and own what it owned, with nobody in between."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from functools import partial

from ownership import _keeper, _kept
from ownership._acquire import Acquisition, OnWait
from ownership._arguments import checked_callback, checked_labels, checked_seconds, checked_timeout
from ownership._asking import Asking, is_same_owner
from ownership._claim import Claim
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import with_path
from ownership._eviction import Ended
from ownership._examine import Examined
from ownership._gating import Gate, checked_gate
from ownership._holding import Holding
from ownership._location import pin_registry
from ownership._models import OwnerIdentity
from ownership._paths import StrPath, resolve
from ownership._process import Identity, ProcessTable, printable, system_processes
from ownership._refusing import Refused
from ownership._request import Contender
from ownership._stop import AFTER_KILL, GRACE, stop_until
from ownership._verdict import is_our_process
from ownership._waiting import Waiter, timed_out
from ownership._withdrawal import give_up

_AGAIN = 0.05  # seconds between looks at our own request that cannot be taken
_LOOK = 0.5  # seconds between looks at our own request, which somebody may have deleted
_LEEWAY = 10.0  # seconds beyond what is needed at the most


def replace(
    resource: StrPath,
    *,
    reason: str = "",
    grace: float = GRACE,
    timeout: float | None = None,
    registry: StrPath | None = None,
    labels: Mapping[str, str] | None = None,
    gate: Gate | None = None,
    on_wait: OnWait | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Claim:
    """Become the owner of *resource* in place of whoever owns it: ask, stop, acquire.

    The owner is asked first: :attr:`Claim.stop_request` says who asks, and why, before anything is signalled. It has
    *grace* seconds to let go by itself; then it is stopped as by :func:`stop`: TERM, *grace* seconds, KILL, its process
    group if it leads one, its identity compared before every signal. It is left alone from the moment on at which it
    does not own any more. If nobody owns *resource*, this is :func:`acquire`.

    Guaranteed: while this asks, nobody else acquires, waiting or not, whatever becomes of the owner; of several that
    replace, the first one does, and the others are refused at once; a call that raises, for whatever reason and at
    whatever point, asks no longer; one that is killed is ignored from then on, and one that is stopped for longer than
    it may take, and 10 s more, is too. Everything that :func:`acquire` guarantees.

    Not guaranteed: that others stay out if the guard or the request is deleted meanwhile; at most one owner is all the
    same. That an owner in another pid namespace, or of another account, goes: it is asked, and cannot be stopped.

    :param resource: as for :func:`acquire`
    :param reason: shown to the owner and to whoever is refused meanwhile, at most 120 characters; kept as the reason
        why the last ownership ended if its owner had to be stopped
    :param grace: seconds for the owner to go by itself, and again from TERM to KILL
    :param timeout: seconds after which it is given up, signalled or not; ``None``: as long as all that takes, twice
        *grace* and 15 s at the most
    :param registry: as for :func:`acquire`
    :param labels: short facts for people, of the request and of the record
    :param gate: as for :func:`acquire`; while it is closed nobody is asked to go, or stopped
    :param on_wait: called once per owner that is asked, with the error that :func:`acquire` would raise
    :returns: a handle; use it as a context manager
    :raises AlreadyOwnedError: this process owns it; somebody else asks already; our request was withdrawn by decision
        (:func:`break_claim` with its token; noticed within 0.5 s); or the owner did not go and must not be signalled
        from here. :class:`AcquireTimeoutError` after *timeout*
    :raises StopTimeoutError: the owner, or somebody of its group, survived KILL for 5 s
    :raises PermissionError: the owner did not go and may not be signalled by this account
    """
    table = processes or system_processes()
    shared = None if registry is None else pin_registry(registry)
    found = resolve(resource, whole=shared is not None)
    patience = checked_seconds(grace, "grace")
    wait = checked_timeout(2 * patience + AFTER_KILL + _LEEWAY if timeout is None else timeout)
    if not isinstance(reason, str):
        raise ValueError(f"reason must be text, got {reason!r}")
    try:
        me = table.current()
    except OSError as error:
        raise with_path(error, found.path) from error
    examiner = Contender(table, clock, _kept.kept(), acquiring=True)
    asking = Asking(Holding(me, clock, found, me.pid if processes is None else os.getpid()), shared, printable(reason))
    asking.labels = checked_labels(labels)
    asking.seconds = wait + _LEEWAY
    asked = None if gate is None else checked_gate(gate, [found], shared)
    replacement = Replacement(
        [found], shared, wait, checked_callback(on_wait, "on_wait"), examiner, me, asking.labels, gate=asked
    )
    replacement.asking, replacement.grace = asking, patience
    holding = Holding(me, clock, found, asking.holding.process)
    holding.handle = weakref.ref(replacement)
    try:
        replacement.run(holding)
        asking.done()
        return Claim(holding)
    except BaseException as error:
        try:
            give_up(holding)
        finally:
            give_up(asking.holding)
        _keeper.KEEPER.tidy()
        raise with_path(error, found.path)  # noqa: B904 the same one, or one that says all that it says


class Replacement(Acquisition):
    """One call of replace: an acquisition that does not wait for the owner to go, but makes it.

    :ivar grace: seconds
    :ivar patient_until: when whoever was asked is stopped
    """

    asking: Asking
    grace = GRACE
    patient_until = 0.0

    def _wait(self, refused: Refused) -> None:
        """Return when another look under the guard is worth it.

        :raises AlreadyOwnedError: the owner cannot be replaced, or not in time
        """
        owner = self._owner_to_ask(refused)
        if self.gate is not None:
            self.gate.check()
        if self.waiter is None:
            self.waiter = Waiter(self.examiner)
        if not self.asking.has_asked(refused):
            asked = self.asking.ask(self.examiner, refused)
            self.examiner = self.examiner._replace(asking=self.asking.token)
            if asked is not None:
                self.patient_until = self.clock.monotonic() + self.grace
                self._tell(asked)
            return
        now = self.clock.monotonic()
        if now >= self.deadline:
            raise timed_out(refused.error(), self.timeout)
        if now < self.patient_until:
            until = min(self.patient_until, self.deadline, now + _LOOK)
            self.waiter.wait(refused.place, refused.resource, refused.examined, until)
        elif self.asking.may_stop():
            self._stop(refused, owner)
        else:  # the next look inside the guard tells why, or another one can
            self.clock.wait(min(_AGAIN, self.deadline - now))

    def _owner_to_ask(self, refused: Refused) -> OwnerIdentity:
        examined = refused.examined
        owner = examined.owner
        if examined.request is not None or owner is None or _is_ours(owner, self.me):
            raise refused.error()
        return owner

    def _stop(self, refused: Refused, owner: OwnerIdentity) -> None:
        self.ended = Ended(owner.instance_id, self.asking.told(self.me.pid))
        until = partial(self._has_let_go, refused, owner)
        if not until():
            stop_until(owner, self.grace, until, self.clock, self.examiner.processes)

    def _has_let_go(self, refused: Refused, owner: OwnerIdentity) -> bool:
        """Whether *owner* does not own any more, or our time is over, or we are not to ask any more."""
        if self.clock.monotonic() >= self.deadline or not self.asking.may_stop() or self._is_gate_closed():
            return True
        looked = self._look(refused)
        return looked is not None and not is_same_owner(looked, refused.examined)

    def _is_gate_closed(self) -> bool:
        try:
            if self.gate is not None:
                self.gate.check()
        except Exception:  # which it is, the next check says
            return True
        return False

    def _look(self, refused: Refused) -> Examined | None:
        try:
            return self.examiner.look(refused.place, refused.resource)[1]
        except Exception:  # what it is, the look under the guard says; that it owns no more it does not say
            return None


def _is_ours(owner: OwnerIdentity, me: Identity) -> bool:
    return owner.instance_id == me.instance_id or is_our_process(owner, me)
