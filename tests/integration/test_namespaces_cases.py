"""Owners and contenders that do not see each other's pids, hosts, clocks, boots or ``/proc``."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, Verdict
from tests.support.namespaces import (
    NEW_PIDS,
    NOBODY,
    die_owning,
    elsewhere,
    needs_linux_root,
    owner,
    run,
    running,
    taken,
)
from tests.support.records import OTHER_INSTANCE, file_of, me, names, plant, record, snapshot

pytestmark = needs_linux_root

OWN = """
    claim = ownership.acquire(sys.argv[1])
    say([os.getpid(), claim.record.pid_namespace, claim.record.boot_id, claim.token, claim.record.start_id])
    hear()
    claim.verify()
    say(claim.held)
    hear()
    claim.release()
    """
CONTEND = "say([attempt(ownership.acquire, sys.argv[1]), ownership.inspect(sys.argv[1]).verdict])"
MASKED = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"')
NO_PROC = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
OTHER_HOST = ("unshare", "-u", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh")
OTHER_CLOCK = ("unshare", "-T", "--boottime", "1000000", "--monotonic", "1000000", "--fork", "--kill-child")
HIDDEN = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")
BECOME_NOBODY = f"""
        import ctypes, importlib.metadata  # while they may still be read
        os.setgroups([])
        os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
        os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
        """
OUTER_PROC = ("unshare", "-pf", "--kill-child")
OTHER_USERS = ("unshare", "-Ur", "-pf", "--mount-proc", "--kill-child")


def masked(tmp_path: Path) -> tuple[str, ...]:
    """A container runtime that shows another boot id."""
    path = tmp_path / "boot_id"
    path.write_text("11111111-2222-4333-8444-555555555555\n")
    return (*MASKED, str(path))


def prefix_of(name: str, tmp_path: Path) -> tuple[str, ...]:
    return {
        "another pid namespace": NEW_PIDS,
        "no /proc": NO_PROC,
        "another boot id": masked(tmp_path),
        "another host name": OTHER_HOST,
        "another time namespace": OTHER_CLOCK,
        "the /proc of the outer pid namespace": OUTER_PROC,
        "another user namespace": OTHER_USERS,
    }[name]


PLACES = [
    "another pid namespace",
    "no /proc",
    "another boot id",
    "another host name",
    "another time namespace",
    "the /proc of the outer pid namespace",
    "another user namespace",
]
SAME_PIDS = {"another host name", "another time namespace"}


@pytest.mark.parametrize("place", PLACES)
def test_a_contender_elsewhere_is_refused_while_the_owner_lives_and_takes_over_after_it(
    tmp_path: Path, place: str
) -> None:
    """K20, K21: owner here, contender there; without a witness only those who see the pid can tell."""
    prefix = prefix_of(place, tmp_path)
    body = """
        first = [attempt(ownership.acquire, sys.argv[1]), ownership.inspect(sys.argv[1]).verdict]
        say(first)
        hear()
        say([attempt(ownership.acquire, sys.argv[1] + name) for name in ("", ".bare")])
        """
    with owner(tmp_path / "x") as child:
        die_owning(tmp_path / "x.bare")
        for witness in (tmp_path / ".leases").glob("*.alive"):
            if witness.stem == instance_of(tmp_path / "x.bare"):
                witness.unlink()
        with running(body, tmp_path / "x", prefix=prefix) as contender:
            refused, seen = contender.said()
            assert (refused["error"], refused["verdict"], seen) == ("AlreadyOwnedError", "live", "live")
            assert str(child.pid) in refused["message"]
            if place == "another pid namespace":
                assert str(me().pid_namespace) in refused["reason"]
            child.kill()
            contender.tell()
            after, bare = contender.said()
    assert after["error"] is None
    assert after["token"] > child.said
    if place in SAME_PIDS:
        assert bare["error"] is None
    else:
        assert (bare["error"], bare["verdict"]) == ("AlreadyOwnedError", "unknown")
        assert "witness" in bare["reason"]
        assert "leasectl break" in bare["hint"]


def instance_of(path: Path) -> str:
    found = ownership.inspect(path).record
    assert found is not None
    return found.instance_id


@pytest.mark.parametrize("place", PLACES)
def test_an_owner_elsewhere_is_live_until_it_ends_and_then_gone(tmp_path: Path, place: str) -> None:
    """The reverse: owner there, where its small pid is some other process here; then its whole world ends."""
    with running(OWN, tmp_path / "x", prefix=prefix_of(place, tmp_path)) as process:
        pid, namespace, boot, token, _ = process.said()
        error = taken(tmp_path / "x")
        assert isinstance(error, AlreadyOwnedError)
        assert error.verdict is Verdict.LIVE
        if place == "another pid namespace":
            assert pid == 1
            assert str(namespace) in error.reason
        if place == "no /proc":
            assert (namespace, boot) == (None, None)
        assert isinstance(taken(tmp_path / "x", timeout=0.3), ownership.AcquireTimeoutError)
        process.tell()
        assert process.said() is True
        process.end()
        assert taken(tmp_path / "x", timeout=10.0) > token


def test_an_owner_elsewhere_that_releases_is_noticed_at_once(tmp_path: Path) -> None:
    with running(OWN, tmp_path / "x", prefix=NEW_PIDS) as process:
        token = process.said()[3]
        process.tell()
        assert process.said() is True
        process.tell()
        assert taken(tmp_path / "x", timeout=10.0) > token


def test_a_stopped_owner_elsewhere_is_live(tmp_path: Path) -> None:
    with running(OWN, tmp_path / "x", prefix=("unshare", "-p", "--fork", "--mount-proc", "--kill-child")) as process:
        process.said()
        [inside] = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(inside, signal.SIGSTOP)
        assert isinstance(taken(tmp_path / "x"), AlreadyOwnedError)
        os.kill(inside, signal.SIGCONT)


def test_hidden_processes_are_told_apart_by_their_pidfd(open_directory: Path) -> None:
    """hidepid=2: the contender sees nothing of the owner in /proc, and judges rightly all the same."""
    registry = open_directory / "registry"
    registry.mkdir()
    registry.chmod(0o777 & ~0o002)
    os.chown(registry, 0, NOBODY)
    body = f"""{BECOME_NOBODY}
        hidden = not os.path.exists("/proc/1")
        def look():
            return ownership.inspect("/data/x", registry={str(registry)!r}).verdict
        say([hidden, look()])
        hear()
        say(look())
        """
    with owner("/data/x", registry=registry) as child, running(body, prefix=HIDDEN) as contender:
        assert contender.said() == [True, "live"]
        child.kill()
        contender.tell()
        assert contender.said() == "gone"


# records of processes that never were here (K22)


def test_the_pid_of_a_foreign_record_is_nobodys_here(tmp_path: Path) -> None:
    """Pid 1 of an ended namespace: our own pid 1 is not asked, and not signalled."""
    ended = run("say(os.stat('/proc/self/ns/pid').st_ino)", prefix=NEW_PIDS)
    plant(tmp_path / "x", record(1, pid_namespace=ended, start_id=me().start_id, device=os.stat(tmp_path).st_dev))
    error = taken(tmp_path / "x")
    assert isinstance(error, AlreadyOwnedError)
    assert error.verdict is Verdict.UNKNOWN
    assert str(ended) in error.reason
    assert f"leasectl break {tmp_path / 'x'} --token 1000" in error.hint
    assert ownership.find(tmp_path / "x") is None
    with pytest.raises(AlreadyOwnedError):
        ownership.reclaim(tmp_path / "x")
    (tmp_path / ".leases" / f"{OTHER_INSTANCE}.alive").touch()
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.GONE
    assert isinstance(taken(tmp_path / "x"), int)


@pytest.mark.parametrize(
    "changes",
    [
        {"boot_id": "11111111-2222-4333-8444-555555555555"},
        {"boot_id": None},
        {"pid_namespace": None},
        {"pid_namespace": "none"},
        {"boot_id": None, "pid_namespace": None},
        {"boot_id": ""},
    ],
    ids=str,
)
def test_a_record_from_nowhere_is_not_believed_to_be_dead_without_a_witness(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """A different boot id alone proves nothing: it may be masked. (And no process here has its pid.)"""
    plant(tmp_path / "x", record(2**22 + 5, **changes))
    error = taken(tmp_path / "x")
    assert isinstance(error, AlreadyOwnedError)
    assert error.verdict is Verdict.UNKNOWN
    (tmp_path / ".leases" / f"{OTHER_INSTANCE}.alive").touch()
    assert isinstance(taken(tmp_path / "x"), int)


def test_a_record_of_this_place_needs_no_witness(tmp_path: Path) -> None:
    plant(tmp_path / "x", record(2**22 + 5))
    assert isinstance(taken(tmp_path / "x"), int)


# a filesystem that is not known to be local (K76)


def test_on_an_unknown_filesystem_the_same_kernel_and_device_are_enough(tmp_path: Path) -> None:
    body = f"""
        from ownership import _system
        _system._LOCAL_TYPES = frozenset()
        say([attempt(ownership.acquire, {str(tmp_path)!r} + name) for name in ("/x", "/other-boot", "/other-device")])
        """
    with running(OWN, tmp_path / "x", prefix=NEW_PIDS) as process:
        token = process.said()[3]
        process.end()
    for name, changes in {
        "other-boot": {"boot_id": "11111111-2222-4333-8444-555555555555"},
        "other-device": {"device": os.stat(tmp_path).st_dev + 1, "pid_namespace": 1},
    }.items():
        plant(tmp_path / name, record(1, instance_id=f"{name:0<32}", **changes))
        (tmp_path / ".leases" / f"{name:0<32}.alive").touch()
    first, *others = run(body, prefix=NEW_PIDS)
    assert first["error"] is None
    assert first["token"] > token
    for one in others:
        assert (one["error"], one["verdict"]) == ("AlreadyOwnedError", "unknown")
        assert "not known to be local" in one["reason"]
    assert isinstance(taken(tmp_path / "other-boot"), int)  # here the list is whole


def test_the_filesystems_of_this_machine_are_known(tmp_path: Path) -> None:
    body = """
        from ownership._system import is_local
        def known(path):
            descriptor = os.open(path, os.O_RDONLY)
            return is_local(descriptor, path)
        mounts = sys.argv[1]
        subprocess.run(["mount", "-t", "tmpfs", "none", mounts], check=True)
        say([known(sys.argv[2]), known(mounts), known("/proc"), known("/sys")])
        """
    mounts = tmp_path / "mounts"
    mounts.mkdir()
    assert run(body, mounts, tmp_path, prefix=("unshare", "-m")) == [True, True, False, False]


# one lock directory under two names


def test_a_directory_mounted_twice_has_one_owner(tmp_path: Path) -> None:
    """K02: the second handle of one process is refused, by whichever path it comes."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    body = """
        a, b = sys.argv[1] + "/a", sys.argv[1] + "/b"
        subprocess.run(["mount", "--bind", a, b], check=True)
        claim = ownership.acquire(a + "/x")
        refused = attempt(ownership.acquire, b + "/x")
        seen = ownership.inspect(b + "/x").verdict
        claim.verify()
        claim.release()
        say([refused, seen, attempt(ownership.acquire, b + "/x"), attempt(ownership.acquire, a + "/x")])
        """
    refused, seen, after, again = run(body, tmp_path, prefix=("unshare", "-m"))
    assert (refused["error"], refused["verdict"], seen) == ("AlreadyOwnedError", "live", "live")
    assert (after["error"], again["error"]) == (None, None)


# looking from everywhere changes nothing (K70)


def test_looking_from_anywhere_leaves_every_byte(open_directory: Path) -> None:
    folder = open_directory / "records"
    folder.mkdir()
    body = """
        seen = {}
        for _ in range(2):
            for name in sys.argv[2:]:
                for function in (ownership.inspect, ownership.find):
                    try:
                        found = function(sys.argv[1] + "/" + name)
                        seen[name] = str(getattr(found, "verdict", found))
                    except (OSError, ownership.OwnershipError) as error:
                        seen[name] = type(error).__name__
            try:
                list(ownership.inspect_all(sys.argv[1]))
                ownership.running(sys.argv[1])
            except OSError:
                pass
        say(seen)
        """
    with owner(folder / "live"):
        die_owning(folder / "dead")
        plant(folder / "malformed", b"{")
        plant(folder / "foreign", record(1, pid_namespace=1))
        plant(folder / "reused", record(1, start_id=me().start_id))
        looked = names(folder / ".leases")
        before = snapshot(folder)
        for prefix in ((), NEW_PIDS, NO_PROC, HIDDEN):
            become = BECOME_NOBODY if prefix is HIDDEN else ""
            run(become + body, folder, "live", "dead", "malformed", "foreign", "reused", "free", prefix=prefix)
            assert snapshot(folder) == before
        assert elsewhere(lambda: type(taken(folder / "live")).__name__, uid=NOBODY) == "PermissionError"
        assert names(folder / ".leases") == looked
        assert file_of(folder / "live").exists()
