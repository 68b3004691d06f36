"""When a fence trips, and when it does not: decisions, with processes and time that do what they are told."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import Claim, Fence, FenceTrippedError
from ownership._bell import Bell
from ownership._confirmations import Confirmations
from ownership._process import LinuxProcesses
from ownership._process._kernel import Kernel
from ownership._sentry import Sentry
from ownership.testing import FakeClock, FakeProcessTable, ProcessState
from tests.support.processes import open_descriptors, opened_since
from tests.support.records import OTHER_INSTANCE, file_of, plant, record
from tests.support.waiting import eventually

OWNER, WORKER = 1000, 2000


class World:
    """An owner and a worker in one fake machine, with real files."""

    def __init__(self, path: Path, *, handles: bool = True, **leased: Any) -> None:
        self.path = path
        self.clock = FakeClock(wall_ns=time.time_ns())
        self.processes = FakeProcessTable(OWNER, handles=handles)
        self.claim: Claim = ownership.acquire(path, clock=self.clock, processes=self.processes, **leased)
        owner = self.processes.current()
        self.ref = self.claim.ref
        self.processes.add(WORKER)
        start_id = self.processes.observe(WORKER).start_id
        assert start_id is not None
        self.processes.become(replace(owner, pid=WORKER, start_id=start_id, instance_id=f"{WORKER:032x}"))
        self.processes.observed.clear()
        self.sentries: list[Sentry] = []

    def sentry(self, *, shared: Confirmations | None = None) -> Sentry:
        kept = Confirmations(self.processes) if shared is None else shared
        one = Sentry(self.ref, 5.0, self.clock, self.processes, kept)
        self.sentries.append(one)
        one.look()
        return one

    def rounds(self, sentry: Sentry, seconds: float, tick: float = 0.25) -> None:
        """Walk the rounds for *seconds* of fake time."""
        for _ in range(round(seconds / tick)):
            self.clock.advance(tick)
            sentry.look(hinted=sentry.handle >= 0 and self.processes.has_ended(sentry.handle))

    def looks(self) -> int:
        return self.processes.observed.count(OWNER)

    def close(self) -> None:
        for one in self.sentries:
            one.close()
        self.claim.release()
        self.processes.close()


@pytest.fixture(params=[True, False], ids=["pidfd", "signal-0"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    one = World(tmp_path / "x", handles=request.param)
    yield one
    one.close()


def settled(world: World) -> Sentry:
    """A sentry that has seen everything and has nothing to ask."""
    sentry = world.sentry()
    while not sentry._settled:
        world.clock.advance(0.05)  # past the time in which a file may change unseen
        sentry.look()
    assert sentry.loss is None
    return sentry


# the processes


def test_a_minute_of_polling_takes_at_most_twelve_full_looks(world: World) -> None:
    sentry = settled(world)
    world.processes.observed.clear()
    world.rounds(sentry, 60)
    assert sentry.loss is None
    assert 1 <= world.looks() <= 12


def test_many_fences_of_one_owner_share_the_looks(world: World) -> None:
    shared = Confirmations(world.processes)
    sentries = [world.sentry(shared=shared) for _ in range(20)]
    while not all(sentry._settled for sentry in sentries):
        world.clock.advance(0.05)
        for sentry in sentries:
            sentry.look()
    world.processes.observed.clear()
    for _ in range(240):
        world.clock.advance(0.25)
        for sentry in sentries:
            sentry.look()
    assert 1 <= world.looks() <= 12


@pytest.mark.parametrize("end", ["kill", "zombify", "reuse"])
def test_an_owner_that_ended_is_noticed(world: World, end: str) -> None:
    sentry = settled(world)
    getattr(world.processes, end)(OWNER)
    world.rounds(sentry, 5.0)
    assert sentry.loss is not None
    assert sentry.loss[0] == "owner-gone"
    assert sentry.event.is_set()


@pytest.mark.parametrize("end", ["kill", "zombify", "reuse"])
def test_with_a_pidfd_one_round_is_enough(tmp_path: Path, end: str) -> None:
    world = World(tmp_path / "x")
    sentry = settled(world)
    getattr(world.processes, end)(OWNER)
    world.rounds(sentry, 0.25)
    assert sentry.loss is not None
    world.close()


@pytest.mark.parametrize("end", ["kill", "zombify", "reuse"])
def test_the_very_first_round_is_enough_too(tmp_path: Path, end: str) -> None:
    world = World(tmp_path / "x")
    sentry = world.sentry()
    getattr(world.processes, end)(OWNER)
    world.rounds(sentry, 0.25)
    assert sentry.loss is not None
    world.close()


def test_a_number_that_is_free_is_noticed_in_one_round_by_signal_0_too(tmp_path: Path) -> None:
    world = World(tmp_path / "x", handles=False)
    sentry = settled(world)
    world.processes.kill(OWNER)
    world.rounds(sentry, 0.25)
    assert sentry.loss is not None
    world.close()


def test_a_stopped_owner_is_an_owner(world: World) -> None:
    sentry = settled(world)
    for state in (ProcessState.STOPPED, ProcessState.TRACED, ProcessState.FROZEN, ProcessState.DUMPING):
        world.processes.set_state(OWNER, state)
        world.rounds(sentry, 20)
    assert sentry.loss is None


def test_a_probe_that_fails_never_trips_it_and_is_told(world: World) -> None:
    sentry = settled(world)
    for exists in (None, True):
        world.processes.fail(OWNER, exists=exists)
        world.rounds(sentry, 60)
        assert sentry.loss is None
        assert "Too many open files" in str(sentry.last_error)
    world.processes.resume(OWNER)
    world.rounds(sentry, 6)
    assert sentry.loss is None
    assert sentry.last_error is None


def test_an_end_that_cannot_be_confirmed_trips_it_by_what_is_open_of_that_very_process(tmp_path: Path) -> None:
    """Out of descriptors, for instance: there is none for a full look."""
    world = World(tmp_path / "x")
    sentry = settled(world)
    world.processes.fail(OWNER, exists=True)
    world.rounds(sentry, 20)
    assert sentry.loss is None
    world.processes.zombify(OWNER)
    world.processes.fail(OWNER, exists=True)
    world.rounds(sentry, 0.25)
    assert sentry.loss is not None
    world.close()


def test_a_number_alone_proves_nothing_while_a_full_look_fails(tmp_path: Path) -> None:
    world = World(tmp_path / "x", handles=False)
    sentry = settled(world)
    world.processes.zombify(OWNER)
    world.processes.fail(OWNER, exists=True)
    world.rounds(sentry, 20)
    assert sentry.loss is None
    world.processes.zombify(OWNER)
    world.rounds(sentry, 5)
    assert sentry.loss is not None
    world.close()


def test_a_handle_that_reports_a_living_process_ended_costs_no_look_every_round(tmp_path: Path) -> None:
    world = World(tmp_path / "x")
    sentry = settled(world)
    world.processes.zombify(OWNER)  # its handle is ready from now on
    world.processes.resume(OWNER)
    world.processes.observed.clear()
    world.rounds(sentry, 60)
    assert sentry.loss is None
    assert world.looks() <= 13
    world.close()


def test_an_owner_that_is_gone_already_trips_it_at_once(world: World) -> None:
    world.processes.kill(OWNER)
    assert world.sentry().loss is not None


# the record


def test_an_owner_that_announces_something_is_confirmed_at_once(world: World) -> None:
    sentry = settled(world)
    world.processes.observed.clear()
    world.claim.announce("serving")
    world.rounds(sentry, 0.25)
    assert world.looks() == 1
    assert sentry.loss is None


def test_a_release_trips_it(world: World) -> None:
    sentry = settled(world)
    world.claim.release("done for today")
    world.rounds(sentry, 0.25)
    assert sentry.loss == ("record-missing", "its owner released it: done for today")


def test_a_break_trips_it(world: World) -> None:
    sentry = settled(world)
    ownership.break_claim(world.path, token=world.ref.token, clock=world.clock, processes=world.processes)
    world.rounds(sentry, 0.25)
    assert sentry.loss is not None
    assert sentry.loss[0] == "broken"


def test_an_eviction_because_the_lease_ran_out_trips_it_as_that(tmp_path: Path) -> None:
    world = World(tmp_path / "x", ttl=600.0, auto_renew=False)
    sentry = settled(world)
    world.clock.advance(700)
    ownership.reclaim(world.path, clock=world.clock, processes=world.processes)
    world.rounds(sentry, 0.25)
    assert sentry.loss is not None
    assert sentry.loss[0] == "expired"
    world.close()


def test_a_successor_trips_it(world: World) -> None:
    sentry = settled(world)
    world.claim.release()
    with ownership.acquire(world.path, clock=world.clock, processes=world.processes) as successor:
        world.rounds(sentry, 0.25)
        assert sentry.loss is not None
        assert sentry.loss[0] == "owner-replaced"
        assert str(successor.token) in sentry.loss[1]


def test_a_record_of_an_earlier_owner_is_no_loss(world: World) -> None:
    """A stale file that somebody put back: the owner's keeper removes it again."""
    sentry = settled(world)
    plant(world.path, record(token=world.ref.token - 1, instance_id=OTHER_INSTANCE))
    world.rounds(sentry, 0.25)
    assert sentry.loss is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\0" * 100])
def test_a_record_that_says_nothing_is_no_loss_while_the_guard_names_the_owner(world: World, damage: bytes) -> None:
    sentry = settled(world)
    file_of(world.path).write_bytes(damage)
    world.rounds(sentry, 0.25)
    assert sentry.loss is None


def test_a_deleted_record_is_no_loss_while_the_owner_can_put_it_back(tmp_path: Path) -> None:
    world = World(tmp_path / "x")
    sentry = settled(world)
    for _ in range(40):  # its keeper, in this process, puts it back meanwhile
        file_of(world.path).unlink(missing_ok=True)
        world.rounds(sentry, 0.25)
    assert sentry.loss is None
    eventually(lambda: file_of(world.path).exists())
    world.close()


def test_files_that_are_gone_and_stay_away_end_it(tmp_path: Path) -> None:
    world = World(tmp_path / "x")
    sentry = settled(world)
    world.claim.release()
    shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
    world.rounds(sentry, 1.75)
    assert sentry.loss is None
    assert sentry.last_error is not None
    world.rounds(sentry, 1.0)
    assert sentry.loss is not None
    assert sentry.loss[0] == "record-missing"
    world.close()


@pytest.mark.parametrize("state", [ProcessState.STOPPED, ProcessState.TRACED, ProcessState.FROZEN])
def test_files_that_are_gone_are_no_loss_while_their_owner_cannot_put_them_back(
    world: World, state: ProcessState
) -> None:
    sentry = settled(world)
    world.claim.release()
    world.processes.set_state(OWNER, state)
    shutil.rmtree(world.path.parent / ".leases", ignore_errors=True)
    world.rounds(sentry, 60)
    assert sentry.loss is None
    assert sentry.last_error is not None
    world.processes.resume(OWNER)
    world.rounds(sentry, 1.75)
    assert sentry.loss is None
    world.rounds(sentry, 1.0)
    assert sentry.loss is not None
    assert sentry.loss[0] == "record-missing"


def test_files_that_cannot_be_looked_at_are_not_gone(world: World) -> None:
    """They were away at first; what became of them since, nobody could see."""
    sentry = settled(world)
    world.claim.release()
    shutil.rmtree(world.path.parent / ".leases", ignore_errors=True)
    world.rounds(sentry, 1.0)
    (world.path.parent / ".leases").symlink_to(world.path.parent / "elsewhere")
    world.rounds(sentry, 60)
    assert sentry.loss is None
    assert sentry.last_error is not None


def test_nobody_can_be_asked_where_neither_files_nor_process_are_to_be_seen(tmp_path: Path) -> None:
    world = World(tmp_path / "x")
    me = world.processes.current()
    world.processes.become(replace(me, pid_namespace=4026532999))
    sentry = settled(world)
    (tmp_path / "empty").mkdir(0o700)
    (tmp_path / ".leases").rename(tmp_path / "away")
    (tmp_path / "empty").rename(tmp_path / ".leases")  # in the next moment: the keeper makes one, too
    world.claim.release()
    world.rounds(sentry, 1.75)
    assert sentry.loss is None
    world.rounds(sentry, 1.0)
    assert sentry.loss is not None
    world.close()


def test_a_descriptor_that_was_closed_proves_nothing() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    assert Kernel().ready(reader) is False  # hung up, and nothing to read
    os.close(reader)
    assert Kernel().ready(reader) is False
    assert LinuxProcesses().has_ended(reader) is False


def test_a_record_that_cannot_be_read_ends_nothing_but_a_death_is_still_seen(world: World) -> None:
    sentry = settled(world)
    file_of(world.path).unlink()
    file_of(world.path).mkdir()
    world.rounds(sentry, 20)
    assert sentry.loss is None
    assert sentry.last_error is not None
    world.processes.kill(OWNER)
    world.rounds(sentry, 5)
    assert sentry.loss is not None
    assert sentry.loss[0] == "owner-gone"
    file_of(world.path).rmdir()


# the answers that are kept


def test_kept_answers_are_bounded_and_pruned_when_one_is_added() -> None:
    with FakeProcessTable() as processes:
        kept = Confirmations(processes, most=10)
        for number in range(100):
            kept.observe(5000 + number, "x", now=float(number) / 100, age=5.0)
        assert len(kept) == 10
        kept.observe(7000, "x", now=1000.0, age=5.0)
        assert len(kept) == 1


def test_a_kept_answer_is_about_one_process_not_about_a_number() -> None:
    with FakeProcessTable() as processes:
        kept = Confirmations(processes)
        processes.add(5000)
        kept.observe(5000, "first", now=0.0, age=5.0)
        kept.observe(5000, "second", now=0.0, age=5.0)
        kept.observe(5000, "second", now=4.9, age=5.0)
        kept.observe(5000, "second", now=5.0, age=5.0)
        assert processes.observed.count(5000) == 3


# the handle


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Claim]:
    with ownership.acquire(tmp_path / "x") as claim:
        yield claim


def test_it_is_silent_while_the_owner_owns(owned: Claim) -> None:
    with Fence(owned.ref) as fence:
        fence.check()
        assert not fence.tripped.is_set()
        assert fence.reason is None
        assert fence.last_error is None
        assert not fence.wait(0)


def test_a_release_trips_the_fence_and_calls_back_once(owned: Claim) -> None:
    calls: list[str] = []
    with Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02, on_trip=lambda: calls.append("now")) as fence:
        owned.release()
        assert fence.wait(10)
        eventually(lambda: calls)
        for _ in range(3):
            with pytest.raises(FenceTrippedError) as caught:
                fence.check()
        assert caught.value.reason == fence.reason == "record-missing"
        assert caught.value.exit_code == 76
        assert str(owned.path) in str(caught.value)
    assert calls == ["now"]


def test_a_check_looks_for_itself(owned: Claim) -> None:
    with Fence(owned.ref, poll_interval=1000.0, confirm_interval=1000.0) as fence:
        fence.check()
        ownership.break_claim(owned.path, token=owned.token)
        with pytest.raises(FenceTrippedError, match="token") as caught:
            fence.check()
        assert caught.value.reason == "broken"


def test_it_trips_for_good(owned: Claim) -> None:
    """K53: not even if everybody who came after has gone."""
    with Fence(owned.ref) as fence:
        ownership.break_claim(owned.path, token=owned.token)
        ownership.acquire(owned.path).release()
        for _ in range(2):
            with pytest.raises(FenceTrippedError):
                fence.check()


def test_a_callback_that_raises_or_never_returns_harms_nobody(owned: Claim, caplog: pytest.LogCaptureFixture) -> None:
    stuck, released, called = threading.Event(), threading.Event(), threading.Event()

    def never() -> None:
        stuck.set()
        released.wait(30)

    def fail() -> None:
        raise SystemExit("from a callback")

    given: dict[str, Any] = {"poll_interval": 0.02, "confirm_interval": 0.02}
    with caplog.at_level(logging.ERROR, "ownership"):
        with (
            Fence(owned.ref, on_trip=fail, **given),
            Fence(owned.ref, on_trip=never, **given),
            Fence(owned.ref, on_trip=called.set, **given) as last,
        ):
            owned.release()
            assert last.wait(10)
            assert stuck.wait(10)
            assert called.wait(20)
        assert "from a callback" in caplog.text
    released.set()


def test_a_fence_that_was_closed_never_trips(owned: Claim) -> None:
    calls: list[int] = []
    fence = Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02, on_trip=lambda: calls.append(1))
    fence.close()
    fence.close()
    with Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02) as other:
        owned.release()
        assert other.wait(10)
    fence.check()
    assert not fence.tripped.is_set()
    assert calls == []


def test_a_fence_that_was_closed_protects_nobody_and_says_so(owned: Claim) -> None:
    with Fence(owned.ref) as fence:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        fence.__enter__()
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(fence.__aenter__())


def test_fences_of_one_owner_share_a_descriptor(owned: Claim) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    fences = [Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02) for _ in range(300)]
    assert len(os.listdir("/proc/self/fd")) <= before + 10  # and not 300
    owned.release()
    assert all(fence.wait(10) for fence in fences)


def test_a_fence_is_entered_once(owned: Claim) -> None:
    async def main() -> None:
        fence = Fence(owned.ref)
        async with fence:
            with pytest.raises(RuntimeError, match="entered once"):
                await fence.__aenter__()

    asyncio.run(main())


def test_a_fence_that_nobody_holds_and_that_tells_nobody_ends_with_a_warning(owned: Claim) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.warns(ResourceWarning, match="nobody would have been told"):
        Fence(owned.ref, poll_interval=0.02).reason  # noqa: B018 and let go of at once
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_fence_that_nobody_holds_still_calls_back(owned: Claim) -> None:
    called = threading.Event()
    Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02, on_trip=called.set)
    gc.collect()
    owned.release()
    assert called.wait(10)


def test_many_callbacks_that_never_return_do_not_keep_another_from_being_called(tmp_path: Path, owned: Claim) -> None:
    over, called = threading.Event(), threading.Event()
    fences = [
        Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02, on_trip=lambda: over.wait(60)) for _ in range(8)
    ]
    other = ownership.acquire(tmp_path / "other")
    owned.release()
    assert all(fence.wait(10) for fence in fences)
    other.on_loss(lambda error: called.set())
    ownership.break_claim(other.path, token=other.token)
    assert called.wait(30)  # nothing else is left to be looked after by now
    over.set()
    other.release()


def test_a_fence_is_one_object(owned: Claim) -> None:
    with Fence(owned.ref) as fence, pytest.raises(TypeError, match="copied or pickled"):
        copy.copy(fence)


def test_fences_leave_no_descriptor_behind(owned: Claim) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    fences = [Fence(owned.ref) for _ in range(30)]
    assert len(os.listdir("/proc/self/fd")) > before
    for fence in fences:
        fence.close()
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"poll_interval": 0}, "poll_interval must be a number of seconds >= 0.01, got 0"),
        ({"poll_interval": float("nan")}, "poll_interval"),
        ({"poll_interval": True}, "poll_interval"),
        ({"confirm_interval": float("inf")}, "confirm_interval"),
        ({"confirm_interval": 0.1}, "confirm_interval must be >= poll_interval, got 0.1 and 0.25"),
        ({"on_trip": 5}, "on_trip must be callable, got 5"),
    ],
)
def test_arguments_that_cannot_be_right_are_told_with_their_value(owned: Claim, given: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Fence(owned.ref, **given)


def test_only_a_reference_can_be_fenced() -> None:
    with pytest.raises(ValueError, match="ref must be an OwnerRef"):
        Fence("/run/app.sock")  # type: ignore[arg-type]


def test_whoever_rings_while_a_new_bell_is_hung_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread has closed the writing end, and not yet noted that, when the one that polls wants another bell."""
    before = open_descriptors()
    bell = Bell()
    bell.hang()
    close = os.close

    def interrupted(number: int) -> None:
        monkeypatch.setattr(os, "close", close)
        close(number)
        bell.hang()

    monkeypatch.setattr(os, "close", interrupted)
    bell.ring()
    assert bell.number >= 0
    bell.take_down()
    assert opened_since(before) == []


# asyncio


def test_the_body_is_cancelled_and_one_typed_error_leaves(owned: Claim) -> None:
    ended: list[str] = []

    async def worker(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    async def main() -> None:
        async with Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02), asyncio.TaskGroup() as group:
            group.create_task(worker("a"))
            group.create_task(worker("b"))
            await asyncio.sleep(0.05)
            owned.release()

    with pytest.raises(FenceTrippedError):
        asyncio.run(asyncio.wait_for(main(), 30))
    assert sorted(ended) == ["a", "b"]


def test_a_cancellation_from_outside_stays_one(owned: Claim) -> None:
    async def main() -> str:
        async def body() -> None:
            async with Fence(owned.ref):
                await asyncio.sleep(60)

        task = asyncio.create_task(body())
        await asyncio.sleep(0.05)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "not"

    assert asyncio.run(main()) == "cancelled"


async def failed_group() -> None:
    """Before Python 3.13 it leaves the task's count of cancellations one too high."""

    async def fail() -> None:
        raise ValueError

    with contextlib.suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())


def test_a_task_group_that_failed_in_the_body_makes_no_cancellation_of_the_trip(owned: Claim) -> None:
    async def main() -> None:
        async with Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02):
            await failed_group()
            owned.release()
            await asyncio.sleep(60)

    with pytest.raises(FenceTrippedError):
        asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("cleans_up", [False, True])
def test_a_cancellation_from_outside_stays_one_also_after_a_group_that_failed(owned: Claim, cleans_up: bool) -> None:
    async def main() -> None:
        fence = Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02)
        entered, cleaning = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            async with fence:
                await failed_group()
                entered.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    cleaning.set()
                    await asyncio.sleep(60 if cleans_up else 0)

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        if cleans_up:
            await cleaning.wait()
        owned.release()
        assert fence.wait(30)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(asyncio.gather(task)), 30)
        assert task.cancelled()

    asyncio.run(main())


def test_an_error_of_the_body_is_not_masked_and_nothing_is_cancelled_afterwards(owned: Claim) -> None:
    async def main() -> None:
        fence = Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02)

        async def body() -> None:
            async with fence:
                owned.release()
                assert fence.wait(10)  # blocks the loop: the cancellation is asked for and cannot be delivered
                raise KeyError("mine")

        with pytest.raises(KeyError):
            await body()
        await asyncio.sleep(0.05)

    asyncio.run(main())


def test_a_body_that_ends_although_all_is_lost_gets_the_error(owned: Claim) -> None:
    async def main() -> None:
        fence = Fence(owned.ref, poll_interval=0.02, confirm_interval=0.02)

        async def body() -> None:
            async with fence:
                owned.release()
                assert fence.wait(10)

        with pytest.raises(FenceTrippedError):
            await body()
        await asyncio.sleep(0.05)

    asyncio.run(main())


def test_a_fence_that_has_tripped_cannot_be_entered(owned: Claim) -> None:
    async def main() -> None:
        fence = Fence(owned.ref)
        owned.release()
        with pytest.raises(FenceTrippedError):
            fence.check()
        with pytest.raises(FenceTrippedError):
            await fence.__aenter__()
        await asyncio.sleep(0.05)

    asyncio.run(main())
