"""Asking who owns what, without leaving a trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import ownership
from ownership import AlreadyOwnedError, Verdict
from ownership.testing import FakeClock, FakeProcessTable, ProcessState
from tests.support.namespaces import die_owning, needs_linux_root, owner, taken
from tests.support.records import plant, record, snapshot

pytestmark = needs_linux_root


def test_nobody_owns_what_was_never_acquired(tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    found = ownership.inspect(tmp_path / "x")
    assert (found.verdict, found.record, found.running, found.ref, found.token) == (Verdict.FREE, None, None, None, 0)
    assert found.resource == tmp_path / "x"
    assert snapshot(tmp_path) == before


def test_a_live_owner_is_found_with_what_it_announced(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        claim.announce("serving", endpoint="tcp:127.0.0.1:8123", data={"version": "1.2"})
        found = ownership.find(tmp_path / "x")
        assert found is not None
        assert (found.phase, found.endpoint, found.data) == ("serving", "tcp:127.0.0.1:8123", {"version": "1.2"})
        assert (found.verdict, found.record, found.ref) == (Verdict.LIVE, claim.record, claim.ref)
        assert ownership.running(tmp_path) == [found]
        assert ownership.running(tmp_path / ".leases") == [found]
    assert ownership.find(tmp_path / "x") is None
    assert ownership.running(tmp_path) == []


def test_a_dead_owner_is_not_found_but_seen(tmp_path: Path) -> None:
    pid = die_owning(tmp_path / "x")
    assert ownership.find(tmp_path / "x") is None
    found = ownership.inspect(tmp_path / "x")
    assert found.verdict is Verdict.GONE
    assert found.record is not None
    assert found.record.pid == pid
    assert ownership.running(tmp_path) == []
    assert [one.verdict for one in ownership.inspect_all(tmp_path)] == [Verdict.GONE]


def test_how_the_last_ownership_ended_is_told(tmp_path: Path) -> None:
    ownership.acquire(tmp_path / "x").release("done for today")
    previous = ownership.inspect(tmp_path / "x").previous
    assert previous is not None
    assert (previous.how, previous.reason) == ("released", "done for today")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 10, b"[" * 60_000])
def test_a_malformed_record_is_told_and_left(tmp_path: Path, content: bytes) -> None:
    path = plant(tmp_path / "x", content)
    before = snapshot(tmp_path)
    for _ in range(3):
        found = ownership.inspect(tmp_path / "x")
        assert (found.verdict, found.record, bool(found.malformed)) == (Verdict.UNKNOWN, None, True)
    assert snapshot(tmp_path) == before
    assert path.read_bytes() == content


def test_looking_a_hundred_times_leaves_every_byte(tmp_path: Path) -> None:
    """K70: live, dead, zombie, malformed, foreign and free."""
    table = FakeProcessTable()
    with owner(tmp_path / "live"), owner(tmp_path / "zombie") as undead:
        undead.kill(reap=False)
        die_owning(tmp_path / "dead")
        plant(tmp_path / "malformed", b"{")
        plant(tmp_path / "foreign", record(1, pid_namespace=1))
        before = snapshot(tmp_path)
        for _ in range(20):
            for name in ("live", "zombie", "dead", "malformed", "foreign", "free"):
                ownership.inspect(tmp_path / name)
                ownership.find(tmp_path / name)
                ownership.inspect(tmp_path / name, processes=table)
            assert len(list(ownership.inspect_all(tmp_path))) == 5
            assert [one.ref.path.name for one in ownership.running(tmp_path)] == ["live"]
        assert snapshot(tmp_path) == before
        undead.reap()


def test_a_registry_is_listed_by_whole_paths(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    with ownership.acquire("/data/a b/é", registry=registry) as claim:
        [found] = ownership.running(registry, registry=True)
        assert (found.ref.path, found.ref.registry) == (Path("/data/a b/é"), str(registry))
        assert found.record == claim.record
        assert ownership.inspect("/data/a b/é", registry=registry).verdict is Verdict.LIVE
        assert ownership.inspect(tmp_path / "é").verdict is Verdict.FREE


def test_lock_directories_of_every_account_are_listed(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with ownership.acquire(tmp_path / "x") as claim:
        (tmp_path / ".leases-77").mkdir(mode=0o700)
        (tmp_path / ".leases-old").mkdir(mode=0o700)
        (tmp_path / ".leases-78").symlink_to(".leases-77")
        assert [one.record.token for one in ownership.running(tmp_path)] == [claim.token]


@pytest.mark.parametrize("look", [ownership.inspect_all, ownership.running, ownership.reclaim_all])
def test_a_directory_without_a_name_is_not_the_current_one(look: Callable[[str], Iterable[object]]) -> None:
    with pytest.raises(ValueError, match="directory must be a path"):
        list(look(""))


@pytest.mark.parametrize(
    "name", ["%2F..%2Fetc.json", "%.json", "%zz.json", ".json", "%00.json", "x%2f.json", "a.b.json"]
)
def test_a_foreign_file_name_is_no_reason_to_stumble(tmp_path: Path, name: str) -> None:
    with ownership.acquire(tmp_path / "x"):
        (tmp_path / ".leases" / name).write_bytes(b"{}")
        assert [one.record.resource for one in ownership.running(tmp_path)] == [str(tmp_path / "x")]
        assert len(list(ownership.inspect_all(tmp_path))) == 2
        for one, _ in ownership.reclaim_all(tmp_path, dry_run=True, clock=FakeClock()):
            str(one.resource).encode("utf-8", "surrogateescape")


def test_a_record_that_goes_while_it_is_listed_is_left_out(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "a"):
        claim = ownership.acquire(tmp_path / "b")
        listing = ownership.inspect_all(tmp_path)
        assert next(listing).resource.name == "a"
        claim.release()
        assert list(listing) == []


def test_an_unreadable_path_is_not_free(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        ownership.inspect(tmp_path / "file" / "x")
    assert caught.value.hint  # type: ignore[attr-defined]


def test_looking_by_a_fake_table_judges_by_it(tmp_path: Path) -> None:
    table = FakeProcessTable(1000)
    with ownership.acquire(tmp_path / "x", processes=table) as claim:
        other = FakeProcessTable(2000)
        assert ownership.inspect(tmp_path / "x", processes=other).verdict is Verdict.GONE
        other.add(1000, start_id=claim.record.start_id)
        assert ownership.inspect(tmp_path / "x", processes=other).verdict is Verdict.LIVE
        other.stop(1000)
        assert ownership.inspect(tmp_path / "x", processes=other).verdict is Verdict.STOPPED
        other.fail(1000)
        assert ownership.inspect(tmp_path / "x", processes=other).verdict is Verdict.UNKNOWN
        other.set_state(1000, ProcessState.RUNNING)
        other.reuse(1000)
        assert ownership.inspect(tmp_path / "x", processes=other).verdict is Verdict.REUSED


def test_our_own_claim_is_seen_from_within(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        found = ownership.inspect(tmp_path / "x")
        assert (found.verdict, found.reason) == (Verdict.LIVE, "held by this process")
        assert found.record is not None
        assert found.record.pid == os.getpid()
        assert isinstance(taken(tmp_path / "x"), AlreadyOwnedError)
