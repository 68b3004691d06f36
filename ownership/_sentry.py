"""A worker's watch over one owner: what is looked at in every round, and when it is over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from ownership import _fork
from ownership._clock import Clock
from ownership._confirmations import Confirmations
from ownership._errors import FenceTrippedError, OwnershipError
from ownership._examine import Examiner
from ownership._flag import Flag
from ownership._locking import peek
from ownership._loss import evicted, is_later
from ownership._models import GuardState, Malformed, OwnerIdentity, OwnerRecord
from ownership._paths import pinned_resource
from ownership._pinned import DirectoryChanged, Signature, is_settled, signature_of
from ownership._place import existing, opened
from ownership._process import Identity, ProcessTable, printable
from ownership._pulse import ProcessPulse, WitnessPulse
from ownership._record import decode
from ownership._ref import OwnerRef
from ownership._station import Place
from ownership._verdict import Judgement, Observation, Self, Verdict, WitnessState, judge, same_namespace

_ABSENT = 2.0  # seconds that record and guard may both be missing while the owner runs: eight ticks of its keeper


class Sentry:
    """Looks at one owner. It trips once, on proof; what it cannot see, it does not conclude from.

    :ivar loss: why it tripped
    :ivar last_error: what kept the last look from being complete, ``None`` once one is again
    :ivar listeners: called on the spot when it trips, by whoever looked; they must return at once
    """

    def __init__(
        self, ref: OwnerRef, confirm_interval: float, clock: Clock, processes: ProcessTable, shared: Confirmations
    ) -> None:
        self.ref = ref
        self.resource = pinned_resource(ref.resource, whole=ref.registry is not None)
        self.loss: tuple[str, str] | None = None
        self.last_error: Exception | None = None
        self.event = Flag()
        self.listeners: list[Callable[[], object]] = []
        self.closed = False
        self._interval = confirm_interval
        self._clock = clock
        self._processes = processes
        self._confirmations = shared
        self._mutex: Any = threading.RLock()
        self._pulse: ProcessPulse | WitnessPulse | None = None
        self._path = ""
        self._seen: Signature | None = None
        self._settled = False  # what was seen was confirmed by a read late enough to be believed
        self._cleared = False  # a full look has said that the owner lives although its pulse is not felt
        self._confirm_at = 0.0
        self._absent_since: float | None = None
        _sentries.add(self)

    def disown(self) -> None:
        """We are a forked child, without the thread that looks: whoever asks looks anew, by himself."""
        self._mutex = threading.RLock()
        self._pulse, self._settled = None, False
        self.listeners.clear()

    @property
    def handle(self) -> int:
        return self._pulse.handle if self._pulse is not None else -1

    @property
    def over(self) -> bool:
        return self.loss is not None or self.closed

    def __repr__(self) -> str:
        return f"a fence over the owner of {self.resource.shown}"

    def look(self, *, hinted: bool = False, full: bool = False) -> None:
        """One round. Never raises what may pass.

        :param hinted: something says that the owner has ended
        :param full: rely on nothing that was seen before, unless the pulse is that of the very process
        """
        with self._mutex:
            if self.over:
                self._let_go()
                return
            try:
                self._look(hinted, full)
            except (OSError, OwnershipError, DirectoryChanged) as error:
                self.last_error = error
            if self.closed:
                self._let_go()

    def close(self) -> None:
        """Look no more; the next look, by whomever, closes what is open."""
        self.closed = True

    def error(self) -> FenceTrippedError:
        """What to raise once it has tripped."""
        reason, fact = self.loss or ("owner-gone", "")
        owner = self.ref.owner
        return FenceTrippedError(
            f"{self.resource.shown} is not our owner's any more (pid {owner.pid}, token {self.ref.token}): {fact}",
            reason=reason,
            resource=self.resource.path,
            hint="stop working for it; whoever owns it now starts workers of its own",
        )

    def _let_go(self) -> None:
        if self._pulse is not None:
            self._pulse.close()
            self._pulse = None

    def _look(self, hinted: bool, full: bool) -> None:
        now, pulse = self._clock.monotonic(), self._pulse
        closed = pulse is not None and pulse.mend()  # meanwhile nobody would have told us
        # whoever walks the rounds polls the handles of all, and says when one is ready
        beats = pulse is not None and not hinted and not closed and ((pulse.handle >= 0 and not full) or pulse.beats())
        untouched = self._is_untouched()
        if beats and untouched and now < self._confirm_at and (pulse.is_bound or not full):  # type: ignore[union-attr]
            return
        before, place, failure = self._seen, None, None
        if not untouched or pulse is None:
            try:
                place = self.find()
                if self._read(place):
                    return
            except (OSError, OwnershipError, DirectoryChanged) as error:  # the owner itself is looked at all the same
                failure, self._absent_since = error, None
        doubtful = self._absent_since is not None or closed or not (beats or self._cleared)
        anew = pulse is None or full or self._seen != before or doubtful
        if not self._confirm(place, now, 0.0 if anew else self._interval):
            return
        self._cleared = pulse is not None and not beats and not closed and self.last_error is None
        if failure is not None:
            raise failure

    def _is_untouched(self) -> bool:
        if not self._settled:
            return False
        try:
            return signature_of(os.lstat(self._path)) == self._seen
        except OSError:
            return False  # the read that follows says why

    def _confirm(self, place: Place | None, now: float, age: float) -> bool:
        """The full-strength look at the owner itself; false when that ends it."""
        me = self._processes.current()
        judgement, is_able = self._judge(place, me, now, age)
        if judgement.verdict.is_dead:
            self._trip("owner-gone", judgement.reason)
            return False
        if self._absent_since is not None:
            if not is_able:
                self._absent_since = now
            elif now - self._absent_since >= _ABSENT:
                self._trip("record-missing", "its record and guard are gone, and nobody puts them back")
                return False
        self._conclude(judgement)
        self._feel(place, me)
        self._confirm_at = now + self._interval
        return True

    def _judge(self, place: Place | None, me: Identity, now: float, age: float) -> tuple[Judgement, bool]:
        """The verdict on the owner, and whether it would put back what is missing: a stopped one cannot.

        From another pid namespace that is not to be seen, and without a witness nothing is.
        """
        owner = self.ref.owner
        if same_namespace(owner, me):
            process = self._confirmations.observe(owner.pid, owner.start_id, now, age=age)
            ended = isinstance(self._pulse, ProcessPulse) and self._pulse.has_ended()
            judgement = judge(owner, Observation(process=process, ended=ended), Self(me, holds=True))
            return judgement, judgement.verdict is Verdict.LIVE
        place = place or self.find()
        if place is None:
            return Judgement(Verdict.UNKNOWN, "its lock directory is gone, and its witness with it"), True
        judgement, seen = Examiner(self._processes, self._clock).judge(place, self.resource, owner, None)
        is_missing = seen.witness is not None and seen.witness.state is WitnessState.MISSING
        return judgement, judgement.verdict is Verdict.LIVE or is_missing

    def _conclude(self, judgement: Judgement) -> None:
        doubtful = judgement.verdict is Verdict.UNKNOWN or self._absent_since is not None
        self.last_error = OSError(11, judgement.reason, self.resource.path) if doubtful else None

    def _feel(self, place: Place | None, me: Identity) -> None:
        if self._pulse is None:
            if same_namespace(self.ref.owner, me):
                self._pulse = ProcessPulse.of(self._processes, self.ref.owner)
            elif place is not None:
                self._pulse = WitnessPulse(place.directory, self.ref.owner)
        if self._pulse is not None:
            self._pulse.open()

    # -- the record

    def find(self) -> Place | None:
        """Where the record is: where it was, which another account would not find, or wherever its owner went since."""
        directory = self.ref.directory
        if directory is None or self.ref.registry is not None:
            return existing(self.resource, self.ref.registry)
        try:
            return opened(directory)
        except (FileNotFoundError, NotADirectoryError):
            place = existing(self.resource)
        found = None if place is None else place.directory.read(f"{self.resource.name}.json")
        return place if found is not None and self.is_meant(decode(found[0], self.resource.shown)) else None

    def _read(self, place: Place | None) -> bool:
        """Read who owns the resource by its record, or else by its guard; true when that ends it."""
        wall_ns = self._clock.wall_ns()
        found = None if place is None else place.directory.read(f"{self.resource.name}.json")
        record = None if found is None else decode(found[0], self.resource.shown)
        self._seen, self._settled = None if found is None else found[1], False
        if place is not None and found is not None and isinstance(record, OwnerRecord) and self.is_meant(record):
            if record.is_closed:
                return self._trip("record-missing", "its owner closed it")
            self._path = place.directory.file(f"{self.resource.name}.json")
            self._settled = is_settled(found[1], wall_ns)
            self._absent_since = None
            return False
        if isinstance(record, OwnerRecord) and self._is_later(record, record.token):
            how = f"pid {record.pid} ({printable(record.command)}) owns it, token {record.token}"
            return self._trip("owner-replaced", how)
        if place is None:
            return self._note_absence()
        return self._ask_guard(peek(place.directory, self.resource), record)

    def _ask_guard(self, remembered: GuardState, record: OwnerRecord | Malformed | None) -> bool:
        """There is no record that says anything: the guard knows who owned last."""
        last = remembered.owner
        if last is not None and last.instance_id == self.ref.owner.instance_id and remembered.token <= self.ref.token:
            self._absent_since = None  # its keeper puts the record back, or it is dead, which the full look says
            return False
        if self._is_later(last, remembered.token):
            how = "owner-replaced" if last is not None else evicted(remembered, self.ref.token)
            return self._trip(how, f"its guard has issued token {remembered.token} since")
        if last is None and remembered.token == self.ref.token and record is None:
            ending = remembered.previous
            told = f"{ending.how} it" + (f": {printable(ending.reason)}" if ending.reason else "") if ending else "left"
            return self._trip("record-missing", f"its owner {told}")
        return self._note_absence()

    def _note_absence(self) -> bool:
        """No loss by itself: its owner may be about to put them back."""
        if self._absent_since is None:
            self._absent_since = self._clock.monotonic()
        return False

    def is_meant(self, record: OwnerRecord | Malformed | None) -> bool:
        """Whether *record* stands for that very ownership."""
        ours = (self.ref.token, self.ref.owner.instance_id)
        return isinstance(record, OwnerRecord) and (record.token, record.instance_id) == ours

    def _is_later(self, owner: OwnerIdentity | None, token: int) -> bool:
        return is_later(owner, token, self.ref.token, self.ref.owner.instance_id)

    def _trip(self, reason: str, fact: str) -> bool:
        self.loss = (reason, fact)
        self._let_go()
        for listener in list(self.listeners):  # before whoever waits for the event goes on
            listener()
        self.event.set()
        return True


_sentries: WeakSet[Sentry] = WeakSet()


def _child() -> None:
    for sentry in list(_sentries):
        sentry.disown()


_fork.in_child(_child)
