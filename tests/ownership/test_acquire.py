"""Acquire: one owner, a greater token, all or nothing, and an error that says everything."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AcquireTimeoutError, AlreadyOwnedError, OwnerRecord, Verdict
from ownership._clock import SystemClock
from ownership._directory import LockDirectory
from ownership.testing import FakeClock, FakeProcessTable, sleeping_process, stopped_process
from tests.support.namespaces import die_owning, elsewhere, needs_linux_root, owner, taken
from tests.support.records import file_of, guard_of, identity, me, names, plant, plant_guard, record
from tests.support.waiting import eventually

pytestmark = needs_linux_root


@pytest.fixture(params=[True, False], ids=["unnamed", "named"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways to publish: through a file without a name, and through one with."""
    monkeypatch.setattr(LockDirectory, "unnamed_by_default", request.param)
    return bool(request.param)


def test_the_record_says_who_owns(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", labels={"app": "1.2"}) as claim:
        one = OwnerRecord.model_validate_json(file_of(tmp_path / "x").read_bytes())
        ours = me()
        assert one == claim.record
        assert (one.pid, one.start_id, one.instance_id) == (os.getpid(), ours.start_id, ours.instance_id)
        assert (one.boot_id, one.pid_namespace) == (ours.boot_id, ours.pid_namespace)
        assert one.device == os.stat(tmp_path).st_dev
        assert (one.resource, one.token, one.phase) == (str(tmp_path / "x"), claim.token, "owner")
        assert (one.labels, one.data, one.endpoint, one.lease, one.heir) == ({"app": "1.2"}, {}, None, None, None)
        assert one.host == os.uname().nodename
        assert one.acquired_at == one.updated_at
        assert guard_of(tmp_path / "x")["token"] == claim.token
        assert guard_of(tmp_path / "x")["owner"]["instance_id"] == ours.instance_id
        assert claim.path == tmp_path / "x"
        assert dict(claim.tokens) == {tmp_path / "x": claim.token}
    assert not file_of(tmp_path / "x").exists()


def test_there_are_no_other_files_than_documented(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        claim.announce("again")
        found = names(tmp_path / ".leases")
        assert found == {"x.json", "x.guard", f"{claim.record.instance_id}.alive"}


def test_each_acquisition_has_a_greater_token(tmp_path: Path) -> None:
    clock = FakeClock()
    tokens = []
    for _ in range(5):
        tokens.append(taken(tmp_path / "x", clock=clock))
        clock.step_wall(-1000.0)
    assert tokens == sorted(set(tokens))
    assert tokens[0] == clock_token()


def clock_token() -> int:
    return FakeClock().wall_ns() // 1000


def test_a_token_is_greater_than_that_of_the_judged_record(tmp_path: Path) -> None:
    plant(tmp_path / "x", record(2**22 + 5, token=2**52))
    plant_guard(tmp_path / "x", b"lost")
    assert taken(tmp_path / "x") == 2**52 + 1


# refusal (K73)

REFUSALS = ["live", "stopped", "unknown", "elsewhere", "malformed", "ours", "newer"]


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_says_who_since_when_why_and_what_to_do(tmp_path: Path, kind: str) -> None:
    table = FakeProcessTable()
    facts: dict[str, Any] = {
        "command": "python supervisor.py",
        "host": "build-7",
        "acquired_at": "2026-11-29T15:12:04.123456Z",
        "labels": {"app_version": "1.2"},
    }
    with sleeping_process() as living, stopped_process() as halted:
        processes: Any = None
        expected, advice = Verdict.LIVE, "wait for it"
        match kind:
            case "live":
                planted = record(living, **facts)
            case "stopped":
                planted, expected, advice = record(halted, **facts), Verdict.STOPPED, f"kill -CONT {halted}"
            case "unknown":
                table.fail(7)
                ours = table.current()
                planted = record(**facts) | {
                    "pid": 7,
                    "boot_id": ours.boot_id,
                    "pid_namespace": ours.pid_namespace,
                    "start_id": ours.start_id,
                }
                processes, expected, advice = table, Verdict.UNKNOWN, "leasectl break"
            case "elsewhere":
                planted = record(living, pid_namespace=1, **facts)
                expected, advice = Verdict.UNKNOWN, "leasectl break"
            case "malformed":
                planted = record(living)
                plant_guard(tmp_path / "x", guard_naming(living))
                expected, advice = Verdict.UNKNOWN, "leasectl"
            case "newer":
                planted = record(living, version=3, **facts)
            case "ours":
                planted, advice = {}, "release it first"
        claim = ownership.acquire(tmp_path / "x") if kind == "ours" else None
        if kind == "malformed":
            plant(tmp_path / "x", b'{"pid": "half')
        elif planted:
            plant(tmp_path / "x", planted)
        with pytest.raises(AlreadyOwnedError) as caught:
            ownership.acquire(tmp_path / "x", processes=processes)
        error, text = caught.value, str(caught.value)
        if claim is not None:
            planted = claim.record.model_dump()
            claim.release()
    assert error.verdict is expected
    assert error.resource == str(tmp_path / "x")
    assert str(tmp_path / "x") in text
    assert error.reason
    assert error.reason in text
    assert str(error.verdict) in text
    assert advice in error.hint
    assert str(planted["pid"]) in text
    assert error.owner is not None
    for name in ("start_id", "instance_id"):  # for programs
        assert getattr(error.owner, name) == planted[name]
        assert (str(planted[name]) in text) is (kind == "ours" and name == "instance_id")
    if kind == "malformed":
        assert error.record is None
        assert '{"pid": "half' in text
        return
    assert error.record is not None
    assert str(planted["token"]) in text
    if kind in ("live", "stopped", "unknown", "elsewhere"):
        for fact in ("python supervisor.py", "build-7", "2026-11-29T15:12:04.123456Z", "app_version=1.2"):
            assert fact in text
    if error.verdict is not Verdict.UNKNOWN:
        assert "break" not in error.hint
        assert "remove" not in error.hint


def guard_naming(pid: int) -> Any:
    from ownership._models import GuardState

    return GuardState(token=1000, owner=identity(pid))


def test_after_a_timeout_the_facts_are_those_of_the_last_look(tmp_path: Path) -> None:
    with owner(tmp_path / "x") as child:
        with pytest.raises(AcquireTimeoutError) as caught:
            ownership.acquire(tmp_path / "x", timeout=0.2)
        assert isinstance(caught.value, TimeoutError)
        assert "waited 0.2 s" in str(caught.value)
        assert caught.value.record is not None
        assert caught.value.record.pid == child.pid


# arguments

BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "timeout negative": ({"timeout": -0.1}, "timeout"),
    "timeout as text": ({"timeout": "5"}, "timeout"),
    "timeout nan": ({"timeout": float("nan")}, "timeout"),
    "timeout bool": ({"timeout": True}, "timeout"),
    "also as text": ({"also": "abc"}, "also"),
    "also as bytes": ({"also": b"abc"}, "also"),
    "also with nothing": ({"also": [""]}, "also"),
    "also with nul": ({"also": ["a\0"]}, "also"),
    "labels as list": ({"labels": ["a"]}, "labels"),
    "labels as text": ({"labels": "abc"}, "labels"),
    "labels not text": ({"labels": {"a": 1}}, "labels"),
    "label key not text": ({"labels": {1: "a"}}, "labels"),
    "labels no unicode": ({"labels": {"a": "\udcff"}}, "labels"),
    "labels too large": ({"labels": {"a": "x" * 70_000}}, "labels"),
    "registry empty": ({"registry": ""}, "registry"),
    "registry nul": ({"registry": "a\0"}, "registry"),
}


@pytest.mark.parametrize(("arguments", "named"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_a_bad_argument_is_named_and_shown_before_anything_is_made(
    tmp_path: Path, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        ownership.acquire(tmp_path / "x", **arguments)
    assert len(str(caught.value)) < 2000
    assert not file_of(tmp_path / "x").exists()
    assert taken(tmp_path / "x") > 0


@pytest.mark.parametrize("resource", [3, None, 1.5, object()])
def test_what_is_no_path_is_refused(resource: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ownership.acquire(resource)


# several resources


def test_several_resources_are_owned_together(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "b", also=[tmp_path / "a", tmp_path / "c", tmp_path / "b"]) as claim:
        assert set(claim.tokens) == {tmp_path / "a", tmp_path / "b", tmp_path / "c"}
        for name in "abc":
            assert isinstance(elsewhere(lambda: taken(tmp_path / name)), AlreadyOwnedError)  # noqa: B023
    assert not list((tmp_path / ".leases").glob("*.json"))


def test_hundreds_of_resources_are_owned_together(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x", also=[tmp_path / f"x{number}" for number in range(400)])
    assert len(claim.tokens) == 401
    claim.verify()
    claim.release()
    assert not list((tmp_path / ".leases").glob("*.json"))


def test_if_one_may_not_be_taken_none_is(tmp_path: Path) -> None:
    with owner(tmp_path / "c") as child:
        with pytest.raises(AlreadyOwnedError) as caught:
            ownership.acquire(tmp_path / "b", also=[tmp_path / "a", tmp_path / "c"])
        assert caught.value.resource == str(tmp_path / "c")
        assert caught.value.record is not None
        assert caught.value.record.pid == child.pid
        assert [path.name for path in (tmp_path / ".leases").glob("*.json")] == ["c.json"]
        for name in "ab":
            assert isinstance(elsewhere(lambda: taken(tmp_path / name)), int)  # noqa: B023


def test_if_a_later_publication_fails_the_earlier_are_withdrawn(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".leases").mkdir(mode=0o700)
    file_of(tmp_path / "full" / "z").mkdir()
    with pytest.raises(ownership.InvalidRecordError):
        ownership.acquire(tmp_path / "a", also=[tmp_path / "full" / "z"])
    assert not file_of(tmp_path / "a").exists()
    assert isinstance(taken(tmp_path / "a"), int)


class Meddling(SystemClock):
    """Does something when the second resource is about to be taken, the first being published already; once."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        self._meddle, self._asked = meddle, 0

    def wall_ns(self) -> int:  # type: ignore[override]
        self._asked += 1
        if self._asked == 2:
            self._meddle()
        return super().wall_ns()


@pytest.mark.parametrize("whose", ["living", "dead"])
def test_whoever_was_forestalled_withdraws_before_looking_again(tmp_path: Path, whose: str) -> None:
    """A record appears in our way after we looked: the next look finds nothing of ours, and no owner but its own."""
    first, second = tmp_path / "a", tmp_path / "b"
    with sleeping_process() as living:
        planted = record(living) if whose == "living" else record(2**30)
        clock = Meddling(lambda: plant(second, planted))
        if whose == "dead":
            with ownership.acquire(first, also=[second], clock=clock) as claim:
                assert dict(claim.tokens) == {path: guard_of(path)["token"] for path in (first, second)}
                assert claim.token > planted["token"]
        else:
            with pytest.raises(AlreadyOwnedError) as caught:
                ownership.acquire(first, also=[second], clock=clock)
            assert caught.value.resource == str(second)
            assert caught.value.record is not None
            assert caught.value.record.pid == living
        assert not file_of(first).exists()
        assert guard_of(first).get("owner") is None
        assert isinstance(elsewhere(lambda: taken(first)), int)
        assert file_of(second).exists() == (whose == "living")


def test_two_who_want_the_same_two_do_not_wait_for_each_other_for_ever(tmp_path: Path) -> None:
    """Named in opposite orders, locked in one."""
    failures: list[BaseException] = []

    def work(first: str, second: str) -> None:
        try:
            for _ in range(15):
                ownership.acquire(tmp_path / first, also=[tmp_path / second], timeout=30.0).release()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=order) for order in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# several threads and processes


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    inside, most, failures = [0], [0], []

    def work() -> None:
        try:
            for _ in range(10):
                with ownership.acquire(tmp_path / "x", timeout=60.0):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    inside[0] -= 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, most) == ([], [1])


def test_a_dead_owner_is_taken_over_by_exactly_one(tmp_path: Path) -> None:
    die_owning(tmp_path / "x")
    claims: list[Any] = []
    barrier = threading.Barrier(5)

    def work() -> None:
        barrier.wait()
        try:
            claims.append(ownership.acquire(tmp_path / "x"))
        except Exception as error:
            claims.append(error)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [one for one in claims if isinstance(one, ownership.Claim)]
    assert len(winners) == 1
    assert all(isinstance(one, AlreadyOwnedError) for one in claims if one is not winners[0])
    winners[0].release()


# interruption


class Interrupted(Exception):
    pass


def test_a_callback_that_raises_ends_the_wait_and_leaves_nothing(tmp_path: Path) -> None:
    def give_up(error: AlreadyOwnedError) -> None:
        raise Interrupted

    with owner(tmp_path / "x") as child:
        with pytest.raises(Interrupted):
            ownership.acquire(tmp_path / "x", timeout=60.0, on_wait=give_up)
        assert ownership.inspect(tmp_path / "x").token == child.said
    assert isinstance(taken(tmp_path / "x"), int)


def test_a_thread_that_cannot_be_started_withdraws(tmp_path: Path) -> None:
    """K55: without its keeper nobody owns."""

    def without_threads() -> Any:
        def refuse(self: object) -> None:
            raise RuntimeError("can't start new thread")

        threading.Thread.start = refuse  # type: ignore[method-assign]
        return taken(tmp_path / "x")

    error = elsewhere(without_threads)
    assert isinstance(error, OSError)
    assert not isinstance(error, BlockingIOError)
    assert "thread" in str(error)
    assert error.hint  # type: ignore[attr-defined]
    assert not file_of(tmp_path / "x").exists()
    assert isinstance(taken(tmp_path / "x"), int)


def test_fakes_are_enough_to_test_a_program_that_owns(tmp_path: Path) -> None:
    """What a user's own test looks like."""
    table, clock = FakeProcessTable(), FakeClock()
    with ownership.acquire(tmp_path / "x", processes=table, clock=clock) as claim:
        assert claim.record.command == "fake"
        other = FakeProcessTable(2000)
        other.add(1000, start_id=claim.record.start_id)
        with pytest.raises(AlreadyOwnedError):
            ownership.acquire(tmp_path / "x", processes=other, clock=clock, timeout=30.0)
        other.kill(1000)
        with ownership.acquire(tmp_path / "x", processes=other, clock=clock) as second:
            assert second.token > claim.token
            with pytest.raises(ownership.OwnershipLostError):
                claim.verify()


def test_a_claim_that_is_forgotten_is_released_with_a_warning(tmp_path: Path) -> None:
    def forget() -> None:
        ownership.acquire(tmp_path / "x")
        gc.collect()

    with pytest.warns(ResourceWarning, match="unreleased"):
        forget()
    eventually(lambda: not file_of(tmp_path / "x").exists())
    assert isinstance(taken(tmp_path / "x"), int)
