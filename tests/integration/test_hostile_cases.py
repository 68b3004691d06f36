"""What hostile users found: each was two owners, a blocked successor, or something held for ever."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ownership
from ownership import AlreadyOwnedError, OwnershipLostError, Verdict
from tests.support.namespaces import NOBODY, needs_linux_root
from tests.support.processes import running
from tests.support.waiting import eventually


def taken_elsewhere(path: Path, *, timeout: float = 0.0) -> str:
    """What another process is told that tries to own *path*."""
    program = (
        "import ownership, sys\n"
        "try:\n ownership.acquire(sys.argv[1], timeout=float(sys.argv[2])).release(); print('taken')\n"
        "except ownership.AlreadyOwnedError as error: print('refused', error.verdict)\n"
    )
    command = [sys.executable, "-c", program, str(path), str(timeout)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_many_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    """A thread on its way out must not unlock the guard that another has just taken."""
    inside, worst, errors = [0], [0], []

    def work() -> None:
        try:
            for _ in range(4):
                with ownership.acquire(tmp_path / "x", timeout=60.0) as claim:
                    inside[0] += 1
                    worst[0] = max(worst[0], inside[0])
                    claim.verify()
                    inside[0] -= 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert worst == [1]


@pytest.mark.parametrize("timeout", [0.0, 0.6])
def test_deleting_the_record_once_makes_no_second_owner(tmp_path: Path, timeout: float) -> None:
    """The guard knows who owns; the keeper puts the record back."""
    record = tmp_path / ".leases" / "x.json"
    with ownership.acquire(tmp_path / "x") as claim:
        record.unlink()
        assert taken_elsewhere(tmp_path / "x", timeout=timeout).startswith("refused")
        claim.verify()
        eventually(record.exists)
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.LIVE


def test_a_claim_that_was_released_does_not_come_back_when_its_record_was_deleted(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    (tmp_path / ".leases" / "x.json").unlink()
    claim.release()
    assert taken_elsewhere(tmp_path / "x") == "taken"


def test_breaking_works_while_the_record_is_deleted(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    (tmp_path / ".leases" / "x.json").unlink()
    ownership.break_claim(tmp_path / "x", token=claim.token)
    with pytest.raises(OwnershipLostError):
        claim.verify()
    previous = ownership.inspect(tmp_path / "x").previous
    assert previous is not None
    assert previous.how == "broken"
    assert taken_elsewhere(tmp_path / "x") == "taken"


def test_a_directory_that_comes_back_later_is_owned_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with ownership.acquire(folder / "x") as claim:
        shutil.rmtree(folder)
        with pytest.raises(OSError, match="folder"):
            claim.verify()
        folder.mkdir()
        eventually(lambda: (folder / ".leases" / "x.json").exists())
        assert taken_elsewhere(folder / "x").startswith("refused")
        claim.verify()


def test_a_directory_that_was_moved_is_nobodys_once_the_owner_followed_the_path(tmp_path: Path) -> None:
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    folder.mkdir()
    with ownership.acquire(folder / "x"):
        folder.rename(moved)
        folder.mkdir()
        eventually(lambda: (folder / ".leases" / "x.json").exists())
        eventually(lambda: not (moved / ".leases" / "x.json").exists())
        assert taken_elsewhere(moved / "x") == "taken"
        assert taken_elsewhere(folder / "x").startswith("refused")


def test_a_refused_acquire_keeps_nothing_open(tmp_path: Path) -> None:
    program = (
        "import ownership, os, sys\n"
        "try: ownership.acquire(sys.argv[1])\n"
        "except ownership.AlreadyOwnedError: pass\n"
        "ownership.inspect(sys.argv[1])\n"
        "opened = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') "
        "if os.path.exists(f'/proc/self/fd/{n}')]\n"
        "print([name for name in opened if '.leases' in name])\n"
    )
    with ownership.acquire(tmp_path / "x"):
        command = [sys.executable, "-c", program, str(tmp_path / "x")]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_released_claim_that_is_kept_keeps_no_directory_open(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    claim.release()

    def opened() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [name for name in map(os.readlink, filter(os.path.islink, links)) if str(tmp_path) in name]

    eventually(lambda: opened() == [])
    assert not claim.held


def test_a_claim_is_one_object(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="claim"):
                duplicate(claim)
        claim.verify()


def test_losing_one_of_several_frees_the_others_at_the_end_of_the_block(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "a", also=[tmp_path / "b"]) as claim:
        ownership.break_claim(tmp_path / "b", token=claim.tokens[tmp_path / "b"])
        with pytest.raises(OwnershipLostError):
            claim.verify()
    ownership.acquire(tmp_path / "a", also=[tmp_path / "b"]).release()


def test_the_cache_of_descriptors_leaves_room_for_the_program(tmp_path: Path) -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))\n"
        "import ownership, sys\n"
        "claims = [ownership.acquire(f'{sys.argv[1]}/r{n}') for n in range(300)]\n"
        "print(len(claims))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "300"


def test_ones_own_claim_is_named_as_such(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"), pytest.raises(AlreadyOwnedError) as caught:
        ownership.acquire(tmp_path / "x")
    assert "this process" in caught.value.hint


def test_a_handler_that_releases_at_any_moment_never_waits_however_many_resources_there_are(tmp_path: Path) -> None:
    """More than are kept at hand: one that is used may push out another, and be interrupted at any step of that."""
    body = """
    from ownership import _guard
    directory = sys.argv[1]
    claims = [ownership.acquire(f"{directory}/held-{n}") for n in range(100)]
    steps, at = 0, 0
    def trace(frame, event, argument):
        global steps
        if frame.f_code is not _guard.remember.__code__:
            return trace
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == at and claims:
                sys.settrace(None)
                claims.pop(0).release()  # its guard is not at hand any more
        return trace
    while True:
        steps, at = 0, at + 1
        sys.settrace(trace)
        ownership.acquire(f"{directory}/{at % 90}").release()
        sys.settrace(None)
        if steps < at:
            break
    for claim in claims:
        claim.release()
    say([at > 10, [name for name in os.listdir(f"{directory}/.leases") if name.endswith(".json")]])
    """
    with running(body, tmp_path) as child:
        assert child.hear() == [True, []]


def test_many_threads_with_many_resources_get_no_errors_of_ours(tmp_path: Path) -> None:
    body = """
    sys.setswitchinterval(1e-6)
    errors = []
    def work(thread):
        for turn in range(250):
            try:
                ownership.acquire(f"{sys.argv[1]}/{thread}-{turn % 40}").release()
            except Exception as error:
                errors.append(repr(error))
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(errors[:5])
    """
    with running(body, tmp_path) as child:
        assert child.hear() == []


@needs_linux_root
@pytest.mark.parametrize("first", ["a", "b"])
def test_one_resource_by_two_mounts_of_its_directory_is_owned_once(tmp_path: Path, first: str) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    subprocess.run(["mount", "--bind", a, b], check=True)
    try:
        other = "b" if first == "a" else "a"
        with ownership.acquire(tmp_path / first / "x", also=[tmp_path / other / "x", tmp_path / "y"]) as claim:
            assert claim.path == tmp_path / first / "x"
            assert len(claim.tokens) == 2
            claim.verify()
            for path in (a / "x", b / "x", tmp_path / "y"):
                assert taken_elsewhere(path) == "refused live"
        assert taken_elsewhere(b / "x") == "taken"
    finally:
        subprocess.run(["umount", "-l", b], check=True)


@needs_linux_root
def test_a_lock_directory_that_is_given_away_meanwhile_gets_files_of_its_new_owner(open_directory: Path) -> None:
    """K75: a daemon of root goes on after somebody followed the advice to chown."""
    (open_directory / ".leases").mkdir(mode=0o700)
    os.chown(open_directory, NOBODY, NOBODY)
    with ownership.acquire(open_directory / "a"):
        os.chown(open_directory / ".leases", NOBODY, NOBODY)
        for name in ("a.guard", "a.json"):
            os.chown(open_directory / ".leases" / name, NOBODY, NOBODY)
        ownership.acquire(open_directory / "b").release()
    assert (open_directory / ".leases" / "b.guard").stat().st_uid == NOBODY
    (open_directory / ".leases").chmod(0o777)
    with pytest.raises(ownership.UnsafeDirectoryError):
        ownership.acquire(open_directory / "c")
