"""Critical sections: nobody takes over inside, and what is done inside uses the guard that is held."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import leases
import ownership
from ownership import GuardTimeoutError, OwnershipLostError, Verdict
from ownership._critical import Critical
from ownership._hold import Hold
from ownership._leaving import unfinished
from ownership.testing import FakeClock
from tests.support.injection import Interrupter
from tests.support.namespaces import needs_linux_root
from tests.support.processes import Contender, is_locked
from tests.support.records import file_of
from tests.support.waiting import eventually

pytestmark = needs_linux_root


def guarded(path: Path) -> bool:
    return is_locked(file_of(path, "guard"))


def test_contenders_are_told_who_is_inside_and_readers_are_answered(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim, Contender() as contender:
        with claim.critical():
            said = contender.do("acquire", tmp_path / "x")
            assert (said["error"], said["holder"]) == ("GuardTimeoutError", os.getpid())
            assert contender.do("inspect", tmp_path / "x")["value"] == "live"
        assert contender.do("acquire", tmp_path / "x")["error"] == "AlreadyOwnedError"


def test_what_is_done_inside_uses_the_guard_that_is_held(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", ttl=30.0) as claim:
        with claim.critical():
            claim.verify()
            claim.announce("inside", data={"n": 1})
            assert claim.renew()
            file_of(tmp_path / "x").unlink()
            claim.verify()
            assert guarded(tmp_path / "x")
        assert claim.record.phase == "inside"
        assert not guarded(tmp_path / "x")


def test_it_may_be_entered_again_by_its_thread(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        with claim.critical(), claim.critical(timeout=0):
            pass
        assert not guarded(tmp_path / "x")
        with claim.critical():
            with claim.critical():
                pass
            assert guarded(tmp_path / "x")


def test_another_thread_waits_its_turn(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        inside, done, found = threading.Event(), threading.Event(), list[str]()

        def other() -> None:
            inside.wait(20)
            claim.verify()
            try:
                with claim.critical(timeout=0.05):
                    found.append("both inside")
            except GuardTimeoutError as error:
                found.extend((error.message.partition("held by ")[2], error.hint))
            done.set()

        thread = threading.Thread(target=other)
        thread.start()
        with claim.critical():
            inside.set()
            assert done.wait(20)
        thread.join()
        assert found[0].startswith(f"this process itself (pid {os.getpid()}), by another thread")
        assert found[1:] == ["try again when its critical section is over; keep such sections short"]
        with claim.critical(timeout=0.0):
            pass


def test_a_release_inside_is_a_mistake_and_changes_nothing(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        with claim.critical(), pytest.raises(RuntimeError, match="cannot be released inside its own critical section"):
            claim.release()
        assert claim.held
        claim.verify()
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE


def test_who_has_lost_it_does_not_get_in(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = ownership.acquire(tmp_path / "x", ttl=5.0, auto_renew=False, clock=clock)
    clock.advance(5)
    with ownership.acquire(tmp_path / "x", clock=clock):
        with pytest.raises(OwnershipLostError) as lost, claim.critical():
            pytest.fail("inside without owning")
        assert lost.value.reason == "expired"
        assert not guarded(tmp_path / "x")


def test_inside_the_ttl_may_pass(tmp_path: Path) -> None:
    clock = FakeClock()
    with ownership.acquire(tmp_path / "x", ttl=5.0, auto_renew=False, clock=clock) as claim, claim.critical():
        clock.advance(50)
        assert claim.expires_in == 0.0
        with pytest.raises(GuardTimeoutError, match=f"held by this very thread .pid {os.getpid()}.") as busy:
            ownership.acquire(tmp_path / "x", clock=clock)
        assert "when the critical section" in busy.value.hint
        claim.verify()
        assert claim.expires_in == 5.0


def test_every_resource_is_guarded(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", also=[tmp_path / "a"]) as claim:
        with claim.critical():
            assert guarded(tmp_path / "x")
            assert guarded(tmp_path / "a")
            claim.announce("both")
        assert not guarded(tmp_path / "x")
        assert not guarded(tmp_path / "a")


def test_an_error_in_the_body_leaves_the_guard_free(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        with pytest.raises(KeyError), claim.critical():
            raise KeyError
        assert not guarded(tmp_path / "x")
        claim.announce("again")


def test_what_a_handler_raises_before_the_block_begins_leaves_the_guard_free(tmp_path: Path) -> None:
    """As the interpreter leaves it: entered, and dropped without being left."""
    with ownership.acquire(tmp_path / "x") as claim:
        section = claim.critical()
        section.__enter__()
        assert guarded(tmp_path / "x")
        del section
        assert not guarded(tmp_path / "x")
        claim.announce("again")


def test_a_release_by_another_handle_of_the_thread_is_carried_out_on_leaving(tmp_path: Path) -> None:
    clock = FakeClock()
    old = ownership.acquire(tmp_path / "x", ttl=5.0, auto_renew=False, clock=clock)
    clock.advance(5)
    with ownership.acquire(tmp_path / "x") as claim:
        with claim.critical():
            old.release()
        claim.verify()


def test_a_forked_child_leaves_it_without_freeing_it(tmp_path: Path) -> None:
    """K45."""
    with ownership.acquire(tmp_path / "x") as claim, claim.critical():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with claim.critical():
                    code = 2
            except OwnershipLostError:
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert guarded(tmp_path / "x")
        claim.verify()


def test_a_guard_that_was_closed_is_locked_again(tmp_path: Path) -> None:
    """K74: the program around us closes every descriptor in the middle."""
    body_path = tmp_path / "x"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            claim = ownership.acquire(body_path, ttl=5.0)
            with claim.critical():
                os.closerange(3, 256)
                claim.verify()
                claim.renew()
                code = 0 if guarded(body_path) else 2
            code = code or (3 if guarded(body_path) else 0)
            claim.release()
        except BaseException:
            code = 4
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("timeout", [-1, "1", float("nan")])
def test_a_timeout_that_cannot_be_right_is_refused(tmp_path: Path, timeout: float) -> None:
    with ownership.acquire(tmp_path / "x") as claim, pytest.raises(ValueError, match="timeout must be"):
        claim.critical(timeout=timeout)


class Broken(BaseException):
    """What a signal handler raises."""


def break_off() -> None:
    raise Broken


def broken_off_everywhere(operation: Callable[[], object]) -> Iterator[tuple[str, Broken]]:
    """Do *operation* again and again, broken off at every point where a handler may raise; where, and the exception."""
    interrupter = Interrupter(break_off, (__file__,))
    for number in itertools.count(1):
        try:
            interrupter.run(number, operation)
        except Broken as error:
            yield interrupter.point, error
        if not interrupter.point:
            return


def broken_off_until(operation: Callable[[], object], seen: list[str]) -> Iterator[tuple[str, Broken]]:
    """The same, a few times, until *seen* is not empty: the keeper may leave a section before it is looked at."""
    for _ in range(5):
        yield from broken_off_everywhere(operation)
        if seen:
            return


@pytest.mark.parametrize("acquire", [ownership.acquire, leases.acquire])
def test_wherever_a_handler_raises_the_guard_is_free_at_once_whoever_keeps_the_exception(
    tmp_path: Path, acquire: Callable[..., ownership.Claim]
) -> None:
    claim = acquire(tmp_path / "x", also=[tmp_path / "y"])

    def enter() -> None:
        with claim.critical():
            pass

    kept = []
    for point, error in broken_off_everywhere(enter):
        kept.append(error)
        assert not guarded(tmp_path / "x"), point
        assert not guarded(tmp_path / "y"), point
    assert len(kept) > 30
    claim.release()
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE


@pytest.mark.parametrize("acquire", [ownership.acquire, leases.acquire])
def test_wherever_a_handler_raises_inside_the_block_of_a_claim_its_exception_leaves(
    tmp_path: Path, acquire: Callable[..., ownership.Claim]
) -> None:
    kept: list[Broken] = []
    interrupter = Interrupter(break_off, (__file__,))
    for number in itertools.count(1):
        claim = acquire(tmp_path / "x", timeout=1.0)

        def enter(claim: ownership.Claim = claim) -> None:
            with claim, claim.critical():
                pass

        try:
            interrupter.run(number, enter)
        except Broken as error:  # nothing else
            kept.append(error)
        claim.release()
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE, interrupter.point
        if not interrupter.point:
            break
    assert len(kept) > 50


@pytest.mark.parametrize("call", ["verify", "critical", "release"])
def test_where_a_second_handler_keeps_it_from_being_left_the_next_call_leaves_it(tmp_path: Path, call: str) -> None:
    claim = ownership.acquire(tmp_path / "x")
    kept = []

    def enter() -> None:
        section: Any = claim.critical()
        section.dropped = lambda _: None  # as what a handler raises in there leaves it
        with section:
            pass

    left = list[str]()
    for point, error in broken_off_until(enter, left):
        kept.append(error)
        if guarded(tmp_path / "x"):
            left.append(point)
            if call == "critical":
                with claim.critical():
                    assert guarded(tmp_path / "x")
            else:
                getattr(claim, call)()
            assert not guarded(tmp_path / "x"), point
            if call == "release":
                claim = ownership.acquire(tmp_path / "x")
    assert left
    claim.release()


def test_a_block_that_is_suspended_is_live(tmp_path: Path) -> None:
    """A generator that waits inside, wherever its frame is."""
    claim = ownership.acquire(tmp_path / "x")

    def inside() -> Iterator[None]:
        with claim.critical():
            yield

    waiting = inside()
    next(waiting)
    gc.collect()
    claim.verify()
    with pytest.raises(RuntimeError):
        claim.release()
    assert guarded(tmp_path / "x")
    waiting.close()
    assert not guarded(tmp_path / "x")
    claim.release()


def test_a_section_that_is_entered_without_a_with_statement_lasts_until_it_is_left(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        section = claim.critical()
        assert hasattr(section, "__exit__")
        section.__enter__()
        assert hasattr(section, "__exit__")
        claim.verify()
        assert guarded(tmp_path / "x")
        section.__exit__(None, None, None)
        assert not guarded(tmp_path / "x")
        with contextlib.ExitStack() as stack:
            stack.enter_context(claim.critical())
            claim.verify()
            assert guarded(tmp_path / "x")
        assert not guarded(tmp_path / "x")


def test_an_error_leaves_the_block_of_a_claim_as_itself_though_a_section_is_still_to_be_left(tmp_path: Path) -> None:
    """Nobody gets in until it is: then it is released."""
    claim = ownership.acquire(tmp_path / "x")
    section = claim.critical()
    with pytest.raises(KeyError), claim:  # noqa: PT012
        section.__enter__()
        raise KeyError
    assert not claim.held
    assert guarded(tmp_path / "x")
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.LIVE
    section.__exit__(None, None, None)
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE
    assert not guarded(tmp_path / "x")


def test_a_release_that_was_broken_off_is_carried_on_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for number in itertools.count(1):
        claim = ownership.acquire(path, also=[tmp_path / "y"])
        interrupter = Interrupter(break_off, (__file__,))
        with contextlib.suppress(Broken):
            interrupter.run(number, claim.release)
        claim.release()
        assert not file_of(path).exists(), interrupter.point
        assert not file_of(tmp_path / "y").exists(), interrupter.point
        again = ownership.acquire(path)
        claim.release()  # which is over, and nothing of another handle
        again.verify()
        assert file_of(path).exists()
        again.release()
        if not interrupter.point:
            break
    assert number > 30


def test_a_section_that_was_never_left_does_not_end_under_the_next_one(tmp_path: Path) -> None:
    """Whenever the collector finds it."""
    with ownership.acquire(tmp_path / "x") as claim:
        stack: Any = contextlib.ExitStack()
        stack.enter_context(claim.critical())
        circle = [stack]
        circle.append(circle)
        del stack, circle
        with claim.critical():
            gc.collect()
            assert guarded(tmp_path / "x")
        assert not guarded(tmp_path / "x")


def test_the_guard_is_held_until_the_last_one_inside_has_left(tmp_path: Path) -> None:
    """In whatever order they leave."""
    with ownership.acquire(tmp_path / "x") as claim, contextlib.ExitStack() as stack:
        stack.enter_context(claim.critical())
        with claim.critical():
            stack.close()
            assert guarded(tmp_path / "x")
            claim.verify()
        assert not guarded(tmp_path / "x")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_section_that_is_dropped_is_left_although_a_handler_raises_meanwhile(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        interrupter = Interrupter(break_off, (__file__,))
        for number in itertools.count(1):
            stacks = [contextlib.ExitStack()]
            stacks[0].enter_context(claim.critical())
            with contextlib.suppress(Broken):
                interrupter.run(number, stacks.clear)
            claim.verify()  # even if its finaliser could do nothing
            assert not guarded(tmp_path / "x"), interrupter.point
            if not interrupter.point:
                break
        assert number > 5


@pytest.mark.parametrize("acquire", [ownership.acquire, leases.acquire])
def test_a_section_that_is_entered_is_not_entered_again(
    tmp_path: Path, acquire: Callable[..., ownership.Claim]
) -> None:
    """It would be left with the inner block."""
    with acquire(tmp_path / "x") as claim:
        section = claim.critical()
        with section:
            with pytest.raises(RuntimeError, match=r"call critical\(\) again"), section:
                pass
            assert guarded(tmp_path / "x")
        assert not guarded(tmp_path / "x")
        with section:
            assert guarded(tmp_path / "x")
        assert not guarded(tmp_path / "x")


def test_who_waits_does_not_take_a_holder_for_expired_that_is_inside(tmp_path: Path) -> None:
    """Nobody could take over; afterwards somebody may."""
    clock, path = FakeClock(), tmp_path / "x"
    with ownership.acquire(path, ttl=5.0, auto_renew=False, clock=clock) as claim:
        with claim.critical():
            clock.advance(9.0)
            with pytest.raises(ownership.AcquireTimeoutError, match="its lease ran out, but it is inside its guard"):
                ownership.wait(path, timeout=0, clock=clock)
        assert ownership.wait(path, timeout=0, clock=clock).verdict is Verdict.EXPIRED
        claim.verify()


@pytest.mark.parametrize("acquire", [ownership.acquire, leases.acquire])
def test_threads_that_share_a_section_object_are_not_inside_at_once(
    tmp_path: Path, acquire: Callable[..., ownership.Claim]
) -> None:
    """The second is refused, and leaves nothing locked."""
    with acquire(tmp_path / "x") as claim:
        shared, both, outcomes = claim.critical(30.0), threading.Barrier(3), list[object]()

        def enter() -> None:
            both.wait()
            try:
                with shared:
                    outcomes.append(guarded(tmp_path / "x"))
            except RuntimeError as error:
                outcomes.append(type(error))

        threads = [threading.Thread(target=enter) for _ in range(2)]
        with claim.critical():
            for thread in threads:
                thread.start()
            both.wait()
            eventually(lambda: RuntimeError in outcomes)
        for thread in threads:
            thread.join()
        assert outcomes == [RuntimeError, True]
        assert not guarded(tmp_path / "x")
        with shared:
            assert guarded(tmp_path / "x")
        assert not guarded(tmp_path / "x")


def test_it_is_over_for_its_process_before_another_thread_can_be_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next one's beginning could be taken for its own, and forgotten."""
    with ownership.acquire(tmp_path / "x", also=[tmp_path / "y"]) as claim:
        seen, leave = list[object](), Hold.leave

        def looked(hold: Hold) -> None:
            seen.append(claim._holding.inside)
            leave(hold)

        section = claim.critical()
        section.__enter__()
        monkeypatch.setattr(Hold, "leave", looked)
        section.__exit__(None, None, None)
        monkeypatch.undo()
        assert seen == [None, None]
        assert unfinished == {}


def test_who_is_refused_a_section_that_another_thread_is_inside_does_not_free_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked ``__exit__`` up before either is inside."""
    with ownership.acquire(tmp_path / "x") as claim:
        section = claim.critical()
        looked_up, refused, found = threading.Barrier(2), threading.Event(), list[str]()

        def met(section: Critical, entering: Callable[[Critical], None] = Critical.__enter__) -> None:
            looked_up.wait(20)
            entering(section)

        monkeypatch.setattr(Critical, "__enter__", met)

        def enter() -> None:
            try:
                with section:
                    assert refused.wait(20)
                    found.append("guarded" if guarded(tmp_path / "x") else "free")
            except RuntimeError:
                refused.set()

        threads = [threading.Thread(target=enter) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["guarded"]
        assert not guarded(tmp_path / "x")


def test_a_section_that_another_thread_drops_at_any_point_frees_nobody_who_has_entered_meanwhile(
    tmp_path: Path,
) -> None:
    """A generator of this thread was suspended inside; its last reference goes in another thread."""
    with ownership.acquire(tmp_path / "x") as claim:

        def inside() -> Iterator[None]:
            with claim.critical():
                yield

        suspended = list[Iterator[None]]()

        def drop() -> None:
            thread = threading.Thread(target=suspended.clear)
            thread.start()
            thread.join()

        interrupter = Interrupter(drop, (__file__,))

        def enter() -> None:
            with claim.critical():
                found.append(guarded(tmp_path / "x"))

        for number in itertools.count(1):
            found = list[bool]()
            suspended.append(inside())
            next(suspended[0])
            interrupter.run(number, enter)
            suspended.clear()
            assert found == [True], interrupter.point
            assert not guarded(tmp_path / "x"), interrupter.point
            if not interrupter.point:
                break
        assert number > 30
