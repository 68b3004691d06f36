"""Files of lines: what is appended whole or not at all, what is cut, what is read."""

from __future__ import annotations

import collections
import errno
import gc
import itertools
import logging
import os
import pickle
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import leases
import ownership
from leases import NotSyncedError, append_line, read_lines
from ownership import GuardTimeoutError
from ownership.testing import FakeClock
from tests.support.injection import Interrupter, forking
from tests.support.namespaces import needs_linux_root
from tests.support.processes import is_locked, open_descriptors
from tests.support.records import file_of
from tests.support.waiting import eventually

MANY = 200_000  # bytes, more than is read at a time


def test_lines_come_out_as_they_went_in(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with leases.acquire(path, ttl=30.0) as lease:
        for line in ('{"n": 1}', b"\x00\xff\r", "", "grüße", "x" * MANY):
            append_line(lease, line)
    assert list(read_lines(path)) == [b'{"n": 1}', b"\x00\xff\r", b"", "grüße".encode(), b"x" * MANY]
    assert path.read_bytes().startswith(b'{"n": 1}\n\x00\xff\r\n\n')


def test_a_claim_without_a_ttl_will_do(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        append_line(claim, "a")
    assert (tmp_path / "x").read_bytes() == b"a\n"
    with pytest.raises(ownership.OwnershipLostError):
        append_line(claim, "b")


@pytest.mark.parametrize("torn", [b"b", b"x" * MANY, b"\x00" * 5])
@pytest.mark.parametrize("before", [b"", b"a\n", b"a\n\n"])
def test_a_torn_line_is_not_read_and_the_next_append_cuts_it(
    tmp_path: Path, before: bytes, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x"
    path.write_bytes(before + torn)
    assert list(read_lines(path)) == before.split(b"\n")[:-1]
    with leases.acquire(path) as lease, caplog.at_level(logging.WARNING, "leases"):
        append_line(lease, "c")
        assert f"the last {len(torn)} bytes" in caplog.text
        caplog.clear()
        append_line(lease, "d")
        assert caplog.text == ""
    assert path.read_bytes() == before + b"c\nd\n"


def test_whoever_follows_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x"
    offset, read = 0, []
    with leases.acquire(path) as lease:
        for number in range(5):
            append_line(lease, f"line {number}")
            with path.open("ab") as file:
                file.write(b"torn")
            for line in read_lines(path, offset):
                offset += len(line) + 1
                read.append(line)
    assert read == [b"line %d" % number for number in range(5)]
    assert list(read_lines(path, offset + 100)) == []


def test_what_comes_while_it_is_read_is_left_for_the_next_time(tmp_path: Path) -> None:
    """Bytes behind the last newline may be cut and replaced: none of those read before may be joined to them."""
    path = tmp_path / "x"
    path.write_bytes(b"a" * MANY + b"\nb\ntorn")
    reading = read_lines(path)
    assert next(reading) == b"a" * MANY
    with leases.acquire(path) as lease:
        append_line(lease, "c")
    assert list(reading) == [b"b"]
    path.write_bytes(b"a\n" + b"torn" * MANY)
    reading = read_lines(path)
    assert next(reading) == b"a"
    with leases.acquire(path) as lease:
        append_line(lease, "c" * MANY)
    assert list(reading) == []
    path.write_bytes(b"a\n" + b"b" * MANY * 2 + b"\n")
    reading = read_lines(path)
    assert next(reading) == b"a"
    os.truncate(path, 2)
    assert list(reading) == []


@pytest.mark.parametrize("line", ["a\nb", "a\n", b"\n", 5, None, "\ud800"])
def test_what_is_no_line_is_refused(tmp_path: Path, line: object) -> None:
    with leases.acquire(tmp_path / "x") as lease, pytest.raises(ValueError, match=r"line must|surrogates"):
        append_line(lease, line)  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "keywords", [{"mode": 0o1777}, {"mode": True}, {"path": "elsewhere"}, {"path": 5}, {"path": ""}, {"timeout": -1}]
)
def test_arguments_that_cannot_be_right_are_named(tmp_path: Path, keywords: dict[str, object]) -> None:
    with leases.acquire(tmp_path / "x") as lease, pytest.raises(ValueError, match=f"{next(iter(keywords))} must"):
        append_line(lease, "a", **keywords)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="offset must be an integer >= 0, got -1"):
        read_lines(tmp_path / "x", -1)
    for lease in (None, 5, "x"):
        with pytest.raises(ValueError, match="lease must be a lease or a claim"):
            append_line(lease, "a")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [None, "", b"", "a\0b", 1.5])
def test_what_is_no_path_is_not_read(path: object) -> None:
    with pytest.raises(ValueError, match="path must be a path"):
        read_lines(path)  # type: ignore[arg-type]


def test_the_number_of_a_descriptor_is_no_path_and_what_it_stands_for_stays_open(tmp_path: Path) -> None:
    number = os.open(tmp_path / "x", os.O_CREAT | os.O_RDONLY)
    try:
        with pytest.raises(ValueError, match=f"path must be a path, got {number}"):
            read_lines(number)  # type: ignore[arg-type]
        assert os.fstat(number)
    finally:
        os.close(number)


def test_a_time_that_no_float_can_say_is_for_ever(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x", ttl=30.0, timeout=10**400) as lease, lease.critical(10**400):
        append_line(lease, "a", timeout=10**400)
    assert list(read_lines(tmp_path / "x")) == [b"a"]


def test_each_byte_of_a_long_line_is_moved_a_few_times_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joining what was read so far to each block that comes would take 20 s for 50 MB."""
    path, blocks = tmp_path / "x", 100
    path.write_bytes(b"a\n" + b"x" * (blocks << 16) + b"\nb\n")
    pread, alive = os.pread, []

    class Block(bytes):
        """Counts what it is joined to."""

        def __radd__(self, other: bytes) -> bytes:
            alive.append(len(other))
            return other + bytes(self)

    monkeypatch.setattr(os, "pread", lambda *arguments: Block(pread(*arguments)))
    assert [len(line) for line in read_lines(path)] == [1, blocks << 16, 1]
    assert sum(alive) < 2 * blocks << 16


def test_it_is_made_with_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        with leases.acquire(tmp_path / "x", also=[tmp_path / "y"]) as lease:
            append_line(lease, "a", fsync=True)
            append_line(lease, "a", path=tmp_path / "." / "y", mode=0o644)
            append_line(lease, "a", mode=0o777)
    finally:
        os.umask(umask)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "xy"] == [0o600, 0o644]


def test_another_resource_of_the_lease_is_told_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path / "y")
    with leases.acquire(tmp_path / "x", also=[tmp_path / "y"]) as lease:
        append_line(lease, "in y", path=tmp_path / "alias")
    assert (tmp_path / "y").read_bytes() == b"in y\n"
    assert not (tmp_path / "x").exists()


def test_whoever_lost_the_lease_appends_nothing(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "x"
    first = leases.acquire(path, ttl=5.0, auto_renew=False, clock=clock)
    append_line(first, "first")
    clock.advance(5)
    with leases.acquire(path, clock=clock) as second:
        append_line(second, "second")
        with pytest.raises(leases.LeaseLostError) as lost:
            append_line(first, "late")
        assert lost.value.reason == "expired"
        append_line(second, "third")
    assert list(read_lines(path)) == [b"first", b"second", b"third"]


def test_it_is_written_while_the_guard_keeps_everybody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look before the write would not do: another may take over in between."""
    path, write, seen = tmp_path / "x", os.write, []

    def watched(descriptor: int, raw: bytes) -> int:
        if raw == b"line\n":
            seen.append(is_locked(file_of(path, "guard")))
        return write(descriptor, raw)

    with leases.acquire(path, ttl=30.0) as lease:
        monkeypatch.setattr(os, "write", watched)
        append_line(lease, "line")
    assert seen == [True]


def test_what_has_just_run_out_is_renewed_if_nobody_came(tmp_path: Path) -> None:
    clock = FakeClock()
    with leases.acquire(tmp_path / "x", ttl=5.0, auto_renew=False, clock=clock) as lease:
        clock.advance(50)
        append_line(lease, "a")
        assert lease.lapses == 1


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    for name, number in (("fifo", errno.EINVAL), ("directory", errno.EISDIR)):
        with leases.acquire(tmp_path / name) as lease, pytest.raises(OSError, match=name) as failed:
            append_line(lease, "a")
        assert failed.value.errno == number
        with pytest.raises(OSError, match=name):
            next(read_lines(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        next(read_lines(tmp_path / "missing"))
    with pytest.raises(OSError, match="not a regular file, so no file of lines: '/dev/null'"):
        next(read_lines("/dev/null"))


def test_a_link_that_was_put_in_its_place_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "x"
    victim.write_bytes(b"mine")
    with leases.acquire(path) as lease:
        path.symlink_to(victim)
        with pytest.raises(OSError, match="x") as failed:
            append_line(lease, "a")
        assert failed.value.errno == errno.ELOOP
    assert victim.read_bytes() == b"mine"


@pytest.mark.parametrize("of_directory", [False, True])
def test_a_line_that_may_not_have_reached_the_disk_stays_since_readers_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_directory: bool
) -> None:
    path, got = tmp_path / "x", list[bytes]()

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) is of_directory:
            got.extend(read_lines(path))
            raise OSError(errno.EIO, "the disk is broken")

    with leases.acquire(path) as lease:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(NotSyncedError, match=r"the line was appended, but .* the disk is broken") as failed:
                append_line(lease, "first", fsync=True)
        assert (failed.value.errno, failed.value.filename) == (errno.EIO, str(path))
        assert "do not append it again" in failed.value.__notes__[0]
        again = pickle.loads(pickle.dumps(failed.value))
        assert (type(again), again.errno, again.filename) == (NotSyncedError, errno.EIO, str(path))
        append_line(lease, "second", fsync=True)
    assert list(read_lines(path)) == [b"first", b"second"]
    assert got == [b"first"]


def test_threads_of_the_holder_take_turns(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x", ttl=30.0) as lease:

        def write(name: int) -> None:
            for number in range(25):
                append_line(lease, f"{name} {number} " + "x" * 5000, timeout=30.0)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = [line.split() for line in read_lines(tmp_path / "x")]
    assert len(found) == 100
    for name in range(4):
        assert [int(number) for one, number, _ in found if int(one) == name] == list(range(25))
    assert all(len(text) == 5000 for _, _, text in found)


def test_it_may_be_called_inside_a_critical_section(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x", ttl=30.0) as lease, lease.critical():
        append_line(lease, "a")
        append_line(lease, "b")
        assert list(read_lines(tmp_path / "x")) == [b"a", b"b"]


@pytest.mark.parametrize("give_up", ["release", "retire"])
@pytest.mark.parametrize("acquire", [ownership.acquire, partial(leases.acquire, ttl=30.0)])
def test_a_handler_may_give_it_up_at_any_point_of_an_append(
    tmp_path: Path, acquire: Callable[..., ownership.Claim], give_up: str
) -> None:
    """The line is there whole, or the loss is told; when the call is over, so is the ownership."""
    path = tmp_path / "x"
    loss = ownership.OwnershipLostError if acquire is ownership.acquire else leases.LeaseLostError
    outcomes = set()
    for number in itertools.count(1):
        lease = acquire(path, timeout=1.0)
        claim = getattr(lease, "claim", lease)

        def handler(claim: ownership.Claim = claim) -> None:
            getattr(claim, give_up)()
            assert not claim.held

        interrupter = Interrupter(handler, (__file__,))
        before = path.read_bytes() if path.exists() else b""
        try:
            interrupter.run(number, lambda lease=lease: append_line(lease, "a", fsync=True))  # type: ignore[misc]
            written = b"a\n"
        except loss:
            written = b""
        assert (path.read_bytes() if path.exists() else b"") == before + written, interrupter.point
        eventually(lambda: not is_locked(file_of(path, "guard")))  # the keeper may be inside for a moment
        if not interrupter.point:
            claim.release()
            break
        outcomes.add(written)
        if give_up == "release":
            assert not file_of(path).exists(), interrupter.point
        else:
            assert claim.record.phase == "closed", interrupter.point
            claim.release()
    assert outcomes == {b"", b"a\n"}


def test_in_the_section_of_the_program_itself_a_handler_may_not_release_it_however(tmp_path: Path) -> None:
    with leases.acquire(tmp_path / "x", ttl=30.0) as lease:
        with lease.critical():
            append_line(lease, "a")
            with pytest.raises(RuntimeError):
                lease.release()
        append_line(lease, "b")


class Broken(BaseException):
    """What a signal handler raises."""


def break_off() -> None:
    raise Broken


def broken_off_everywhere(operation: Callable[[], object]) -> Iterator[str]:
    """Break *operation* off at every point where a handler may raise, one after another."""
    interrupter = Interrupter(break_off, (__file__,))
    for number in itertools.count(1):
        try:
            interrupter.run(number, operation)
        except Broken:
            pass
        if not interrupter.point:
            return
        yield interrupter.point


LOST = "ignore::pytest.PytestUnraisableExceptionWarning"  # what a handler raises in the finaliser of a claim


@needs_linux_root
@pytest.mark.parametrize(
    "what", ["append", "read", "restore", pytest.param("compact", marks=pytest.mark.filterwarnings(LOST))]
)
def test_no_handler_that_raises_leaves_a_file_open(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x"
    roster = leases.Roster(tmp_path / "roster")
    roster.start("done").finish()
    with leases.acquire(path, ttl=30.0) as lease:

        def append_first() -> None:
            path.unlink(missing_ok=True)
            append_line(lease, "a", fsync=True)

        append_first()
        operations: dict[str, Callable[[], object]] = {
            "append": append_first,
            "read": lambda: list(read_lines(path)),
            "restore": roster.restore,
            "compact": roster.compact,
        }
        before = collections.Counter(open_descriptors())

        def leaked() -> list[str]:
            opened = collections.Counter(open_descriptors()) - before
            # the keeper may be looking at a guard at any moment
            return [one for one in opened if ".leases" not in one and not one.startswith("/proc/")]

        for count, point in enumerate(broken_off_everywhere(operations[what]), 1):
            if count % 50 == 0:
                gc.collect()
            try:
                eventually(lambda: not leaked(), 1.0)  # another thread of this process may be reading a file just now
            except AssertionError:
                raise AssertionError(f"{point}: {leaked()}") from None
        assert count > 5


@needs_linux_root
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_wherever_a_handler_forks_the_line_is_written_once_and_nothing_is_cut_later(
    tmp_path: Path, torn: bytes, step: int
) -> None:
    """It returns in the child too, which goes on once a successor has written."""
    path = tmp_path / "x"
    for number in itertools.count(1, step):
        path.write_bytes(torn)
        lease = leases.acquire(path, ttl=30.0)
        first = partial(append_line, lease, "first")
        with forking(number, first, (__file__,)) as fork:
            lease.release()
            with leases.acquire(path, ttl=30.0) as successor:
                append_line(successor, "second")
                fork.go_on()
            assert list(read_lines(path)) == [b"first", b"second"], fork.point
        if not fork.point:
            break
    assert number > 50


@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_wherever_a_handler_appends_a_line_neither_that_nor_the_interrupted_one_is_lost(
    tmp_path: Path, torn: bytes
) -> None:
    path, appended = tmp_path / "x", list[int]()

    def append() -> None:
        try:
            append_line(lease, "nested")
        except GuardTimeoutError:  # this very thread was about to lock the guard, or to free it
            return
        appended.append(number)

    interrupter = Interrupter(append, (__file__,))
    with leases.acquire(path, ttl=30.0) as lease:
        for number in itertools.count(1):
            path.write_bytes(b"first\n" + torn)
            interrupter.run(number, lambda: append_line(lease, "interrupted"))
            lines = list(read_lines(path))
            nested = [b"nested"] if appended[-1:] == [number] else []
            assert lines[0] == b"first"
            assert sorted(lines[1:]) == sorted([b"interrupted", *nested]), interrupter.point
            if not interrupter.point:
                break
    assert len(appended) > 20


def test_a_short_write_takes_back_no_line_that_a_handler_appended_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "x", os.write

    def half(descriptor: int, raw: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        count = write(descriptor, raw[: len(raw) // 2])
        append_line(lease, "nested")
        return count

    with leases.acquire(path, ttl=30.0) as lease:
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError, match="could be written, and were taken back"):
            append_line(lease, "interrupted")
    assert list(read_lines(path)) == [b"nested"]


def test_the_name_of_a_file_is_on_the_disk_with_the_first_line_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has made it, and whether that was told of an error."""
    path, sync, synced = tmp_path / "x", os.fsync, list[bool]()

    def noted(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        if synced[-1] and len(synced) == 2:
            raise OSError(errno.EIO, "the disk is broken")
        sync(descriptor)

    with leases.acquire(path) as lease:
        monkeypatch.setattr(os, "fsync", noted)
        append_line(lease, "made")
        with pytest.raises(NotSyncedError):
            append_line(lease, "a", fsync=True)
        append_line(lease, "b", fsync=True)
        append_line(lease, "c", fsync=True)
        path.unlink()
        append_line(lease, "d", fsync=True)
    assert synced == [False, True, False, True, False, False, True]
