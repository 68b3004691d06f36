"""``leasectl stop``: ends the owner and nobody else, says what it did, and never touches a file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership.testing import sleeping_process, stopped_process
from tests.support.cli import Leasectl, resource
from tests.support.families import family, state_of
from tests.support.records import (
    OTHER_INSTANCE,
    file_of,
    identity,
    other_start_id,
    plant,
    plant_guard,
    record,
    snapshot,
)


def planted(path: Path, pid: int, **changes: Any) -> None:
    """Have *pid* own *path*, by its record."""
    plant(path, {**record(pid), "resource": str(path), "command": "server --port 8123", **changes})


def test_the_owner_and_its_group_are_ended_and_it_is_told_how(leasectl: Leasectl, tmp_path: Path) -> None:
    with family(1, "deaf") as group:
        planted(tmp_path / "x", group.pid)
        before = snapshot(tmp_path)
        said = leasectl("stop", tmp_path / "x", "--grace", "0.05")
        assert snapshot(tmp_path) == before
        assert (group.living, state_of(group.pid)) == ([], "Z")
    assert (said.code, said.err) == (0, "")
    first, *signals = said.out.splitlines()
    assert first.startswith(
        f"stopped {tmp_path / 'x'}: pid {group.pid} (server --port 8123) and its group are gone after"
    )
    assert [line.split()[1:] for line in signals] == [
        ["SIGTERM", "group", str(group.pid)],
        ["SIGKILL", "group", str(group.pid)],
    ]
    assert file_of(tmp_path / "x").exists()


def test_in_json_everything_is_told(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as pid:
        planted(tmp_path / "x", pid)
        told = leasectl("stop", tmp_path / "x", "--json", "--grace", "20").json
    assert (told["stopped"], told["gone"], told["scope"], told["survivors"]) == (True, True, "process", [])
    (one,) = told["signalled"]
    assert (one["signal"], one["target"], one["number"]) == ("SIGTERM", "process", pid)
    assert 0 <= one["after"] <= told["took"]
    assert one["when"].endswith("Z")
    assert (told["resource"], told["verdict"], told["pid"]) == (str(tmp_path / "x"), "live", pid)


def test_a_stopped_owner_is_continued(leasectl: Leasectl, tmp_path: Path) -> None:
    with stopped_process() as pid:
        planted(tmp_path / "x", pid)
        said = leasectl("stop", tmp_path / "x", "--grace", "20")
        assert ownership.is_zombie(pid)
    assert [line.split()[1] for line in said.out.splitlines()[1:]] == ["SIGTERM", "SIGCONT"]


def test_an_owner_whose_lease_ran_out_is_ended_if_it_lives(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as pid:
        planted(tmp_path / "x", pid, lease={"ttl": 1.0, "auto_renew": False, "renewed_at": 0.0})
        assert ownership.inspect(tmp_path / "x").verdict == "expired"
        assert leasectl("stop", tmp_path / "x", "--grace", "20").code == 0
        assert ownership.is_zombie(pid)


def test_an_owner_whose_record_is_gone_is_known_by_its_guard(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as pid:
        planted(tmp_path / "x", pid)
        owner = identity(pid)
        file_of(tmp_path / "x").unlink()
        plant_guard(tmp_path / "x", ownership._models.GuardState(token=1000, owner=owner))
        said = leasectl("stop", tmp_path / "x", "--grace", "20")
        assert (said.code, ownership.is_zombie(pid)) == (0, True)
        assert str(pid) in said.out


@pytest.mark.parametrize("verdict", ["free", "gone", "zombie", "reused"])
def test_nobody_to_stop_is_no_failure_and_nothing_is_tidied_up(
    leasectl: Leasectl, tmp_path: Path, verdict: str
) -> None:
    with resource(tmp_path / "x", verdict):
        before = snapshot(tmp_path)
        said = leasectl("stop", tmp_path / "x")
        told = leasectl("stop", tmp_path / "x", "--json").json
        assert snapshot(tmp_path) == before
        if verdict == "reused":
            assert ownership.is_alive(ownership.inspect(tmp_path / "x").owner.pid)  # type: ignore[union-attr]
    assert (said.code, said.out) == (0, "")
    assert "nobody to stop" in said.err
    assert ("leasectl reclaim" in said.err) is (verdict != "free")
    assert (told["stopped"], told["signalled"], told["survivors"], told["gone"]) == (False, [], [], True)
    assert told["verdict"] == verdict


def test_where_nothing_was_ever_owned_nothing_is_made(leasectl: Leasectl, tmp_path: Path) -> None:
    assert leasectl("stop", tmp_path / "x").code == 0
    assert list(tmp_path.iterdir()) == []


def test_who_is_left_is_named(leasectl: Leasectl, tmp_path: Path) -> None:
    """The leader had gone before, so that the group may be a stranger's by now."""
    with family(2, "brief") as group:
        planted(tmp_path / "x", group.pid)
        group.reap()
        said = leasectl("stop", tmp_path / "x")
        told = leasectl("stop", tmp_path / "x", "--json").json
        assert group.living == group.children
    assert said.code == told["exit_code"] == 1
    assert [line.split()[:3] for line in said.out.splitlines()] == [
        ["left:", "pid", str(pid)] for pid in group.children
    ]
    assert "cannot be told" in said.err
    assert "hint: " in said.err
    assert (told["error"], told["gone"], told["signalled"]) == ("StopTimeoutError", False, [])
    assert [one["pid"] for one in told["survivors"]] == group.children
    assert all(one["command"] and one["start_id"] for one in told["survivors"])


NONSENSE = [0, -1, 1.5, True, "123", 2**31, 10**30, None, "missing"]


@pytest.mark.parametrize("pid", NONSENSE, ids=repr)
def test_nonsense_for_a_pid_is_refused_and_nobody_is_signalled(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: Any
) -> None:
    """K18: kill(2) takes selectors, -1 for everybody."""
    fields = record()
    del fields["pid"]
    plant(tmp_path / "x", fields if pid == "missing" else {**fields, "pid": pid})
    before = snapshot(tmp_path)
    forbid_signals(monkeypatch)
    said = leasectl("stop", tmp_path / "x")
    told = leasectl("stop", tmp_path / "x", "--json").json
    assert snapshot(tmp_path) == before
    assert (said.code, said.out) == (75, "")
    assert "malformed record" in said.err
    assert (told["error"], told["verdict"], told["exit_code"]) == ("AlreadyOwnedError", "unknown", 75)


def forbid_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        assert arguments[1] == 0, f"signalled: {arguments}"

    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)


@pytest.mark.parametrize("number", [1, "sleeping"])
@pytest.mark.parametrize("changes", [{"boot_id": "another-boot"}, {"pid_namespace": 4026539999}, {"boot_id": None}])
def test_an_owner_of_another_boot_or_namespace_is_refused_with_a_remedy(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], number: Any
) -> None:
    """K22: its number belongs to a stranger here."""
    with sleeping_process() as stranger:
        pid = stranger if number == "sleeping" else 1
        planted(tmp_path / "x", pid, **changes)
        before = snapshot(tmp_path)
        with monkeypatch.context() as patch:
            forbid_signals(patch)
            said = leasectl("stop", tmp_path / "x")
            told = leasectl("stop", tmp_path / "x", "--json").json
        assert snapshot(tmp_path) == before
        assert ownership.is_alive(stranger)
    assert (said.code, said.out) == (75, "")
    assert "was not signalled" in said.err
    assert f"leasectl break {tmp_path / 'x'} --token 1000" in said.err
    assert (told["error"], told["verdict"], told["pid"]) == ("AlreadyOwnedError", "unknown", pid)


def test_the_first_process_is_never_signalled(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(tmp_path / "x", 1)
    forbid_signals(monkeypatch)
    said = leasectl("stop", tmp_path / "x")
    assert (said.code, said.out) == (75, "")
    assert "pid 1 is never signalled" in said.err
    planted(tmp_path / "y", 1, start_id=other_start_id(record(1)["start_id"]))
    assert leasectl("stop", tmp_path / "y").code == 0


@pytest.mark.parametrize("grace", ["-1", "nan", "inf", "forever", "soon"])
def test_a_grace_that_is_no_time_is_a_usage_error(leasectl: Leasectl, tmp_path: Path, grace: str) -> None:
    said = leasectl("stop", tmp_path / "x", "--grace", grace)
    assert said.code == 2
    assert grace in said.err


def test_a_record_that_cannot_be_used_is_another_failure(leasectl: Leasectl, tmp_path: Path) -> None:
    plant(tmp_path / "x", b"{}").unlink()
    file_of(tmp_path / "x").mkdir()
    assert leasectl("stop", tmp_path / "x").code == 65


def test_the_record_may_be_in_a_registry(leasectl: Leasectl, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o755)
    with sleeping_process() as pid:
        plant(tmp_path / "x", record(pid), registry)
        assert "nobody" in leasectl("stop", tmp_path / "x").err
        assert ownership.is_alive(pid)
        assert leasectl("stop", tmp_path / "x", "--registry", registry, "--grace", "20").code == 0
        assert ownership.is_zombie(pid)


def test_control_characters_of_a_record_do_not_reach_the_terminal(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as pid:
        planted(tmp_path / "x", pid, command="evil \x1b[2J", instance_id=OTHER_INSTANCE)
        assert "\x1b" not in leasectl("stop", tmp_path / "x", "--grace", "20").out


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_path_whose_directory_does_not_exist_is_wrong(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = leasectl("stop", tmp_path / "rnu" / "app.sock", *options)
    assert said.code == 1
    assert f"directory {tmp_path / 'rnu'} does not exist" in said.out + said.err
