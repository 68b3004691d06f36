"""Paths that move, end, loop or hide while they are used, and names that only look alike."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, Verdict
from tests.support.namespaces import elsewhere, needs_linux_root, owner, run, taken
from tests.support.records import names

pytestmark = needs_linux_root


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    def work() -> Any:
        gone = tmp_path / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        return taken("x"), taken(tmp_path / "x")

    relative, absolute = elsewhere(work)
    assert isinstance(relative, OSError)
    assert isinstance(absolute, int)


def test_a_claim_outlives_changes_of_the_working_directory(tmp_path: Path) -> None:
    def work() -> Any:
        os.chdir(tmp_path)
        (tmp_path / "sub").mkdir()
        with ownership.acquire("x") as claim:
            os.chdir("sub")
            claim.verify()
            claim.announce("moved")
            shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
            claim.verify()
            return claim.path, os.listdir(tmp_path / "sub")

    path, below = elsewhere(work)
    assert (path, below) == (tmp_path / "x", [])
    assert isinstance(taken(tmp_path / "x"), int)


def test_a_claim_in_a_registry_outlives_changes_of_the_working_directory(tmp_path: Path) -> None:
    """The registry was named relatively, and its files are deleted under the owner."""

    def work() -> Any:
        (tmp_path / "registry").mkdir(mode=0o700)
        os.chdir(tmp_path)
        with ownership.acquire("x", registry="registry") as claim:
            os.chdir("/")
            for path in (tmp_path / "registry").iterdir():
                path.unlink()
            claim.verify()
            return ownership.inspect(tmp_path / "x", registry=tmp_path / "registry").verdict

    assert elsewhere(work) is Verdict.LIVE


@pytest.mark.parametrize("name", ["directory", "new\nline", " leading", "trailing ", "-rf", "*", "é", "a" * 200, "..x"])
def test_any_name_is_just_a_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    with owner(tmp_path / name):
        error = taken(tmp_path / name)
        assert isinstance(error, AlreadyOwnedError)
        [found] = ownership.running(tmp_path)
        assert found.ref.path == tmp_path / name


def test_a_directory_is_a_resource_by_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with owner(str(tmp_path / "d") + "/"):
        for spelled in ("d", "d/", "d/.", "d/../d", "./d//"):
            assert isinstance(taken(f"{tmp_path}/{spelled}"), AlreadyOwnedError), spelled
    assert names(tmp_path / ".leases") >= {"d.guard"}
    assert os.listdir(tmp_path / "d") == []


def test_the_root_of_a_file_system_can_be_owned(tmp_path: Path) -> None:
    """In a root of its own, where nothing of ours is."""
    body = """
        os.chroot(sys.argv[1])
        os.chdir("/")
        say([attempt(ownership.acquire, "/"), attempt(ownership.acquire, "x"), sorted(os.listdir("/.leases"))])
        """
    root, beside, listed = run(body, tmp_path)
    assert (root["error"], beside["error"]) == (None, None)
    assert root["record"]["resource"] == "/"
    assert "%2F.guard" in listed


def test_composed_and_decomposed_names_are_different_resources(tmp_path: Path) -> None:
    """As they are different files; case too."""
    claims = [ownership.acquire(tmp_path / name) for name in ("\u00e9", "e\u0301", "A", "a")]
    assert len(ownership.running(tmp_path)) == 4
    for claim in claims:
        claim.release()


def test_a_link_that_is_turned_round_while_many_acquire_never_gives_two_owners_of_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link, spare = tmp_path / "link", tmp_path / "spare"
    link.symlink_to("one")
    stop = threading.Event()
    held: dict[Path, int] = {}
    failures: list[object] = []

    def turn() -> None:
        while not stop.is_set():
            for name in ("two", "one"):
                spare.symlink_to(name)
                spare.rename(link)

    def work() -> None:
        for _ in range(60):
            try:
                with ownership.acquire(link / "x", timeout=10.0) as claim:
                    if held.setdefault(claim.path, threading.get_ident()) != threading.get_ident():
                        failures.append("two owners")
                    claim.verify()
                    del held[claim.path]
            except Exception as error:
                failures.append(error)

    turner = threading.Thread(target=turn)
    workers = [threading.Thread(target=work) for _ in range(3)]
    for thread in (turner, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    turner.join()
    assert failures == []


def test_a_parent_that_vanishes_while_it_is_used_is_told_or_worked_around(tmp_path: Path) -> None:
    """Never a lock in a directory that nobody can find any more."""
    folder, away = tmp_path / "d", tmp_path / "away"
    folder.mkdir()
    stop = threading.Event()

    def move() -> None:
        while not stop.wait(0.001):
            folder.rename(away)
            away.rename(folder)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        outcomes = [taken(folder / "x") for _ in range(100)]
    finally:
        stop.set()
        mover.join()
    for outcome in outcomes:
        assert isinstance(outcome, int | FileNotFoundError), outcome
    assert any(isinstance(outcome, int) for outcome in outcomes)
    assert isinstance(taken(folder / "x"), int)
    assert not list((folder / ".leases").glob("*.json"))
