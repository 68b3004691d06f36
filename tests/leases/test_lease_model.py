"""Leases against a model of them, by any sequence of events, on a clock that moves only when told to."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import leases
import ownership
from ownership import AlreadyOwnedError, Verdict
from ownership._expiry import has_expired
from ownership._heartbeat import Heartbeat, Term
from ownership._keeper import KEEPER
from ownership._models import LeaseTerms
from ownership.testing import FakeClock, FakeProcessTable
from tests.support.namespaces import needs_linux_root
from tests.support.waiting import eventually

pytestmark = needs_linux_root

WHO = st.integers(0, 2)
TTL = st.sampled_from([1.0, 2.0, 10.0])


class Party:
    """A process: what it sees of the others, and the lease it has acquired last, held or lost.

    :ivar why: the reasons by which it may be lost: what is seen depends on when one looks
    """

    def __init__(self, pid: int) -> None:
        self.table = FakeProcessTable(pid)
        self.pid = pid
        self.start_id = self.table.current().start_id
        self.lease: leases.Lease | None = None
        self.why: set[str] = set()
        self.stopped = False


class Leasing(RuleBasedStateMachine):
    """Leases renewed by hand: who may acquire, who is told what, and until when, as the design says it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="leases-"))
        self.path = self.folder / "x"
        self.clock = FakeClock()
        self.numbers = iter(range(100, 10_000))
        self.parties: list[Party] = []
        self.owner: Party | None = None
        self.dead = False
        self.deadline = 0.0
        self.ttl = 0.0
        self.lapses = 0
        self.tokens = [0]
        self.forgotten: list[leases.Lease] = []

    @initialize()
    def begin(self) -> None:
        for who in range(3):
            self.come(who)

    def come(self, who: int) -> None:
        one = Party(next(self.numbers))
        for other in self.parties:
            other.table.add(one.pid, start_id=one.start_id)
            one.table.add(other.pid, start_id=other.start_id)
            if other.stopped:
                one.table.stop(other.pid)
        self.parties.insert(who, one)

    def teardown(self) -> None:
        for party in self.parties:
            self.forget(party)
            party.table.close()
        for lease in self.forgotten:
            lease.release()
        eventually(self.is_gone)  # the keeper may be putting something back

    def is_gone(self) -> bool:
        shutil.rmtree(self.folder, ignore_errors=True)
        return not self.folder.exists()

    def forget(self, party: Party) -> None:
        """*party* has no lease any more that could say anything."""
        if party.lease is not None:
            holding = party.lease.claim._holding
            holding.process = 0  # the keeper of this process, which is looking at it perhaps, lets it alone
            KEEPER.drop(holding)
            holding.disown()
            self.forgotten.append(party.lease)
        party.lease = None

    @property
    def has_run_out(self) -> bool:
        return self.clock.monotonic() >= self.deadline

    def seen(self, party: Party) -> Any:
        return {"clock": self.clock, "processes": party.table}

    def evicted(self, *why: str) -> None:
        """The model: nobody owns it, and its owner will be told *why*."""
        if self.owner is not None and not self.dead:
            self.owner.why = set(why)
        self.owner, self.dead = None, False

    def renewed(self) -> None:
        self.lapses += self.has_run_out
        self.deadline = self.clock.monotonic() + self.ttl

    # -- what parties do

    @rule(who=WHO, ttl=TTL)
    def acquire(self, who: int, ttl: float) -> None:
        party = self.parties[who]
        if party.lease is not None and party is not self.owner:
            return  # it does something with that one first
        free = self.owner is None or self.dead or self.has_run_out
        if not free or party is self.owner:
            if party is not self.owner:
                with pytest.raises(AlreadyOwnedError):
                    leases.acquire(self.path, ttl=ttl, auto_renew=False, **self.seen(party))
            return
        lease = leases.acquire(self.path, ttl=ttl, auto_renew=False, **self.seen(party))
        self.evicted("expired")
        for other in self.parties:
            if other.why == {"broken"}:  # who looks now sees that somebody owns it
                other.why = {"broken", "owner-replaced", "expired"}
        self.owner, party.lease, party.why = party, lease, set()
        self.ttl, self.lapses = ttl, 0
        self.deadline = self.clock.monotonic() + ttl
        self.tokens.append(lease.token)

    @rule(who=WHO)
    def renew(self, who: int) -> None:
        party = self.parties[who]
        if party.lease is None:
            return
        assert party.lease.renew() is (party is self.owner)
        if party is self.owner:
            self.renewed()

    @rule(who=WHO)
    def renew_on_its_behalf(self, who: int) -> None:
        """By a worker, which sees what the others see."""
        party = self.parties[who]
        if party.lease is None:
            return
        worker = self.parties[(who + 1) % 3]
        assert ownership.renew(party.lease.ref, **self.seen(worker)) is (party is self.owner)
        if party is self.owner:
            self.renewed()

    @rule(who=WHO)
    def verify(self, who: int) -> None:
        party = self.parties[who]
        if party.lease is None:
            return
        if party is self.owner:
            party.lease.verify()
            if self.has_run_out:
                self.renewed()
            return
        with pytest.raises(leases.LeaseLostError) as told:
            party.lease.verify()
        assert told.value.reason in party.why
        assert party.lease.lost.is_set()

    @rule(who=WHO)
    def enter_a_critical_section(self, who: int) -> None:
        party = self.parties[who]
        if party.lease is None:
            return
        if party is not self.owner:
            with pytest.raises(leases.LeaseLostError), party.lease.critical():
                raise AssertionError("entered")
            return
        with party.lease.critical():
            if self.has_run_out:
                self.renewed()
            self.clock.advance(20)  # whatever the ttl
            party.lease.verify()
            self.renewed()

    @rule(who=WHO)
    def announce(self, who: int) -> None:
        """Which renews nothing."""
        party = self.parties[who]
        if party is self.owner and party.lease is not None:
            party.lease.announce("again")

    @rule(who=WHO)
    def release(self, who: int) -> None:
        party = self.parties[who]
        if party.lease is not None:
            party.lease.release()
            party.lease = None
            if party is self.owner:
                self.evicted()

    # -- what others do

    @precondition(lambda self: self.owner is not None)
    @rule()
    def broken(self) -> None:
        operator = next(one for one in self.parties if one is not self.owner)
        ownership.break_claim(self.path, token=self.tokens[-1], **self.seen(operator))
        self.evicted("broken")

    @precondition(lambda self: self.owner is not None)
    @rule()
    def reclaim(self) -> None:
        operator = next(one for one in self.parties if one is not self.owner)
        if not self.dead and not self.has_run_out:
            with pytest.raises(AlreadyOwnedError):
                ownership.reclaim(self.path, **self.seen(operator))
            return
        ownership.reclaim(self.path, **self.seen(operator))
        self.evicted("expired")

    @rule(who=WHO, zombie=st.booleans())
    def die(self, who: int, zombie: bool) -> None:
        """And another process goes on in its place."""
        party = self.parties[who]
        self.forget(party)
        for other in self.parties:
            if other is not party:
                other.table.zombify(party.pid) if zombie else other.table.kill(party.pid)
        if party is self.owner:
            self.dead = True
        party.table.close()
        del self.parties[who]
        self.come(who)

    @rule(who=WHO, stopped=st.booleans())
    def stop_or_continue(self, who: int, stopped: bool) -> None:
        """As the others see it: what it does later, it does after it was continued."""
        party = self.parties[who]
        party.stopped = stopped
        for other in self.parties:
            if other is not party:
                (other.table.stop if stopped else other.table.resume)(party.pid)

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 3.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        """Nobody renews meanwhile: whoever holds it is paused, or busy."""
        self.clock.advance(seconds)

    @rule(seconds=st.floats(-1e6, 1e6))
    def the_machine_is_suspended_or_its_clock_set(self, seconds: float) -> None:
        """The wall clock jumps, the monotonic one stands still: nobody loses anything."""
        if self.clock.wall_ns() + seconds * 1e9 > 0:
            self.clock.step_wall(seconds)

    # -- what is to be seen

    @invariant()
    def everybody_sees_the_same(self) -> None:
        for party in self.parties:
            if party is self.owner:
                continue
            one = ownership.inspect(self.path, **self.seen(party))
            if self.owner is None:
                assert one.verdict is Verdict.FREE
                continue
            assert one.token == self.tokens[-1]
            if self.dead:
                assert one.verdict.is_dead
            else:
                living = Verdict.STOPPED if self.owner.stopped else Verdict.LIVE
                assert one.verdict is (Verdict.EXPIRED if self.has_run_out else living)
                assert one.expires_in == pytest.approx(self.deadline - self.clock.monotonic(), abs=1e-6)

    @invariant()
    def tokens_grow(self) -> None:
        assert self.tokens == sorted(set(self.tokens))


class Beating(RuleBasedStateMachine):
    """The heartbeat: a holder that is paused anywhere in it never believes in what a contender has taken over."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(100.0)
        self.heartbeat = Heartbeat(self.clock)
        self.witness: Any = self
        self.beaten: float | None = 100.0
        self.terms: list[tuple[Term, LeaseTerms]] = []
        self.taken: set[Term] = set()
        self.paused = 0.0
        self.visible = True

    def restore(self) -> bool:
        return self.visible

    def beat(self, nanoseconds: int) -> bool:
        before, after = self.paused / 3, self.paused * 2 / 3
        self.clock.advance(before)
        self.contend()
        self.beaten = nanoseconds / 1e9
        self.clock.advance(after)
        self.contend()
        return True

    def contend(self) -> None:
        """Somebody takes over whatever has run out for him: clock first, heartbeat second."""
        now = self.clock.monotonic()
        for term, terms in self.terms:
            if has_expired(terms, self.beaten, now, same_clock=True):
                assert term.is_over or term in self.taken
                self.taken.add(term)

    @rule(ttl=TTL)
    def acquire(self, ttl: float) -> None:
        terms = LeaseTerms(ttl=ttl, auto_renew=True, renewed_at=self.clock.monotonic())
        term = Term(ttl, terms.renewed_at, self.heartbeat, self.clock)
        term.begin()
        self.terms.append((term, terms))

    @rule(paused=st.sampled_from([0.0, 0.0, 0.9, 3.0, 30.0]))
    def keeper(self, paused: float) -> None:
        """It beats, and is paused on the way; what is late it renews under the guard, if nobody has taken over."""
        self.paused = paused
        self.heartbeat.beat(self)
        self.paused = 0.0
        for number, (term, terms) in enumerate(self.terms):
            if term.is_frozen and term not in self.taken:
                written = self.heartbeat.beat(self)
                if written is not None:
                    term.renew(written)
                    self.terms[number] = term, terms.model_copy(update={"renewed_at": written})

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def somebody_wants_them(self) -> None:
        self.contend()

    @rule(visible=st.booleans())
    def a_cleaner_comes(self, visible: bool) -> None:
        self.visible = visible

    @invariant()
    def what_was_taken_is_never_believed_in_again(self) -> None:
        for term in self.taken:
            assert term.is_over
            assert term.lapses == 0 or term.expires_in <= 0


LONG = settings(max_examples=60, stateful_step_count=40, deadline=None)
Leasing.TestCase.settings = Beating.TestCase.settings = LONG
test_leases_do_what_the_model_does = Leasing.TestCase
test_a_holder_never_believes_in_what_was_taken_over = Beating.TestCase
