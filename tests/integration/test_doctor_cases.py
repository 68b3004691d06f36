"""``doctor`` on what really goes wrong: real processes, accounts and namespaces, and remedies that are carried out."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pty
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import Finding, Severity
from ownership._models import GuardState
from ownership._process import system_processes
from ownership.testing import FakeClock, reuse_pid, sleeping_process, wait_until, zombie
from tests.integration.test_cli_reading import HIDDEN, other_accounts_can_run_us, read_to_the_end
from tests.integration.test_process_facts import cgroup, traced
from tests.support.cli import LEASECTL, VERDICTS, environment, leasectl, resource
from tests.support.namespaces import NEW_PIDS, NOBODY, elsewhere, needs_linux_root, owner, run, running, taken
from tests.support.processes import stopped
from tests.support.records import (
    OTHER_INSTANCE,
    fields_of,
    file_of,
    identity,
    plant,
    plant_guard,
    record,
    snapshot,
)

pytestmark = needs_linux_root

OTHER = 65533
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.fixture
def home(open_directory: Path) -> Path:
    """A directory of uid 65534."""
    path = open_directory / "home"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    return path


def found(directory: Path, *, uid: int = 0, registry: bool = False) -> list[Finding]:
    """What *uid* finds, changing nothing."""

    def look() -> list[Finding]:
        return list(ownership.diagnose(directory, registry=registry, clock=FakeClock()))

    before = snapshot(directory)
    findings = look() if uid == 0 else elsewhere(look, uid=uid)
    assert snapshot(directory) == before
    if isinstance(findings, BaseException):
        raise findings
    return list(findings)


def codes(findings: list[Finding]) -> list[str]:
    return [one.code.value for one in findings]


def used(path: Path, uid: int) -> None:
    """*uid* has owned *path* and released it, its process has ended as processes do: nothing but the guard is left."""
    assert isinstance(elsewhere(lambda: taken(path), uid=uid), int)
    for witness in path.parent.glob(".leases*/*.alive"):
        witness.unlink()


def carry_out(remedy: str) -> None:
    """Paste *remedy* into a root shell."""
    subprocess.run(["bash", "-ec", remedy], check=True, timeout=60, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def witnessed(path: Path, **fields: Any) -> Iterator[None]:
    """A record of *fields* whose witness is held."""
    with running("import fcntl; n = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); fcntl.flock(n, 2); say(1); hear()",
                 path.parent / ".leases" / f"{OTHER_INSTANCE}.alive") as other:  # fmt: skip
        plant(path, record(**fields))
        other.said()
        yield


@pytest.fixture
def leases_directory(tmp_path: Path) -> Path:
    (tmp_path / ".leases").mkdir(mode=0o700)
    return tmp_path


# -- owners


def test_a_zombie_is_its_parents_to_reap(tmp_path: Path) -> None:
    with owner(tmp_path / "x") as child:
        child.kill(reap=False)
        (finding,) = found(tmp_path)
        assert (finding.code, finding.severity) == ("zombie", "note")
        assert (finding.evidence["pid"], finding.evidence["parent_pid"]) == (child.pid, os.getpid())
        assert "python" in str(finding.evidence["parent_command"])
        assert finding.evidence["state_source"] == f"/proc/{child.pid}/status: Z (zombie)"
        child.reap()
        assert codes(found(tmp_path)) == ["gone"]


def test_a_number_that_was_reused_shows_what_runs_there(leases_directory: Path) -> None:
    with zombie() as pid:
        gone = fields_of(pid)
    plant(leases_directory / "x", record(**gone))
    with reuse_pid(pid):
        wait_until(lambda: "sys.stdin.read()" in str(system_processes().command_of(pid)))
        (finding,) = found(leases_directory)
    assert finding.code == "reused"
    assert "sys.stdin.read()" in str(finding.evidence["runs_now"])


def test_a_stopped_owner_goes_on_by_the_remedy(tmp_path: Path) -> None:
    with owner(tmp_path / "x") as child:
        with stopped(child.pid):
            (finding,) = found(tmp_path)
            assert (finding.code, finding.severity) == ("stopped", "problem")
            carry_out(finding.remedy)
            wait_until(lambda: not ownership.is_stopped(child.pid))
        assert found(tmp_path) == []


def test_a_traced_owner_names_its_tracer(leases_directory: Path) -> None:
    with sleeping_process() as pid, witnessed(leases_directory / "x", **fields_of(pid)), traced(pid):
        (finding,) = found(leases_directory)
    assert (finding.code, finding.evidence["tracer_pid"]) == ("traced", os.getpid())


def test_a_frozen_owner_is_thawed_by_the_remedy(leases_directory: Path) -> None:
    with cgroup(2) as path, sleeping_process() as pid, witnessed(leases_directory / "x", **fields_of(pid)):
        (path / "cgroup.procs").write_text(str(pid))
        (path / "cgroup.freeze").write_text("1")
        try:
            wait_until(lambda: ownership.is_stopped(pid))
            (finding,) = found(leases_directory)
            assert (finding.code, finding.remedy) == ("frozen", f"echo 0 > {path}/cgroup.freeze")
            carry_out(finding.remedy)
            wait_until(lambda: not ownership.is_stopped(pid))
        finally:
            (path / "cgroup.freeze").write_text("0")
        assert found(leases_directory) == []


def test_an_owner_whose_record_was_deleted_is_found_and_puts_it_back_once_it_goes_on(tmp_path: Path) -> None:
    with owner(tmp_path / "x") as child:
        with stopped(child.pid):
            file_of(tmp_path / "x").unlink()
            (finding,) = found(tmp_path)
            assert (finding.code, finding.severity) == ("record-lost", "problem")
            assert (finding.evidence["pid"], finding.resource) == (child.pid, tmp_path / "x")
            carry_out(finding.remedy)
        wait_until(file_of(tmp_path / "x").exists)
        assert found(tmp_path) == []


def test_an_owner_that_runs_another_program_now_is_dead_for_other_namespaces(tmp_path: Path) -> None:
    body = """
        claim = ownership.acquire(sys.argv[1])
        os.execv(sys.executable, [sys.executable, "-c", "import os, sys; os.write(1, b'1\\\\n'); sys.stdin.read()"])
        """
    with running(body, tmp_path / "x") as child:
        child.said()
        (finding,) = found(tmp_path)
        assert (finding.code, finding.severity) == ("witness-free", "problem")
        assert finding.evidence["pid"] == child.pid


def test_an_owner_in_another_pid_namespace_is_well_until_its_witness_is_lost(tmp_path: Path) -> None:
    body = "claim = ownership.acquire(sys.argv[1]); say(claim.record.instance_id); hear()"
    with running(body, tmp_path / "x", prefix=NEW_PIDS) as child:
        instance_id = child.said()
        assert found(tmp_path) == []
        child.end()
    wait_until(lambda: codes(found(tmp_path)) == ["gone"])
    (tmp_path / ".leases" / f"{instance_id}.alive").unlink()
    (finding,) = found(tmp_path)
    assert (finding.code, finding.severity) == ("foreign-namespace", "problem")
    assert str(os.stat("/proc/self/ns/pid").st_ino) == finding.evidence["our_pid_namespace"]
    assert "--token" in finding.remedy


# -- guards


HOLDER = "import fcntl; n = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(n, 2); say(os.getpid()); hear()"


def test_a_guard_that_is_held_is_found_with_its_holder_and_not_touched(tmp_path: Path) -> None:
    used(tmp_path / "x", 0)
    guard = file_of(tmp_path / "x", "guard")
    with running(HOLDER, guard) as holder:
        holder.said()
        (finding,) = found(tmp_path)
        assert (finding.code, finding.severity) == ("guard-held", "problem")
        assert (finding.evidence["holder_pid"], finding.evidence["holder_state"]) == (holder.pid, "running")
        assert str(finding.evidence["holder_command"]).startswith(sys.executable)
        with stopped(holder.pid):
            (finding,) = found(tmp_path)
            assert finding.remedy == f"kill -CONT {holder.pid}"
    assert found(tmp_path) == []


def test_a_guard_that_a_forked_child_keeps_after_its_holder_ended_is_told_so(tmp_path: Path) -> None:
    used(tmp_path / "x", 0)
    body = """
        import fcntl
        n = os.open(sys.argv[1], os.O_RDWR)
        fcntl.flock(n, 2)
        if os.fork() == 0:
            say([os.getppid(), os.getpid()])
            hear()
        """
    with running(body, file_of(tmp_path / "x", "guard")) as holder:
        first, _ = holder.said()
        holder.process.wait(60)
        (finding,) = found(tmp_path)
        assert (finding.evidence["holder_pid"], finding.evidence["holder_state"]) == (first, "gone")
        assert "fuser -v" in finding.remedy
        holder.tell()


def test_a_guard_that_is_busy_but_moves_on_is_well(tmp_path: Path) -> None:
    """One process that acquires and releases all the time, and is inside at every look."""
    used(tmp_path / "x", 0)
    body = """
        import fcntl
        n = os.open(sys.argv[1], os.O_RDWR)
        while True:
            fcntl.flock(n, fcntl.LOCK_EX)
            os.pwrite(n, os.pread(n, 512, 0), 0)
            say(1)
            hear()
            fcntl.flock(n, fcntl.LOCK_UN)
        """
    with running(body, file_of(tmp_path / "x", "guard")) as busy:
        busy.said()

        class Meanwhile(FakeClock):
            def wait(self, seconds: float, poller: Any = None) -> bool:
                busy.tell()
                busy.said()
                return super().wait(seconds, poller)

        clock = Meanwhile()
        assert list(ownership.diagnose(tmp_path, clock=clock)) == []
        assert clock.waits


# -- directories and accounts


def test_one_sudo_run_of_an_older_tool_is_found_by_both_and_healed_by_the_remedy(home: Path) -> None:
    old = home / ".leases"
    old.mkdir(mode=0o700)
    (old / "x.guard").touch(mode=0o600)
    for uid in (NOBODY, 0, OTHER):
        (finding,) = found(home, uid=uid)
        assert (finding.code, finding.severity) == ("foreign-account-directory", "problem")
        assert finding.unusable
        assert finding.evidence["owner"] == "uid 0 (root)"
        assert finding.remedy == f"chown -R {NOBODY} {old}"
    assert leasectl("doctor", home).returncode == 65
    carry_out(finding.remedy)
    assert found(home, uid=NOBODY) == found(home) == []
    assert isinstance(elsewhere(lambda: taken(home / "x"), uid=NOBODY), int)


def test_a_directory_that_holds_other_things_is_not_given_away(home: Path) -> None:
    """The account may rename what root keeps in its directory; a pasted chown would hand it over."""
    secret = home / "secret"
    secret.mkdir(mode=0o700)
    (secret / "key").touch()
    elsewhere(lambda: secret.rename(home / ".leases"), uid=NOBODY)
    (finding,) = found(home)
    assert finding.code == "foreign-account-directory"
    assert finding.remedy == f"ls -la {home / '.leases'}"


def test_files_of_root_in_the_lock_directory_of_an_account_are_found_and_given_back(home: Path) -> None:
    used(home / "x", NOBODY)
    os.chown(file_of(home / "x", "guard"), 0, 0)
    for uid in (NOBODY, 0):
        finding = found(home, uid=uid)[0]  # for the account itself the guard is unreadable besides
        assert (finding.code, finding.unusable) == ("foreign-account-files", True)
        assert finding.evidence["first"] == ["x.guard"]
    carry_out(finding.remedy)
    assert found(home) == found(home, uid=NOBODY) == []
    assert isinstance(elsewhere(lambda: taken(home / "x"), uid=NOBODY), int)


def test_what_has_another_name_elsewhere_is_not_given_away(home: Path) -> None:
    used(home / "x", NOBODY)
    secret = home.parent / "secret"
    secret.touch(mode=0o600)
    os.link(secret, home / ".leases" / "y.guard")
    (finding,) = [one for one in found(home) if one.code == "foreign-account-files"]
    carry_out(finding.remedy)
    assert secret.stat().st_uid == 0


def test_a_record_that_may_not_be_read_says_nothing_about_its_owner(home: Path) -> None:
    used(home / "x", NOBODY)
    plant(home / "x", record())
    file_of(home / "x").chmod(0o600)
    findings = found(home, uid=NOBODY)
    assert codes(findings) == ["foreign-account-files", "unreadable"]
    assert (findings[1].evidence["errno"], findings[1].evidence["path"]) == ("EACCES", str(file_of(home / "x")))
    assert findings[1].remedy == f"chown {NOBODY} {file_of(home / 'x')}"


@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_guard_that_its_own_account_may_not_open_is_found(home: Path, mode: int) -> None:
    used(home / "x", NOBODY)
    file_of(home / "x", "guard").chmod(mode)
    (finding,) = found(home, uid=NOBODY)
    assert (finding.code, finding.remedy) == ("unreadable", f"chmod u+rw {file_of(home / 'x', 'guard')}")
    carry_out(finding.remedy)
    assert found(home, uid=NOBODY) == []


@pytest.mark.parametrize(
    ("mode", "code"), [(0o000, "unreadable"), (0o300, "unreadable"), (0o500, "unwritable-directory")]
)
def test_a_lock_directory_with_the_wrong_mode_is_found_and_not_repaired(home: Path, mode: int, code: str) -> None:
    used(home / "x", NOBODY)
    (home / ".leases").chmod(mode)
    findings = found(home, uid=NOBODY)
    assert code in codes(findings)
    for finding in findings:
        assert finding.unusable
        carry_out(finding.remedy)
    assert found(home, uid=NOBODY) == []


def test_a_read_only_mount_is_told_once(open_directory: Path) -> None:
    for name in "xyz":
        used(open_directory / name, 0)
    body = """
        path = sys.argv[1]
        subprocess.run(["mount", "--bind", path, path], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)
        say([[one.code, one.resource.name] for one in ownership.diagnose(path)])
        """
    assert run(body, open_directory, prefix=("unshare", "-m")) == [["unwritable-directory", ".leases"]]


def test_an_immutable_guard_is_told(tmp_path: Path) -> None:
    used(tmp_path / "x", 0)
    guard = file_of(tmp_path / "x", "guard")
    if subprocess.run(["chattr", "+i", guard], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no immutable attribute on this filesystem")
    try:
        (finding,) = found(tmp_path)
    finally:
        subprocess.run(["chattr", "-i", guard], check=True)
    assert (finding.code, finding.resource, finding.unusable) == ("unreadable", tmp_path / "x", True)
    assert finding.remedy.startswith(f"lsattr {guard}")


def test_a_directory_in_which_every_account_may_replace_files_is_unsafe(open_directory: Path) -> None:
    open_directory.chmod(0o777)
    for uid in (0, NOBODY):
        (finding,) = found(open_directory, uid=uid)
        assert (finding.code, finding.resource, finding.unusable) == ("unsafe-directory", open_directory, True)
        assert (finding.evidence["mode"], finding.remedy) == ("0777", f"chmod o-w {open_directory}")
    carry_out(finding.remedy)
    assert found(open_directory) == []


def test_a_lock_directory_or_registry_that_others_may_write_in_is_unsafe_and_its_records_are_looked_at(
    open_directory: Path,
) -> None:
    with zombie() as pid:
        gone = fields_of(pid)
    plant(open_directory / "x", record(**gone))
    lock_directory = open_directory / ".leases"
    lock_directory.chmod(0o777)
    findings = found(open_directory)
    assert codes(findings) == ["unsafe-directory", "gone"]
    (registry,) = found(lock_directory, registry=True)
    assert registry.remedy == findings[0].remedy == f"chmod o-w {lock_directory}"
    lock_directory.chmod(0o1755)
    assert found(lock_directory, registry=True)[0].remedy == f"chmod -t {lock_directory}"
    link = open_directory / "link"
    link.symlink_to(lock_directory)
    assert found(link, registry=True)[0].remedy == f"leasectl doctor --registry {lock_directory}"


def test_a_symlink_or_a_file_in_the_place_of_a_lock_directory_is_unsafe(home: Path) -> None:
    (home.parent / "target").mkdir()
    (home / ".leases").symlink_to(home.parent / "target")
    (home / ".leases-12345").touch()
    findings = found(home, uid=NOBODY)
    assert codes(findings) == ["unsafe-directory"] * 2
    assert findings[0].remedy == f"rm -i {home / '.leases'}"
    assert all("chown" not in one.remedy for one in findings)


def test_in_a_sticky_directory_each_account_has_its_own_and_a_wrong_owner_is_found(open_directory: Path) -> None:
    open_directory.chmod(0o1777)
    for uid in (NOBODY, OTHER):
        used(open_directory / "x", uid)
    assert found(open_directory) == []
    (finding,) = found(open_directory, uid=NOBODY)
    assert (finding.code, finding.severity) == ("foreign-account-directory", Severity.NOTE)
    assert finding.resource == open_directory / f".leases-{OTHER}"
    assert not finding.unusable
    os.chown(open_directory / f".leases-{NOBODY}", 0, 0)
    for uid in (0, NOBODY):
        one = next(one for one in found(open_directory, uid=uid) if one.severity is Severity.PROBLEM)
        assert one.remedy == f"chown -R {NOBODY} {open_directory / f'.leases-{NOBODY}'}"


def test_the_directory_of_root_is_roots_and_the_remedy_takes_nothing_from_it(open_directory: Path) -> None:
    taken(open_directory / "x")
    assert found(open_directory) == []
    (finding,) = found(open_directory, uid=NOBODY)
    assert (finding.code, finding.unusable) == ("foreign-account-directory", True)
    assert finding.remedy == f"sudo -u '#0' leasectl doctor {open_directory}"


def test_where_this_account_may_not_make_a_lock_directory_nothing_is_well(open_directory: Path) -> None:
    (finding,) = found(open_directory, uid=NOBODY)
    assert (finding.code, finding.severity, finding.unusable) == ("unwritable-directory", "problem", False)
    assert (finding.resource, finding.evidence["writers"]) == (open_directory, "uid 0 (root)")
    assert "only uid 0 (root) may write here" in finding.advice
    assert finding.remedy == f"sudo -u '#0' leasectl doctor {open_directory}"
    assert isinstance(elsewhere(lambda: taken(open_directory / "x"), uid=NOBODY), PermissionError)
    assert found(open_directory) == []


def test_a_read_only_mount_without_a_lock_directory_is_told(open_directory: Path) -> None:
    body = """
        path = sys.argv[1]
        subprocess.run(["mount", "--bind", path, path], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)
        say([[one.code, one.remedy] for one in ownership.diagnose(path)])
        """
    [[code, remedy]] = run(body, open_directory, prefix=("unshare", "-m"))
    assert (code, remedy.split()[0]) == ("unwritable-directory", "findmnt")


@pytest.mark.parametrize(("mode", "code"), [(0o775, "unwritable-directory"), (0o770, "unreadable")])
def test_whoever_lacks_the_group_of_a_registry_is_told_to_join_it(open_directory: Path, mode: int, code: str) -> None:
    registry = open_directory / "registry"
    registry.mkdir()
    registry.chmod(mode)
    os.chown(registry, 0, 1)
    group, user = grp.getgrgid(1).gr_name, pwd.getpwuid(NOBODY).pw_name
    (finding,) = elsewhere(lambda: list(ownership.diagnose(registry, registry=True)), uid=NOBODY)
    assert (finding.code, finding.severity, finding.unusable) == (code, "problem", True)
    assert finding.evidence["writers"] == f"uid 0 (root) and members of group {group}"
    assert finding.remedy == f"usermod -aG {group} {user}"
    (finding,) = elsewhere(lambda: list(ownership.diagnose(registry, registry=True)), uid=OTHER)
    assert finding.remedy == f"be a member of group {group}"  # an account without a name
    assert elsewhere(lambda: list(ownership.diagnose(registry, registry=True)), uid=NOBODY, gid=1) == []


def test_nobody_is_told_to_join_the_group_of_root(open_directory: Path) -> None:
    registry = open_directory / "registry"
    registry.mkdir()
    registry.chmod(0o775)
    (finding,) = elsewhere(lambda: list(ownership.diagnose(registry, registry=True)), uid=NOBODY)
    assert finding.remedy == f"sudo -u '#0' leasectl doctor --registry {registry}"


def test_a_registry_that_may_not_be_read_is_unreadable(open_directory: Path) -> None:
    registry = open_directory / "registry"
    registry.mkdir(mode=0o700)
    (finding,) = elsewhere(lambda: list(ownership.diagnose(registry, registry=True)), uid=NOBODY)
    assert (finding.code, finding.unusable) == ("unreadable", True)


def test_a_directory_that_may_not_be_searched_is_unreadable(open_directory: Path) -> None:
    closed = open_directory / "closed"
    closed.mkdir(mode=0o700)
    (finding,) = elsewhere(lambda: list(ownership.diagnose(closed)), uid=NOBODY)
    assert (finding.code, finding.unusable) == ("unreadable", True)
    assert "namei -l" in finding.remedy


# -- reading only (K70)

LOOK = """
import json, os, sys
import ownership
from leases.cli import main
from ownership.testing import FakeClock
directory, registry = sys.argv[1:]
seen = set()
for _ in range(100):
    found = ownership.diagnose(registry or directory, registry=bool(registry), clock=FakeClock())
    seen.add(json.dumps([[one.resource.name, one.code] for one in found]))
sys.stdout = open(os.devnull, "w")
code = main(["doctor", *(["--registry", registry] if registry else [directory])])
print(json.dumps([code, *map(json.loads, seen)]), file=sys.__stdout__)
"""


@pytest.mark.parametrize(
    "prefix",
    [(), NEW_PIDS, AS_NOBODY, HIDDEN],
    ids=["here", "another pid namespace", "another account", "another account under hidepid"],
)
def test_looking_a_hundred_times_leaves_every_byte_as_it_was(open_directory: Path, prefix: tuple[str, ...]) -> None:
    if AS_NOBODY[0] in prefix and not other_accounts_can_run_us():
        pytest.skip("other accounts cannot run this interpreter")
    registry = open_directory / "registry" if AS_NOBODY[0] in prefix else None
    with contextlib.ExitStack() as stack:
        for verdict in VERDICTS:
            stack.enter_context(resource(open_directory / verdict, verdict))
        plant(open_directory / "malformed", b"{")
        plant_guard(open_directory / "malformed", GuardState(token=5, owner=identity()))
        plant_guard(open_directory / "lost", GuardState(token=5, owner=identity()))
        (open_directory / ".leases" / f"{'1' * 32}.alive").touch()
        if registry is not None:
            shutil.copytree(open_directory / ".leases", registry)
            for path in [registry, *registry.iterdir()]:
                path.chmod(0o755)
        before = snapshot(open_directory)
        command = [*prefix, sys.executable, "-c", LOOK, open_directory, registry or ""]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert snapshot(open_directory) == before
    code, *seen = json.loads(done.stdout)
    assert code == (1 if registry is None else 65)  # another account may not write in that registry
    assert len(seen) == 1
    if not prefix:
        assert {tuple(one) for one in seen[0]} >= {
            ("stopped", "stopped"),
            ("gone", "gone"),
            ("zombie", "zombie"),
            ("reused", "reused"),
            ("expired", "expired"),
            ("unknown", "foreign-boot"),
            ("malformed", "malformed"),
            ("lost", "record-lost"),
            (".leases", "leftover-witness"),
        }


def test_the_head_of_a_finding_is_coloured_on_a_terminal(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with resource(tmp_path / "x", "gone"):
        command = [*LEASECTL, "doctor", str(tmp_path)]
        with subprocess.Popen(command, stdout=slave, stderr=slave, env=environment(TERM="xterm")) as process:
            os.close(slave)
            seen = read_to_the_end(master)
            assert process.wait(60) == 0
    os.close(master)
    assert f"\x1b[33m\x1b[1m{tmp_path / 'x'}: gone (note)\x1b[0m" in seen
    assert "1 note, no problem" in seen


def test_thousands_of_resources_that_are_well_take_one_look_each_and_no_wait(tmp_path: Path) -> None:
    with owner(tmp_path / "x"):
        raw = file_of(tmp_path / "x").read_bytes()
        for index in range(2000):
            (tmp_path / ".leases" / f"r{index}.json").write_bytes(raw)
            (tmp_path / ".leases" / f"r{index}.guard").write_bytes(b'{"token":1}')
        clock = FakeClock()
        assert list(ownership.diagnose(tmp_path, clock=clock)) == []
    assert clock.waits == []


def test_a_reader_that_has_seen_enough_is_no_error(leases_directory: Path) -> None:
    with zombie() as pid:
        gone = fields_of(pid)
    for index in range(500):
        plant(leases_directory / f"r{index}", record(**gone))
    with subprocess.Popen(
        [*LEASECTL, "doctor", str(leases_directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
