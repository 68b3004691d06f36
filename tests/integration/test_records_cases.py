"""Records as they are found: empty, damaged, foreign, newer; who is asked, how long, and what is left."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ownership
from ownership import AlreadyOwnedError, InvalidRecordError, UnsupportedRecordError, Verdict
from ownership._models import GuardState
from ownership.testing import FakeClock, sleeping_process, stopped_process
from tests.support.namespaces import die_owning, elsewhere, needs_linux_root, owner, taken
from tests.support.records import (
    OTHER_INSTANCE,
    fields_of,
    file_of,
    guard_of,
    identity,
    lock_directory,
    me,
    names,
    other_start_id,
    plant,
    plant_guard,
    record,
)
from tests.support.waiting import eventually

pytestmark = needs_linux_root

MALFORMED = {
    "empty": b"",
    "truncated": b'{"version": 1, "pid": 12',
    "list": b"[]",
    "text": b'"x"',
    "nothing": b"{}",
    "nul": b"\0" * 700,
    "utf-16": json.dumps(record()).encode("utf-16"),
    "no utf-8": b"\xff\xfe\xfd",
    "two objects": json.dumps(record()).encode() * 2,
    "duplicate keys": json.dumps(record()).encode()[:-1] + b', "pid": 1}',
    "deep": b"[" * 60_000,
    "64 KiB": b"x" * 65536,
}
malformed = pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)


@malformed
def test_a_malformed_record_that_nobody_is_known_to_own_is_cleared_after_a_second(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """K24, K29: measured on the monotonic clock, not by the age of the file; its first bytes are kept in the log."""
    path = plant(tmp_path / "x", content)
    os.utime(path, (0, 0))
    found = ownership.inspect(tmp_path / "x")
    assert (found.verdict, found.record) == (Verdict.UNKNOWN, None)
    assert found.malformed
    assert "malformed" in found.reason
    clock = FakeClock()
    with caplog.at_level(logging.WARNING, logger="ownership"):
        token = taken(tmp_path / "x", clock=clock)
    assert isinstance(token, int)
    assert sum(clock.waits) == pytest.approx(1.0, abs=0.01)
    if content:
        assert any("malformed" in message for message in caplog.messages), caplog.messages
    assert names(tmp_path / ".leases") <= {"x.guard"} | {
        name for name in names(tmp_path / ".leases") if name.endswith(".alive")
    }


@pytest.mark.parametrize("timeout", [0.0, 5.0])
def test_the_second_is_waited_once_and_really_whatever_the_timeout(tmp_path: Path, timeout: float) -> None:
    plant(tmp_path / "x", b"")
    started = time.monotonic()
    assert isinstance(taken(tmp_path / "x", timeout=timeout), int)
    assert 0.95 < time.monotonic() - started < 4


def test_the_guard_is_not_held_while_a_malformed_record_settles(tmp_path: Path) -> None:
    """Its keeper, if there is one, must get in."""
    path, guard = plant(tmp_path / "x", b""), file_of(tmp_path / "x", "guard")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(taken(tmp_path / "x")))
    thread.start()
    eventually(guard.exists)
    with open(guard, "rb+") as file:
        eventually(lambda: _locks(file.fileno()), 0.8)
        fcntl.flock(file, fcntl.LOCK_UN)
        assert path.exists()
    thread.join()
    assert isinstance(found[0], int)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_a_malformed_record_of_a_live_owner_is_put_back_by_it(tmp_path: Path) -> None:
    """The guard names the owner, so nobody may take it; within a tick or two its keeper has repaired it."""
    with owner(tmp_path / "x") as child:
        file_of(tmp_path / "x").write_bytes(b"{")
        error = taken(tmp_path / "x")
        assert isinstance(error, AlreadyOwnedError)
        assert str(child.pid) in str(error)
        assert isinstance(taken(tmp_path / "x", timeout=0.6), ownership.AcquireTimeoutError)
        assert ownership.inspect(tmp_path / "x").token == child.said


@pytest.mark.parametrize("what", ["live", "stopped", "elsewhere", "dead", "reused"])
def test_the_guard_says_who_published_what_is_malformed_now(tmp_path: Path, what: str) -> None:
    with sleeping_process() as living, stopped_process() as halted:
        last = {
            "live": lambda: identity(living),
            "stopped": lambda: identity(halted),
            "elsewhere": lambda: identity(living, pid_namespace=1),
            "dead": lambda: identity(2**22 + 7),
            "reused": lambda: identity(living, start_id=identity(2**22 + 7).start_id),
        }[what]()
        plant(tmp_path / "x", b"garbage here")
        plant_guard(tmp_path / "x", GuardState(token=5000, owner=last))
        if what in ("dead", "reused"):
            started = time.monotonic()
            assert taken(tmp_path / "x") > 5000
            assert time.monotonic() - started < 0.9
            return
        with pytest.raises(AlreadyOwnedError) as caught:
            ownership.acquire(tmp_path / "x")
        error = caught.value
        assert (error.verdict, error.record) == (Verdict.UNKNOWN, None)
        assert "garbage here" in error.reason
        assert str(last.pid) in error.reason
        assert error.hint
        assert isinstance(ownership.break_claim(tmp_path / "x", token=5000), ownership.Inspection)
        assert taken(tmp_path / "x") > 5001


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 512, b"{", b"[]", b'{"token": -1}', json.dumps({"owner": {"pid": 0}}).encode()]
)
def test_a_guard_that_cannot_be_read_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    """K43: nothing planted in a guard locks anybody out."""
    plant_guard(tmp_path / "x", content)
    assert isinstance(taken(tmp_path / "x"), int)
    assert guard_of(tmp_path / "x")["token"] > 1_700_000_000_000_000


@pytest.mark.parametrize(
    "last",
    [identity(2**22 + 7), identity(1, start_id=other_start_id(me().start_id)), identity(1, pid_namespace=1)],
    ids=["dead", "reused", "elsewhere"],
)
def test_whoever_a_guard_names_does_not_own_without_a_record_unless_it_lives(tmp_path: Path, last: Any) -> None:
    """Planted names lock nobody out (K43)."""
    plant_guard(tmp_path / "x", GuardState(token=5000, owner=last))
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE
    assert isinstance(taken(tmp_path / "x"), int)


def test_a_record_deleted_under_a_live_owner_frees_nothing(tmp_path: Path) -> None:
    """The guard names the owner; its keeper puts the record back."""
    with owner(tmp_path / "x") as child:
        os.kill(child.pid, signal.SIGSTOP)
        eventually(lambda: ownership.is_stopped(child.pid))
        file_of(tmp_path / "x").unlink()
        error = taken(tmp_path / "x")
        assert isinstance(error, AlreadyOwnedError)
        assert str(child.pid) in str(error)
        assert str(error).isprintable()
        assert error.hint
        os.kill(child.pid, signal.SIGCONT)
        eventually(lambda: file_of(tmp_path / "x").exists())
        assert ownership.inspect(tmp_path / "x").token == child.said


@pytest.mark.parametrize("name", ["pwrite", "unlink"])
def test_a_release_that_fails_half_way_is_finished_by_the_keeper(tmp_path: Path, name: str) -> None:
    """One I/O error at the wrong moment: the record is gone and the guard still names us, or the other way round."""

    def release_badly() -> Any:
        claim = ownership.acquire(tmp_path / "x")
        original = getattr(os, name)

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        setattr(os, name, fail)
        error = _value(claim.release)
        held = claim.held
        setattr(os, name, original)
        eventually(lambda: isinstance(elsewhere(lambda: taken(tmp_path / "x")), int))
        return error, held

    error, held = elsewhere(release_badly)
    assert isinstance(error, OSError)
    assert not held
    assert isinstance(taken(tmp_path / "x"), int)


def test_an_empty_lock_directory_is_free(tmp_path: Path) -> None:
    (tmp_path / ".leases").mkdir(mode=0o700)
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE
    assert isinstance(taken(tmp_path / "x"), int)


# newer and hostile records


def test_a_newer_record_of_a_live_process_is_held_and_of_a_dead_one_is_not(tmp_path: Path) -> None:
    with sleeping_process() as pid:
        plant(tmp_path / "x", record(pid, version=7, lease="a new idea", data=5))
        error = taken(tmp_path / "x")
        assert (type(error), error.verdict) == (AlreadyOwnedError, Verdict.LIVE)
        plant(tmp_path / "y", record(2**22 + 7, version=7, phase={"not": "text"}))
        assert isinstance(taken(tmp_path / "y"), int)


def test_a_newer_record_without_an_identity_counts_as_held(tmp_path: Path) -> None:
    content = {"version": 7, "owner": "somebody", "token": 5}
    path = plant(tmp_path / "x", content)
    for function in (taken, ownership.inspect, ownership.reclaim):
        outcome = _value(function, tmp_path / "x")
        assert isinstance(outcome, UnsupportedRecordError)
        assert "version 7" in str(outcome)
        assert str(tmp_path / "x") in str(outcome)
        assert outcome.hint
    assert json.loads(path.read_bytes()) == content


def _value(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return error


@pytest.mark.parametrize("token", [2**53 + 1, 2**64, 10**400], ids=["2^53+1", "2^64", "10^400"])
@pytest.mark.parametrize("where", ["record", "guard"])
def test_a_token_that_cannot_be_topped_is_told_and_left_alone(tmp_path: Path, token: int, where: str) -> None:
    with sleeping_process() as pid:
        if where == "record":
            path = plant(tmp_path / "x", record(pid, token=token))
        else:
            path = plant_guard(tmp_path / "x", json.dumps({"token": token}).encode())
        before = path.read_bytes()
        for function in (taken, ownership.inspect):
            outcome = _value(function, tmp_path / "x")
            assert isinstance(outcome, InvalidRecordError)
            assert "2^53" in str(outcome)
            assert outcome.hint
        assert path.read_bytes() == before
        assert len(list(ownership.inspect_all(tmp_path))) == (1 if where == "record" else 0)


def test_the_last_token_is_given_out_and_then_no_more(tmp_path: Path) -> None:
    plant_guard(tmp_path / "x", GuardState(token=2**53 - 1))
    assert taken(tmp_path / "x") == 2**53
    outcome = taken(tmp_path / "x")
    assert isinstance(outcome, InvalidRecordError)
    assert "2^53" in str(outcome)


@pytest.mark.parametrize(
    "changes",
    [
        {"command": "\x1b[2J\x1b]0;owned\x07", "host": "\r\nfake line"},
        {"labels": {"a\nb": "\x1b[31m"}},
        {"resource": "/etc/shadow\n"},
        {"command": "x" * 4096, "labels": {f"k{n}": "v" * 900 for n in range(60)}},
        {"command": "\u202eevil"},
        {"boot_id": "\n\x1b[2Jfake line"},
        {"start_id": "linux:\nfake line"},
    ],
    ids=["terminal codes", "labels", "resource", "huge", "right to left", "boot id", "start id"],
)
def test_what_a_record_says_cannot_forge_a_message(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Texts of a foreign record go into errors; they stay one printable line of bounded length."""
    with sleeping_process() as pid:
        plant(tmp_path / "x", record(pid, **changes))
        error = taken(tmp_path / "x")
        assert isinstance(error, AlreadyOwnedError)
        assert error.verdict in (Verdict.LIVE, Verdict.UNKNOWN)
        assert str(error).isprintable()
        assert error.reason.isprintable()
        assert error.hint.isprintable()
        assert len(str(error)) < 10_000
        assert str(tmp_path / "x") in str(error)


def test_a_record_that_names_another_resource_is_judged_by_where_it_is(tmp_path: Path) -> None:
    """``resource`` inside is for people."""
    with sleeping_process() as pid:
        plant(tmp_path / "x", record(pid, resource="/somewhere/else"))
        error = taken(tmp_path / "x")
        assert error.resource == str(tmp_path / "x")
        found = ownership.find(tmp_path / "x")
        assert found is not None
        assert found.ref.path == tmp_path / "x"


def test_a_copied_record_is_no_claim_of_ours(tmp_path: Path) -> None:
    """Our own record put beside another resource names us, but no handle holds it: it is left over."""
    with ownership.acquire(tmp_path / "x") as claim:
        plant(tmp_path / "y", file_of(tmp_path / "x").read_bytes())
        assert ownership.inspect(tmp_path / "y").verdict is Verdict.GONE
        with ownership.acquire(tmp_path / "y") as other:
            assert other.token > claim.token
            claim.verify()


def test_an_old_record_of_ours_put_back_is_no_claim_either(tmp_path: Path) -> None:
    """A restored backup: same instance, older token."""
    first = ownership.acquire(tmp_path / "x")
    old = file_of(tmp_path / "x").read_bytes()
    first.release()
    with ownership.acquire(tmp_path / "x") as claim:
        file_of(tmp_path / "x").write_bytes(old)
        claim.verify()
        assert ownership.inspect(tmp_path / "x").token == claim.token


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=10)
odd = st.sampled_from([0, -1, 1, 2**31, 2**53, 2**53 + 1, 2**64, 1e308, "", "none", "0", [], {}, True, None])
anything = scalars | odd | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=5), scalars, max_size=2)
lease = st.fixed_dictionaries({"ttl": anything, "renewed_at": anything, "auto_renew": anything}) | anything
changed = st.dictionaries(st.sampled_from([*ownership.OwnerRecord.model_fields, "extra"]), anything, max_size=3)
contents = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.builds(lambda fields, more: {**record(2**22 + 3), **fields, **more}, changed, st.just({})),
    st.builds(lambda fields, more: {**record(), **fields, "lease": more}, changed, lease),
)
guards = st.one_of(
    st.none(),
    st.binary(max_size=600),
    st.dictionaries(st.sampled_from(["token", "owner", "previous", "deaths", "adopted"]), anything, max_size=4),
    st.builds(lambda who: {"token": 7, "owner": who}, changed.map(lambda more: {**fields_of(2**22 + 4), **more})),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents, guards, st.none() | st.binary(max_size=20))
def test_whatever_lies_there_the_answer_is_one_of_the_documented(
    tmp_path: Path, content: Any, guard: Any, witness: bytes | None
) -> None:
    """An owner, or a typed error with a remedy; then the record is as it was, and nothing more is there."""
    shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
    (tmp_path / ".leases").mkdir(mode=0o700)
    path = file_of(tmp_path / "x")
    if content is not None:
        plant(tmp_path / "x", content)
    if guard is not None:
        plant_guard(tmp_path / "x", guard if isinstance(guard, bytes) else json.dumps(guard).encode())
    if witness is not None:
        (tmp_path / ".leases" / f"{OTHER_INSTANCE}.alive").write_bytes(witness)
    before = path.read_bytes() if path.exists() else None
    for function in (ownership.inspect, ownership.find, lambda one: taken(one, clock=FakeClock())):
        outcome = _value(function, tmp_path / "x")
        if isinstance(outcome, Exception):
            if not isinstance(outcome, AlreadyOwnedError | InvalidRecordError | UnsupportedRecordError):
                raise outcome
            assert str(outcome).isprintable()
            assert outcome.hint
            assert (path.read_bytes() if path.exists() else None) == before
    if isinstance(outcome, int):
        assert outcome <= 2**53
        assert not path.exists()
    list(ownership.inspect_all(tmp_path))


# what is left after failures


def test_deaths_are_counted_once_each(tmp_path: Path) -> None:
    for count in range(1, 5):
        die_owning(tmp_path / "x")
        ownership.reclaim(tmp_path / "x")
        assert ownership.reclaim(tmp_path / "x").verdict is ownership.Verdict.FREE
        assert len(guard_of(tmp_path / "x")["deaths"]) == min(count, 3)
        assert guard_of(tmp_path / "x")["previous"]["how"] == "died"


def test_an_expired_or_broken_owner_has_not_died(tmp_path: Path) -> None:
    with owner(tmp_path / "x") as child:
        ownership.break_claim(tmp_path / "x", token=child.said)
        taken(tmp_path / "x")
    assert guard_of(tmp_path / "x").get("deaths", []) == []


def test_the_lock_directory_may_vanish_at_any_time(tmp_path: Path) -> None:
    """A cleaner takes it between two acquires, and under an owner."""
    first = taken(tmp_path / "x")
    shutil.rmtree(lock_directory(tmp_path / "x"), ignore_errors=True)
    second = taken(tmp_path / "x")
    assert second > first
    with ownership.acquire(tmp_path / "x") as claim:
        shutil.rmtree(lock_directory(tmp_path / "x"), ignore_errors=True)
        claim.verify()
        assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), AlreadyOwnedError)
    assert isinstance(taken(tmp_path / "x"), int)


def test_many_malformed_records_are_looked_through_without_a_second_each(tmp_path: Path) -> None:
    for number in range(20):
        plant(tmp_path / f"x{number}", b"{")
    started = time.monotonic()
    assert len(list(ownership.inspect_all(tmp_path))) == 20
    assert time.monotonic() - started < 1.0
    clock = FakeClock()
    assert len(list(ownership.reclaim_all(tmp_path, clock=clock))) == 20
    assert sum(clock.waits) < 2.0
