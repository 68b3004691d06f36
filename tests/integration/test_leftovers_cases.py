"""What the dead leave behind: never in the way, found when asked for, cleared without disturbing the living."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import Verdict
from ownership._directory import LockDirectory
from tests.support.namespaces import NEW_PIDS, die_owning, elsewhere, needs_linux_root, owner, run, taken
from tests.support.records import OTHER_INSTANCE, file_of, guard_of, lock_directory, names, plant, record, snapshot
from tests.support.timing import assert_at_best

pytestmark = needs_linux_root


@pytest.fixture(scope="module", params=[2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def crowded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thousands of records of dead owners, all of one content."""
    path = tmp_path_factory.mktemp("crowded")
    first = plant(path / "dead", record(2**22 + 11))
    for number in range(request.param):
        os.link(first, first.with_name(f"dead{number}.json"))
    return path


def test_another_key_does_not_care_how_many_records_there_are(crowded: Path, tmp_path: Path) -> None:
    """K67: the time of an acquire is the same in an empty directory."""

    def best(folder: Path) -> float:
        taken(folder / "new")
        times = []
        for _ in range(15):
            started = time.perf_counter()
            taken(folder / "new")
            times.append(time.perf_counter() - started)
        return min(times)

    assert best(crowded) < 4 * best(tmp_path) + 0.001


def test_a_dead_owner_among_many_is_taken_over_at_once(crowded: Path) -> None:
    numbers = itertools.count(77)

    def acquired() -> float:
        started = time.monotonic()
        assert isinstance(taken(crowded / f"dead{next(numbers)}"), int)
        return time.monotonic() - started

    assert_at_best(0.5, acquired)


def test_the_living_one_is_found_among_the_dead(crowded: Path) -> None:
    with ownership.acquire(crowded / "living") as claim:
        started = time.monotonic()
        [found] = ownership.running(crowded)
        seconds = time.monotonic() - started
        assert found.record.token == claim.token
        assert seconds < 6.0  # two on a quiet machine, for ten thousand


def test_a_dry_run_changes_nothing_and_a_real_one_clears_the_dead_only(crowded: Path) -> None:
    """While acquires of some of the same keys go on."""
    with ownership.acquire(crowded / "living") as claim:
        before = set(os.listdir(crowded / ".leases"))
        would = sum(removed for _, removed in ownership.reclaim_all(crowded, dry_run=True))
        assert set(os.listdir(crowded / ".leases")) == before
        assert would >= len(before) - 10
        tokens: list[Any] = []
        thread = threading.Thread(target=lambda: tokens.extend(taken(crowded / f"dead{n}") for n in range(1900, 2000)))
        thread.start()
        cleared = {one.resource.name for one, removed in ownership.reclaim_all(crowded) if removed}
        thread.join()
        assert all(isinstance(token, int) for token in tokens)
        assert len(cleared) >= len(before) - 300
        assert "living" not in cleared
        claim.verify()
        left = {name for name in os.listdir(crowded / ".leases") if name.endswith(".json")}
        assert left == {"living.json"}


# witnesses


def witnesses(path: Path) -> set[str]:
    return {name for name in names(path / ".leases") if name.endswith(".alive")}


def test_an_acquire_that_evicts_clears_what_the_dead_left_here(tmp_path: Path) -> None:
    for number in range(5):
        die_owning(tmp_path / f"x{number}")
    assert len(witnesses(tmp_path)) == 5
    elsewhere(lambda: [taken(tmp_path / f"x{number}") for number in range(5)])
    assert len(witnesses(tmp_path)) <= 1


def test_a_witness_that_a_record_names_stays(tmp_path: Path) -> None:
    """Else whoever lives in another pid namespace could never be judged again."""
    die_owning(tmp_path / "named")
    die_owning(tmp_path / "x")
    file_of(tmp_path / "x").unlink()
    die_owning(tmp_path / "y")
    taken(tmp_path / "y")
    found = ownership.inspect(tmp_path / "named")
    assert found.record is not None
    assert f"{found.record.instance_id}.alive" in witnesses(tmp_path)
    assert run("say(ownership.inspect(sys.argv[1]).verdict)", tmp_path / "named", prefix=NEW_PIDS) == "gone"


def test_the_witness_of_a_living_owner_is_never_swept(tmp_path: Path) -> None:
    with owner(tmp_path / "living") as child:
        before = witnesses(tmp_path)
        for number in range(3):
            die_owning(tmp_path / f"x{number}")
            taken(tmp_path / f"x{number}")
        list(ownership.reclaim_all(tmp_path))
        assert before <= witnesses(tmp_path)
        assert run("say(ownership.inspect(sys.argv[1]).verdict)", tmp_path / "living", prefix=NEW_PIDS) == "live"
        assert isinstance(child.said, int)


def test_an_idle_process_removes_its_witness(tmp_path: Path) -> None:
    """Within seconds of its last release, or when it ends."""

    def release_and_end() -> int:
        claim = ownership.acquire(tmp_path / "x")
        claim.release()
        return len(witnesses(tmp_path))

    elsewhere(release_and_end)
    body = "claim = ownership.acquire(sys.argv[1]); claim.release()"
    (tmp_path / "program").mkdir()
    subprocess.run(_program(body, tmp_path / "program" / "x"), check=True)
    assert names(tmp_path / "program" / ".leases") == {"x.guard"}


def _program(body: str, *arguments: object) -> list[str]:
    from tests.support.namespaces import program

    return program(body, *arguments)


def test_a_failed_acquire_leaves_only_directory_and_guard(tmp_path: Path) -> None:
    with owner(tmp_path / "held"):
        before = names(tmp_path / ".leases")
        elsewhere(lambda: [taken(tmp_path / "held") for _ in range(3)])
        assert names(tmp_path / ".leases") == before


# temporary files


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
def test_temporary_files_of_dead_writers_do_not_pile_up(
    tmp_path: Path, unnamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K32: killed between making and linking, again and again; the form with names and the one without."""
    monkeypatch.setattr(LockDirectory, "unnamed_by_default", unnamed)

    def die_before_linking() -> None:
        def dying(*args: Any, **kwargs: Any) -> None:
            if str(args[1]).endswith(".json"):
                os.kill(os.getpid(), 9)
            original(*args, **kwargs)

        original = os.link
        os.link = dying  # type: ignore[assignment]
        ownership.acquire(tmp_path / "x")

    for _ in range(20):
        with pytest.raises(EOFError):
            elsewhere(die_before_linking)
    temporary = [name for name in names(tmp_path / ".leases") if name.endswith(".new")]
    assert len(temporary) <= (0 if unnamed else 1)
    for _ in range(3):
        taken(tmp_path / "x")
    list(ownership.reclaim_all(tmp_path))
    assert [name for name in names(tmp_path / ".leases") if name.endswith(".new")] == []
    assert not file_of(tmp_path / "x").exists()


def test_the_temporary_file_of_a_living_writer_stays(tmp_path: Path) -> None:
    with owner(tmp_path / "living") as child:
        found = ownership.inspect(tmp_path / "living").record
        assert found is not None
        path = lock_directory(tmp_path / "x") / f"living.{found.instance_id}.new"
        path.touch()
        dead = lock_directory(tmp_path / "x") / f"other.{OTHER_INSTANCE}.new"
        dead.touch()
        list(ownership.reclaim_all(tmp_path))
        assert (path.exists(), dead.exists()) == (True, False)
        assert [one.resource.name for one in ownership.inspect_all(tmp_path)] == ["living"]
        assert child.said


# clearing


def test_reclaiming_clears_each_kind_of_dead_and_nothing_else(tmp_path: Path) -> None:
    die_owning(tmp_path / "gone")
    plant(tmp_path / "reused", record(1))
    reused = record(1)
    reused["start_id"] = ":".join([*reused["start_id"].split(":")[:-1], "1"])
    plant(tmp_path / "reused", reused)
    plant(tmp_path / "foreign", record(1, pid_namespace=1, instance_id="f" * 32))
    with owner(tmp_path / "living"), owner(tmp_path / "dying") as zombie:
        zombie.kill(reap=False)
        outcome = {one.resource.name: (one.verdict, removed) for one, removed in ownership.reclaim_all(tmp_path)}
        zombie.reap()
    assert outcome == {
        "gone": (Verdict.GONE, True),
        "reused": (Verdict.REUSED, True),
        "dying": (Verdict.ZOMBIE, True),
        "foreign": (Verdict.UNKNOWN, False),
        "living": (Verdict.LIVE, False),
    }
    assert guard_of(tmp_path / "gone")["previous"]["how"] == "died"


def test_a_directory_without_any_is_not_given_one(tmp_path: Path) -> None:
    """Looking and clearing make nothing."""
    before = snapshot(tmp_path)
    assert list(ownership.inspect_all(tmp_path)) == []
    assert list(ownership.reclaim_all(tmp_path)) == []
    assert ownership.reclaim(tmp_path / "x").verdict is Verdict.FREE
    assert ownership.break_claim(tmp_path / "x", token=5).verdict is Verdict.FREE
    assert ownership.wait(tmp_path / "x", timeout=0.0).verdict is Verdict.FREE
    assert ownership.find(tmp_path / "x") is None
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_directory_that_cannot_be_listed_is_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d"
    if kind == "file":
        path.touch()
    for function in (ownership.inspect_all, ownership.running, ownership.reclaim_all):
        with pytest.raises(OSError, match=str(path)):
            list(function(path))
