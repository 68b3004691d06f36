"""The one thread that polls for all who wait: each is told once, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ownership
from leases import aio
from leases.aio import _lookout
from leases.aio._clock import BreakableClock, BrokenOff
from leases.aio._lookout import Lookout
from ownership import _waiting
from ownership._watch import Watch
from tests.support.processes import Contender
from tests.support.waiting import eventually


class Post:
    """Somebody who waits for a pipe."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.told = 0

    def tell(self) -> None:
        self.told += 1

    def close(self) -> None:
        os.close(self.reader), os.close(self.writer)


@pytest.fixture
def posts() -> Iterator[list[Post]]:
    found = [Post() for _ in range(20)]
    yield found
    for one in found:
        one.close()


def test_each_is_told_once_until_it_is_added_again(posts: list[Post]) -> None:
    lookout = Lookout()
    for one in posts:
        assert lookout.add(one.tell, (one.reader,))
    for _ in range(3):
        before = [one.told for one in posts]
        for one in posts[::2]:
            os.write(one.writer, b".")
        eventually(lambda before=before: all(one.told > was for one, was in zip(posts[::2], before[::2], strict=True)))
        assert [one.told - was for one, was in zip(posts, before, strict=True)] == [1, 0] * 10
        for one in posts[::2]:
            os.read(one.reader, 1)
            assert lookout.add(one.tell, (one.reader,))
    for one in posts:
        lookout.drop(one.tell)
        lookout.drop(one.tell)
    os.write(posts[0].writer, b".")
    eventually(lambda: not lookout._runs)
    assert [one.told for one in posts] == [3, 0] * 10


def test_what_was_closed_is_told_and_harms_nobody(posts: list[Post]) -> None:
    lookout = Lookout()
    gone = os.dup(posts[0].reader)
    lookout.add(posts[0].tell, (gone,))
    lookout.add(posts[1].tell, (posts[1].reader,))
    os.close(gone)
    lookout.add(posts[2].tell, (posts[2].reader,))  # what is polled is put together anew
    eventually(lambda: posts[0].told == 1)
    os.write(posts[1].writer, b".")
    eventually(lambda: posts[1].told == 1)
    lookout.drop(posts[2].tell)
    eventually(lambda: not lookout._runs)


def test_without_a_thread_it_says_so(posts: list[Post], monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    lookout = Lookout()
    with monkeypatch.context() as patched:
        patched.setattr(_lookout._thread, "start_new_thread", no)
        assert not lookout.add(posts[0].tell, (posts[0].reader,))
    assert lookout.add(posts[0].tell, (posts[0].reader,))
    os.write(posts[0].writer, b".")
    eventually(lambda: posts[0].told == 1)


class Poller(Post):
    """What the library waits by, of which the clock may poll the descriptors itself."""

    asked = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.reader,)

    def __call__(self, seconds: float) -> bool:
        self.asked += 1
        return _lookout.select.select([self.reader], [], [], seconds)[0] != []


@pytest.mark.parametrize("way", ["sleeps", "polls", "is woken"])
def test_a_wait_is_broken_off_at_once_and_woken_by_what_it_polls(way: str) -> None:
    """Long after it began, when the thread rests."""
    clock, poller, outcomes = BreakableClock(), Poller(), list[object]()

    def wait() -> None:
        try:
            outcomes.append(clock.wait(3600, None if way == "sleeps" else poller))
        except BrokenOff as off:
            outcomes.append(type(off))

    thread = threading.Thread(target=wait)
    thread.start()
    if way != "sleeps":
        eventually(lambda: poller.asked and _lookout.LOOKOUT._posts)
    os.write(poller.writer, b".") if way == "is woken" else clock.break_off()
    thread.join(60)
    assert outcomes == [True if way == "is woken" else BrokenOff]
    clock.settle()
    poller.close()
    eventually(lambda: not _lookout.LOOKOUT._runs)


@pytest.mark.parametrize("notify", [True, False], ids=["inotify", "no inotify"])
@pytest.mark.parametrize("end", ["release", "kill"])
def test_of_many_who_have_waited_for_long_one_gets_it_and_then_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notify: bool, end: str
) -> None:
    if not notify:
        monkeypatch.setattr(_waiting, "Watch", lambda: Watch(notify=False))
    order: list[int] = []

    async def one(number: int) -> None:
        async with aio.acquire(tmp_path / "x", timeout=None):
            order.append(number)

    async def main(other: Contender) -> None:
        tasks = [asyncio.create_task(one(number)) for number in range(12)]
        async with asyncio.timeout(60):
            while len(_lookout.LOOKOUT._posts) < len(tasks):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # all of them rest
        await asyncio.to_thread(other.do, "release", tmp_path / "x") if end == "release" else other.kill()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)

    with Contender() as other:
        assert "value" in other.do("acquire", tmp_path / "x")
        asyncio.run(main(other))
    assert sorted(order) == list(range(12))
    assert ownership.inspect(tmp_path / "x").record is None
    eventually(lambda: not _lookout.LOOKOUT._runs)
