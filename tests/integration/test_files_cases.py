"""Whatever else lies where our files should be: never followed, never waited for, never read, never removed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource as limits
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import InvalidRecordError, UnsafeDirectoryError, UnsupportedFilesystemError, Verdict
from ownership.testing import FakeProcessTable
from tests.support.namespaces import NOBODY, die_owning, elsewhere, needs_linux_root, owner, run, taken
from tests.support.records import file_of, guard_of, names, plant, record, snapshot
from tests.support.waiting import eventually

pytestmark = needs_linux_root

KINDS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": lambda path: _bind(path),
    "directory": lambda path: path.mkdir(),
    "full directory": lambda path: (path / "inside").mkdir(parents=True),
    "zeroes": lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5)),
    "a disk": lambda path: os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, 200)),
    "2 GiB": lambda path: _sparse(path),
    "a link": lambda path: path.symlink_to("/etc/hostname"),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


def _bind(path: Path) -> None:
    folder = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"/proc/self/fd/{folder}/{path.name}")  # 108 bytes are soon used up
    finally:
        os.close(folder)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    return KINDS[request.param]


@contextlib.contextmanager
def quick(seconds: float = 3.0) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def prepared(tmp_path: Path) -> Path:
    (tmp_path / ".leases").mkdir(mode=0o700)
    return tmp_path / "x"


@pytest.mark.parametrize("suffix", ["json", "guard"])
def test_a_thing_that_is_no_file_of_ours_is_refused_at_once(
    kind: Callable[[Path], object], suffix: str, tmp_path: Path
) -> None:
    """K33: a typed error that names it, long before the timeout, and nothing of it is changed."""
    resource = prepared(tmp_path)
    path = file_of(resource, suffix)
    kind(path)
    before = snapshot(tmp_path / ".leases").get(str(path))
    for function in (
        lambda: ownership.acquire(resource, timeout=20.0),
        lambda: ownership.reclaim(resource),
        lambda: ownership.break_claim(resource, token=1),
        lambda: ownership.inspect(resource),
    ):
        with quick(), pytest.raises(InvalidRecordError) as caught:
            function()
        assert str(path) in str(caught.value)
        assert caught.value.hint
    assert snapshot(tmp_path / ".leases")[str(path)] == before
    assert names(tmp_path / ".leases") <= {"x.json", "x.guard"}


def test_one_bad_record_does_not_spoil_a_listing(kind: Callable[[Path], object], tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "good") as claim:
        kind(file_of(tmp_path / "bad"))
        found = {one.resource.name: one for one in ownership.inspect_all(tmp_path)}
        assert found["good"].record == claim.record
        assert found["bad"].verdict is Verdict.UNKNOWN
        assert isinstance(found["bad"].error, InvalidRecordError)
        assert [one.record.token for one in ownership.running(tmp_path)] == [claim.token]
        outcome = {one.resource.name: removed for one, removed in ownership.reclaim_all(tmp_path)}
        assert outcome == {"good": False, "bad": False}
        assert "bad.json" in names(tmp_path / ".leases")


def test_a_thing_in_the_place_of_a_witness_proves_nothing(kind: Callable[[Path], object], tmp_path: Path) -> None:
    if kind is KINDS["2 GiB"]:
        pytest.skip("any file may be a witness, whatever its size")
    resource = prepared(tmp_path)
    planted = record(1, pid_namespace=4026599999, command="elsewhere")
    plant(resource, planted)
    kind(tmp_path / ".leases" / f"{planted['instance_id']}.alive")
    with quick(), pytest.raises(ownership.AlreadyOwnedError) as caught:
        ownership.acquire(resource)
    assert caught.value.verdict is Verdict.UNKNOWN
    assert "witness" in caught.value.reason


@pytest.mark.parametrize("where", ["temporary", "witness"])
def test_a_thing_in_the_place_of_a_file_that_we_make_is_in_nobodys_way_or_told(
    kind: Callable[[Path], object], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names carry our instance id, so nobody can guess them; if they could, it would not help them."""
    from ownership._directory import LockDirectory

    monkeypatch.setattr(LockDirectory, "unnamed_by_default", False)
    resource, processes = prepared(tmp_path), FakeProcessTable(4242)
    instance = processes.current().instance_id
    path = tmp_path / ".leases" / (f"x.{instance}.new" if where == "temporary" else f"{instance}.alive")
    kind(path)
    victim = snapshot(Path("/etc/hostname"))
    with quick():
        outcome = _value(lambda: ownership.acquire(resource, processes=processes))
    if isinstance(outcome, OSError):
        assert path.is_dir()
        assert str(tmp_path) in str(outcome)
        assert getattr(outcome, "hint", "")
        assert not file_of(resource).exists()
    else:
        outcome.verify()
        outcome.announce("again")
        outcome.release()
    assert snapshot(Path("/etc/hostname")) == victim


# symlinks (K34)


@pytest.mark.parametrize("suffix", ["json", "guard"])
def test_the_victim_of_a_planted_link_is_untouched(suffix: str, open_directory: Path) -> None:
    victim, resource = open_directory / "victim", prepared(open_directory)
    victim.write_bytes(b"precious")
    victim.chmod(0o640)
    os.utime(victim, (1, 1))
    link = file_of(resource, suffix)
    link.symlink_to(victim)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    before = victim.stat(), victim.read_bytes()
    with pytest.raises(InvalidRecordError):
        ownership.acquire(resource)
    with pytest.raises(InvalidRecordError):
        ownership.inspect(resource)
    assert (victim.stat().st_mode, victim.stat().st_mtime_ns, victim.read_bytes()) == (
        before[0].st_mode,
        before[0].st_mtime_ns,
        before[1],
    )
    assert link.is_symlink()


@pytest.mark.parametrize("suffix", ["json", "guard"])
def test_a_link_planted_under_an_owner_does_not_lead_it_astray(suffix: str, tmp_path: Path) -> None:
    """Neither an update nor a release nor the keeper writes through it."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    claim = ownership.acquire(tmp_path / "x")
    path = file_of(tmp_path / "x", suffix)
    path.unlink()
    path.symlink_to(victim)
    for function in (claim.verify, lambda: claim.announce("again"), claim.release):
        with contextlib.suppress(ownership.OwnershipError, OSError):
            function()
    assert victim.read_bytes() == b"precious"
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("suffix", ["json", "guard"])
def test_a_link_swapped_in_at_any_moment_is_never_followed(suffix: str, tmp_path: Path) -> None:
    victim, resource = tmp_path / "victim", prepared(tmp_path)
    victim.write_bytes(b"precious")
    os.utime(victim, (1, 1))
    path, other = file_of(resource, suffix), tmp_path / "other"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                other.unlink(missing_ok=True)
                other.symlink_to(victim)
                other.rename(path)
                path.unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until = time.monotonic() + 0.7
        while time.monotonic() < until:
            with (
                contextlib.suppress(ownership.OwnershipError, OSError),
                ownership.acquire(resource) as claim,
            ):
                claim.announce("x")
    finally:
        stop.set()
        thread.join()
    assert (victim.read_bytes(), victim.stat().st_mtime) == (b"precious", 1)
    path.unlink(missing_ok=True)
    assert isinstance(taken(resource), int)


def test_a_hard_link_to_a_victim_is_not_written_into(open_directory: Path) -> None:
    """Root acquires beside files of an account that planted a second name of somebody's small file."""
    folder = open_directory / "home"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    victim = open_directory / "victim"
    victim.write_bytes(b"precious")
    elsewhere(lambda: taken(folder / "other"), uid=NOBODY)
    os.link(victim, folder / ".leases" / "x.guard")
    with pytest.raises(InvalidRecordError):
        ownership.acquire(folder / "x")
    assert victim.read_bytes() == b"precious"


# what cannot be changed (K36)


@pytest.fixture
def immutable() -> Iterator[Callable[[Path], None]]:
    fixed: list[Path] = []

    def fix(path: Path) -> None:
        subprocess.run(["chattr", "+i", path], check=True)
        fixed.append(path)

    yield fix
    for path in fixed:
        subprocess.run(["chattr", "-i", path], check=False)


def test_an_unremovable_record_of_a_dead_owner_is_told_at_once(
    tmp_path: Path, immutable: Callable[[Path], None]
) -> None:
    die_owning(tmp_path / "x")
    path = file_of(tmp_path / "x")
    immutable(path)
    before = path.read_bytes()
    for _ in range(3):
        with quick(), pytest.raises(PermissionError) as caught:
            ownership.acquire(tmp_path / "x", timeout=20.0)
        assert caught.value.filename == str(path)
        assert "lsattr" in caught.value.hint  # type: ignore[attr-defined]
    assert path.read_bytes() == before
    assert names(tmp_path / ".leases") == {"x.json", "x.guard", f"{instance_in(path)}.alive"}
    assert len(guard_of(tmp_path / "x").get("deaths", [])) <= 1  # nobody died three times
    subprocess.run(["chattr", "-i", path], check=True)
    with ownership.acquire(tmp_path / "x"):
        assert len(guard_of(tmp_path / "x")["deaths"]) == 1


def test_an_immutable_directory_is_not_taken_for_a_filesystem_without_links(
    tmp_path: Path, immutable: Callable[[Path], None]
) -> None:
    taken(tmp_path / "x")
    immutable(tmp_path / ".leases")
    for call in ("acquire", "replace"):
        told = run(f"say(attempt(ownership.{call}, sys.argv[1]))", tmp_path / "x")
        assert told["error"] == "PermissionError"
        assert f"{tmp_path}/.leases/" in told["message"]
        assert "links" not in told["message"]
        assert "lsattr" in told["hint"]


def test_where_a_socket_cannot_be_put_the_hint_is_about_its_directory(
    tmp_path: Path, immutable: Callable[[Path], None]
) -> None:
    taken(tmp_path / "app.sock")
    immutable(tmp_path)
    told = run("say(attempt(ownership.listen, sys.argv[1]))", tmp_path / "app.sock")
    assert told["error"] == "PermissionError"
    assert str(tmp_path / "app.sock") in told["message"]
    assert f"lsattr -d) of {tmp_path}" in told["hint"]


def instance_in(path: Path) -> str:
    return str(json.loads(path.read_bytes())["instance_id"])


def test_an_immutable_guard_or_directory_is_told_at_once(tmp_path: Path, immutable: Callable[[Path], None]) -> None:
    taken(tmp_path / "x")
    for path in (file_of(tmp_path / "x", "guard"), tmp_path / ".leases"):
        immutable(path)
        with quick(), pytest.raises(PermissionError) as caught:
            ownership.acquire(tmp_path / "x", timeout=20.0)
        assert str(tmp_path / ".leases") in str(caught.value)
        assert caught.value.hint  # type: ignore[attr-defined]
        subprocess.run(["chattr", "-i", path], check=True)
    assert isinstance(taken(tmp_path / "x"), int)


MOUNTED = """
    where = sys.argv[1]
    def mount(*arguments):
        subprocess.run(["mount", *arguments], check=True)
    """


def test_a_read_only_mount_is_told_at_once(tmp_path: Path) -> None:
    """With a lock directory or without one; and looking still works."""
    taken(tmp_path / "x")
    (tmp_path / "fresh").mkdir()
    body = f"""{MOUNTED}
    mount("--bind", where, where)
    mount("-o", "remount,ro,bind", where)
    say([attempt(ownership.acquire, where + "/x", timeout=20), attempt(ownership.acquire, where + "/fresh/x"),
         ownership.inspect(where + "/x").verdict, ownership.inspect(where + "/fresh/x").verdict])
    """
    *refused, seen, fresh = run(body, tmp_path, prefix=("unshare", "-m"))
    for one in refused:
        assert (one["error"], one["errno"]) == ("OSError", errno.EROFS)
        assert str(tmp_path) in one["message"]
        assert one["hint"]
        assert one["seconds"] < 3
    assert (seen, fresh) == ("free", "free")


def test_whoever_only_sees_a_registry_read_only_still_learns_who_owns(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o755)
    body = f"""{MOUNTED}
    mount("--bind", where, where)
    mount("-o", "remount,ro,bind", where)
    say([attempt(ownership.acquire, "/data/x", registry=where), attempt(ownership.acquire, "/data/y", registry=where)])
    """
    with ownership.acquire("/data/x", registry=registry):
        held, free = run(body, registry, prefix=("unshare", "-m"))
    assert (held["error"], held["verdict"]) == ("AlreadyOwnedError", "live")
    assert free["errno"] == errno.EROFS


FULL = f"""{MOUNTED}
    size = sys.argv[2]
    mount("-t", "tmpfs", "-o", size + ",mode=0755", "none", where)
    taken = ownership.acquire(where + "/held")
    before = open(where + "/.leases/held.json", "rb").read()
    filler, count = [], 0
    try:
        if size.startswith("size"):
            with open(where + "/filler", "wb", buffering=0) as file:
                while file.write(b"x" * 512):
                    pass
        else:
            while True:
                open(where + f"/filler{{count}}", "x").close()
                count += 1
    except OSError:
        pass
    def listed():
        return sorted(name for name in os.listdir(where + "/.leases") if name != ".gitignore")
    files = listed()
    results = [attempt(ownership.acquire, where + "/x", timeout=20) for _ in range(3)]
    try:
        taken.announce("another phase", data={{"x": "y" * 5000}})
        results.append(None)
    except OSError as error:
        results.append({{"errno": error.errno, "message": str(error), "hint": error.hint, "seconds": 0}})
    after = open(where + "/.leases/held.json", "rb").read()
    taken.verify()
    left = sorted(set(listed()) - set(files))
    os.unlink(where + ("/filler" if size.startswith("size") else "/filler0"))
    if not size.startswith("size"):
        [os.unlink(where + f"/filler{{one}}") for one in range(1, count)]
    taken.announce("room again")
    say([results, before == after, left, attempt(ownership.acquire, where + "/x")])
    """


@pytest.mark.parametrize("size", ["size=64k", "nr_inodes=24"])
def test_a_full_disk_is_told_and_leaves_nothing(size: str, tmp_path: Path) -> None:
    """K26: neither a record half written, nor a lost old one, nor fragments."""
    results, unchanged, left, later = run(FULL, tmp_path, size, prefix=("unshare", "-m"))
    for one in results:
        assert one is not None
        assert one["errno"] == errno.ENOSPC
        assert str(tmp_path) in one["message"]
        assert "free disk space" in one["hint"]
        assert one["seconds"] < 3
    assert unchanged
    assert set(left) <= {"x.guard"}
    assert later["error"] is None


def test_a_file_size_limit_of_zero_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    def limited() -> Any:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits.setrlimit(limits.RLIMIT_FSIZE, (0, limits.RLIM_INFINITY))
        return taken(tmp_path / "x")

    error = elsewhere(limited)
    assert isinstance(error, OSError)
    assert error.errno == errno.EFBIG
    assert str(tmp_path) in str(error)
    assert names(tmp_path / ".leases") <= {"x.guard"}
    assert isinstance(taken(tmp_path / "x"), int)


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127 + "x", "." * 255])
def test_a_name_of_255_bytes_works(name: str, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / name):
        assert ownership.inspect(tmp_path / name).verdict is Verdict.LIVE


MISSING = {
    "parent missing": ("nope/x", FileNotFoundError),
    "grandparent missing": ("nope/nope/x", FileNotFoundError),
    "parent is a file": ("file/x", NotADirectoryError),
    "dangling directory link": ("dangling/x", FileNotFoundError),
    "loop of links": ("loop", OSError),
    "directory in a loop": ("loop/x", OSError),
    "parent is a fifo": ("fifo/x", NotADirectoryError),
}


@pytest.mark.parametrize(("spelled", "expected"), MISSING.values(), ids=MISSING)
def test_a_broken_path_is_never_contention(spelled: str, expected: type[OSError], tmp_path: Path) -> None:
    """K36: at once, whatever the timeout, with path and remedy."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop2")
    (tmp_path / "loop2").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    before = snapshot(tmp_path)
    with quick(), pytest.raises(expected) as caught:
        ownership.acquire(tmp_path / spelled, timeout=20.0)
    assert not isinstance(caught.value, ownership.ContentionError)
    assert str(tmp_path) in str(caught.value.filename)
    assert caught.value.hint  # type: ignore[attr-defined]
    assert snapshot(tmp_path) == before


def test_a_record_that_cannot_be_read_is_no_absence() -> None:
    """Another account's 0600 record in our own directory."""

    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        os.chown(created, NOBODY, NOBODY)

        def as_nobody() -> Any:
            return [taken(folder / "x", timeout=20.0), _value(lambda: ownership.inspect(folder / "x"))]

        elsewhere(lambda: taken(folder / "x"), uid=NOBODY)
        path = plant(folder / "x", record())
        path.chmod(0o600)
        with quick():
            errors = elsewhere(as_nobody, uid=NOBODY)
        for error in errors:
            assert isinstance(error, PermissionError)
            assert error.filename == str(path)
            assert f"chown {NOBODY} {path}" in error.hint  # type: ignore[attr-defined]
        assert path.exists()


def _value(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return error


def test_nothing_is_read_that_is_too_large(tmp_path: Path) -> None:
    """A record of 64 KiB is the largest; one byte more is refused unread."""
    path = plant(tmp_path / "x", b" " * (64 * 1024 + 1))
    with pytest.raises(InvalidRecordError, match="too large"):
        ownership.acquire(tmp_path / "x")
    path.write_bytes(b" " * (64 * 1024))
    assert ownership.inspect(tmp_path / "x").malformed


def test_the_errors_of_a_hostile_directory_are_documented_ones() -> None:
    assert issubclass(UnsafeDirectoryError, PermissionError)
    assert issubclass(UnsupportedFilesystemError, OSError)


def test_the_losers_never_touch_the_winners_record(tmp_path: Path) -> None:
    """K31: many attempts, some of them killed midway."""
    with ownership.acquire(tmp_path / "x") as claim:
        path = file_of(tmp_path / "x")
        before = path.stat(), path.read_bytes()
        for index in range(20):
            if index % 5:
                assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), ownership.AlreadyOwnedError)
            else:
                _killed_midway(lambda: taken(tmp_path / "x", timeout=1.0), after=index / 5 * 0.002)
        after = path.stat(), path.read_bytes()
        assert (after[0].st_ino, after[0].st_mtime_ns, after[1]) == (before[0].st_ino, before[0].st_mtime_ns, before[1])
        claim.verify()


def _killed_midway(function: Callable[[], Any], after: float) -> None:
    def work() -> None:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
        while True:
            function()

    with pytest.raises(EOFError):
        elsewhere(work)


def test_a_failed_acquire_keeps_no_guard(tmp_path: Path) -> None:
    """K27: an error after the guard was taken locks nobody out while its process lives on."""
    (tmp_path / ".leases").mkdir(mode=0o700)
    file_of(tmp_path / "x").mkdir()
    with pytest.raises(InvalidRecordError):
        ownership.acquire(tmp_path / "x")
    file_of(tmp_path / "x").rmdir()
    with owner(tmp_path / "x") as child:
        assert isinstance(child.said, int)


def test_a_full_disk_without_a_lock_directory_is_told(tmp_path: Path) -> None:
    body = f"""{MOUNTED}
    mount("-t", "tmpfs", "-o", "nr_inodes=3,mode=0755", "none", where)
    for number in range(2):
        open(where + f"/{{number}}", "x").close()
    say(attempt(ownership.acquire, where + "/x", timeout=20))
    """
    told = run(body, tmp_path, prefix=("unshare", "-m"))
    assert told["errno"] == errno.ENOSPC
    assert told["hint"]
    assert told["seconds"] < 3


def test_a_mount_is_let_go_of_after_the_last_release(tmp_path: Path) -> None:
    """A process that once owned something there does not keep it busy for ever."""
    body = f"""{MOUNTED}
    mount("-t", "tmpfs", "-o", "mode=0755", "none", where)
    ownership.acquire(where + "/x").release()
    ownership.inspect(where + "/x")
    until = time.monotonic() + 10
    while subprocess.run(["umount", where], capture_output=True).returncode:
        if time.monotonic() > until:
            say(False)
            sys.exit()
        time.sleep(0.1)
    mount("-t", "tmpfs", "-o", "mode=0755", "none", where)
    say(attempt(ownership.acquire, where + "/x")["error"] is None)
    """
    assert run(body, tmp_path, prefix=("unshare", "-m")) is True


def test_an_append_only_directory_keeps_the_record_until_it_can_be_removed(tmp_path: Path) -> None:
    taken(tmp_path / "other")
    subprocess.run(["chattr", "+a", tmp_path / ".leases"], check=True)
    try:
        claim = ownership.acquire(tmp_path / "x")
        with pytest.raises(PermissionError) as caught:
            claim.release()
        assert caught.value.hint  # type: ignore[attr-defined]
        assert not claim.held
        assert file_of(tmp_path / "x").exists()
    finally:
        subprocess.run(["chattr", "-a", tmp_path / ".leases"], check=True)
    eventually(lambda: not file_of(tmp_path / "x").exists())
    assert isinstance(taken(tmp_path / "x"), int)


def test_an_owner_that_drops_its_privileges_is_told_and_has_lost_nothing(tmp_path: Path) -> None:
    """A daemon that acquired as root, in a directory of root: it owns on, but cannot look or let go any more."""

    def work() -> Any:
        claim = ownership.acquire(tmp_path / "x")
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        errors = [_value(claim.verify), _value(lambda: claim.announce("again")), _value(claim.release)]
        return errors, claim.lost.is_set()

    errors, lost = elsewhere(work)
    assert not lost
    for error in errors:
        assert isinstance(error, PermissionError)
        assert str(tmp_path) in str(error)
        assert error.hint  # type: ignore[attr-defined]
    assert isinstance(taken(tmp_path / "x"), int)


def test_coarse_timestamps_hide_no_change(tmp_path: Path) -> None:
    """ext4 with small inodes knows whole seconds only: same size, same second, perhaps the same inode again."""
    body = f"""{MOUNTED}
    image = where + "/image"
    with open(image, "wb") as file:
        file.truncate(4 << 20)
    os.mkdir(where + "/mnt")
    made = subprocess.run(["mkfs.ext4", "-q", "-I", "128", image], capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, where + "/mnt"], capture_output=True)
    if made.returncode or mounted.returncode:
        say(None)
        sys.exit()
    path = where + "/mnt/x"
    record = where + "/mnt/.leases/x.json"
    noticed = []
    for _ in range(5):
        claim = ownership.acquire(path)
        coarse = os.stat(record).st_ctime_ns % 10**9 == 0
        claim.verify()
        claim.verify()
        content = open(record, "rb").read()
        other = content.replace(str(claim.token).encode(), str(claim.token + 1).encode())
        os.unlink(record)
        with open(record, "wb") as file:
            file.write(other)
        try:
            claim.verify()
        except ownership.OwnershipLostError:
            noticed.append(True)
        os.unlink(record)
        claim.release()
    say([coarse, noticed])
    os._exit(0)
    """
    said = run(body, tmp_path, prefix=("unshare", "-m"))
    if said is None:
        pytest.skip("no loop mounts here")
    assert said == [True, [True] * 5]
