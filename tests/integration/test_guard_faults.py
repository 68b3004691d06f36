"""The guard busy, orphaned, damaged or without a working filesystem; full disks; descriptors closed under us."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ownership
from tests.support.injection import Point, Server, can_trace, points
from tests.support.processes import (
    Child,
    Contender,
    eventually,
    files,
    is_locked,
    lock_directory,
    residue,
    run,
    running,
    stopped,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="locks and mounts of Linux")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts take root")

HOLDER = """
import fcntl
number = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
say("opened")
while True:
    fcntl.flock(number, fcntl.LOCK_EX if hear() == "lock" else fcntl.LOCK_UN)
    say("done")
"""


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    resource = tmp_path / "resource"
    ownership.acquire(resource).release()
    return resource


@pytest.fixture
def holder(resource: Path) -> Iterator[Child]:
    """A process inside the guard of *resource*."""
    with running(HOLDER, guard_of(resource)) as child:
        child.hear()
        child.ask("lock")
        yield child


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not can_trace():
        pytest.skip("needs strace(1) and the right to attach")
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


def guard_of(resource: Path) -> Path:
    return lock_directory(resource) / f"{resource.name}.guard"


def record_of(resource: Path) -> Path:
    return lock_directory(resource) / f"{resource.name}.json"


# -- busy


@pytest.mark.parametrize("timeout", [0, 1])
def test_a_busy_guard_is_not_reported_as_an_owner(resource: Path, holder: Child, timeout: float) -> None:
    with pytest.raises(ownership.GuardTimeoutError) as caught:
        ownership.acquire(resource, timeout=timeout)
    assert caught.value.holder == holder.pid
    assert not isinstance(caught.value, ownership.AlreadyOwnedError)
    assert isinstance(caught.value, TimeoutError)
    assert f"pid {holder.pid}" in str(caught.value)
    assert not residue(resource)
    holder.ask("unlock")
    ownership.acquire(resource).release()


def test_whoever_has_time_waits_for_a_busy_guard(resource: Path, holder: Child) -> None:
    with Contender() as contender:
        contender.start("acquire", resource, timeout=50)
        with pytest.raises(TimeoutError):
            contender.hear(1.5)
        holder.ask("unlock")
        answer = contender.hear()
        assert "value" in answer, answer
        assert answer["took"] > 1.2


def test_a_process_stopped_inside_the_guard_is_named_and_the_remedy_told(resource: Path, holder: Child) -> None:
    with stopped(holder.pid), pytest.raises(ownership.GuardTimeoutError) as caught:
        ownership.acquire(resource)
    assert caught.value.holder == holder.pid
    assert f"kill -CONT {holder.pid}" in caught.value.hint


def test_an_owner_goes_on_while_somebody_sits_in_its_guard(resource: Path) -> None:
    """verify, inspect and the keeper need no guard; announce and break say that it is busy, and nothing is lost."""
    with running(HOLDER, guard_of(resource)) as holder, ownership.acquire(resource) as claim:
        holder.hear()
        holder.ask("lock")
        there = record_of(resource).read_bytes()
        claim.verify()
        assert ownership.inspect(resource).verdict == ownership.Verdict.LIVE
        with pytest.raises(ownership.GuardTimeoutError):
            claim.announce("serving")
        with Contender() as operator:
            answer = operator.do("break", resource, token=claim.token)
            assert answer["error"] == "GuardTimeoutError"
            assert answer["holder"] == holder.pid
        claim.verify()
        assert record_of(resource).read_bytes() == there
        holder.ask("unlock")
        claim.announce("serving")


def test_a_release_that_finds_the_guard_busy_is_carried_out_later(resource: Path) -> None:
    with running(HOLDER, guard_of(resource)) as holder, Contender() as contender:
        claim = ownership.acquire(resource)
        holder.hear()
        holder.ask("lock")
        with pytest.raises(ownership.GuardTimeoutError) as caught:
            claim.release()
        assert caught.value.holder == holder.pid
        assert not claim.held
        with pytest.raises(ownership.OwnershipLostError):
            claim.verify()
        claim.release()  # quiet
        assert record_of(resource).exists()
        holder.ask("unlock")
        assert contender.passes(resource, timeout=30)
        assert not residue(resource)


def test_the_error_of_the_body_is_not_masked_by_a_busy_guard(resource: Path) -> None:
    with running(HOLDER, guard_of(resource)) as holder:
        holder.hear()
        with pytest.raises(ZeroDivisionError), ownership.acquire(resource):
            raise ZeroDivisionError(holder.ask("lock"))
        with pytest.raises(ownership.GuardTimeoutError):
            ownership.acquire(resource)
        holder.ask("unlock")
    eventually(lambda: not residue(resource))


def test_one_busy_guard_among_several_holds_up_none_of_the_others(tmp_path: Path, holder: Child) -> None:
    first, last = tmp_path / "a", tmp_path / "z"
    with Contender() as contender:
        contender.start("acquire", first, also=[str(tmp_path / "resource"), str(last)], timeout=0)
        answer = contender.hear()
        assert answer["error"] == "GuardTimeoutError"
        assert answer["holder"] == holder.pid
        for other in (first, last):
            ownership.acquire(other).release()
    assert not residue(first)


# -- orphaned or damaged


def test_the_guard_of_a_process_that_was_killed_inside_it_is_free_at_once(resource: Path, holder: Child) -> None:
    with Contender() as contender:
        holder.kill()
        answer = contender.do("pass", resource)
        assert "value" in answer
        assert answer["took"] < 1.0


GUARDS = {
    "empty": b"",
    "NUL-bytes": b"\0" * 512,
    "not-JSON": b"{{{{" * 20,
    "another-kind-of-JSON": b"[1, 2, 3]",
    "the-last-owner-dead": b'{"token":7, "owner": {"pid": 2147483000, "start_id": "linux:x:1:1", "instance_id":"ID"}}',
    "the-last-owner-a-stranger": b'{"token":7, "owner": {"pid": 1, "start_id": "linux:x:1:1", "instance_id":"ID"}}',
}


@pytest.mark.parametrize("kind", GUARDS)
def test_whatever_a_guard_remembers_without_a_record_it_blocks_nobody(resource: Path, kind: str) -> None:
    guard_of(resource).write_bytes(GUARDS[kind].replace(b"ID", b"0" * 32))
    with Contender() as contender:
        answer = contender.do("pass", resource)
        assert "value" in answer
        assert answer["took"] < 1.0
    assert not residue(resource)


@pytest.mark.parametrize("content", [b"", b'{"version": 1, "pid": '], ids=["empty", "half"])
def test_a_record_that_says_nothing_is_reclaimed_after_a_settle_time_whatever_its_age(
    tmp_path: Path, content: bytes
) -> None:
    ages = {tmp_path / "new": 0, tmp_path / "old": 3600, tmp_path / "of-tomorrow": -7200}
    with contextlib.ExitStack() as stack:
        contenders = {resource: stack.enter_context(Contender()) for resource in ages}
        for resource, age in ages.items():
            ownership.acquire(resource).release()
            guard_of(resource).write_bytes(b"")
            record_of(resource).write_bytes(content)
            os.utime(record_of(resource), (time.time() - age,) * 2)
            contenders[resource].start("pass", resource)
        for contender in contenders.values():
            answer = contender.hear()
            assert "value" in answer, answer
            assert 0.9 < answer["took"] < 30
    assert not any(residue(resource) for resource in ages)


def test_an_empty_lock_directory_is_as_good_as_none(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    lock_directory(resource).mkdir(mode=0o700)
    with Contender() as contender:
        answer = contender.do("pass", resource)
        assert answer["took"] < 1.0
    assert not residue(resource)


def content_of(path: Path) -> bytes:
    """Nothing while there is none: what is damaged is removed before ours is put back."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_a_damaged_record_of_a_live_owner_is_refused_and_put_back(resource: Path) -> None:
    with ownership.acquire(resource) as claim, Contender() as contender:
        good = record_of(resource).read_bytes()
        record_of(resource).write_bytes(good[:40])
        answer = contender.do("acquire", resource)
        assert answer.get("error") == "AlreadyOwnedError", answer
        eventually(lambda: content_of(record_of(resource)) == good)
        claim.verify()


# -- errors after the guard was taken


def test_an_acquire_that_fails_inside_the_guard_lets_it_go(resource: Path) -> None:
    with Contender() as failing, Contender() as other:
        record_of(resource).mkdir()
        for _ in range(3):
            assert failing.do("acquire", resource)["error"] == "InvalidRecordError"
            assert not is_locked(guard_of(resource))
        record_of(resource).rmdir()
        answer = other.do("acquire", resource)
        assert "value" in answer
        assert answer["took"] < 0.9
        other.do("release", resource)
        assert failing.passes(resource)


@as_root
def test_an_acquire_in_a_directory_that_became_immutable_lets_the_guard_go(resource: Path) -> None:
    folder = str(lock_directory(resource))
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", folder], capture_output=True).returncode:
        pytest.skip("no immutable directories here")
    try:
        with Contender() as failing, Contender() as other:
            answer = failing.do("acquire", resource)
            assert answer["error"] in ("PermissionError", "UnsupportedFilesystemError", "OSError"), answer
            assert str(resource.parent) in answer["text"]
            assert not is_locked(guard_of(resource))
            subprocess.run(["chattr", "-i", folder], check=True)
            assert other.passes(resource)
            assert failing.passes(resource)
    finally:
        subprocess.run(["chattr", "-i", folder], check=True)
    assert not residue(resource)


# -- filesystems without what it takes


@pytest.mark.parametrize("error", ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "ESTALE"])
@pytest.mark.parametrize("call", ["flock", "linkat"])
def test_a_filesystem_without_locks_or_links_is_told_as_such(
    server: Server, tmp_path: Path, call: str, error: str
) -> None:
    """Always failing, not once: typed and named within the timeout, nothing owned, no success without exclusion."""
    resource = tmp_path / "work" / "resource"
    resource.parent.mkdir()
    for named in (False, True):
        server.begin("acquire", resource, f"{call}:error={error}:when=1+", named=named, pause=True)
        said = server.hear()
        assert said.get("error") == "UnsupportedFilesystemError", said
        assert str(resource.parent) in said["text"]
        assert server.hear() == "paused"
        assert not residue(resource)
        server.go_on()
        server.finish()
    with Contender() as contender:
        assert contender.passes(resource)
    assert not residue(resource)


@pytest.mark.parametrize("error", ["EOPNOTSUPP", "EINVAL", "EISDIR"])
def test_without_unnamed_files_acquire_goes_on_with_named_ones(server: Server, tmp_path: Path, error: str) -> None:
    resource = tmp_path / "work" / "resource"
    resource.parent.mkdir()
    server.perform("pass_on", resource)
    trace = server.traced("acquire", resource).trace
    unnamed = [point for point in points(trace) if "O_TMPFILE" in point.shown]
    assert len(unnamed) >= 2
    for point in unnamed:
        outcome = server.traced("acquire", resource, f"openat:error={error}:when={point.when}")
        assert outcome.status == 0, outcome.said
        assert "value" in outcome.said[0], outcome.said
        assert ".new" in outcome.trace
    assert {name for name in files(resource) if not name.endswith(".guard")} == {".gitignore"}


@as_root
def test_vfat_has_no_hard_links_and_is_refused(tmp_path: Path) -> None:
    if shutil.which("mkfs.vfat") is None or "vfat" not in Path("/proc/filesystems").read_text():
        pytest.skip("no vfat here")
    body = """
    import subprocess
    image, mounted = sys.argv[1:]
    subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
    try:
        say(attempt(ownership.acquire, mounted + "/resource"))
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)
    """
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(4 << 20)
    subprocess.run(["mkfs.vfat", str(image)], check=True, capture_output=True)
    try:
        assert run(body, image, mounted, prefix=("unshare", "-m")) == "UnsupportedFilesystemError"
    except AssertionError as failed:
        if "mount:" in str(failed):
            pytest.skip("no loop devices here")
        raise


# -- full


FULL = """
import errno, resource as limits, subprocess
mounted, how = sys.argv[1:3]
if how != "FSIZE":
    options = ("size=64k" if how == "blocks" else "nr_inodes=12,size=1m") + ",mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", mounted], check=True)
path, other = mounted + "/resource", mounted + "/other"
soft = limits.getrlimit(limits.RLIMIT_FSIZE)
fillers = []

def fill():
    if how == "FSIZE":
        limits.setrlimit(limits.RLIMIT_FSIZE, (0, soft[1]))
        return
    for number in range(10000):
        name = f"{mounted}/filler{number}"
        try:
            with open(name, "wb", buffering=0) as file:
                fillers.append(name)
                while how == "blocks":
                    file.write(b"x" * 512)
        except OSError as error:
            if how == "blocks" and number < 40:
                continue
            return

def drain():
    limits.setrlimit(limits.RLIMIT_FSIZE, soft)
    while fillers:
        os.unlink(fillers.pop())

def tried(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
        return None
    except OSError as error:
        return [errno.errorcode.get(error.errno), error.filename, getattr(error, "hint", None)]

def listed():
    return sorted(os.listdir(mounted + "/.leases"))

if len(sys.argv) > 3:  # the directory is there, and its guard is not empty
    ownership.acquire(path).release()
with ownership.acquire(other) as claim:
    before = listed()
    record = open(mounted + "/.leases/other.json", "rb").read()
    fill()
    found = {"acquire": [tried(ownership.acquire, path) for _ in range(20)]}
    found["left"] = [name for name in listed() if name not in before]
    found["announce"] = tried(claim.announce, "serving", data={"text": "x" * 5000})
    found["same"] = open(mounted + "/.leases/other.json", "rb").read() == record
    found["ours"] = tried(claim.verify)
    found["left later"] = [name for name in listed() if name not in before]
    drain()
    found["afterwards"] = tried(lambda: ownership.acquire(path).release())
    found["announce again"] = tried(claim.announce, "serving", data={"text": "x" * 5000})
    fill()
    found["release"] = tried(claim.release)
found["freed"] = "other.json" not in listed()
drain()
deadline = time.monotonic() + 30
while "other.json" in listed() and time.monotonic() < deadline:
    time.sleep(0.05)
found["freed in the end"] = "other.json" not in listed()
say(found)
"""


@as_root
@pytest.mark.parametrize("guard", [(), ("guard",)], ids=["fresh", "with-a-guard"])
@pytest.mark.parametrize("how", ["blocks", "inodes", "FSIZE"])
def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path: Path, how: str, guard: tuple[str, ...]) -> None:
    found = run(FULL, tmp_path, how, *guard, prefix=("unshare", "-m"))
    expected = "EFBIG" if how == "FSIZE" else "ENOSPC"
    for failure in found["acquire"]:
        assert failure is not None, found
        name, filename, _ = failure
        assert name == expected
        assert str(tmp_path) in filename
    assert set(found["left"]) <= {"resource.guard"}
    assert set(found["left later"]) <= {"resource.guard"}
    assert found["announce"][0] == expected
    assert found["same"]
    assert found["ours"] is None
    assert found["afterwards"] is None
    assert found["announce again"] is None
    if how == "FSIZE":  # not even the guard can be written: the keeper goes on trying
        assert found["release"][0] == expected
    else:
        assert found["release"] is None
        assert found["freed"]
    assert found["freed in the end"]


# -- pauses in the middle


def test_an_update_that_pauses_before_its_rename_overwrites_no_successor(server: Server, tmp_path: Path) -> None:
    """It pauses inside the guard: break and successor report it. Afterwards the break goes through, and it is told."""
    resource = tmp_path / "work" / "resource"
    resource.parent.mkdir()
    rename = the_last(points(server.traced("announce", resource).trace), "rename")
    with Contender() as operator:
        pid = server.begin("announce", resource, f"{rename.name}:delay_enter=1600ms:when={rename.when}", pause=True)
        eventually(lambda: is_locked(guard_of(resource)))
        token = ownership.inspect(resource).token
        answer = operator.do("break", resource, token=token)
        assert answer["error"] == "GuardTimeoutError"
        assert answer["holder"] == pid
        assert "value" in server.hear()
        assert server.hear() == {"ours": ""}
        assert server.hear() == "paused"
        assert "value" in operator.do("break", resource, token=token)
        assert "value" in operator.do("acquire", resource)
        there = record_of(resource).read_bytes()
        server.go_on()
        outcome = server.finish()
        assert "OwnershipLostError" in json.dumps(outcome.said)
        assert record_of(resource).read_bytes() == there
        assert "value" in operator.do("release", resource)
    assert not residue(resource)


def test_a_release_that_pauses_before_its_unlink_removes_no_successors_record(server: Server, tmp_path: Path) -> None:
    resource = tmp_path / "work" / "resource"
    resource.parent.mkdir()
    removal = the_last(points(server.traced("release", resource).trace), "unlink")
    with Contender() as operator, Contender() as successor:
        pid = server.begin("release", resource, f"{removal.name}:delay_enter=1600ms:when={removal.when}", pause=True)
        eventually(lambda: is_locked(guard_of(resource)))
        successor.start("acquire", resource, timeout=50)
        answer = operator.do("break", resource, token=ownership.inspect(resource).token)
        assert answer["error"] == "GuardTimeoutError"
        assert answer["holder"] == pid
        assert "value" in server.hear()
        assert server.hear() == "paused"
        assert "value" in successor.hear()
        assert "value" in operator.do("inspect", resource)
        there = record_of(resource).read_bytes()
        assert ownership.inspect(resource).record.pid == successor.pid
        successor.do("release", resource)
        server.go_on()
        assert server.finish().status == 0
        assert str(successor.pid).encode() in there
    assert not residue(resource)


def the_last(found: list[Point], kind: str) -> Point:
    return [point for point in found if point.name.startswith(kind) and "resource.json" in point.shown][-1]


DISPLACED = """
import atexit
claim = ownership.acquire(sys.argv[1])
atexit.register(claim.release)
if sys.argv[2] == "TERM":
    signal.signal(signal.SIGTERM, lambda *_: claim.release() or sys.exit(0))
say(claim.token)
request = hear()
if request == "verify":
    say([attempt(claim.verify), claim.lost.is_set()])
    hear()
elif request == "release":
    claim.release()
    say("released")
    hear()
elif request == "wait":
    say("waiting")
    signal.pause()
"""


@pytest.mark.parametrize("way", ["release", "exit", "TERM", "verify"])
def test_an_owner_stopped_while_it_was_displaced_touches_nothing_of_its_successor(tmp_path: Path, way: str) -> None:
    resource = tmp_path / "resource"
    with Contender() as successor, running(DISPLACED, resource, way) as displaced:
        token = displaced.hear()
        with stopped(displaced.pid):
            assert ownership.inspect(resource).verdict == ownership.Verdict.STOPPED
            assert "value" in successor.do("break", resource, token=token)
            assert successor.do("acquire", resource)["value"] > token
            there = record_of(resource).read_bytes(), record_of(resource).stat().st_ino
        if way == "release":
            assert displaced.ask("release") == "released"
        elif way == "verify":
            assert displaced.ask("verify") == ["OwnershipLostError", True]
        elif way == "TERM":
            displaced.ask("wait")
            displaced.signal(15)
        if way in ("exit", "TERM"):
            displaced.say("exit")
            assert displaced.process.wait(60) == 0
        assert (record_of(resource).read_bytes(), record_of(resource).stat().st_ino) == there
        assert "error" not in successor.do("verify", resource)
        with Contender() as third:
            assert third.do("acquire", resource)["error"] == "AlreadyOwnedError"
        successor.do("release", resource)
    assert not residue(resource)


def test_readers_see_the_old_record_or_the_new_one_and_nothing_between(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    reader = """
    path, end = sys.argv[1:]
    say("reading")
    seen, faults = set(), []
    while not os.path.exists(end):
        try:
            with open(path, "rb") as file:
                fields = json.loads(file.read())
            seen.add(fields["data"].get("number"))
            if fields["data"].get("text", "") != "x" * fields["data"].get("length", 0):
                faults.append(fields)
        except Exception as error:
            faults.append(repr(error))
    say([len(seen), faults[:3]])
    """
    end = tmp_path / "end"
    with ownership.acquire(resource) as claim, running(reader, record_of(resource), end) as child:
        child.hear()
        for number in range(1000):
            length = number * 7 % 9000
            claim.announce("serving", data={"number": number, "length": length, "text": "x" * length})
        end.touch()
        seen, faults = child.hear()
    assert faults == []
    assert seen > 5


def test_nobody_sweeps_away_what_a_live_process_is_about_to_publish(server: Server, tmp_path: Path) -> None:
    """Paused at every change it makes, with named temporary files, while others acquire in the same directory."""
    resource, other = tmp_path / "work" / "resource", tmp_path / "work" / "other"
    resource.parent.mkdir()
    ownership.acquire(resource).release()
    for operation in ("acquire", "announce"):
        trace = server.traced(operation, resource, named=True).trace
        making = ("flock", "link", "linkat", "rename", "renameat", "renameat2", "write", "fchmod")
        chosen = [point for point in points(trace) if point.name in making and "LOCK_UN" not in point.shown]
        assert len(chosen) >= 3
        for point in chosen:
            fault = f"{point.name}:delay_enter=250ms:when={point.when}"
            server.begin(operation, resource, fault, named=True, pause=True)
            with running(SWEEPING, other) as sweeping:
                sweeping.hear()
                heard = server.hear()
                assert "value" in heard, (str(point), heard)
                while (heard := server.hear()) != "paused":
                    assert heard == {"ours": ""}, (str(point), heard)
                sweeping.ask("stop")
            server.go_on()
            assert server.finish().status == 0, str(point)
    assert not residue(resource)


SWEEPING = """
import select
say("sweeping")
from ownership._place import pinned
from ownership._paths import resolve
from ownership._sweep import sweep
while not select.select([0], [], [], 0.003)[0]:
    with ownership.acquire(sys.argv[1], timeout=5):
        sweep(pinned(resolve(sys.argv[1])))
hear()
say("stopped")
"""


@pytest.mark.parametrize("deaths", [24, pytest.param(1000, marks=pytest.mark.slow)])
def test_deaths_between_making_and_publishing_do_not_pile_up_temporary_files(
    server: Server, tmp_path: Path, deaths: int
) -> None:
    resource = tmp_path / "work" / "resource"
    resource.parent.mkdir()
    server.perform("pass_on", resource)
    linking = [
        point for point in points(server.traced("acquire", resource, named=True).trace) if point.name == "linkat"
    ]
    renaming = the_last(points(server.traced("announce", resource, named=True).trace), "rename")
    for number in range(deaths):
        operation, point = [("acquire", linking[-1]), ("announce", renaming), ("acquire", linking[-2])][number % 3]
        fault = f"{point.name}:signal=KILL:when={point.when}"
        assert server.traced(operation, resource, fault, named=True).was_killed
        temporary = [name for name in files(resource) if name.startswith("resource.") and name.endswith(".new")]
        assert len(temporary) <= 1, temporary
    clean_up(server, resource)


def test_what_a_thousand_deaths_have_left_is_swept_bit_by_bit(server: Server, tmp_path: Path) -> None:
    """Witnesses of the dead, and temporary files of witnesses and records: more than one acquire looks through."""
    resource = tmp_path / "work" / "resource"
    resource.parent.mkdir()
    server.perform("pass_on", resource)
    with Contender() as neighbour:
        neighbour.do("acquire", resource.parent / "neighbour")
        kept = files(resource)
        for number in range(1000):
            dead = f"{number:032x}"
            name = [f"{dead}.alive", f"{dead}.alive.{dead}.new", f"resource.{dead}.new"][number % 3]
            (lock_directory(resource) / name).write_bytes(b"\0" * 8)
        for _ in range(20):
            assert server.perform("pass_on", resource).status == 0
        assert files(resource) == kept
        assert "error" not in neighbour.do("verify", resource.parent / "neighbour")


def clean_up(server: Server, resource: Path) -> None:
    for _ in range(3 + len(files(resource)) // 100):
        assert server.perform("pass_on", resource).status == 0
    assert {name for name in files(resource) if not name.endswith(".guard")} == {".gitignore"}


# -- descriptors closed under us


CLOSED = """
import fcntl
folder, reused = sys.argv[1:]
resource = folder + "/resource"
claim = ownership.acquire(resource)
claim.announce("serving")
os.closerange(3, 256)
content = b"the program's own bytes " * 30
own = []
for index in range(40):  # the numbers are used again, by files or folders of the program
    path = f"{folder}/own{index}"
    if reused == "files":
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(descriptor, content)
        os.lseek(descriptor, 0, 0)
    else:
        os.mkdir(path)
        descriptor = os.open(path, os.O_RDONLY)
    own.append((descriptor, path))
mine = {number for number, _ in own}
deadline = time.monotonic() + 0.8  # three ticks of the keeper
while time.monotonic() < deadline:
    time.sleep(0.05)
claim.verify()
found = {"held": claim.held, "lost": claim.lost.is_set()}
say("look")
hear()
claim.announce("still serving", data={"number": 1})
claim.verify()
say("look")
hear()
claim.release()
ownership.acquire(resource).release()
found["changed"], found["closed"], found["locked"] = [], [], []
for descriptor, path in own:
    if (open(path, "rb").read() != content) if reused == "files" else os.listdir(path):
        found["changed"].append(path)
    try:
        if os.fstat(descriptor).st_ino != os.stat(path).st_ino:
            found["closed"].append(path)
    except OSError:
        found["closed"].append(path)
    other = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        found["locked"].append(path)
    os.close(other)
say(found)
"""


@pytest.mark.parametrize("reused", ["files", "folders"])
def test_a_program_that_closes_our_descriptors_keeps_its_files_and_its_claim(tmp_path: Path, reused: str) -> None:
    """Not a byte, lock or entry of what the program opened on the same numbers changes; the owner goes on owning."""
    resource = tmp_path / "resource"
    with Contender() as contender, running(CLOSED, tmp_path, reused) as owner:
        assert owner.hear() == "look"
        refused = contender.do("acquire", resource)
        assert refused["error"] == "AlreadyOwnedError"
        instance = ownership.inspect(resource).record.instance_id
        witness = lock_directory(resource) / f"{instance}.alive"
        eventually(lambda: is_locked(witness), 10)
        assert owner.ask("go on") == "look"
        assert contender.do("acquire", resource)["error"] == "AlreadyOwnedError"
        found = owner.ask("go on")
        assert found == {"held": True, "lost": False, "changed": [], "closed": [], "locked": []}
        assert contender.passes(resource)


@as_root
def test_a_contender_in_another_pid_namespace_is_refused_after_our_descriptors_were_closed(tmp_path: Path) -> None:
    """The witness came free when it was closed; the keeper locks it again."""
    resource = tmp_path / "resource"
    with (
        running(CLOSED, tmp_path, "files") as owner,
        Contender(("unshare", "-pf", "--mount-proc", "--kill-child")) as contender,
    ):
        assert owner.hear() == "look"
        refused = contender.do("acquire", resource)
        assert refused["error"] == "AlreadyOwnedError", refused
        assert owner.ask("go on") == "look"
        assert owner.ask("go on")["changed"] == []
        assert contender.passes(resource)


@pytest.mark.parametrize("reused", ["nothing", "files", "folders"])
def test_descriptors_closed_between_any_two_calls_do_not_break_the_next(tmp_path: Path, reused: str) -> None:
    """Before the keeper has had a tick: the call that meets the closed descriptor opens it again itself."""
    (tmp_path / "own").mkdir()
    body = """
    resource, own, reused = sys.argv[1:]
    def closed():
        os.closerange(3, 256)
        for number in range(30):
            if reused == "folders":
                os.open(own, os.O_RDONLY)
            elif reused == "files":
                os.open(resource + "-own", os.O_RDWR | os.O_CREAT)
    found = []
    for number in range(30):
        try:
            claim = ownership.acquire(resource, also=[resource + "-2"])
            if number & 1: closed()
            claim.verify()
            if number & 2: closed()
            claim.announce("serving")
            if number & 4: closed()
            ownership.inspect(resource)
            if number & 8: closed()
            claim.release()
            if number & 16: closed()
        except Exception as error:
            found.append([number, repr(error)])
            claim.release()
    say([found, sorted(os.listdir(os.path.dirname(resource) + "/.leases"))])
    """
    found, left = run(body, tmp_path / "resource", tmp_path / "own", reused)
    assert not list((tmp_path / "own").iterdir())
    assert reused != "files" or (tmp_path / "resource-own").read_bytes() == b""
    assert found == []
    assert [name for name in left if name.endswith((".json", ".new"))] == []


def test_a_full_descriptor_table_is_a_typed_error_and_nothing_is_lost(tmp_path: Path) -> None:
    body = """
    resource = sys.argv[1]
    import resource as limits
    claim = ownership.acquire(resource + "-held")
    low = max(map(int, os.listdir("/proc/self/fd"))) + 1
    limits.setrlimit(limits.RLIMIT_NOFILE, (low + 20, limits.getrlimit(limits.RLIMIT_NOFILE)[1]))
    taken = []
    found = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    for free in range(12):
        try:
            ownership.acquire(resource).release()
            found.append("done")
        except Exception as error:
            known = isinstance(error, ownership.OwnershipError) or bool(getattr(error, "filename", None))
            found.append(type(error).__name__ if known else repr(error))
        for number in taken[:1]:
            os.close(number)
        del taken[:1]
    for number in taken:
        os.close(number)
    claim.verify()
    ownership.acquire(resource).release()
    say([found, claim.held])
    """
    found, held = run(body, tmp_path / "resource")
    assert held
    assert found[-1] == "done"
    assert set(found) <= {"done", "OSError", "UnsafeDirectoryError", "AlreadyOwnedError", "GuardTimeoutError"}, found
    assert not residue(tmp_path / "resource") - {"resource-held.json"}


def test_a_keeper_that_cannot_be_started_fails_the_acquire_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    body = """
    resource = sys.argv[1]
    original = threading.Thread.start
    def refuse(self):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refuse
    first = attempt(ownership.acquire, resource)
    left = sorted(os.listdir(os.path.dirname(resource) + "/.leases"))
    threading.Thread.start = original
    second = attempt(lambda: ownership.acquire(resource).release())
    say([first, left, second])
    """
    first, left, second = run(body, tmp_path / "resource")
    assert isinstance(first, str)
    assert [name for name in left if name.endswith((".json", ".new"))] == []
    assert second is None


def test_the_inner_lock_serves_threads_while_another_process_sits_in_the_guard(resource: Path, holder: Child) -> None:
    """Four threads time out on a guard that is held elsewhere; none is stuck behind another, and all recover."""
    outcomes: list[str] = []

    def contend() -> None:
        try:
            ownership.acquire(resource).release()
            outcomes.append("done")
        except ownership.GuardTimeoutError as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == ["GuardTimeoutError"] * 4
    holder.ask("unlock")
    contend()
    assert outcomes[-1] == "done"
