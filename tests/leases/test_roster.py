"""The roster: who may say what about a task, who counts as lost, and how following ends; decisions, with fakes."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import hashlib
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import leases
import ownership
from leases import Restored, Roster, Task, TaskLostError, TaskTakenError, TaskTimeoutError, _caller, _roster, _seat
from leases._change import Attempt, Change
from leases._roster_file import OpenRoster, prepared
from leases._roster_lines import FINISHED, RUNNING, State
from ownership import AlreadyOwnedError, InvalidRecordError, UnsupportedRecordError, Verdict
from ownership._pulse import ProcessPulse
from ownership.testing import FakeProcessTable
from tests.support.injection import Interrupter, forking
from tests.support.processes import eventually, is_locked
from tests.support.records import snapshot

PATIENCE = 30.0


class Two(NamedTuple):
    """Two processes, 1000 and 2000, and a roster as each sees it. What becomes of the second the first can see."""

    path: Path
    ours: FakeProcessTable
    our: Roster
    their: Roster

    def names(self) -> dict[str, set[str]]:
        """The names of the tasks by state, as we see it."""
        found = self.our.restore()
        return {field: {task.name for task in getattr(found, field)} for field in Restored._fields}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with FakeProcessTable(pid=1000) as ours, FakeProcessTable(pid=2000) as theirs:
        ours.add(2000, start_id=theirs.current().start_id)
        theirs.add(1000, start_id=ours.current().start_id)
        path = tmp_path / "x.roster"
        yield Two(path, ours, Roster(path, processes=ours), Roster(path, processes=theirs))


def appended(two: Two, state: State) -> None:
    """What another program might append."""
    with two.path.open("ab") as file:
        file.write(state.line)


# driving


def test_a_task_is_driven_until_its_driver_finishes_it(two: Two) -> None:
    task = two.our.start("a", "first", data={"n": 1})
    found = two.our.task("a")
    assert (found.state, found.status, found.data, found.token) == ("running", "first", {"n": 1}, task.token)
    assert found.owner is not None
    assert (found.owner.pid, found.verdict) == (1000, Verdict.LIVE)
    task.update("second")
    assert two.their.task("a")[1:4] == ("running", "second", {"n": 1})
    task.update(data=[2])
    assert two.their.task("a")[1:4] == ("running", "second", [2])
    task.finish()
    assert two.their.task("a")[1:4] == ("finished", "done", [2])
    assert two.their.task("a").verdict is None
    assert found.since <= two.our.task("a").updated


def test_saying_that_it_is_finished_once_more_does_nothing(two: Two) -> None:
    task = two.our.start("a")
    task.finish("done")
    task.finish("really")
    assert two.our.task("a").status == "done"
    with pytest.raises(RuntimeError, match="'a' is finished"):
        task.update("more")
    with pytest.raises(RuntimeError, match="'a' is finished"):
        task.give_up()


def test_a_name_is_used_once(two: Two) -> None:
    task = two.our.start("a")
    for roster in (two.our, two.their):
        with pytest.raises(TaskTakenError, match="task 'a' is driven by pid 1000") as taken:
            roster.start("a")
        assert taken.value.task.name == "a"
        assert taken.value.exit_code == 75
        assert "follow()" in taken.value.hint
    task.finish("well done")
    with pytest.raises(TaskTakenError, match="is finished \\(well done\\)"):
        two.their.start("a")


def test_tokens_grow(two: Two) -> None:
    tokens = [roster.start(str(number)).token for number, roster in enumerate((two.our, two.their, two.our))]
    assert tokens == sorted(set(tokens))


def test_tokens_grow_also_without_the_guard_and_with_a_clock_gone_back(two: Two) -> None:
    clock = ownership.testing.FakeClock(wall_ns=2_000_000_000_000_000_000)
    first = Roster(two.path, clock=clock, processes=two.ours).start("a").token
    (two.path.parent / ".leases" / "x.roster.guard").unlink()
    clock.step_wall(-1e9)
    assert Roster(two.path, clock=clock, processes=two.ours).start("b").token > first


def test_a_block_that_ends_finishes_the_task(two: Two) -> None:
    with two.our.start("a"):
        pass
    assert two.our.task("a")[1:3] == ("finished", "done")


def test_a_block_that_finished_it_is_left_alone(two: Two) -> None:
    with two.our.start("a") as task:
        task.finish("early")
    assert two.our.task("a").status == "early"


def test_a_block_that_raises_fails_it(two: Two) -> None:
    with pytest.raises(ZeroDivisionError), two.our.start("a"):
        _ = 1 / 0
    assert two.our.task("a")[1:3] == ("finished", "failed: ZeroDivisionError: division by zero")


class Wordless(Exception):
    def __init__(self, words: object) -> None:
        self.words = words

    def __str__(self) -> str:
        if isinstance(self.words, BaseException):
            raise self.words
        return self.words  # type: ignore[return-value]


class WordlessInterrupt(Wordless, KeyboardInterrupt):
    pass


@pytest.mark.parametrize("words", [RuntimeError("no words"), OSError("none"), ValueError("none"), 5, None])
def test_a_block_that_is_left_by_an_exception_without_words_fails_it_all_the_same(two: Two, words: object) -> None:
    error = Wordless(words)
    with pytest.raises(Wordless) as left, two.our.start("a"):
        raise error
    assert left.value is error
    assert two.our.task("a")[1:3] == ("finished", "failed: Wordless")
    with pytest.raises(WordlessInterrupt), two.our.start("b"):
        raise WordlessInterrupt(words)
    assert two.our.task("b")[1:3] == ("lost", "interrupted: WordlessInterrupt")


def test_an_interruption_while_the_words_are_asked_for_leaves_and_fails_it(two: Two) -> None:
    with pytest.raises(KeyboardInterrupt), two.our.start("a"):
        raise Wordless(KeyboardInterrupt())
    assert two.our.task("a")[1:3] == ("finished", "failed: Wordless")


def test_much_data_keeps_nobody_from_ending_it(two: Two) -> None:
    most = "x" * (65536 - 2)
    with pytest.raises(ZeroDivisionError), two.our.start("a", data=most):
        _ = 1 / 0
    with two.our.start("b", data=most):
        pass
    with pytest.raises(Wordless), two.our.start("c", data=most):
        raise Wordless("\U0001f600" * 2000)
    with pytest.raises(KeyboardInterrupt), two.our.start("d"):
        raise type("N" * 3000, (KeyboardInterrupt,), {})
    found = {name: two.our.task(name) for name in "abcd"}
    assert [found[name].state for name in "abcd"] == ["finished", "finished", "finished", "lost"]
    assert [found[name].failed for name in "abcd"] == [True, False, True, False]
    assert found["a"].data == most
    with pytest.raises(ValueError, match="data must be small, at most 65536 bytes of JSON, got 65537"):
        two.our.start("e", data=most + "x")


def test_whoever_says_so_itself_failed_too(two: Two) -> None:
    two.our.start("a", "failed: so far").update(data=1)
    assert not two.our.task("a").failed
    two.our.driven("a").finish("failed: no paper")
    assert two.our.task("a").failed


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_block_that_is_interrupted_gives_it_up(two: Two, kind: type[BaseException]) -> None:
    with pytest.raises(kind), two.our.start("a"):
        raise kind
    found = two.our.task("a")
    assert found[1:3] == ("lost", f"interrupted: {kind.__name__}")
    assert two.their.claim_lost("a").before == found


def test_a_handle_that_was_dropped_can_be_had_again(two: Two) -> None:
    two.our.start("a")
    two.our.driven("a").finish()
    with pytest.raises(LookupError, match="no task 'b'"):
        two.our.driven("b")
    two.their.start("c")
    with pytest.raises(TaskTakenError, match="driven by pid 2000"):
        two.our.driven("c")


def test_threads_may_use_one_roster_and_many_rosters(tmp_path: Path) -> None:
    rosters, failed = [Roster(tmp_path / "x") for _ in range(3)], []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                with rosters[(number + turn) % 3].start(f"{number}-{turn}"):
                    pass
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failed
    assert len(rosters[0].restore().finished) == 20


def test_a_signal_handler_cannot_change_what_it_interrupts_a_change_of(two: Two) -> None:
    def handler(change: Change) -> State:
        """As if a signal came while the change is decided."""
        with pytest.raises(RuntimeError, match="a signal handler cannot change"):
            two.our.start("b")
        assert two.our.restore() == Restored((), (), ())  # to look is possible
        return State("a", change.token, change.me.instance_id, RUNNING, since=1.0, at=1.0)

    two.our._ledger.change("a", handler)
    two.our.start("b").finish()
    assert two.names() == {"running": {"a"}, "lost": set(), "finished": {"b"}}


# being displaced


def test_what_a_displaced_driver_says_is_refused(two: Two) -> None:
    task = two.our.start("a", "ours")
    known = two.our._ledger.read()
    assert known is not None
    state = known.get("a")
    assert state is not None
    their = two.their.start("b")
    appended(two, state._replace(token=their.token + 1, by="f" * 32, status="theirs"))
    for act in (task.update, task.finish, task.give_up, task.verify):
        with pytest.raises(TaskLostError, match="took it over") as lost:
            act()
        assert (lost.value.reason, lost.value.exit_code) == ("owner-replaced", 76)
        assert lost.value.task is not None
    assert two.our.task("a").status == "theirs"
    with pytest.raises(TaskLostError), task:
        pass


def test_a_block_whose_task_was_lost_does_nothing_at_its_end(two: Two) -> None:
    def displaced() -> None:
        with two.our.start("a") as task:
            appended(two, State("a", task.token + 1, "f" * 32, RUNNING))
            task.update("more")

    with pytest.raises(TaskLostError):
        displaced()
    assert two.our.task("a").owner is None


def test_a_block_that_another_task_is_lost_in_fails(two: Two) -> None:
    other = two.our.start("b")
    appended(two, State("b", other.token + 1, "f" * 32, RUNNING, since=1.0, at=1.0))
    with pytest.raises(TaskLostError), two.our.start("a"):
        other.verify()
    assert two.our.task("a").status.startswith("failed: TaskLostError")


def test_the_handle_of_a_task_that_the_roster_does_not_have_is_lost(two: Two) -> None:
    task = two.our.start("a")
    two.path.unlink()
    with pytest.raises(TaskLostError, match="does not have it any more") as lost:
        task.finish()
    assert lost.value.reason == "record-missing"


def test_whoever_wrote_at_the_same_time_by_a_greater_token_has_it(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of somebody who was broken and woke up, for instance: what does not count makes no handle."""
    append = OpenRoster.append

    def overtaken(file: OpenRoster, lines: bytes) -> int:
        monkeypatch.undo()
        appended(two, State("a", 2**52, "f" * 32, RUNNING, "faster", since=1.0, at=1.0))
        return append(file, lines)

    monkeypatch.setattr(OpenRoster, "append", overtaken)
    with pytest.raises(TaskTakenError) as taken:
        two.our.start("a")
    assert taken.value.task.status == "faster"


def test_whoever_was_broken_before_it_was_done_looks_what_became_of_it(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        monkeypatch.undo()
        ownership.break_claim(two.path, token=ownership.inspect(two.path, processes=two.ours).token)
        appended(two, State("a", 2**52, "f" * 32, RUNNING, "faster", since=1.0, at=1.0))

    monkeypatch.setattr(two.our._ledger, "_tidy", broken)
    with pytest.raises(TaskTakenError) as taken:
        two.our.start("a")
    assert taken.value.task.status == "faster"

    def only_broken(_: object) -> None:
        monkeypatch.undo()
        ownership.break_claim(two.path, token=ownership.inspect(two.path, processes=two.ours).token)

    monkeypatch.setattr(two.our._ledger, "_tidy", only_broken)
    task = two.our.start("b")
    assert two.our.task("b").token == task.token
    task.finish()


# restoring


def test_there_is_no_roster_before_the_first_task_and_looking_makes_none(two: Two) -> None:
    before = snapshot(two.path.parent)
    assert two.our.restore() == Restored((), (), ())
    with pytest.raises(LookupError):
        two.our.task("a")
    with pytest.raises(LookupError):
        two.our.follow("a")
    assert snapshot(two.path.parent) == before


@pytest.mark.parametrize("end", ["kill", "zombify", "reuse"])
def test_a_task_whose_driver_is_gone_a_zombie_or_its_number_reused_is_lost(two: Two, end: str) -> None:
    two.their.start("a", data=1)
    two.their.start("b").finish()
    two.our.start("c")
    assert two.names() == {"running": {"a", "c"}, "lost": set(), "finished": {"b"}}
    getattr(two.ours, end)(2000)
    assert two.names() == {"running": {"c"}, "lost": {"a"}, "finished": {"b"}}
    lost = two.our.restore().lost[0]
    assert lost.verdict is not None
    assert lost.verdict.is_dead
    assert "2000" in lost.reason


def doubts(two: Two, how: str) -> None:
    if how == "stopped":
        two.ours.stop(2000)
    elif how == "failing":
        two.ours.fail(2000)
    elif how == "forbidden":
        two.ours.fail(2000, "hidden", exists=True)
    elif how == "no driver line":
        kept = [line for line in two.path.read_bytes().splitlines(keepends=True) if b'"driver"' not in line]
        two.path.write_bytes(b"".join(kept))
    elif how == "damaged driver line":
        two.path.write_bytes(two.path.read_bytes().replace(b'"pid":2000', b'"pid":-200'))
    elif how == "other driver line":
        two.path.write_bytes(two.path.read_bytes().replace(b'"boot_id":"00000000', b'"boot_id":"11111111'))


@pytest.mark.parametrize(
    "how", ["stopped", "failing", "forbidden", "no driver line", "damaged driver line", "other driver line"]
)
def test_doubt_is_running(two: Two, how: str) -> None:
    two.their.start("a")
    doubts(two, how)
    assert two.names()["running"] == {"a"}
    assert two.our.task("a").state == "running"
    with pytest.raises(TaskTakenError):
        two.our.claim_lost("a")
    with pytest.raises(TaskTimeoutError):
        two.our.wait("a", 0.05)


@pytest.mark.parametrize("look", ["restore", "task", "claim_lost", "follow"])
def test_what_was_finished_just_before_its_driver_died_is_not_lost(
    two: Two, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """Drivers are judged first, and lines read second."""
    task, observe = two.their.start("a"), two.ours.observe
    ending = two.our._ledger.read().get("a")._replace(state=FINISHED)  # type: ignore[union-attr]

    def last_words(pid: int) -> Any:
        """It finishes and ends between our first read and our look at it."""
        if pid == 2000 and two.ours.answers(2000):
            appended(two, ending)
            two.ours.kill(2000)
        return observe(pid)

    monkeypatch.setattr(two.ours, "observe", last_words)
    if look == "restore":
        assert two.names()["finished"] == {"a"}
    elif look == "task":
        assert two.our.task("a").state == "finished"
    elif look == "follow":
        assert two.our.wait("a", PATIENCE).state == "finished"
    else:
        with pytest.raises(TaskTakenError, match="is finished"):
            two.our.claim_lost("a")
    assert task.token == ending.token


def test_what_was_finished_just_before_its_driver_died_is_not_taken_over(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a driver that came between our look and our turn."""
    ours, observe, acquired = two.our.start("a"), two.ours.observe, two.our._ledger._acquired
    ours.give_up()
    their = two.their.start("b")
    taken = State("a", their.token + 1, their._by, RUNNING, since=1.0, at=1.0)

    def late(attempt: Attempt) -> ownership.Claim:
        monkeypatch.setattr(two.our._ledger, "_acquired", acquired)
        appended(two, taken)
        return acquired(attempt)

    def last_words(pid: int) -> Any:
        if pid == 2000 and two.ours.answers(2000):
            appended(two, taken._replace(state=FINISHED, status="theirs"))
            two.ours.kill(2000)
        return observe(pid)

    monkeypatch.setattr(two.our._ledger, "_acquired", late)
    monkeypatch.setattr(two.ours, "observe", last_words)
    with pytest.raises(TaskTakenError, match=r"is finished \(theirs\)"):
        two.our.claim_lost("a")


def test_looking_changes_nothing(two: Two) -> None:
    two.their.start("a")
    two.our.start("b").finish()
    two.ours.kill(2000)
    before = snapshot(two.path.parent)
    two.our.restore()
    two.our.task("a")
    assert two.our.wait("a", PATIENCE).state == "lost"
    assert snapshot(two.path.parent) == before


# claiming what is lost


def test_a_lost_task_is_taken_over_from_what_was_said_last(two: Two) -> None:
    old = two.their.start("a", data={"step": 1})
    old.update("half way", data={"step": 2})
    lost_early = two.our.task("a")
    with pytest.raises(TaskTakenError, match="driven by pid 2000"):
        two.our.claim_lost(lost_early)
    two.ours.kill(2000)
    task = two.our.claim_lost("a")
    assert task.before is not None
    assert (task.before.status, task.before.data, task.before.state) == ("half way", {"step": 2}, "lost")
    assert task.token > old.token
    assert two.our.task("a")[1:4] == ("running", "half way", {"step": 2})
    with pytest.raises(TaskTakenError):
        two.our.claim_lost("a")
    with pytest.raises(TaskLostError):
        old.finish()
    task.finish()
    with pytest.raises(TaskTakenError, match="is finished"):
        two.our.claim_lost("a")


def test_a_task_that_is_given_up_may_be_claimed_at_once(two: Two) -> None:
    old = two.our.start("a", data=7)
    old.give_up("no time")
    old.give_up()
    assert two.our.task("a")[1:4] == ("lost", "no time", 7)
    again = two.our.claim_lost("a")
    with pytest.raises(TaskLostError):
        old.update("after all")
    again.finish()


def test_claiming_what_is_not_there_is_a_lookup_error(two: Two) -> None:
    with pytest.raises(LookupError):
        two.our.claim_lost("a")


# following


def test_it_ends_as_what_its_driver_writes(two: Two) -> None:
    task, told = two.their.start("a"), []
    following = two.our.follow("a", told.append)
    assert not following.ended
    task.update("half way")
    eventually(lambda: following.last.status == "half way")
    task.finish("well", data=1)
    found = following.wait(PATIENCE)
    assert found[1:4] == ("finished", "well", 1)
    eventually(lambda: told)
    assert told == [found]


def test_a_driver_that_only_seemed_to_end_is_looked_at_until_it_has(two: Two) -> None:
    """Its handle is ready, and its core dump is still being written, for instance."""
    two.their.start("a")
    following = two.our.follow("a")
    eventually(lambda: following.last.verdict is Verdict.LIVE)
    start_id = two.ours.observe(2000).start_id
    two.ours.kill(2000)
    two.ours.add(2000, start_id=start_id)  # lives after all, and no handle will tell
    assert not following.ended
    began = time.monotonic()
    two.ours.kill(2000)
    assert following.wait(PATIENCE).state == "lost"
    assert time.monotonic() - began < 4


def test_it_ends_as_lost_when_its_driver_dies_and_at_once(two: Two) -> None:
    two.their.start("a")
    following = two.our.follow("a")
    eventually(lambda: following.last.verdict is Verdict.LIVE)
    two.ours.kill(2000)
    assert following.wait(PATIENCE).state == "lost"
    assert two.our.wait("a", PATIENCE).state == "lost"


def test_a_takeover_that_comes_first_is_followed(two: Two) -> None:
    two.their.start("a")
    two.ours.fail(2000)
    following = two.our.follow("a")
    task = two.our.start("b")
    appended(two, State("a", task.token + 1, task._by, RUNNING, "theirs", since=1.0, at=1.0))
    eventually(lambda: following.last.status == "theirs")
    appended(two, State("a", task.token + 1, task._by, FINISHED, "done", since=1.0, at=2.0))
    assert following.wait(PATIENCE).status == "done"


def test_every_follower_is_told_once(two: Two) -> None:
    task, told = two.their.start("a"), []
    followings = [two.our.follow("a", told.append) for _ in range(5)]
    task.finish()
    assert [one.wait(PATIENCE).state for one in followings] == ["finished"] * 5
    eventually(lambda: len(told) == 5)
    two.ours.kill(2000)
    late = two.our.follow("a", told.append)
    assert late.wait(PATIENCE).state == "finished"
    eventually(lambda: len(told) == 6)


def test_a_callback_that_raises_or_blocks_is_in_nobodys_way(two: Two) -> None:
    gate, told = threading.Event(), []

    def bad(_: Task) -> None:
        gate.wait(PATIENCE)
        raise ValueError("bad")

    task = two.their.start("a")
    first, second = two.our.follow("a", bad), two.our.follow("a", told.append)
    task.finish()
    assert first.wait(PATIENCE) == second.wait(PATIENCE)
    assert not told
    gate.set()
    eventually(lambda: told)


def test_one_that_blocks_keeps_its_thread_and_the_others_go_on_in_another(two: Two) -> None:
    gate, told = threading.Event(), []
    tasks = [two.their.start(name) for name in "abcd"]
    for name in "abc":
        two.our.follow(name, lambda task: (told.append(task.name), gate.wait(PATIENCE), told.append(task.name)))
    for one in tasks[:3]:
        one.finish()
    two.our.follow("d", lambda task: told.append(task.name))
    tasks[3].finish()
    eventually(lambda: sorted(told) == ["a", "b", "c", "d"])
    assert two.our.wait("d", PATIENCE).state == "finished"
    gate.set()
    eventually(lambda: sorted(told) == ["a", "a", "b", "b", "c", "c", "d"])
    eventually(lambda: two.our._follower._runner is None)
    assert two.our._follower._caller not in _caller._open


def test_callbacks_that_wait_for_a_thread_are_called_when_there_is_one(
    two: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task, told = two.their.start("a"), []
    following = two.our.follow("a", told.append)

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(_caller._thread, "start_new_thread", refuse)
        task.finish()
        assert following.wait(PATIENCE).state == "finished"
        eventually(lambda: "callbacks wait" in caplog.text)
        assert not told
    eventually(lambda: told)
    eventually(lambda: two.our._follower._runner is None)
    assert len(told) == 1


def _noting(called: list[int], number: int) -> Callable[[Task], None]:
    return lambda _: called.append(number)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # inside a finaliser it is lost
def test_if_following_is_interrupted_its_callback_is_never_called(two: Two) -> None:
    class Interruption(BaseException):
        pass

    def interrupt() -> None:
        raise Interruption

    task, called, kept = two.their.start("a"), [], []
    roster, interrupter = Roster(two.path, processes=two.ours), Interrupter(interrupt)
    for number in itertools.count(1):
        try:
            interrupter.run(number, partial(roster.follow, "a", _noting(called, number)))
            kept.append(number)
        except Interruption:
            pass
        if not interrupter.point:
            break
    assert number > 20
    task.finish()
    assert roster.follow("a").wait(PATIENCE).state == "finished"
    eventually(lambda: roster._follower._runner is None and roster._follower._caller not in _caller._open)
    assert sorted(called) == kept


async def _awaited(following: leases.Following) -> Task:
    return await following


def test_it_can_be_awaited_and_a_cancelled_wait_can_be_repeated(two: Two) -> None:
    async def main() -> list[Task]:
        task = two.their.start("a")
        following = two.our.follow("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(following), 0.02)
        both = asyncio.gather(_awaited(following), _awaited(following))
        await asyncio.sleep(0)
        await asyncio.to_thread(task.finish)
        return [*await both, await following]

    assert [task.state for task in asyncio.run(main())] == ["finished"] * 3


def test_a_wait_that_takes_too_long_says_who_drives_it(two: Two) -> None:
    two.their.start("a")
    with pytest.raises(TaskTimeoutError, match="pid 2000") as timeout:
        two.our.wait("a", 0.01)
    assert isinstance(timeout.value, TimeoutError)
    assert (timeout.value.exit_code, timeout.value.task.name) == (75, "a")


@pytest.mark.parametrize("timeout", [0, 0.0001])
def test_a_short_wait_is_one_look_at_least(two: Two, timeout: float) -> None:
    """Whatever has ended before the call is told, by a handle of long ago too."""
    one, other = two.their.start("a"), two.their.start("b")
    following = two.our.follow("a"), two.our.follow("b")
    for each in following:
        with pytest.raises(TaskTimeoutError):
            each.wait(timeout)
    one.finish()
    two.ours.kill(2000)
    assert [each.wait(timeout).state for each in following] == ["finished", "lost"]
    assert [two.our.wait(name, timeout).state for name in ("a", "b")] == ["finished", "lost"]
    with pytest.raises(TaskTimeoutError) as running:
        two.their.wait(other.name, timeout)  # who does not see that they have gone
    assert running.value.task.state == "running"


def test_a_look_that_fails_keeps_nobody_waiting(two: Two) -> None:
    two.their.start("a")
    following = two.our.follow("a")
    two.path.write_bytes(b"nothing\n")
    with pytest.raises(TaskTimeoutError):
        following.wait(0)
    eventually(lambda: isinstance(following.last_error, InvalidRecordError))
    following.cancel()


def test_whoever_waits_while_it_is_cancelled_is_told(two: Two) -> None:
    """In the very moment between the end of the time and the last look."""
    two.their.start("a")
    following = two.our.follow("a")
    following._look = following.cancel
    with pytest.raises(RuntimeError, match="not followed any more"):
        following.wait(0)


def test_what_is_followed_no_more_ends_nobody(two: Two) -> None:
    task, told = two.their.start("a"), []
    following, other = two.our.follow("a", told.append), two.our.follow("a")

    async def main() -> None:
        waiting = asyncio.ensure_future(_awaited(following))
        await asyncio.sleep(0)
        following.cancel()
        with pytest.raises(RuntimeError, match="not followed any more"):
            await waiting

    asyncio.run(main())
    task.finish()
    assert other.wait(PATIENCE).state == "finished"
    other.cancel()
    assert other.ended
    assert not following.ended
    with pytest.raises(RuntimeError, match="not followed any more"):
        following.wait()
    assert not told
    eventually(lambda: two.our._follower._runner is None)


def test_a_wait_that_took_too_long_follows_nothing_any_more(two: Two) -> None:
    two.their.start("a")
    with pytest.raises(TaskTimeoutError):
        two.our.wait("a", 0.01)
    eventually(lambda: two.our._follower._runner is None)


def test_errors_that_may_pass_end_nothing(two: Two) -> None:
    task = two.their.start("a")
    following = two.our.follow("a")
    good = two.path.read_bytes()
    two.path.write_bytes(b"nothing\n")
    eventually(lambda: isinstance(following.last_error, InvalidRecordError))
    assert not following.ended
    two.path.write_bytes(good)
    task.finish()
    assert following.wait(PATIENCE).state == "finished"
    assert following.last_error is None


def test_a_roster_that_was_deleted_ends_with_its_driver(two: Two) -> None:
    two.their.start("a")
    following = two.our.follow("a")
    eventually(lambda: following.last.verdict is Verdict.LIVE)
    two.path.unlink()
    with pytest.raises(TaskTimeoutError):
        following.wait(0.3)
    two.ours.kill(2000)
    assert following.wait(PATIENCE).state == "lost"


def test_nothing_is_left_open_and_no_thread_runs_when_nothing_is_followed(two: Two) -> None:
    two.their.start("a")
    following = two.our.follow("a")
    eventually(lambda: following.last.verdict is Verdict.LIVE)
    assert [key for key in ProcessPulse._shared if key[0] == id(two.ours)]
    two.ours.kill(2000)
    following.wait(PATIENCE)
    eventually(lambda: two.our._follower._runner is None)
    assert not [key for key in ProcessPulse._shared if key[0] == id(two.ours)]


# the file


def test_a_torn_tail_is_skipped_by_readers_and_cut_by_the_next_append(two: Two) -> None:
    two.our.start("a").finish("x" * 50)
    two.our.start("b")
    whole = two.path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for size in range(last, len(whole)):
        two.path.write_bytes(whole[:size])
        assert two.names()["finished"] == {"a"}
        assert two.path.stat().st_size == size
    with pytest.raises(LookupError):
        two.our.task("b")
    two.their.start("c").finish()
    assert two.names() == {"running": set(), "lost": set(), "finished": {"a", "c"}}
    assert two.path.read_bytes().startswith(whole[:last])


def test_torn_anywhere_it_can_be_read_and_changed(two: Two) -> None:
    two.our.start("a").finish()
    two.their.start("b")
    whole = two.path.read_bytes()
    first = whole.find(b"\n") + 1
    for size in range(first, len(whole), 7):
        two.path.write_bytes(whole[:size])
        roster = Roster(two.path, processes=two.ours)
        roster.restore()
        roster.start("new").finish()
        assert roster.task("new").state == "finished"


def test_a_tail_that_a_loss_of_power_left_blank_is_cut(two: Two) -> None:
    two.our.start("a").finish()
    whole = two.path.read_bytes()
    two.path.write_bytes(whole + b"\0" * 3_000_000)
    assert two.names()["finished"] == {"a"}
    two.our.start("b").finish()
    assert two.path.stat().st_size < 3_000_000
    two.path.write_bytes(two.path.read_bytes() + b"\0" * 3_000_000 + b"\n")
    two.our.start("c").finish()
    assert two.names()["finished"] == {"a", "b", "c"}


def test_a_short_write_is_an_error_and_leaves_no_torn_line(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    task = two.our.start("a")
    before = two.path.read_bytes()
    write = os.write
    monkeypatch.setattr(OpenRoster, "append", lambda self, lines: write(self.number, lines[:-5]))
    for act in (task.finish, lambda: two.our.start("b"), lambda: two.their.start("c")):
        with pytest.raises(OSError, match="No space left") as failed:
            act()
        assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, str(two.path))
    monkeypatch.undo()
    added = two.path.read_bytes().removeprefix(before)
    assert b'"task"' not in added
    assert added.count(b'"driver"') == 1  # a whole line stays: others may have read it, and go on behind it
    task.finish()
    assert two.names() == {"running": set(), "lost": set(), "finished": {"a"}}


def test_what_may_not_survive_is_an_error_and_what_was_begun_is_given_up(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = two.our.start("a")
    broken = [True]

    def sync(_: OpenRoster) -> None:
        if broken.pop() if broken else False:
            raise OSError(errno.EIO, "lost", str(two.path))

    monkeypatch.setattr(OpenRoster, "sync", sync)
    with pytest.raises(OSError, match="lost"):
        task.finish()
    inode = two.path.stat().st_ino
    task.finish()  # what the disk lost is written again, into a new file
    assert two.path.stat().st_ino != inode
    broken.append(True)
    with pytest.raises(OSError, match="lost"):
        two.our.start("b")
    monkeypatch.undo()
    assert two.our.task("b").state == "lost"


def test_everything_is_on_the_disk_before_it_is_told(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            about = os.readlink(f"/proc/self/fd/{arguments[0]}") if name in ("fsync", "write") else str(arguments[1])
            if about.startswith(str(two.path)) or about == str(two.path.parent):
                about = about.removeprefix(str(two.path.parent)).removeprefix("/") or "."
                done.append(f"{name} {re.sub('[0-9]{16}', 'N', about)}")
            return real(*arguments, **keywords)

        monkeypatch.setattr(os, name, call)

    for name in ("write", "fsync", "link", "rename"):
        noted(name)

    def told(act: Any) -> list[str]:
        done.clear()
        act()
        return list(done)

    new, line = ["write x.roster.N.new", "fsync x.roster.N.new"], ["write x.roster", "fsync x.roster"]
    assert told(lambda: two.our.start("a")) == [*new, "link x.roster", "fsync .", *line]
    task = two.our.driven("a")
    assert told(lambda: task.update("more")) == line
    assert told(task.finish) == line
    assert told(task.finish) == ["fsync x.roster"]
    assert told(two.our.compact)[:4] == [*new, "rename x.roster", "fsync ."]
    assert told(two.our.restore) == ["fsync x.roster"]
    assert told(lambda: two.our.task("a")) == ["fsync x.roster"]
    assert "fsync x.roster" in told(lambda: two.our.wait("a", PATIENCE))


def test_nobody_can_break_whoever_replaces_the_file(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what others append meanwhile would be lost."""
    two.our.start("a")
    rename, locked = os.rename, []

    def looked(source: str, target: str) -> None:
        locked.append(is_locked(two.path.parent / ".leases" / "x.roster.guard"))
        rename(source, target)

    monkeypatch.setattr(os, "rename", looked)
    two.our.compact()
    assert locked == [True]


def test_of_two_who_replace_the_file_none_puts_the_others_there(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was broken, and wakes while another one is at it."""
    two.our.start("a").finish()
    rename = os.rename

    def meddled(source: str, target: str) -> None:
        prepared(str(two.path), b"of somebody who woke up\n", 17)
        rename(source, target)

    monkeypatch.setattr(os, "rename", meddled)
    with pytest.raises(OSError, match="it keeps being changed from outside") as failed:
        two.our.compact()
    assert (failed.value.errno, failed.value.filename) == (errno.EAGAIN, str(two.path))
    monkeypatch.undo()
    assert two.names()["finished"] == {"a"}
    two.our.compact()
    assert not list(two.path.parent.glob("*.new"))


@pytest.mark.parametrize("what", ["compact", "update", "start"])
def test_whoever_finds_its_new_file_taken_away_makes_another_or_does_without(
    two: Two, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """FileNotFoundError would say that there is no roster."""
    if what != "start":
        task = two.our.start("a")
        with two.path.open("ab") as file:
            file.write(two.our._ledger.read().get("a").line * (9000 if what == "update" else 1))  # type: ignore[union-attr]
    name, meddled = ("link" if what == "start" else "rename"), []
    real = getattr(os, name)

    def taken_away(source: str, target: str, **keywords: Any) -> None:
        if not meddled and target == str(two.path):
            meddled.append(os.unlink(source))
        real(source, target, **keywords)

    monkeypatch.setattr(os, name, taken_away)
    if what == "start":
        task = two.our.start("a")
    elif what == "update":
        task.update("more")
        assert two.path.stat().st_size > 800_000
        task.update("and more")
    else:
        two.our.compact()
    assert meddled
    assert two.path.stat().st_size < 1000
    task.finish()
    assert two.names()["finished"] == {"a"}


def test_a_torn_line_that_was_written_over_in_the_same_tick_is_seen(two: Two) -> None:
    task = two.our.start("a")
    line = two.our._ledger.read().get("a")._replace(status="new").line  # type: ignore[union-attr]
    whole, when = two.path.read_bytes(), 1_800_000_000_000_000_000
    two.path.write_bytes(whole + b"x" * len(line))
    os.utime(two.path, ns=(when, when))
    assert two.our.restore().running[0].status == ""
    two.our._ledger.read()
    two.path.write_bytes(whole + line)
    os.utime(two.path, ns=(when, when))
    task.verify()
    assert two.our._ledger.read().get("a").status == "new"  # type: ignore[union-attr]


def test_another_roster_of_the_same_inode_and_size_is_another_one(two: Two) -> None:
    two.our.start("a").finish()
    assert two.names()["finished"] == {"a"}
    whole = two.path.read_bytes()
    first = whole.index(b'"generation":') + 13
    other = whole[:first] + (b"2" if whole[first : first + 1] != b"2" else b"3") + whole[first + 1 :]
    two.path.write_bytes(other.replace(b'"task":"a"', b'"task":"b"'))
    assert two.names()["finished"] == {"b"}


@pytest.mark.parametrize("content", [b"", b"hello\n", b"{}\n", b'{"roster":"1"}\n', b'{"task":"a"}\n', b"\0" * 100])
def test_a_file_that_is_no_roster_is_left_alone(two: Two, content: bytes) -> None:
    two.path.write_bytes(content)
    for act in (two.our.restore, lambda: two.our.start("a"), two.our.compact):
        with pytest.raises(InvalidRecordError, match="no roster") as invalid:
            act()
        assert invalid.value.exit_code == 65
    assert two.path.read_bytes() == content


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket"])
def test_what_is_no_file_is_left_alone(two: Two, kind: str) -> None:
    if kind == "directory":
        two.path.mkdir()
    elif kind == "fifo":
        os.mkfifo(two.path)
    else:
        os.mknod(two.path, 0o140600)
    for act in (two.our.restore, lambda: two.our.start("a")):
        with pytest.raises(InvalidRecordError, match="no roster"):
            act()


def test_a_roster_of_a_later_format_is_left_alone(two: Two) -> None:
    two.path.write_bytes(b'{"roster":2,"generation":1,"token":1}\n')
    for act in (two.our.restore, lambda: two.our.start("a")):
        with pytest.raises(UnsupportedRecordError, match="format 2"):
            act()


def test_a_damaged_line_is_an_error_that_says_which(two: Two) -> None:
    two.our.start("a")
    two.path.write_bytes(two.path.read_bytes() + b"damaged\n")
    for roster in (two.our, two.their):
        with pytest.raises(InvalidRecordError, match="line 4 is no line"):
            roster.restore()
        with pytest.raises(InvalidRecordError, match="line 4 is no line"):
            roster.start("b")


def test_a_symlink_leads_to_one_roster(two: Two) -> None:
    link = two.path.with_name("link")
    link.symlink_to(two.path.name)
    Roster(link).start("a").finish()
    Roster(link).compact()
    assert link.is_symlink()
    assert two.names()["finished"] == {"a"}


def test_a_new_file_says_the_same(two: Two) -> None:
    first, second = two.our.start("a", data=1), two.their.start("b")
    two.our.start("c").finish()
    for number in range(20):
        first.update(str(number))
    before, size = two.our.restore(), two.path.stat().st_size
    two.path.chmod(0o640)
    two.their.compact()
    assert two.our.restore() == before
    assert two.path.stat().st_size < size / 3
    assert two.path.stat().st_mode & 0o777 == 0o640
    first.finish()
    second.finish()
    assert two.names()["finished"] == {"a", "b", "c"}
    with pytest.raises(FileNotFoundError):
        Roster(two.path.with_name("none")).compact()
    assert not list(two.path.parent.glob("*.new"))


def test_a_file_of_superseded_lines_is_replaced_by_itself(two: Two) -> None:
    task = two.our.start("a")
    state = two.our._ledger.read().get("a")  # type: ignore[union-attr]
    assert state is not None
    with two.path.open("ab") as file:
        file.write(state.line * (1_000_000 // len(state.line)))
    task.update("more")
    assert two.path.stat().st_size > 900_000
    with two.path.open("ab") as file:
        file.write(state.line * (60_000 // len(state.line)))
    task.update("more")
    assert two.path.stat().st_size < 2000
    assert two.our.task("a").status == "more"
    task.finish()


def test_much_data_does_not_make_the_file_long(two: Two) -> None:
    task, sizes = two.our.start("a"), []
    for number in range(40):
        task.update(data="x" * 60_000 + str(number))
        sizes.append(two.path.stat().st_size)
    assert max(sizes) < 1_400_000
    assert two.our.task("a").data.endswith("39")


def test_where_there_is_little_room_less_is_left_superseded(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there still is enough for a new file: later it could not even be finished."""
    task, sizes = two.our.start("a"), []
    monkeypatch.setattr(OpenRoster, "room", lambda self: 40_000)
    for number in range(80):
        task.update(data="x" * 1000 + str(number))
        sizes.append(two.path.stat().st_size)
    assert 40_000 < max(sizes) < 50_000
    monkeypatch.setattr(OpenRoster, "room", lambda self: 10)
    sizes.clear()
    for number in range(80):
        task.update(data="x" * 1000 + str(number))
        sizes.append(two.path.stat().st_size)
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("length", [201, 233, 234, 255])
def test_a_roster_may_have_any_name_that_a_file_may_have(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("x" * length)
    roster = Roster(path)
    roster.start("a").finish()
    (tmp_path / f"{hashlib.sha256(path.name.encode()).hexdigest()}.17.new").write_bytes(b"left")
    roster.compact()
    assert roster.task("a").state == "finished"
    assert os.listdir(tmp_path) == [".leases", path.name] or os.listdir(tmp_path) == [path.name, ".leases"]


def test_what_a_killed_writer_left_is_in_nobodys_way(two: Two) -> None:
    left = two.path.with_name("x.roster.1796004094325474.new")
    others = [two.path.with_name(name) for name in ("x.roster.old.new", "y.roster.17.new", "x.roster.17")]
    for one in (left, *others):
        one.write_bytes(b"half")
    two.our.start("a").finish()
    two.our.compact()
    assert not left.exists()
    assert all(one.exists() for one in others)
    assert two.names()["finished"] == {"a"}


def test_whoever_owns_the_path_keeps_changes_out_and_is_named(two: Two) -> None:
    roster = Roster(two.path, timeout=0.0)
    with ownership.acquire(two.path), pytest.raises(AlreadyOwnedError, match=f"pid {os.getpid()}"):
        roster.start("a")
    roster.start("a").finish()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "name must be text of 1 to 512"),
        ({"name": "x" * 513}, "name must be text"),
        ({"name": 3}, "name must be text"),
        ({"name": "\udc80"}, "name must be text"),
        ({"name": "a", "status": "x" * 1025}, "status must be text"),
        ({"name": "a", "status": None}, "status must be text"),
        ({"name": "a", "data": object()}, "data must be what JSON can say"),
        ({"name": "a", "data": "x" * 70000}, "data must be small"),
        ({"name": "a", "data": float("inf")}, "data must be what JSON can say.*task 'a'"),
        ({"name": "a", "data": "\ud800"}, "^data must be what JSON can say.*task 'a'"),
        ({"name": "a", "data": [{"\ud800": 1}]}, "^data must be what JSON can say.*task 'a'"),
        ({"name": "a", "data": functools.reduce(lambda inner, _: [inner], range(900), 0)}, "^data must be.*task 'a'"),
        ({"name": "a", "data": 10**5000}, "^data must be.*task 'a'"),
    ],
)
def test_what_cannot_be_recorded_is_a_value_error_and_records_nothing(
    two: Two, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        two.our.start(**arguments)
    assert two.our.restore() == Restored((), (), ())


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True])
def test_a_timeout_that_cannot_be_is_a_value_error(two: Two, timeout: Any) -> None:
    two.their.start("a").finish()
    following = two.our.follow("a")
    following.wait(PATIENCE)
    for act in (
        lambda: Roster(two.path, timeout=timeout),
        lambda: following.wait(timeout),
        lambda: two.our.wait("a", timeout),
    ):
        with pytest.raises(ValueError, match="timeout must be"):
            act()


def test_a_time_that_no_float_can_say_is_for_ever(two: Two) -> None:
    roster = Roster(two.path, timeout=10**400, processes=two.ours)
    roster.start("a").finish()
    assert roster.wait("a", 10**400).state == "finished"
    assert roster.follow("a").wait(10**400).state == "finished"


@pytest.mark.parametrize("path", [None, 5, "", b"", "a\0b"])
def test_what_is_no_path_is_a_value_error(tmp_path: Path, path: Any) -> None:
    with pytest.raises(ValueError, match="path must be a path"):
        Roster(path)
    with pytest.raises(ValueError, match="registry must be a path"):
        Roster(tmp_path / "x", registry="" if path is None else path)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_wherever_a_handler_forks_what_the_child_writes_late_counts_for_nothing(tmp_path: Path, step: int) -> None:
    """It returns in the child too, which goes on once its parent has said more."""
    roster = Roster(tmp_path / "roster")
    job = roster.start("a")
    for number in itertools.count(1, step):
        job.update("before")
        with (tmp_path / "roster").open("ab") as file:
            file.write(b"torn")
        with forking(number, lambda: job.update("step 1"), (__file__,)) as fork:
            job.update("step 2")
            size = (tmp_path / "roster").stat().st_size
            fork.go_on()
            assert Roster(tmp_path / "roster").task("a").status == "step 2", fork.point
            assert (tmp_path / "roster").stat().st_size == size, fork.point
        if not fork.point:
            break
    assert number > 100
    job.finish()


class Jumping(ownership.testing.FakeClock):
    """A minute passes as soon as that many threads know until when they may wait."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._asked = set[int]()
        self._threads = threads
        self.all_know = threading.Event()

    def monotonic(self) -> float:
        now = super().monotonic()
        self._asked.add(threading.get_ident())
        if len(self._asked) == self._threads and not self.all_know.is_set():
            self.advance(60)
            self.all_know.set()
        return now


def test_threads_wait_for_each_other_no_longer_than_for_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, path, waits, acquire = Jumping(8), tmp_path / "roster", list[float](), ownership.acquire

    def acquiring(*args: Any, timeout: float, **kwargs: Any) -> ownership.Claim:
        waits.append(timeout)
        clock.all_know.wait(60)  # whoever is first has its turn for that long
        return acquire(*args, timeout=timeout, **kwargs)

    monkeypatch.setattr(ownership, "acquire", acquiring)
    roster = Roster(path, timeout=10, clock=clock)
    threads = [threading.Thread(target=roster.start, args=(f"{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert waits[0] == 10
    assert waits[1:] == [0] * 7  # their time was over when it was their turn
    assert {roster.task(f"{number}").state for number in range(8)} == {"running"}


def test_a_handler_that_raises_while_much_is_read_leaves_the_collector_on(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    disable = gc.disable

    def interrupted() -> None:
        disable()
        raise KeyboardInterrupt  # as a handler would, right behind it

    two.their.start("a")
    monkeypatch.setattr(_roster, "_MANY", 0)
    assert gc.isenabled()
    monkeypatch.setattr(gc, "disable", interrupted)
    with pytest.raises(KeyboardInterrupt):
        two.our.restore()
    assert gc.isenabled()


def test_who_gives_up_waiting_leaves_nothing_behind(tmp_path: Path) -> None:
    roster = Roster(tmp_path / "roster")
    job = roster.start("a")

    async def main() -> None:
        following = roster.follow("a")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(following, 0.001)
            with pytest.raises(TaskTimeoutError):
                following.wait(0)
        assert following._listeners == []
        job.finish()
        assert (await following).state == "finished"
        assert following._listeners == []

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files are closed by finalisers
def test_what_handlers_that_raise_one_after_the_other_leave_owned_the_next_change_ends(tmp_path: Path) -> None:
    roster = Roster(tmp_path / "roster", timeout=0.0)
    job = roster.start("a")

    def break_off() -> None:
        raise KeyboardInterrupt

    kept, end = list[BaseException](), Attempt.end
    interrupter = Interrupter(break_off, (__file__,))
    for number in itertools.count(1, 3):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Attempt, "end", lambda _: None)  # broken off again, as often as it is tried
            try:
                interrupter.run(number, lambda: job.update("broken off"))
            except KeyboardInterrupt as error:
                kept.append(error)
        assert Attempt.end is end
        thread = threading.Thread(target=lambda: job.update("after"))
        thread.start()
        thread.join()
        assert roster.task("a").status == "after", interrupter.point
        if not interrupter.point:
            break
    assert len(kept) > 50
    job.finish()


def test_a_roster_in_a_directory_that_is_not_there_is_a_mistake_and_not_an_empty_one(tmp_path: Path) -> None:
    roster = Roster(tmp_path / "misspelled" / "roster")
    for look in (roster.restore, lambda: roster.task("a"), lambda: roster.start("a")):
        with pytest.raises(FileNotFoundError) as missing:
            look()
        assert "misspelled" in str(missing.value)
        assert "directory" in missing.value.__notes__[0]
    assert Roster(tmp_path / "roster").restore() == ((), (), ())


def test_a_roster_that_nobody_has_keeps_no_seat_unless_a_task_is_driven(tmp_path: Path) -> None:
    """A daemon has a roster for each session, thousands in its life."""
    roster: Roster | None = Roster(tmp_path / "roster")
    seat = tmp_path / "roster.driver-1"
    assert roster is not None
    done, open_ = roster.start("a"), roster.start("b")
    done.finish()
    del done
    roster = None
    assert ownership.inspect(seat).verdict is Verdict.LIVE  # for the other one
    del open_
    gc.collect()
    assert ownership.inspect(seat).verdict is Verdict.LIVE  # its task is still ours
    again = Roster(tmp_path / "roster")
    again.driven("b").finish()
    other = Roster(tmp_path / "roster")
    task = other.start("c")
    del again
    gc.collect()
    assert ownership.inspect(seat).verdict is Verdict.LIVE
    task.finish()
    del task, other
    eventually(lambda: gc.collect() >= 0 and ownership.inspect(seat).verdict is Verdict.FREE)
    assert {name for name in os.listdir(tmp_path / ".leases") if name.endswith(".json")} == set()
    assert not _seat._held
    with Roster(tmp_path / "roster").start("d"):
        assert ownership.inspect(seat).verdict is Verdict.LIVE


def test_a_seat_is_not_given_up_under_somebody_who_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread drops the last roster in the moment in which another begins with its first task."""
    path, give_up = str(tmp_path / "roster"), _seat._give_up
    taken, threads = list[_seat.Seat](), list[threading.Thread]()
    one, others = _seat.Seats(path, None, {}), [_seat.Seats(path, None, {})]
    first = one.take()

    def slow(key: Any, reason: str) -> None:
        monkeypatch.undo()
        threads.append(threading.Thread(target=lambda: taken.append(others[0].take())))
        threads[0].start()
        threads[0].join(0.2)
        give_up(key, reason)

    monkeypatch.setattr(_seat, "_give_up", slow)
    del one
    threads[0].join()
    assert taken[0].token > first.token
    assert ownership.inspect(f"{path}.driver-1").verdict is Verdict.LIVE
    others.clear()
    assert not _seat._held
