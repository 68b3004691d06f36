"""``leasectl stop`` as a program, against ``leasectl run``, other accounts and namespaces, and reused numbers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import ownership
from ownership.testing import reuse_pid, wait_until
from tests.support.cli import holding, leasectl
from tests.support.families import family, state_of
from tests.support.namespaces import AS_NOBODY, NEW_PIDS, NOBODY, other_accounts_can_run_us, owner, running
from tests.support.records import file_of, plant, record, snapshot


def test_what_leasectl_runs_is_stopped_and_released(tmp_path: Path) -> None:
    with holding(tmp_path / "x", start_new_session=True) as held:
        done = leasectl("stop", tmp_path / "x", "--grace", 20)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"pid {held.pid} " in done.stdout
        assert held.ended()[0] == 143
    assert ownership.inspect(tmp_path / "x").verdict == "free"


def test_in_a_group_of_others_only_leasectl_is_signalled_and_ends_its_command(tmp_path: Path) -> None:
    with holding(tmp_path / "x") as held:
        told = json.loads(leasectl("stop", tmp_path / "x", "--json", "--grace", 20).stdout)
        assert (told["scope"], told["signalled"][0]["number"]) == ("process", held.pid)
        assert held.ended()[0] == 143
        assert state_of(held.cmd) == "X"


def test_an_owner_that_has_lost_its_record_is_stopped(tmp_path: Path) -> None:
    """It is stopped, so its keeper cannot put the record back: all that names it is the guard."""
    with owner(tmp_path / "x") as lost:
        os.kill(lost.pid, signal.SIGSTOP)
        wait_until(lambda: ownership.is_stopped(lost.pid))
        file_of(tmp_path / "x").unlink()
        done = leasectl("stop", tmp_path / "x", "--grace", 20)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"pid {lost.pid} " in done.stdout
        assert state_of(lost.pid) == "Z"


def test_a_recycled_group_number_is_not_signalled(tmp_path: Path) -> None:
    """K68: the owner was a leader; a session leader has its number now, or nobody but a child of such a one."""
    with family() as group:
        plant(tmp_path / "x", record(group.pid))
        group.process.kill()
        group.reap()
        with family(1, pid=group.pid) as stranger:
            assert leasectl("stop", tmp_path / "x").returncode == 0
            assert (state_of(stranger.pid), stranger.living) == ("S", stranger.children)
        with family(1, "brief", pid=group.pid) as stranger:
            stranger.reap()
            done = leasectl("stop", tmp_path / "x")
            assert (done.returncode, stranger.living) == (1, stranger.children)
            assert f"pid {stranger.children[0]}" in done.stdout


def test_a_reused_pid_is_not_signalled(tmp_path: Path) -> None:
    with family() as group:
        plant(tmp_path / "x", record(group.pid))
        group.process.kill()
        group.reap()
    with reuse_pid(group.pid) as stranger:
        assert leasectl("stop", tmp_path / "x").returncode == 0
        assert ownership.is_alive(stranger)


def test_another_account_may_not_and_is_told_what_to_do(open_directory: Path) -> None:
    if not other_accounts_can_run_us():
        pytest.skip("other accounts cannot run this interpreter")
    registry = open_directory / "registry"
    registry.mkdir(mode=0o755)
    with owner(open_directory / "x.json", registry=registry) as one:
        done = leasectl("stop", open_directory / "x.json", "--registry", registry, prefix=AS_NOBODY)
        told = leasectl("stop", open_directory / "x.json", "--registry", registry, "--json", prefix=AS_NOBODY)
        assert state_of(one.pid) not in "ZX"
    assert (done.returncode, told.returncode, done.stdout) == (1, 1, "")
    for fact in (f"pid {one.pid}", f"uid {NOBODY}", "nothing was sent", "as root"):
        assert fact in done.stderr
    assert json.loads(told.stdout)["error"] == "PermissionError"


def test_an_owner_in_another_pid_namespace_is_out_of_reach(open_directory: Path) -> None:
    """K22: live by its witness, then gone by it; whoever has its number here is a stranger either way."""
    body = """
    claim = ownership.acquire(sys.argv[1])
    say(claim.record.pid)
    hear()
    os._exit(0)
    """
    path = open_directory / "x"
    with running(body, path, prefix=NEW_PIDS) as program:
        assert program.said() == 1  # and so is the init of this namespace
        done = leasectl("stop", path)
        assert done.returncode == 75
        assert "another pid namespace" in done.stderr
        assert (
            f"pid 1 of pid namespace {os.stat(f'/proc/{inside(program.pid)}/ns/pid').st_ino} (ours is " in done.stderr
        )
        for fact in (": live, ", "out of reach from here", "nothing was signalled", "end it where it runs"):
            assert fact in done.stderr
        assert "unknown" not in done.stderr
        refused = leasectl("run", path, "--", "true")
        for said in (refused.stderr, leasectl("show", path).stdout):
            assert "1 of pid namespace " in said
        assert "or end it where it runs" in refused.stderr
        program.tell()
        program.process.wait(30)
    before = snapshot(open_directory)
    done = leasectl("stop", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "nobody to stop" in done.stderr
    assert "it belonged to another pid namespace" in done.stderr
    assert snapshot(open_directory) == before


def inside(pid: int) -> int:
    """The child of the ``unshare`` that is *pid*: pid 1 of a namespace of its own."""
    [child] = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return child
