"""Session files of real processes: found by any alias, writers stopped, killed and out of space."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import leases
import ownership
from leases import append_line, read_lines
from tests.support.processes import (
    Child,
    Contender,
    eventually,
    is_locked,
    open_descriptors,
    opened_since,
    running,
    stopped,
)
from tests.support.records import file_of

HOLDER = """
import leases
path, name = sys.argv[1:3]
lease = leases.acquire(path, ttl=1.0, labels={"session": name})
say(lease.token)
number = 0
while True:
    try:
        leases.append_line(lease, f"{lease.token} {number} " + "x" * 300)
        number += 1
    except ownership.OwnershipError as error:
        if type(error).__name__ != "GuardTimeoutError":  # somebody looks
            say([type(error).__name__, error.reason])
            break
    if os.environ.get("SLOWLY"):
        time.sleep(0.002)
hear()
"""


def holding(path: Path, name: str = "one") -> Child:
    return running(HOLDER, path, name, env={"SLOWLY": "1"})


def test_one_session_is_held_by_whatever_name_and_its_holder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path, another working directory, links to the file and to its directory."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    path = folder / "a.jsonl"
    path.touch()
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "elsewhere").symlink_to(folder)
    monkeypatch.chdir(folder)
    with holding(path, "4711") as holder:
        holder.hear()
        for alias in ("a.jsonl", "../sessions/a.jsonl", tmp_path / "link", tmp_path / "elsewhere" / "a.jsonl"):
            with pytest.raises(ownership.AlreadyOwnedError) as refused:
                leases.acquire(alias, ttl=30.0, timeout=0)
            assert refused.value.record is not None
            assert refused.value.record.labels == {"session": "4711"}
            assert refused.value.record.pid == holder.pid
            assert "session=4711" in str(refused.value)


def wait_for_lines(path: Path, holder: Child) -> None:
    eventually(lambda: path.exists() and path.stat().st_size > 0)
    assert holder.process.poll() is None


def stop_outside_the_guard(path: Path, holder: Child) -> None:
    while True:
        holder.signal(signal.SIGSTOP)
        eventually(lambda: ownership.is_stopped(holder.pid))
        if not is_locked(file_of(path, "guard")):
            return
        holder.signal(signal.SIGCONT)


def no_stale_lines(folder: Path, rounds: int) -> None:
    """K53: many at once, since each waits for a whole ttl."""
    with contextlib.ExitStack() as all_of_them:
        paths = [folder / f"session-{number}.jsonl" for number in range(rounds)]
        holders = [all_of_them.enter_context(holding(path)) for path in paths]
        tokens = [holder.hear() for holder in holders]
        for path, holder in zip(paths, holders, strict=True):
            wait_for_lines(path, holder)
        for path, holder in zip(paths, holders, strict=True):
            stop_outside_the_guard(path, holder)
        for path, holder, token in zip(paths, holders, tokens, strict=True):
            with leases.acquire(path, ttl=30.0, timeout=20.0) as lease:
                append_line(lease, f"{lease.token} 0 mine")
                holder.signal(signal.SIGCONT)  # it appends at once
                append_line(lease, f"{lease.token} 1 mine")
                assert holder.hear() == ["LeaseLostError", "expired"]
                written = [int(line.split()[0]) for line in read_lines(path)]
                first = written.index(lease.token)
                assert set(written[:first]) == {token}
                assert set(written[first:]) == {lease.token}
                assert path.read_bytes().endswith(b"mine\n")


def test_no_line_of_a_holder_that_was_paused_follows_its_successors_first(tmp_path: Path) -> None:
    no_stale_lines(tmp_path, 20)


@pytest.mark.slow
def test_no_stale_line_in_two_hundred_rounds(tmp_path: Path) -> None:
    for turn in range(10):
        (tmp_path / str(turn)).mkdir()
        no_stale_lines(tmp_path / str(turn), 20)


def test_a_writer_that_is_stopped_inside_the_guard_keeps_everybody_out(tmp_path: Path) -> None:
    """There is no moment in which it has been taken over and its line is still to come."""
    body = """
    import leases
    lease = leases.acquire(sys.argv[1], ttl=1.0)
    with lease.critical():
        say(True)
        hear()
        leases.append_line(lease, "first")
    say(True)
    hear()
    """
    path = tmp_path / "x"
    with running(body, path) as writer, Contender() as contender:
        writer.hear()
        with stopped(writer.pid):
            eventually(lambda: ownership.inspect(path).verdict is ownership.Verdict.EXPIRED)
            said = contender.do("acquire", path, timeout=0.2)
            assert (said["error"], said["holder"]) == ("GuardTimeoutError", writer.pid)
            writer.say("go on")
        assert writer.hear()
        assert path.read_bytes() == b"first\n"


def test_a_writer_that_is_killed_leaves_whole_lines_and_at_most_one_torn_one(tmp_path: Path) -> None:
    path, lines = tmp_path / "x", 0
    for turn in range(15):
        with running(HOLDER, path, "one", env={"SLOWLY": ""}) as holder:
            holder.hear()
            before = path.stat().st_size if path.exists() else 0
            eventually(lambda size=before: path.exists() and path.stat().st_size > size)
            time.sleep(0.001 * turn)
            holder.signal(signal.SIGKILL)
            holder.process.wait()
        found = list(read_lines(path))
        assert all(len(line.split()) == 3 and line.endswith(b"x" * 300) for line in found)
        assert len(found) > lines
        lines = len(found)
    with leases.acquire(path) as lease:
        append_line(lease, "last")
    assert list(read_lines(path))[lines:] == [b"last"]


def test_what_the_disk_does_not_take_whole_is_taken_back(tmp_path: Path) -> None:
    """K26: a full disk gives a short write first, an error afterwards."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], check=True)
    try:
        path = small / "x"
        with leases.acquire(path, ttl=30.0) as lease:
            append_line(lease, "first")
            for size in (1 << 20, 100_000, 1 << 19):
                with contextlib.suppress(OSError):
                    append_line(lease, "x" * size)
            for _ in range(300):
                with contextlib.suppress(OSError):
                    append_line(lease, "y" * 1500)
            with pytest.raises(OSError, match=str(path)) as full:
                append_line(lease, "z" * 200_000)
            assert full.value.filename == str(path)
            assert path.read_bytes().endswith(b"y\n")
            assert {line.strip(b"xy") for line in read_lines(path)} == {b"first", b""}
            os.truncate(path, 6)
            append_line(lease, "second")
            assert list(read_lines(path)) == [b"first", b"second"]
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_a_limit_on_its_size_tears_no_line(tmp_path: Path) -> None:
    body = """
    import leases, resource
    lease = leases.acquire(sys.argv[1], ttl=30.0)
    leases.append_line(lease, "first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        leases.append_line(lease, "x" * 5000)
    except OSError as error:
        say([str(error), error.errno, error.filename == sys.argv[1]])
    leases.append_line(lease, "second")
    say(True)
    """
    with running(body, tmp_path / "x") as writer:
        told, number, names_it = writer.hear()
        assert "only 4090 of 5001 bytes could be written" in told
        assert number == errno.EFBIG
        assert names_it
        assert writer.hear()
    assert (tmp_path / "x").read_bytes() == b"first\nsecond\n"


def test_readers_beside_a_writer_that_is_torn_again_and_again_see_whole_lines_only(tmp_path: Path) -> None:
    """Another program tears lines without the lease, the holder cuts them, and a reader follows all the time."""
    path = tmp_path / "x"
    body = """
    import leases
    lease = leases.acquire(sys.argv[1])
    say(True)
    for number in range(400):
        with open(sys.argv[1], "ab") as file:
            file.write(b"torn" * (number % 7) * 400)
        leases.append_line(lease, f"{number:06d}" * (1 + number % 5 * 900))
    say(True)
    hear()
    """
    with running(body, path) as writer:
        writer.hear()
        eventually(path.exists)
        offset, seen = 0, 0
        deadline = time.monotonic() + 60
        while seen < 400 and time.monotonic() < deadline:
            for line in read_lines(path, offset):
                assert line == b"%06d" % seen * (1 + seen % 5 * 900)
                offset += len(line) + 1
                seen += 1
    assert seen == 400


def test_nothing_is_left_open_or_locked(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x") as lease:
        append_line(lease, "a")
        before = open_descriptors()
        for _ in range(20):
            append_line(lease, "a")
            list(read_lines(tmp_path / "x"))
            read_lines(tmp_path / "x")
        eventually(lambda: opened_since(before) == [])
        assert file_of(tmp_path / "x", "guard").exists()
