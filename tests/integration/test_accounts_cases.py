"""Several accounts: who may share what, and what one ``sudo`` run leaves behind."""

from __future__ import annotations

import contextlib
import grp
import os
import signal
import stat
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import leases
import ownership
from ownership import AlreadyOwnedError, OwnerRef, UnsafeDirectoryError, Verdict
from ownership._confirmations import Confirmations
from ownership._process import system_processes
from ownership._sentry import Sentry
from ownership.testing import FakeClock
from tests.support.namespaces import NOBODY, die_owning, elsewhere, needs_linux_root, owner, run, taken
from tests.support.records import file_of, names, plant, record, snapshot

pytestmark = needs_linux_root
OTHER = 65533


@pytest.fixture
def home(open_directory: Path) -> Path:
    """A directory of uid 65534."""
    path = open_directory / "home"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    return path


@pytest.fixture
def registry(open_directory: Path) -> Path:
    path = open_directory / "registry"
    path.mkdir()
    path.chmod(0o755)
    return path


def owners(directory: Path) -> set[int]:
    return {path.lstat().st_uid for path in [directory, *directory.rglob("*")]}


def as_nobody(path: Path, **kwargs: Any) -> Any:
    return elsewhere(lambda: taken(path, **kwargs), uid=NOBODY)


# another account's process (K14, K15)


def test_another_accounts_owner_is_live_and_untouched(registry: Path) -> None:
    """Signal 0 says EPERM, which means that it exists."""
    with ownership.acquire("/data/x", registry=registry):
        before = snapshot(registry)
        error = as_nobody(Path("/data/x"), registry=registry)
        assert isinstance(error, AlreadyOwnedError)
        assert error.verdict is Verdict.LIVE
        assert error.record is not None
        assert error.record.pid == os.getpid()
        found = elsewhere(lambda: ownership.inspect("/data/x", registry=registry).verdict, uid=NOBODY)
        assert found is Verdict.LIVE
        assert snapshot(registry) == before


def test_a_reader_waits_its_timeout_out_for_a_live_owner(registry: Path) -> None:
    with ownership.acquire("/data/x", registry=registry):
        started = time.monotonic()
        error = as_nobody(Path("/data/x"), registry=registry, timeout=0.4)
        assert isinstance(error, ownership.AcquireTimeoutError)
        assert 0.4 <= time.monotonic() - started < 5


def test_a_reader_who_may_not_read_the_guard_waits_without_spinning(registry: Path) -> None:
    def cpu() -> float:
        before = time.process_time()
        error = taken("/data/x", registry=registry, timeout=1.0)
        assert isinstance(error, AlreadyOwnedError)
        return time.process_time() - before

    with ownership.acquire("/data/x", registry=registry):
        file_of("/data/x", "guard", registry).chmod(0o600)
        assert elsewhere(cpu, uid=NOBODY) < 0.1


@pytest.mark.parametrize("content", [None, b"{"], ids=["missing", "malformed"])
@pytest.mark.parametrize("look", [ownership.inspect, ownership.find, ownership.wait], ids=["inspect", "find", "wait"])
def test_a_guard_that_cannot_be_read_does_not_make_a_resource_free(
    registry: Path, look: Callable[..., Any], content: bytes | None
) -> None:
    """Without a record that says who owns, only the guard knows."""
    with ownership.acquire("/data/x", registry=registry) as claim:
        file_of("/data/x", "guard", registry).chmod(0o600)
        assert elsewhere(lambda: ownership.inspect("/data/x", registry=registry).token, uid=NOBODY) == claim.token
    if content is not None:
        plant("/data/x", content, registry)
        file_of("/data/x", registry=registry).chmod(0o644)
    error = elsewhere(lambda: look("/data/x", registry=registry), uid=NOBODY)
    assert isinstance(error, PermissionError)
    assert error.filename == str(file_of("/data/x", "guard", registry))
    assert error.hint  # type: ignore[attr-defined]
    if content is not None:
        [(found, removed)] = elsewhere(lambda: list(ownership.reclaim_all(registry, registry=True)), uid=NOBODY)
        assert (found.verdict, removed) == (Verdict.UNKNOWN, False)
        assert isinstance(found.error, PermissionError)


@pytest.mark.parametrize("state", ["free", "dead"])
def test_who_can_only_read_a_registry_is_refused_by_permission(registry: Path, state: str) -> None:
    """Nobody owns, or somebody dead: it is the permission that is missing, and no wait brings it."""
    if state == "dead":
        die_owning("/data/x", registry=registry)
    started = time.monotonic()
    before = snapshot(registry)
    error = as_nobody(Path("/data/x"), registry=registry, timeout=20.0)
    assert isinstance(error, PermissionError)
    assert not isinstance(error, ownership.ContentionError)
    assert error.hint  # type: ignore[attr-defined]
    assert str(registry) in str(error.filename)
    assert time.monotonic() - started < 5
    assert snapshot(registry) == before


@pytest.mark.parametrize("mode", [0o775, 0o770])
def test_whoever_is_not_in_the_group_of_a_registry_is_told_to_join_it(registry: Path, mode: int) -> None:
    with ownership.acquire("/data/x", registry=registry):
        pass
    registry.chmod(mode)
    os.chown(registry, 0, 1)
    group = grp.getgrgid(1).gr_name
    calls: list[Callable[[], Any]] = [lambda: taken("/data/x", registry=registry)]
    if mode == 0o770:
        calls.append(lambda: ownership.inspect("/data/x", registry=registry))
    for call in calls:
        for uid, join in ((NOBODY, f"usermod -aG {group} nobody"), (OTHER, f"be a member of group {group}")):
            error = elsewhere(call, uid=uid)
            assert isinstance(error, PermissionError)
            assert join in error.hint  # type: ignore[attr-defined]
            assert "chown" not in error.hint  # type: ignore[attr-defined]
            assert "lsattr" not in error.hint  # type: ignore[attr-defined]


def test_a_file_of_a_registry_that_is_not_its_groups_is_given_back_to_the_group(registry: Path) -> None:
    with ownership.acquire("/data/x", registry=registry):
        pass
    registry.chmod(0o775)
    os.chown(registry, 0, NOBODY)
    guard = file_of("/data/x", "guard", registry)
    guard.chmod(0o600)
    error = as_nobody(Path("/data/x"), registry=registry)
    assert isinstance(error, PermissionError)
    remedy = f"chgrp --reference={registry} {guard} && chmod g+rw {guard}"
    assert error.hint.endswith(remedy)  # type: ignore[attr-defined]
    subprocess.run(["sh", "-c", remedy], check=True)
    assert isinstance(as_nobody(Path("/data/x"), registry=registry), int)


@pytest.mark.parametrize(
    "look", [ownership.inspect, ownership.find, ownership.wait, ownership.reclaim], ids=lambda one: one.__name__
)
def test_who_merely_looks_at_what_is_roots_is_not_told_to_take_it(
    open_directory: Path, look: Callable[..., Any]
) -> None:
    assert isinstance(taken(open_directory / "x"), int)
    error = elsewhere(lambda: look(open_directory / "x"), uid=NOBODY)
    assert isinstance(error, PermissionError)
    assert error.hint == "run it as root (its owner), or share a registry between the accounts"  # type: ignore[attr-defined]


def test_neither_is_who_reclaims_what_is_in_a_directory_of_roots(open_directory: Path) -> None:
    assert isinstance(taken(open_directory / "x"), int)
    [(found, removed)] = elsewhere(lambda: list(ownership.reclaim_all(open_directory)), uid=NOBODY)
    assert not removed
    assert found.error.hint == "run it as root (its owner), or share a registry between the accounts"


def test_a_directory_that_can_be_listed_but_not_searched_is_not_one_without_owners(home: Path) -> None:
    def look() -> Any:
        with ownership.acquire(home / "x"):
            home.chmod(0o400)
            try:
                found = [*ownership.inspect_all(home), *(one for one, _ in ownership.reclaim_all(home))]
                return [(type(one.error), one.verdict) for one in found]
            finally:
                home.chmod(0o700)

    assert elsewhere(look, uid=NOBODY) == [(PermissionError, Verdict.UNKNOWN)] * 2


def test_a_reused_pid_of_root_does_not_pin_a_users_record(home: Path) -> None:
    """K15: pid 1 cannot be signalled, but its start id can be compared."""
    plant(home / "x", record(1, start_id="linux:4cf94a06-0000-4000-8000-000000000000:1:1:1"))
    foreign = record(1)
    foreign["start_id"] = ":".join([*foreign["start_id"].split(":")[:-1], "1"])
    plant(home / "x", foreign)
    os.chown(home / ".leases", NOBODY, NOBODY)
    os.chown(file_of(home / "x"), NOBODY, NOBODY)
    assert elsewhere(lambda: ownership.inspect(home / "x").verdict, uid=NOBODY) is Verdict.REUSED
    assert isinstance(as_nobody(home / "x"), int)


# a registry shared by a group


def test_members_of_a_group_exclude_each_other_and_reclaim_from_each_other(registry: Path) -> None:
    os.chown(registry, 0, 2000)
    registry.chmod(0o770)
    with owner("/data/x", registry=registry) as root:
        error = elsewhere(lambda: taken("/data/x", registry=registry), uid=NOBODY, gid=2000)
        assert isinstance(error, AlreadyOwnedError)
        root.kill()
        token = elsewhere(lambda: taken("/data/x", registry=registry), uid=NOBODY, gid=2000)
        assert token > root.said
    third = elsewhere(lambda: taken("/data/x", registry=registry), uid=OTHER, gid=2000)
    assert third > token
    assert isinstance(elsewhere(lambda: taken("/data/x", registry=registry), uid=OTHER, gid=OTHER), PermissionError)
    for path in registry.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == 2000


def test_a_dead_member_leaves_nothing_that_another_could_not_clear(registry: Path) -> None:
    os.chown(registry, 0, 2000)
    registry.chmod(0o770)
    pid = elsewhere(lambda: die_owning("/data/x", registry=registry), uid=NOBODY, gid=2000)
    assert isinstance(pid, int)
    cleared = elsewhere(
        lambda: [removed for _, removed in ownership.reclaim_all(registry, registry=True)], uid=OTHER, gid=2000
    )
    assert cleared == [True]
    assert names(registry) == {"%2Fdata%2Fx.guard"}


# sticky and open directories (K35)


def test_in_a_sticky_directory_each_account_has_its_own_lock_directory(open_directory: Path) -> None:
    open_directory.chmod(0o1777)
    with ownership.acquire(open_directory / "x"):
        assert isinstance(as_nobody(open_directory / "x"), int)
        assert names(open_directory) == {".leases-0", f".leases-{NOBODY}"}
    for path in open_directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def watched(ref: OwnerRef) -> tuple[tuple[str, str] | None, str]:
    """What a fence over *ref* comes to within half a minute, and what it cannot see."""
    clock, processes = FakeClock(wall_ns=time.time_ns()), system_processes()
    sentry = Sentry(ref, 5.0, clock, processes, Confirmations(processes))
    for _ in range(120):
        sentry.look()
        clock.advance(0.25)
    sentry.close()
    return sentry.loss, str(sentry.last_error)


@pytest.mark.parametrize("owns", [False, True], ids=["it owns nothing", "it owns another thing of that name"])
def test_a_worker_of_another_account_watches_its_owner_and_nobody_else(open_directory: Path, owns: bool) -> None:
    """What its own account has in the sticky directory, or has not, says nothing about its owner."""
    path = open_directory / "x"

    def work() -> Any:
        for _ in range(3 if owns else 0):
            taken(path)
        mine = ownership.acquire(path) if owns else None
        found = watched(ref)
        if mine is not None:
            mine.release()
        return found

    open_directory.chmod(0o1777)
    with owner(path) as child:
        found = ownership.find(path)
        assert found is not None
        ref = found.ref
        assert watched(OwnerRef.from_env(ref.to_env())) == (None, "None")
        loss, error = elsewhere(work, uid=NOBODY)
        assert loss is None
        assert "Permission denied" in error
        child.kill()
        loss, _ = elsewhere(work, uid=NOBODY)
        assert loss is not None
        assert loss[0] == "owner-gone"


def test_a_lock_directory_planted_in_a_sticky_directory_is_passed_over(open_directory: Path) -> None:
    """An account cannot lock another out, nor draw its records to itself, by making ``.leases`` first."""
    open_directory.chmod(0o1777)
    elsewhere(lambda: (open_directory / ".leases").mkdir(), uid=NOBODY)
    elsewhere(lambda: (open_directory / ".leases").chmod(0o777), uid=NOBODY)
    assert isinstance(elsewhere(lambda: taken(open_directory / "x"), uid=OTHER), int)
    assert isinstance(taken(open_directory / "x"), int)
    assert list((open_directory / ".leases").iterdir()) == []


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_a_lock_directory_of_our_name_planted_by_another_is_told(open_directory: Path, kind: str) -> None:
    open_directory.chmod(0o1777)
    path = open_directory / f".leases-{NOBODY}"

    def plant_it() -> None:
        match kind:
            case "directory":
                path.mkdir()
            case "file":
                path.touch()
            case "link":
                path.symlink_to("/etc")

    elsewhere(plant_it, uid=OTHER)
    started = time.monotonic()
    error = as_nobody(open_directory / "x", timeout=20.0)
    assert isinstance(error, PermissionError)
    assert str(path) in str(error)
    assert error.hint  # type: ignore[attr-defined]
    assert time.monotonic() - started < 5
    if kind == "directory":
        assert str(OTHER) in str(error)
        assert f"chown -R {NOBODY} {path}" in error.hint  # type: ignore[attr-defined]


@contextlib.contextmanager
def protected_files(level: str) -> Iterator[None]:
    path = Path("/proc/sys/fs/protected_regular")
    before = path.read_text()
    path.write_text(level)
    try:
        yield
    finally:
        path.write_text(before)


@pytest.mark.parametrize("level", ["1", "2"])
def test_the_kernels_protection_of_files_in_sticky_directories_is_in_nobodys_way(
    open_directory: Path, level: str
) -> None:
    open_directory.chmod(0o1777)
    with protected_files(level):
        for uid in (NOBODY, 0, NOBODY, OTHER, 0):
            assert isinstance(elsewhere(lambda: taken(open_directory / "x"), uid=uid), int)


def test_an_open_directory_without_the_sticky_bit_is_refused_for_everybody(open_directory: Path) -> None:
    open_directory.chmod(0o777)
    for uid in (0, NOBODY):
        error = elsewhere(lambda: taken(open_directory / "x", timeout=20.0), uid=uid)
        assert isinstance(error, UnsafeDirectoryError)
        assert error.hint == f"chmod o-w {open_directory}"
    assert names(open_directory) == set()


def test_a_directory_of_another_account_is_refused_with_its_name(open_directory: Path) -> None:
    """Root was there first, in its own directory: no wait, no guess."""
    taken(open_directory / "x")
    started = time.monotonic()
    error = as_nobody(open_directory / "x", timeout=20.0)
    assert isinstance(error, PermissionError)
    assert "uid 0" in str(error)
    assert f"chown -R {NOBODY} {open_directory / '.leases'}" in error.hint  # type: ignore[attr-defined]
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("mode", [0o700, 0o600, 0o400])
def test_a_directory_that_may_not_be_searched_is_told(open_directory: Path, mode: int) -> None:
    (open_directory / "closed").mkdir()
    (open_directory / "closed").chmod(mode)
    error = as_nobody(open_directory / "closed" / "x", timeout=20.0)
    assert isinstance(error, PermissionError)
    assert str(open_directory / "closed") in str(error)
    assert error.hint  # type: ignore[attr-defined]


# one sudo run (K75)


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o000, 0o777])
def test_root_gives_what_it_makes_to_the_account_whose_directory_it_is(home: Path, umask: int) -> None:
    elsewhere(lambda: taken(home / "x"), umask=umask)
    assert owners(home) == {NOBODY}
    assert stat.S_IMODE((home / ".leases").stat().st_mode) == 0o700
    token = as_nobody(home / "x")
    assert isinstance(token, int)
    assert as_nobody(home / "y") > 0
    assert isinstance(taken(home / "x"), int)
    assert isinstance(as_nobody(home / "x"), int)


def _append(path: Path, line: str) -> list[str]:
    """Append to the session and to the roster beside it; the lines of the session."""
    with leases.acquire(path, ttl=30, timeout=20) as lease:
        leases.append_line(lease, line)
    leases.Roster(path.with_suffix(".jobs")).start(line).finish()
    return [one.decode() for one in leases.read_lines(path)]


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o777])
def test_root_that_keeps_a_session_for_an_account_does_not_lock_it_out(home: Path, umask: int) -> None:
    assert elsewhere(lambda: _append(home / "session", "root"), umask=umask) == ["root"]
    assert owners(home) == {NOBODY}
    assert stat.S_IMODE((home / "session").stat().st_mode) == 0o600
    assert (home / "session").stat().st_gid == home.stat().st_gid
    assert elsewhere(lambda: _append(home / "session", "account"), uid=NOBODY) == ["root", "account"]
    assert elsewhere(lambda: _append(home / "session", "root again")) == ["root", "account", "root again"]
    assert owners(home) == {NOBODY}


def test_a_session_that_was_roots_stays_roots(home: Path) -> None:
    (home / "session").touch(0o600)
    _append(home / "session", "root")
    assert (home / "session").stat().st_uid == 0


def test_in_a_sticky_directory_a_session_is_whose_it_is(home: Path) -> None:
    home.chmod(0o1777)
    _append(home / "session", "root")
    assert (home / "session").stat().st_uid == 0


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o577, 0o777])
def test_an_account_with_an_odd_umask_can_use_what_it_made(home: Path, umask: int) -> None:
    for _ in range(2):
        assert isinstance(elsewhere(lambda: taken(home / "x"), uid=NOBODY, umask=umask), int)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home / ".leases").iterdir()}
    modes.pop(".gitignore", None)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((home / ".leases").stat().st_mode) == 0o700


def test_root_and_the_account_exclude_each_other(home: Path) -> None:
    with owner(home / "x") as root:
        error = as_nobody(home / "x")
        assert isinstance(error, AlreadyOwnedError)
        assert error.verdict is Verdict.LIVE
        root.kill()
        assert as_nobody(home / "x") > root.said
    with owner(home / "x", uid=NOBODY):
        assert isinstance(taken(home / "x"), AlreadyOwnedError)


def test_root_that_is_killed_while_it_owns_locks_nobody_out(home: Path) -> None:
    die_owning(home / "x")
    assert owners(home) == {NOBODY}
    assert isinstance(as_nobody(home / "x"), int)


def _acquire_and_die(path: Path, call: int, *, before: bool) -> int:
    """Acquire as root in a child that is killed right before or after the *call*-th call that makes something.

    :returns: how many such calls there were, if it was not reached
    """
    count = 0

    def dying(function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == call and before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            if count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped

    def work() -> int:
        for name in ("mkdir", "open", "link", "rename", "fchown", "chown", "fchmod", "chmod", "write", "pwrite"):
            setattr(os, name, dying(getattr(os, name)))
        claim = ownership.acquire(path)
        found = count
        os._exit(0) if call else claim.release()
        return found

    try:
        return int(elsewhere(work))
    except EOFError:
        return -1


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_root_that_is_killed_at_any_point_locks_nobody_out(open_directory: Path, before: bool) -> None:
    """The account can use what is left; or it is told the exact command, and root's next run repairs it."""

    def home_of_nobody(name: object) -> Path:
        folder = open_directory / str(name)
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        return folder

    calls = _acquire_and_die(home_of_nobody("counted") / "x", 0, before=before)
    assert 8 <= calls < 100
    for call in range(1, calls + 1):
        folder = home_of_nobody(call)
        assert _acquire_and_die(folder / "x", call, before=before) == -1
        outcome = as_nobody(folder / "x")
        if isinstance(outcome, int):
            continue
        assert isinstance(outcome, PermissionError), (call, outcome)
        hint = outcome.hint  # type: ignore[attr-defined]
        assert f"chown -R {NOBODY} {folder / '.leases'}" in hint or f"chown {NOBODY} {outcome.filename}" in hint, call
        assert isinstance(taken(folder / "x"), int)
        assert isinstance(as_nobody(folder / "x"), int), call


def test_a_directory_that_root_made_with_an_older_tool_says_how_to_give_it_back(home: Path) -> None:
    old = home / ".leases"
    old.mkdir(mode=0o700)
    (old / "x.guard").touch(mode=0o600)
    error = as_nobody(home / "x")
    assert isinstance(error, PermissionError)
    assert "uid 0" in str(error)
    assert f"chown -R {NOBODY} {old}" in error.hint  # type: ignore[attr-defined]
    subprocess.run(["chown", "-R", str(NOBODY), old], check=True)
    assert isinstance(as_nobody(home / "x"), int)


def test_root_still_works_in_a_directory_that_root_made_with_an_older_tool(home: Path) -> None:
    """And afterwards the account can, or is told the exact command."""
    (home / ".leases").mkdir(mode=0o700)
    assert isinstance(taken(home / "x"), int)
    outcome = as_nobody(home / "x")
    assert isinstance(outcome, int) or f"chown -R {NOBODY} {home / '.leases'}" in outcome.hint


def test_root_gives_nothing_away_that_it_did_not_make(home: Path) -> None:
    """The account may rename what root keeps in its directory; that makes it no lock directory of ours."""
    secret = home / "secret"
    secret.mkdir(mode=0o700)
    (secret / "key").write_text("key")
    elsewhere(lambda: secret.rename(home / ".leases"), uid=NOBODY)
    assert (home / ".leases" / "key").exists()
    for function in (ownership.inspect, ownership.find, taken):
        with contextlib.suppress(OSError, ownership.OwnershipError):
            function(home / "x")
    assert (home / ".leases").stat().st_uid == 0


def test_looking_as_root_gives_nothing_away(home: Path) -> None:
    """Reading never writes, not even an owner."""
    (home / ".leases").mkdir(mode=0o700)
    before = snapshot(home)
    ownership.inspect(home / "x")
    ownership.find(home / "x")
    assert list(ownership.inspect_all(home)) == []
    assert ownership.running(home) == []
    assert ownership.wait(home / "x", timeout=0.0).verdict is Verdict.FREE
    assert snapshot(home) == before


def test_a_link_in_the_place_of_a_lock_directory_is_not_recommended_for_chown(home: Path) -> None:
    """``chown -R`` would follow it."""
    (home.parent / "target").mkdir()
    elsewhere(lambda: (home / ".leases").symlink_to(home.parent / "target"), uid=NOBODY)
    with pytest.raises(UnsafeDirectoryError) as caught:
        ownership.acquire(home / "x")
    assert "chown" not in caught.value.hint
    with pytest.raises(PermissionError) as caught_by_other:
        raise elsewhere(lambda: taken(home / "x"), uid=OTHER)
    assert "chown" not in caught_by_other.value.hint  # type: ignore[attr-defined]


def test_a_live_owner_of_another_account_in_our_own_directory_is_refused(home: Path) -> None:
    """Root owns something in the directory of an account, which then looks."""
    with ownership.acquire(home / "x") as claim:
        seen = elsewhere(lambda: ownership.inspect(home / "x"), uid=NOBODY)
        assert (seen.verdict, seen.record.token) == (Verdict.LIVE, claim.token)
        assert isinstance(as_nobody(home / "x"), AlreadyOwnedError)
        claim.verify()


def test_named_resources_live_in_the_home_of_the_account(open_directory: Path) -> None:
    """Missing folders are made, 0700 whatever the umask, below the home that the account database names."""
    passwd = open_directory / "passwd"
    home = open_directory / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    passwd.write_text(f"root:x:0:0::/root:/bin/sh\nnobody:x:{NOBODY}:{NOBODY}::{home}:/bin/sh\n")
    body = f"""
        subprocess.run(["mount", "--bind", {str(passwd)!r}, "/etc/passwd"], check=True)
        os.setgroups([])
        os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
        os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
        os.umask(0o777)
        os.environ["HOME"] = "/nonexistent"
        path = ownership.named("nightly")
        say([str(path), attempt(ownership.acquire, path), attempt(ownership.acquire, path)])
        """
    path, *results = run(textwrap.dedent(body), prefix=("unshare", "-m"))
    assert path == str(home / ".local" / "state" / "leases" / "nightly")
    assert [one["error"] for one in results] == [None, None], results
    for part in (".local", ".local/state", ".local/state/leases", ".local/state/leases/.leases"):
        assert stat.S_IMODE((home / part).stat().st_mode) == 0o700


def test_an_account_without_a_home_is_told(open_directory: Path) -> None:
    def name_it() -> Any:
        return ownership.named("nightly")

    for uid in (NOBODY, 54321):
        error = elsewhere(name_it, uid=uid)
        assert isinstance(error, ValueError)
        assert str(uid) in str(error)


def test_an_effective_account_is_what_counts(home: Path) -> None:
    """A set-uid program: the real uid is another's."""

    def work() -> Any:
        os.setresuid(0, NOBODY, 0)
        token = taken(home / "x")
        os.setresuid(0, 0, 0)
        return token

    assert isinstance(elsewhere(work), int)
    assert owners(home) == {NOBODY}


def test_signals_are_not_the_way_an_owner_is_looked_at(home: Path) -> None:
    """An owner with every signal blocked or ignored lives all the same."""

    def deaf() -> Any:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        return ownership.inspect(home / "x").verdict

    with owner(home / "x"):
        assert elsewhere(deaf, uid=NOBODY) is Verdict.LIVE
