"""Leases in asynchronous code: cancelled anywhere nothing is left; a loss ends the body with one error."""

# ruff: noqa: PT012, PT031 what is tested is how bodies end

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import leases
import leases.aio as aio
import ownership
from leases import LeaseLostError, read_lines
from leases.aio import _block, _call, _section, _worker
from ownership import AlreadyOwnedError, GuardTimeoutError, OwnershipLostError, Verdict
from ownership.testing import FakeClock
from tests.support.processes import is_locked, open_descriptors, residue
from tests.support.records import file_of
from tests.support.stepping import cancelled_at
from tests.support.waiting import eventually


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """*main*, which hangs in no case."""
    return asyncio.run(asyncio.wait_for(main, 60))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


def at_work() -> int:
    """Threads for calls that do not rest."""
    alive = [thread for thread in threading.enumerate() if thread.name == "leases-aio"]
    return len(alive) - len(_worker._resting)


def nothing_left(path: Path) -> None:
    assert residue(path) == set()
    eventually(lambda: not is_locked(file_of(path, "guard")))  # the keeper may be inside for a moment
    assert ownership.inspect(path).verdict is Verdict.FREE
    eventually(lambda: at_work() == 0)


# -- using one


def test_what_a_lease_does_can_be_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30, labels={"a": "b"}, also=[tmp_path / "y"]) as lease:
            same = lease.lease
            assert (lease.path, lease.token, lease.tokens, lease.record, lease.ref, lease.ttl, lease.lapses) == (
                tmp_path / "x",
                same.token,
                same.tokens,
                same.record,
                same.ref,
                30.0,
                0,
            )
            assert (lease.held, lease.lost.is_set()) == (True, False)
            assert 29 < (lease.expires_in or 0) <= 30
            assert repr(lease) == f"<asynchronous <Lease of <Claim {tmp_path / 'x'} and 1 more held>>>"
            await lease.verify()
            assert await lease.renew()
            await lease.announce("busy", data={"n": 1})
            assert ownership.inspect(tmp_path / "x").record == lease.record
            await aio.append_line(lease, "a")
            with pytest.raises(AlreadyOwnedError):
                await aio.acquire(tmp_path / "x")
        assert not lease.held
        nothing_left(tmp_path / "x")
        lease = await aio.acquire(tmp_path / "x")
        async with lease:
            pass
        assert not lease.held
        with pytest.raises(LeaseLostError, match="released"):
            async with lease:
                pass
        await lease.release()

    run(main())


def test_a_claim_that_one_has_can_be_used(tmp_path: Path) -> None:
    async def main() -> None:
        claim = ownership.acquire(tmp_path / "x")
        with pytest.raises(LeaseLostError):
            async with aio.Lease(claim):
                ownership.break_claim(tmp_path / "x", token=claim.token)
                await asyncio.sleep(30)

    run(main())


def test_one_that_is_not_awaited_says_so(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        aio.acquire(tmp_path / "x")

    async def main() -> None:
        opening = aio.acquire(tmp_path / "x")
        async with opening as lease:
            with pytest.raises(RuntimeError, match="begun already"):
                await opening
            with pytest.raises(RuntimeError, match="entered once"):
                async with lease:
                    pass

    run(main())


def test_an_unreleased_one_is_released_with_a_warning(tmp_path: Path) -> None:
    async def main() -> None:
        lease = await aio.acquire(tmp_path / "x")
        with pytest.warns(ResourceWarning, match="garbage-collected"):
            del lease
            gc.collect()
        nothing_left(tmp_path / "x")

    run(main())


def test_it_is_released_although_the_body_raises_and_that_is_what_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(KeyError):
            async with aio.acquire(tmp_path / "x", ttl=5.0):
                raise KeyError("mine")
        nothing_left(tmp_path / "x")

    run(main())


def test_one_that_was_retired_stays_until_the_process_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "x") as lease:
            lease.lease.claim.retire("shutting down")
        found = ownership.inspect(tmp_path / "x")
        assert found.record is not None
        assert found.record.phase == "closed"
        lease.lease.claim.release()

    run(main())


# -- cancelled


async def everything(path: Path) -> None:
    async with aio.acquire(path, ttl=30.0) as lease:
        await lease.verify()
        await lease.renew()
        await aio.append_line(lease, "line")
        async with lease.critical():
            async with lease.critical():
                await lease.announce("busy")
            await aio.append_line(lease, "line")
    lease = await aio.acquire(path)
    try:
        await lease.verify()
    finally:
        await lease.release()


@pytest.mark.parametrize("late", [False, True], ids=["suspending", "going on"])
def test_cancelled_at_any_await_it_leaves_nothing(tmp_path: Path, late: bool) -> None:
    """K51."""
    path = tmp_path / "x"

    async def main() -> None:
        await everything(path)
        gc.collect()
        before, number = open_descriptors(), 1
        while await cancelled_at(everything(path), number, late=late):
            nothing_left(path)
            number += 1
        assert number > 10
        nothing_left(path)
        gc.collect()
        eventually(lambda: len(open_descriptors()) <= len(before))  # the keeper may be looking just now

    run(main())
    assert set(read_lines(path)) == {b"line"}


@pytest.mark.parametrize("late", [False, True], ids=["suspending", "going on"])
def test_cancelled_while_it_waits_it_does_not_wait_for_the_owner(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "x"

    async def main() -> None:
        async def soon() -> None:
            await asyncio.sleep(0.02)
            owner.release()

        with ownership.acquire(path) as owner:
            releasing = asyncio.create_task(soon()) if late else None
            before = time.monotonic()
            assert await cancelled_at(aio.acquire(path, timeout=None)._open(), 1, late=late)
            assert time.monotonic() - before < 20
            if releasing is None:
                assert owner.held
            else:
                await releasing
        nothing_left(path)

    run(main())


def test_cancelled_again_and_again_it_still_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"

    async def main() -> None:
        with ownership.acquire(path) as owner:
            waiting = asyncio.create_task(aio.acquire(path, timeout=None)._open())
            await until(lambda: at_work() == 1)
            for _ in range(3):
                waiting.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert waiting.cancelling() == 3
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await aio.acquire(path, timeout=None)
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
            assert owner.held
        nothing_left(path)

    run(main())


def test_random_cancellations_beside_a_contender_leave_nothing(tmp_path: Path) -> None:
    """Whatever the moment: many tasks want it, each gives up after a while, and one has it at a time."""
    path, inside, had = tmp_path / "x", 0, 0

    async def one(number: int, patience: float) -> None:
        nonlocal inside, had
        for turn in range(12):
            with suppress(TimeoutError, GuardTimeoutError):
                async with asyncio.timeout((number * 7 + turn * 13) % 40 * patience), aio.acquire(path, timeout=None):
                    inside += 1
                    had += 1
                    assert inside == 1
                    try:
                        await asyncio.sleep(0.001)
                    finally:
                        inside -= 1

    async def main() -> None:
        for patience in (0.001, 0.002, 0.004, 0.008, 0.016):  # as the machine is busy
            await asyncio.gather(*(one(number, patience) for number in range(6)))
            nothing_left(path)
            if had > 5:
                break

    run(main())
    assert had > 5


def test_a_task_that_is_dropped_with_its_loop_leaves_nothing(tmp_path: Path) -> None:
    """Nothing can be awaited any more: the threads see to it."""
    path = tmp_path / "x"
    with ownership.acquire(path) as owner:
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(aio.acquire(path, timeout=None)._open())
        loop.run_until_complete(asyncio.sleep(0.05))
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        del waiting
        eventually(lambda: gc.collect() >= 0 and at_work() == 0)
        assert owner.held
    nothing_left(path)

    async def body() -> None:
        async with aio.acquire(path) as lease, lease.critical():
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    task = loop.create_task(body())
    loop.run_until_complete(asyncio.sleep(0.1))
    assert ownership.inspect(path).verdict is Verdict.LIVE
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    del task
    gc.collect()
    eventually(lambda: ownership.inspect(path).verdict is Verdict.FREE)
    nothing_left(path)


def test_what_a_thread_has_got_for_code_that_was_closed_is_taken_back(tmp_path: Path) -> None:
    """By it, not by the garbage collector."""
    path = tmp_path / "x"
    go_on, told_loop = threading.Event(), threading.Event()

    class Gate:
        def check(self) -> None:
            assert go_on.wait(30)

    loop = asyncio.new_event_loop()
    coroutine = aio.acquire(path, gate=Gate())._open()
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    tell = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *given, **more: (tell(*given, **more), told_loop.set())[0]  # type: ignore[method-assign]
    go_on.set()
    eventually(lambda: ownership.inspect(path).verdict is Verdict.LIVE)
    assert told_loop.wait(30)  # which does not listen any more
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    coroutine.close()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        eventually(lambda: at_work() == 0)
        nothing_left(path)
        del task, coroutine
        gc.collect()
    assert [one.category for one in told] == []


def test_a_loop_that_is_closed_while_a_thread_acquires_gets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    asked, go_on = threading.Event(), threading.Event()

    class Gate:
        def check(self) -> None:
            asked.set()
            assert go_on.wait(30)

    async def until_asked() -> None:
        while not asked.is_set():
            await asyncio.sleep(0.001)

    loop = asyncio.new_event_loop()
    task = loop.create_task(aio.acquire(path, gate=Gate())._open())
    loop.run_until_complete(until_asked())
    loop.close()
    go_on.set()
    eventually(lambda: file_of(path, "guard").exists() and residue(path) == set())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    eventually(lambda: gc.collect() >= 0 and at_work() == 0)
    nothing_left(path)


def test_an_outside_cancellation_of_the_body_stays_one(tmp_path: Path) -> None:
    async def main() -> None:
        async def body() -> None:
            async with aio.acquire(tmp_path / "x", ttl=30.0):
                entered.set()
                await asyncio.sleep(60)

        entered = asyncio.Event()
        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel("why")
        with pytest.raises(asyncio.CancelledError, match="why"):
            await task
        nothing_left(tmp_path / "x")

    run(main())


# -- lost


def lose(lease: aio.Lease) -> None:
    ownership.break_claim(lease.path, token=lease.token)


def test_a_loss_cancels_the_body_and_one_error_leaves(tmp_path: Path) -> None:
    """K53."""
    ended: list[str] = []

    async def worker(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLostError) as lost:
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease, asyncio.TaskGroup() as group:
                group.create_task(worker("a"))
                group.create_task(worker("b"))
                await asyncio.sleep(0)
                lose(lease)
        assert lost.value.reason == "broken"
        assert isinstance(lost.value.__cause__, asyncio.CancelledError)
        assert task.cancelling() == 0
        await asyncio.sleep(0.3)  # and nothing is cancelled afterwards
        assert lease.lost.is_set()

    run(main())
    assert sorted(ended) == ["a", "b"]


def test_tasks_that_find_out_by_themselves_make_one_error_too(tmp_path: Path) -> None:
    async def checks(lease: aio.Lease) -> None:
        while True:
            await lease.verify()
            await asyncio.sleep(0.001)

    async def finds(lease: aio.Lease) -> None:
        lease.lease.verify()

    async def main() -> None:
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease, asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(checks(lease))
                await asyncio.sleep(0.02)
                lose(lease)
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease, asyncio.TaskGroup() as group:
                lose(lease)
                for _ in range(3):
                    group.create_task(finds(lease))
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                lose(lease)
                await checks(lease)
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                lose(lease)
                async with lease.critical():
                    pass

    run(main())


def test_the_losses_of_two_leases_around_one_group_make_one_error(tmp_path: Path) -> None:
    async def finds(lease: aio.Lease, go: asyncio.Event) -> None:
        await go.wait()
        lease.lease.verify()

    async def main() -> None:
        go = asyncio.Event()
        async with (
            aio.acquire(tmp_path / "x", ttl=30.0) as outer,
            aio.acquire(tmp_path / "y", ttl=30.0) as inner,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(finds(outer, go))
            group.create_task(finds(inner, go))
            await asyncio.sleep(0)
            lose(outer), lose(inner)
            go.set()
            await asyncio.sleep(60)

    for _ in range(5):
        with pytest.raises(LeaseLostError):
            run(main())


@pytest.mark.parametrize("between", [False, True])
def test_a_group_of_losses_leaves_the_blocks_of_all_as_one_of_them_that_notes_the_others(between: bool) -> None:
    losses = {name: OwnershipLostError(f"{name} is lost", reason="broken", resource=name) for name in ("x", "y")}

    async def main() -> None:
        outer, inner = _block.Block(), _block.Block()
        outer.enter(), inner.enter()
        error: BaseExceptionGroup[Exception] = ExceptionGroup("found by tasks", list(losses.values()))
        assert inner.leave(error, losses["y"]) is None  # who knows whether there is a block for the other
        if between:
            error = ExceptionGroup("of a group between them", [error])
        assert outer.leave(error, losses["x"]) is losses["x"]
        assert "meanwhile: y is lost" in losses["x"].__notes__
        alone, other = _block.Block(), ExceptionGroup("found by tasks", [*losses.values(), KeyError("mine")])
        alone.enter()
        assert alone.leave(other, losses["x"]) is None
        assert other.__notes__ == ["meanwhile: x is lost"]

    run(main())


def test_what_the_body_raises_at_the_same_time_stays_with_a_note(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(KeyError) as raised:
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                try:
                    lose(lease)
                    await asyncio.sleep(60)
                finally:
                    raise KeyError("mine")
        assert "meanwhile: " in raised.value.__notes__[0]
        assert "not ours any more" in raised.value.__notes__[0]
        with pytest.raises(ExceptionGroup) as group:
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease, asyncio.TaskGroup() as tasks:
                tasks.create_task(raising(lease))
                await asyncio.sleep(60)
        assert group.value.subgroup(KeyError) is not None
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    async def raising(lease: aio.Lease) -> None:
        lose(lease)
        lease.lost.wait()  # blocks the loop: the loss is known, and could not be told yet
        raise KeyError("mine")

    run(main())


def test_a_body_that_ends_although_all_is_lost_gets_the_error(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                lose(lease)
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                told = threading.Event()
                lease.on_loss(lambda _: told.set())
                lose(lease)
                assert told.wait(30)
        await asyncio.sleep(0.01)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


@pytest.mark.parametrize("outside_first", [True, False])
def test_cancelled_and_lost_at_once_it_is_cancelled(tmp_path: Path, outside_first: bool) -> None:
    async def main() -> None:
        async def body() -> None:
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                entered.set_result(lease)
                try:
                    await asyncio.sleep(60)
                finally:
                    await until(lambda: task.cancelling() == 2)

        entered: asyncio.Future[aio.Lease] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(body())
        lease = await entered
        if outside_first:
            task.cancel()
            await asyncio.sleep(0)
        lose(lease)
        await until(lease.lost.is_set)
        if not outside_first:
            await until(lambda: task.cancelling() == 1)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert task.cancelling() == 1  # ours is taken back

    run(main())


async def failed_group() -> None:
    """Before Python 3.13 it leaves the task's count of cancellations one too high."""

    async def fail() -> None:
        raise ValueError

    with suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())


@pytest.mark.parametrize("ends", ["while it sleeps", "while it awaits a task", "while it gathers", "by itself"])
def test_a_task_group_that_failed_in_the_body_makes_no_cancellation_of_the_loss(tmp_path: Path, ends: str) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                await failed_group()
                lose(lease)
                if ends == "while it sleeps":
                    await asyncio.sleep(30)
                elif ends == "while it awaits a task":
                    await asyncio.create_task(asyncio.sleep(30))
                elif ends == "while it gathers":
                    await asyncio.gather(asyncio.sleep(30), asyncio.sleep(30))
                else:
                    assert lease.lost.wait(30)
        ownership.acquire(tmp_path / "x").release()

    run(main())


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("when", ["at once", "while it awaits a task", "while it gathers", "in its clean-up"])
def test_a_cancellation_from_outside_stays_one_whenever_the_loss_comes(tmp_path: Path, when: str, failed: bool) -> None:
    """Also if a task group has failed before."""
    waits: dict[str, Callable[[], Any]] = {
        "while it awaits a task": lambda: asyncio.create_task(asyncio.sleep(30)),
        "while it gathers": lambda: asyncio.gather(asyncio.sleep(30), asyncio.sleep(30)),
    }

    async def holder(held: asyncio.Future[aio.Lease], cleaning: asyncio.Event) -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            if failed:
                await failed_group()
            held.set_result(lease)
            try:
                await waits.get(when, lambda: asyncio.sleep(30))()
            finally:
                cleaning.set()
                await asyncio.sleep(30 if when == "in its clean-up" else 0)

    async def main() -> None:
        held: asyncio.Future[aio.Lease] = asyncio.get_running_loop().create_future()
        cleaning = asyncio.Event()
        task = asyncio.create_task(holder(held, cleaning))
        lease = await held
        await asyncio.sleep(0)
        task.cancel()
        if when == "in its clean-up":
            await cleaning.wait()
        lease._block._cancel()  # the loss, in the same tick
        lease.lease.claim._holding.lose(lease.lease.claim._holding.part, None)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    run(main())


def test_a_timeout_inside_makes_no_cancellation_of_a_loss_during_its_clean_up(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                async with asyncio.timeout(0.01):
                    try:
                        await asyncio.sleep(60)
                    finally:
                        lose(lease)
                        await asyncio.sleep(60)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


def test_what_was_lost_just_before_the_body_ended_is_told(tmp_path: Path) -> None:
    """Before the keeper had a tick: it is looked at once more at the end."""

    async def main() -> None:
        for _ in range(3):
            with pytest.raises(LeaseLostError) as told:
                async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                    lose(lease)
            assert told.value.reason == "broken"

    run(main())


def test_what_one_task_enters_another_may_leave(tmp_path: Path) -> None:
    """As fixtures do, whose two halves run in tasks of their own; a loss is told at the end."""

    async def fixture(lost: bool) -> AsyncIterator[aio.Lease]:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            yield lease
            if lost:
                lose(lease)

    async def advanced(steps: AsyncIterator[aio.Lease]) -> None:
        await anext(steps, None)

    for lost in (False, True):
        with asyncio.Runner() as runner:
            steps = fixture(lost)
            runner.run(advanced(steps))
            gc.collect()
            if lost:
                with pytest.raises(LeaseLostError):
                    runner.run(advanced(steps))
            else:
                runner.run(advanced(steps))
        nothing_left(tmp_path / "x")


def test_of_nested_ones_the_outermost_that_was_lost_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "outer", ttl=30.0) as outer:
            with pytest.raises(LeaseLostError) as lost:
                async with aio.acquire(tmp_path / "inner", ttl=30.0) as inner:
                    lose(inner)
                    await asyncio.sleep(60)
            assert lost.value.resource == str(tmp_path / "inner")
            await outer.verify()
        with pytest.raises(LeaseLostError) as lost:
            async with aio.acquire(tmp_path / "outer", ttl=30.0) as outer, aio.acquire(tmp_path / "inner") as inner:
                lose(outer)
                lose(inner)
                try:
                    await asyncio.sleep(60)
                finally:
                    await asyncio.shield(until(lambda: outer.lost.is_set() and inner.lost.is_set()))
        assert lost.value.resource == str(tmp_path / "outer")
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        nothing_left(tmp_path / "inner")

    run(main())


def test_a_timeout_around_it_stays_a_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError) as late:
            async with asyncio.timeout(0.05), aio.acquire(tmp_path / "x", ttl=30.0):
                await asyncio.sleep(60)
        assert type(late.value) is TimeoutError
        with pytest.raises(LeaseLostError):
            async with asyncio.timeout(30), aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                lose(lease)
                await asyncio.sleep(60)
        with pytest.raises(TimeoutError, match="mine"):
            async with aio.acquire(tmp_path / "x", ttl=30.0):
                raise TimeoutError("mine")

    run(main())


def test_a_release_is_no_loss(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            await lease.release()
            await asyncio.sleep(0.3)
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            pass
        await asyncio.sleep(0.3)

    run(main())


def test_what_was_lost_before_the_body_begins_is_told_there(tmp_path: Path) -> None:
    async def main() -> None:
        lease = await aio.acquire(tmp_path / "x", ttl=30.0)
        lose(lease)
        await until(lease.lost.is_set)
        with pytest.raises(LeaseLostError):
            async with lease:
                pytest.fail("it must not begin")

    run(main())


def test_what_is_lost_while_the_body_begins_is_told_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        lease = aio.Lease(ownership.acquire(tmp_path / "x"))
        listen, told = lease._listen, threading.Event()

        def lost_at_once() -> None:
            listen()
            lease.on_loss(lambda _: told.set())
            lose(lease)
            assert told.wait(30)  # and so had the block been told, which has no body yet

        monkeypatch.setattr(lease, "_listen", lost_at_once)
        with pytest.raises(LeaseLostError):
            async with lease:
                await asyncio.sleep(60)

    run(main())


# -- critical sections


def test_inside_a_section_nobody_takes_over_and_calls_use_its_guard(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            async with lease.critical():
                assert is_locked(file_of(tmp_path / "x", "guard"))
                await lease.verify()
                assert await lease.renew()
                await lease.announce("busy")
                async with lease.critical(), asyncio.TaskGroup() as group:
                    group.create_task(lease.announce("busier"))  # its children are inside too
                    group.create_task(aio.append_line(lease, "a"))
                assert is_locked(file_of(tmp_path / "x", "guard"))
                with pytest.raises(RuntimeError, match="inside its own critical section"):
                    await lease.release()
            assert not is_locked(file_of(tmp_path / "x", "guard"))
        nothing_left(tmp_path / "x")

    run(main())


def test_the_guard_is_held_until_the_last_one_inside_has_left(tmp_path: Path) -> None:
    """A task that outlives the section it was started in is inside one of its own: nobody takes over meanwhile."""

    async def main() -> None:
        async def child() -> None:
            async with lease.critical():
                entered.set()
                await left.wait()
                await lease.verify()
                assert is_locked(guard)
                async with lease.critical():
                    await lease.renew()
            assert not is_locked(guard)
            async with lease.critical():
                await lease.renew()

        guard = file_of(tmp_path / "x", "guard")
        entered, left = asyncio.Event(), asyncio.Event()
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            async with lease.critical():
                task = asyncio.create_task(child())
                await entered.wait()
            assert is_locked(guard)
            with pytest.raises(ownership.GuardTimeoutError, match="another task of this process"):
                async with lease.critical(timeout=0.01):
                    raise AssertionError("entered")
            left.set()
            await task
            async with lease.critical(timeout=0.01):
                pass

    run(main())


def test_a_section_that_was_left_while_another_was_being_entered_keeps_the_guard_for_that(tmp_path: Path) -> None:
    async def main() -> None:
        async def child() -> None:
            async with lease.critical():
                assert is_locked(file_of(tmp_path / "x", "guard"))

        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            for turns in range(12):
                async with lease.critical():
                    task = asyncio.create_task(child())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                await task
            assert not is_locked(file_of(tmp_path / "x", "guard"))

    run(main())


def test_a_lease_may_be_used_by_several_loops(tmp_path: Path) -> None:
    async def contended(lease: aio.Lease) -> int:
        async def one() -> None:
            async with lease.critical(timeout=30.0):
                await asyncio.sleep(0)

        await asyncio.gather(*(one() for _ in range(5)))
        return 5

    lease = asyncio.run(aio.acquire(tmp_path / "x", ttl=30.0)._open())
    assert run(contended(lease)) == run(contended(lease)) == 5
    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(lambda _: run(contended(lease)), range(6))) == 30
    run(lease.release())


def test_what_is_started_inside_a_section_in_another_loop_waits_as_other_threads_do(tmp_path: Path) -> None:
    order: list[str] = []

    async def refused(lease: aio.Lease) -> None:
        async with lease.critical(timeout=0.02):
            pytest.fail("somebody is inside")

    async def other(lease: aio.Lease) -> None:
        async with lease.critical(timeout=30.0):
            order.append("other")

    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            async with lease.critical():
                with pytest.raises(GuardTimeoutError):
                    await asyncio.to_thread(lambda: asyncio.run(refused(lease)))
                elsewhere = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(other(lease))))
                await asyncio.sleep(0.1)
                order.append("first")
            await elsewhere
            async with lease.critical(timeout=0):  # nobody's turn is left
                pass

    run(main())
    assert order == ["first", "other"]


def test_tasks_enter_one_after_the_other_in_their_order(tmp_path: Path) -> None:
    order: list[int] = []

    async def one(lease: aio.Lease, number: int) -> None:
        async with lease.critical(timeout=30.0):
            order.append(number)
            await asyncio.sleep(0.001)
            order.append(number)

    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            await asyncio.gather(*(one(lease, number) for number in range(20)))
            await asyncio.gather(*(aio.append_line(lease, str(number)) for number in range(50)))

    run(main())
    assert order == [number for number in range(20) for _ in range(2)]
    assert list(read_lines(tmp_path / "x")) == [b"%d" % number for number in range(50)]


def test_whoever_waits_too_long_for_a_section_is_told_who_is_inside(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:

            async def enter() -> None:
                async with lease.critical(timeout=0.02):
                    pytest.fail("somebody is inside")

            other = asyncio.create_task(enter())  # made outside: it is not inside
            async with lease.critical():
                with pytest.raises(GuardTimeoutError, match="another task") as busy:
                    await other
                assert busy.value.holder == os.getpid()
            with lease.lease.critical():  # a thread of ours that knows nothing of tasks
                with pytest.raises(GuardTimeoutError) as busy:
                    await enter()
                assert busy.value.holder == os.getpid()
                waiting = asyncio.create_task(lease.critical(timeout=None).__aenter__())
                await asyncio.sleep(0.1)
                waiting.cancel()
                await asyncio.wait([waiting], timeout=20)
                assert waiting.cancelled()
            async with lease.critical():
                pass

    run(main())


def test_what_tasks_inherit_from_each_other_does_not_grow(tmp_path: Path) -> None:
    """A timer that is set anew inside a section, for ever."""

    async def main() -> None:
        async with aio.acquire(tmp_path / "x") as lease:
            over = asyncio.get_running_loop().create_future()

            def tick(left: int) -> None:
                if left:
                    tasks.append(asyncio.create_task(step(left)))
                else:
                    over.set_result(len(_section._inside.get()))

            async def step(left: int) -> None:
                async with lease.critical():
                    asyncio.get_running_loop().call_soon(tick, left - 1)

            tasks = [asyncio.create_task(step(20))]
            assert await over <= 1

    run(main())


@pytest.mark.parametrize("wrong", [None, 5, "lease"])
def test_arguments_that_cannot_be_right_are_refused(tmp_path: Path, wrong: Any) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="lease must be"):
            aio.Lease(wrong)
        with pytest.raises(ValueError, match="lease must be"):
            await aio.append_line(wrong, "line")
        async with aio.acquire(tmp_path / "x") as lease:
            with pytest.raises(ValueError, match="lease must be"):
                aio.Lease(lease)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="lease must be"):
                await aio.append_line(lease.lease, "line")  # type: ignore[arg-type]
            await aio.append_line(lease, "line", timeout=10**400)
            async with lease.critical(10**400):
                pass
        if wrong is not None:
            for acquire in (aio.acquire, aio.replace):
                with pytest.raises(ValueError, match="on_wait must be"):
                    await acquire(tmp_path / "x", on_wait=wrong)

    run(main())


# -- the loop


def test_the_loop_goes_on_while_threads_wait_and_many_may(tmp_path: Path) -> None:
    """Those that wait keep nobody from making calls: the holder can release what they wait for."""

    async def wants(number: int) -> int:
        async with aio.acquire(tmp_path / "x", timeout=60.0):
            return number

    async def main() -> None:
        async with aio.acquire(tmp_path / "x"):
            waiting = [asyncio.create_task(wants(number)) for number in range(3 * _call._AT_ONCE)]
            await until(lambda: at_work() == len(waiting))
            async with aio.acquire(tmp_path / "y") as other:
                await other.verify()
        assert sorted(await asyncio.gather(*waiting)) == list(range(len(waiting)))

    run(main())


@pytest.mark.parametrize("what", ["critical", "append_line"])
def test_whoever_asks_right_after_a_turn_was_given_back_waits_no_longer_than_asked(tmp_path: Path, what: str) -> None:
    """The turn is another task's already, which has not run since."""

    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30) as lease:
            ends = asyncio.Event()

            async def slow() -> None:
                async with lease.critical(timeout=None):
                    await ends.wait()

            async def enter() -> None:
                if what == "append_line":
                    await aio.append_line(lease, "x", timeout=0.1)
                async with lease.critical(timeout=0.1):
                    pytest.fail("both inside")

            async with lease.critical():
                other = asyncio.create_task(slow())
                await asyncio.sleep(0)
            with pytest.raises(GuardTimeoutError, match="another task of this process"):
                await enter()
            ends.set()
            await other

    run(main())


@pytest.mark.parametrize("how", ["leaves", "releases", "closes"])
def test_what_is_let_go_while_all_threads_are_at_work_is_let_go_although_the_task_is_cancelled(
    tmp_path: Path, how: str
) -> None:
    async def main() -> None:
        ends = threading.Event()

        class Slow:
            def check(self) -> None:
                ends.wait(20)

        async def let_go() -> None:
            if how == "leaves":
                async with aio.acquire(tmp_path / "x"):
                    inside.set()
                    await leave.wait()
            elif how == "releases":
                lease = await aio.acquire(tmp_path / "x")
                inside.set()
                await leave.wait()
                await lease.release()
            else:
                listener = await aio.listen(tmp_path / "x")
                inside.set()
                await leave.wait()
                await listener.close()
                listener.claim.release()

        inside, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(let_go())
        await inside.wait()
        loop = asyncio.get_running_loop()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_call, "_LONG", 20.0)  # as if they had only just begun
            busy = [asyncio.ensure_future(aio.acquire(tmp_path / f"{n}", gate=Slow())) for n in range(_call._AT_ONCE)]
            await until(lambda: _call._slots[loop]._free == 0)
            leave.set()
            await until(lambda: _call._slots[loop]._waiting)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        ends.set()
        for lease in await asyncio.gather(*busy):
            await lease.release()

    run(main())
    if how == "closes":
        assert not (tmp_path / "x").exists()
    else:
        nothing_left(tmp_path / "x")


@contextmanager
def threads_inside(handles: list[aio.Lease]) -> Iterator[None]:
    """Threads of this program are inside the critical section of each."""
    inside, ends = threading.Barrier(len(handles) + 1), threading.Event()

    def enter(lease: leases.Lease) -> None:
        with lease.critical():
            inside.wait(20)
            ends.wait(20)

    threads = [threading.Thread(target=enter, args=(handle.lease,)) for handle in handles]
    for thread in threads:
        thread.start()
    inside.wait(20)
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("dismissed", ["while many rest", "and has rested for long"])
def test_a_thread_that_is_wanted_no_more_does_what_whoever_has_it_still_gives_it(
    monkeypatch: pytest.MonkeyPatch, dismissed: str
) -> None:
    monkeypatch.setattr(_worker, "_RESTING", 0 if dismissed == "while many rest" else 8)
    monkeypatch.setattr(_worker, "_LINGER", 0.01)
    worker = _worker.Worker()
    worker.dismiss()
    calls = worker._calls
    eventually(lambda: calls.empty() and not _worker._resting)
    done = threading.Event()
    worker.put(done.set)
    assert done.wait(30)
    before = {thread for thread in threading.enumerate() if thread.name == "leases-aio"}
    del worker
    eventually(lambda: len({one for one in before if one.is_alive()}) < len(before))


@pytest.mark.parametrize("what", ["critical", "append_line"])
def test_a_turn_and_the_guard_are_waited_for_together_no_longer_than_asked(tmp_path: Path, what: str) -> None:
    told = list[float]()

    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30) as lease:
            critical = lease.lease.critical

            def noted(timeout: float | None = 1.0) -> Any:
                told.append(timeout or 0.0)
                return critical(timeout)

            with threads_inside([lease]), pytest.MonkeyPatch.context() as patched:
                patched.setattr(lease.lease, "critical", noted)
                patched.setattr(_section, "_SLICE", 5.0)
                lock = await lease._turns.take(None)
                asyncio.get_running_loop().call_later(0.2, lock.release)
                with pytest.raises(GuardTimeoutError):
                    if what == "critical":
                        async with lease.critical(timeout=0.5):
                            pytest.fail("both inside")
                    await aio.append_line(lease, "x", timeout=0.5)

    run(main())
    assert 0 < told[0] <= 0.3 + 1e-6  # what was left of it once the turn had come


@pytest.mark.parametrize("ends", [False, True])
def test_calls_that_wait_for_a_guard_keep_no_other_from_being_made(tmp_path: Path, ends: bool) -> None:
    """As many as are made at once. They can be cancelled, too."""

    async def main() -> None:
        busy = [await aio.acquire(tmp_path / f"x{number}", ttl=30) for number in range(_call._AT_ONCE)]
        other = await aio.acquire(tmp_path / "y", ttl=30)
        with threads_inside(busy):
            waiting = [asyncio.create_task(aio.append_line(one, "x", timeout=None)) for one in busy]
            await asyncio.sleep(0)
            await other.verify()
            if not ends:
                for task in waiting:
                    task.cancel()
                await asyncio.wait(waiting)
                assert all(task.cancelled() for task in waiting)
        if ends:
            await asyncio.gather(*waiting)
            assert [list(read_lines(one.path)) for one in busy] == [[b"x"]] * len(busy)
        for one in (*busy, other):
            await one.release()

    run(main())
    eventually(lambda: at_work() == 0)


def test_calls_that_take_long_for_another_reason_keep_no_other_from_being_made(tmp_path: Path) -> None:
    async def main() -> None:
        ends = threading.Event()
        async with aio.listen(tmp_path / "s"), aio.acquire(tmp_path / "y", ttl=30) as other:
            reached = [
                asyncio.create_task(aio.ensure(tmp_path / "s", connect=lambda _: ends.wait(20)))
                for _ in range(_call._AT_ONCE)
            ]
            await asyncio.sleep(0)
            await other.verify()
            ends.set()
            assert await asyncio.gather(*reached) == [True] * len(reached)

    run(main())


@pytest.mark.parametrize("timeout", ["1", float("nan"), -1])
def test_a_timeout_that_cannot_be_right_is_refused_also_while_another_task_is_inside(
    tmp_path: Path, timeout: float
) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30) as lease:
            ends = asyncio.Event()

            async def slow() -> None:
                async with lease.critical():
                    await ends.wait()

            other = asyncio.create_task(slow())
            await asyncio.sleep(0)
            with pytest.raises(ValueError, match="timeout must be"):
                await aio.append_line(lease, "x", timeout=timeout)
            ends.set()
            await other

    run(main())


def test_of_many_at_once_a_few_threads_do_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire, inside, most = leases._lease.acquire, set[int](), 0

    def counted(*given: Any, **keywords: Any) -> Any:
        nonlocal most
        inside.add(threading.get_ident())
        most = max(most, len(inside))
        try:
            return acquire(*given, **keywords)
        finally:
            inside.discard(threading.get_ident())

    async def one(number: int) -> None:
        async with aio.acquire(tmp_path / str(number), ttl=30.0):
            pass

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in range(100)))

    monkeypatch.setattr(leases._lease, "acquire", counted)
    run(main())
    assert 0 < most <= _call._AT_ONCE
    assert len(_worker._resting) <= _worker._RESTING


def test_without_threads_nothing_is_acquired_and_what_is_held_can_be_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K55."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", start)
                patched.setattr(_worker, "_resting", {})
                with pytest.raises(OSError, match="a thread for a call that blocks cannot be started"):
                    await aio.acquire(tmp_path / "y")
                with pytest.raises(OSError, match="cannot be started"):
                    async with lease.critical():
                        pytest.fail("it cannot be entered")
                await lease.verify()
                await lease.release()
            assert not lease.held
        async with aio.acquire(tmp_path / "x") as lease, lease.critical():
            pass

    run(main())


def test_who_is_waited_for_is_told_by_the_loop(tmp_path: Path) -> None:
    told: list[tuple[threading.Thread, AlreadyOwnedError]] = []

    async def main() -> None:
        with ownership.acquire(tmp_path / "x") as owner:
            taking = asyncio.create_task(
                aio.acquire(
                    tmp_path / "x",
                    timeout=60.0,
                    on_wait=lambda error: told.append((threading.current_thread(), error)),
                )._open()
            )
            await until(lambda: told)
            owner.release()
        await (await taking).release()

    run(main())
    assert len(told) == 1
    assert told[0][0] is threading.main_thread()
    assert told[0][1].record is not None


def test_a_clock_that_was_given_is_the_one_that_counts(tmp_path: Path) -> None:
    clock = FakeClock()

    async def main() -> None:
        first = await aio.acquire(tmp_path / "x", ttl=5.0, auto_renew=False, clock=clock)
        with pytest.raises(ownership.AcquireTimeoutError):
            await aio.acquire(tmp_path / "x", timeout=2.0, clock=clock)
        clock.advance(5)
        async with aio.acquire(tmp_path / "x", clock=clock):
            with pytest.raises(LeaseLostError, match="ran out"):
                await first.verify()

    run(main())


def test_a_loop_is_not_kept_alive(tmp_path: Path) -> None:
    seen: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        seen.append(weakref.ref(asyncio.get_running_loop()))
        async with aio.acquire(tmp_path / "x"):
            await asyncio.gather(*(aio.connect(tmp_path / "none") for _ in range(20)), return_exceptions=True)
        with pytest.raises(LeaseLostError):
            async with aio.acquire(tmp_path / "x") as lease:
                lose(lease)
                await asyncio.sleep(60)

    run(main())
    eventually(lambda: gc.collect() >= 0 and seen[0]() is None)  # a thread may be about to let go of what it was given


def test_a_lease_keeps_no_loop_alive_in_which_its_tasks_met(tmp_path: Path) -> None:
    lease = asyncio.run(aio.acquire(tmp_path / "x")._open())
    seen: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        async def enter() -> None:
            async with lease.critical():
                await asyncio.sleep(0)

        seen.append(weakref.ref(asyncio.get_running_loop()))
        await asyncio.gather(enter(), enter(), aio.append_line(lease, "line"))

    run(main())
    eventually(lambda: gc.collect() >= 0 and seen[0]() is None)
    run(lease.release())


# -- sockets


def test_listening_is_cancelled_when_the_claim_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def main() -> None:
        async with aio.listen(path, data={"v": 1}) as owned:
            assert (owned.endpoint, owned.path_lost) == (f"unix:{path}", False)
            assert owned.fileno() == owned.socket.fileno()
            owned.on_path_lost(lambda listener: None)
            path.unlink()
            await owned.rebind()
            connection = await aio.connect(path, timeout=10.0)
            connection.close()
            connection = await aio.ensure(path, None, match={"v": 1})
            connection.close()
            assert repr(owned) == f"<asynchronous <Listener unix:{path} held>>"
        assert not path.exists()
        with pytest.raises(OwnershipLostError):
            async with aio.listen(path, release="close") as owned:
                ownership.break_claim(path, token=owned.claim.token)
                await asyncio.sleep(60)
        async with aio.listen(path, release="close") as owned:
            await owned.close("done")
        nothing_left(path)

    run(main())


@pytest.mark.parametrize("late", [False, True], ids=["suspending", "going on"])
def test_cancelled_while_it_begins_to_listen_nothing_is_left(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "s"

    async def listening() -> None:
        async with aio.listen(path, release="close"):
            (await aio.connect(path, timeout=5.0)).close()

    async def main() -> None:
        await listening()
        gc.collect()
        before, number = len(open_descriptors()), 1
        while await cancelled_at(listening(), number, late=late):
            assert not path.exists()
            nothing_left(path)
            number += 1
        assert number > 3
        assert await cancelled_at(aio.listen(path)._open(), 1, late=late)  # which would be released at the end only
        nothing_left(path)
        gc.collect()
        eventually(lambda: len(open_descriptors()) <= before)

    run(main())


def test_waiting_for_a_server_can_be_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        with ownership.acquire(tmp_path / "s"), pytest.raises(TimeoutError) as late:
            async with asyncio.timeout(0.1):
                await aio.connect(tmp_path / "s", timeout=None)
        assert type(late.value) is TimeoutError
        with pytest.raises(ownership.UnreachableError):
            await aio.connect(tmp_path / "s")

    run(main())


def test_replacing_nobody_is_acquiring(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.replace(tmp_path / "x", reason="upgrade") as lease:
            assert lease.ttl is None
            with pytest.raises(AlreadyOwnedError):
                await aio.replace(tmp_path / "x")
        nothing_left(tmp_path / "x")

    run(main())


def test_nobody_is_replaced_while_the_gate_is_closed(tmp_path: Path) -> None:
    gate = leases.Gate(tmp_path / "gate")

    async def main() -> None:
        with gate.close(), pytest.raises(ownership.GateClosedError):
            await aio.replace(tmp_path / "x", gate=gate)
        async with aio.replace(tmp_path / "x", gate=gate) as lease:
            assert lease.held

    run(main())


def test_a_section_that_is_entered_is_not_entered_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
            section = lease.critical()
            async with section:
                for again in (section, section):
                    with pytest.raises(RuntimeError, match=r"call critical\(\) again"):
                        async with again:
                            pass
                assert is_locked(file_of(tmp_path / "x", "guard"))
                await aio.append_line(lease, "line")
                assert is_locked(file_of(tmp_path / "x", "guard"))
            async with section:
                assert is_locked(file_of(tmp_path / "x", "guard"))
        nothing_left(tmp_path / "x")

    run(main())


def test_what_the_body_raises_before_the_loss_was_noticed_gets_the_note_too(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(KeyError) as raised:
            async with aio.acquire(tmp_path / "x", ttl=30.0) as lease:
                lose(lease)
                raise KeyError("mine")
        assert [note.partition(":")[0] for note in raised.value.__notes__] == ["meanwhile"]
        with pytest.raises(KeyError) as raised:
            async with aio.acquire(tmp_path / "x", ttl=30.0):
                raise KeyError("mine")
        assert not hasattr(raised.value, "__notes__")

    run(main())
