"""Acquire: lock the guards, read, judge, and take all or nothing; then wait for whoever was in the way."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from functools import partial

from ownership import _keeper
from ownership._clock import Clock
from ownership._draft import draft, new_token
from ownership._errors import AlreadyOwnedError, OwnershipError, explained
from ownership._eviction import Ended, after_end
from ownership._examine import FREE, Examined, Examiner
from ownership._gating import Gate
from ownership._guard import PATIENCE, Busy, Guard, Interrupting
from ownership._hold import Hold
from ownership._holding import Holding
from ownership._locking import locked, peek, ranked
from ownership._log import log
from ownership._models import GuardState, LeaseTerms, OwnerIdentity
from ownership._part import Part
from ownership._paths import Facts, Resource, facts_of
from ownership._pinned import DirectoryChanged
from ownership._place import pinned
from ownership._process import Identity
from ownership._refusing import Refused, Unsettled
from ownership._renewal import begun, lease_out
from ownership._request import answer
from ownership._state import State
from ownership._station import Place
from ownership._stopped import Stopped
from ownership._sweep import sweep
from ownership._vigil import Vigil
from ownership._waiting import Waiter, settles, timed_out
from ownership._withdrawal import undo

_MOVES = 200  # restarts after outside changes before we give up
OnWait = Callable[[AlreadyOwnedError], object]
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Acquisition:
    """One call of acquire.

    :ivar resources: in the order of their canonical paths, in which everybody locks guards
    :ivar waiter: there once we had to wait
    :ivar littered: places where a dead owner may have left files
    """

    process = 0
    first = True
    moves = 0
    settled = False
    waiter: Waiter | None = None
    ended: Ended | None = None  # by us

    def __init__(
        self,
        resources: list[Resource],
        registry: str | None,
        timeout: float,
        on_wait: OnWait | None,
        examiner: Examiner,
        me: Identity,
        labels: dict[str, str],
        stopped: Stopped | None = None,
        terms: LeaseTerms | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.terms = terms
        self.gate = gate
        self.stopped = stopped
        self.resources = resources
        self.registry = registry
        self.timeout = timeout
        self.on_wait = on_wait
        self.clock: Clock = examiner.clock
        self.examiner, self.me, self.labels = examiner, me, labels
        self.told, self.littered = set[tuple[str, int]](), list[Place]()
        self.deadline = self.clock.monotonic() + timeout

    def run(self, holding: Holding) -> None:
        """Own everything by *holding*, or raise and leave nothing."""
        self.process = holding.process  # whose identity was asked for: a signal handler may have forked since
        try:
            while True:
                try:
                    self._attempt(holding)
                    break
                except DirectoryChanged:
                    self.moves += 1 + _MOVES * holding.abandoned  # what is left the keeper takes: nothing joins it
                    self._pause()
                except Unsettled as waiting:
                    self.settled = settles(waiting.place, waiting.resource, waiting.examined, self.clock)
                except Refused as refused:
                    self._wait(refused)
        finally:
            if self.waiter is not None:
                self.waiter.close()
        for place in self.littered:
            sweep(place)

    def _pause(self) -> None:
        if self.moves > _MOVES:
            error = OSError(11, "its lock directory keeps being changed from outside")
            raise explained(error, self.resources[0].path, "find out which program deletes files there")
        if self.moves > 3:
            self.clock.wait(random.uniform(0, 0.005))

    def _attempt(self, holding: Holding) -> None:
        """Lock every guard, in the order of the canonical paths, then decide."""
        places: list[Place] = []
        guards: list[Guard] = []
        for one in self.resources:
            place = pinned(one, self.registry, above=one.above if self.first else self._above(one))
            places.append(place)
            guards.append(place.guard(one))
        self.first = False
        if len(guards) > 1:
            numbers = ranked(guards, holding.primary.path)
            places, guards = [places[one] for one in numbers], [guards[one] for one in numbers]
            self.resources = [self.resources[one] for one in numbers]
        until = max(self.deadline, self.clock.monotonic() + PATIENCE)
        decide = partial(self._decide, places, holding)
        try:
            alone = self.waiter is None and len(guards) == 1
            if alone or not self._attempt_in_crowd(places, guards, until, decide):
                locked(guards, until, self.clock, decide)
        except Interrupting as interrupting:
            raise interrupting.told() from None
        except OSError as error:
            if self.registry is not None and error.errno in _READ_ONLY and not isinstance(error, OwnershipError):
                self._judge_unguarded(places)
            raise

    def _attempt_in_crowd(
        self, places: list[Place], guards: list[Guard], until: float, decide: Callable[..., None]
    ) -> bool:
        """Wait for no guard inside another. Many may have waited as we did: a look without guards tells who was faster.

        :returns: whether it was done; not, if somebody was inside the guards until the end
        """
        began, pause, looks = self.clock.monotonic(), 0.001, self.waiter is not None
        while True:
            if looks and any(guard.directory.signature(guard.record_name) is not None for guard in guards):
                self._judge_unguarded(places)
            try:
                locked(guards, until, self.clock, decide, patient=False)
                return True
            except Busy:
                if (now := self.clock.monotonic()) >= until:
                    return False
                looks |= now - began >= PATIENCE
                self.clock.wait(random.uniform(0.1 * pause, pause))
                pause = min(pause * 1.05, 0.02)  # a critical section may last

    def _above(self, resource: Resource) -> Facts | None:
        """The directory that *resource* is in, unless another lock directory has to be found there."""
        if self.moves or self.registry is not None:
            return None
        try:
            return facts_of(os.stat(resource.parent))
        except OSError:
            return None

    def _judge_unguarded(self, places: list[Place]) -> None:
        """A look without the guards: enough to tell that somebody owns one of them."""
        for place, resource in zip(places, self.resources, strict=True):
            try:
                remembered = peek(place.directory, resource)
            except OSError:
                remembered = GuardState()
            examined = self.examiner.examine(place, resource, remembered)
            if not examined.may_be_taken and not examined.unsettled:
                raise Refused(place, resource, examined)

    def _require_same_process(self) -> None:
        if self.process != os.getpid():
            raise RuntimeError(
                f"{self.resources[0].shown} is being acquired by process {self.process}, "
                "of which this is a forked child: acquire it anew"
            )

    def _decide(self, places: list[Place], holding: Holding, *holds: Hold) -> None:
        self._require_same_process()
        if self.gate is not None:
            self.gate.check()  # inside the guards: whoever closes it enters each of them afterwards
        found: list[tuple[Place, Hold, GuardState, Examined]] = []
        for place, hold in zip(places, holds, strict=True):
            remembered = hold.read()
            examined = self.examiner.examine(place, hold.guard.resource, remembered)
            if examined is not FREE:
                self._require_takeable(place, hold.guard.resource, examined)
            found.append((place, hold, remembered, examined))
        _keeper.KEEPER.add(holding)
        try:
            for place, hold, remembered, examined in found:
                self._take(place, hold, remembered, examined, holding)
            holding.state = State.HELD
        except BaseException:
            undo(holding, holds)
            raise

    def _require_takeable(self, place: Place, resource: Resource, examined: Examined) -> None:
        if examined.unsettled and not self.settled:
            raise Unsettled(place, resource, examined)
        if not examined.may_be_taken and not examined.unsettled:
            raise Refused(place, resource, examined)
        if examined.malformed is not None:
            log.warning("%s: reclaimed: %s", resource.shown, examined.judgement.reason)

    def _take(self, place: Place, hold: Hold, remembered: GuardState, examined: Examined, holding: Holding) -> None:
        """Witness, token and identity into the guard, remove exactly the judged record, link ours, look again."""
        resource, wall_ns = hold.guard.resource, self.clock.wall_ns()
        judged = examined.record.token if examined.record else 0
        token = new_token(place, resource, remembered.token, judged, wall_ns)
        instance_id = self.me.instance_id
        terms = self.terms and begun(self.terms, self.clock)
        template = draft(place, resource, self.me, self.labels, terms)
        raw = template.fill(token, wall_ns, terms.renewed_at if terms is not None else None)
        part = Part(place, hold.guard, self.registry, instance_id, token, raw)
        holding.parts.append(part)
        place.enter(part)
        part.made_witness = place.settle_in(instance_id)
        if terms is not None:
            lease_out(holding, part, terms)
        if remembered.owner is not None:
            self._clear_temporary(place, resource, remembered.owner)
        part.stamped = True
        if examined is not FREE:
            remembered = after_end(remembered, examined, wall_ns, self.me.boot_id, self.ended)
        _, _, previous, deaths, adopted, requested = remembered
        hold.write(GuardState(token, place.identity(self.me), previous, deaths, adopted))
        if examined.signature is not None:
            place.directory.remove(part.filename, examined.signature)
        place.owned.enter(part.name, part)
        part.publish(hold)
        if requested:
            answer(place, hold)
        if part.made_witness or (examined is not FREE and examined.verdict.is_dead):
            self.littered.append(place)

    def _clear_temporary(self, place: Place, resource: Resource, last: OwnerIdentity) -> None:
        """Whoever died here, perhaps before publishing, leaves at most one temporary file: its successor removes it."""
        judgement, _ = self.examiner.judge(place, resource, last, None)
        if judgement.verdict.may_be_evicted:
            place.directory.unlink_temporary(resource.name, last.instance_id)

    # -- waiting

    def _wait(self, refused: Refused) -> None:
        """Return when another look under the guard is worth it: nobody seems to own it, or the time is over.

        :raises AlreadyOwnedError: there is no time to wait
        """
        if self.timeout <= 0:
            raise refused.error()
        if self.clock.monotonic() >= self.deadline:
            raise timed_out(refused.error(), self.timeout)
        if self.waiter is None:
            self.examiner = self.examiner._replace(vigil=Vigil())
            self.waiter = Waiter(self.examiner, self.stopped)
        examined = refused.examined
        while not examined.may_be_taken and not examined.unsettled and self.clock.monotonic() < self.deadline:
            self._tell(Refused(refused.place, refused.resource, examined))
            self._require_same_process()
            looked = self.waiter.wait(refused.place, refused.resource, examined, self.deadline)
            if looked is None:
                return
            examined = looked

    def _tell(self, refused: Refused) -> None:
        owner, record = refused.examined.owner, refused.examined.record
        holder = (owner.instance_id if owner else "", record.token if record else 0)
        if self.on_wait is not None and holder not in self.told:
            self.told.add(holder)
            self.on_wait(refused.error())
