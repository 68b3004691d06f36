"""``leasectl doctor``: what is wrong, how that is known, and what to do, for people and programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ownership
from leases.commands.doctor import _STYLES
from ownership import FindingCode, Severity
from ownership.testing import zombie
from tests.support.cli import Leasectl, environment, resource
from tests.support.cli import leasectl as run_leasectl
from tests.support.records import fields_of, file_of, plant, record, snapshot

SEVERITIES = {"stopped": "problem", "gone": "note", "zombie": "note", "reused": "note", "expired": "problem"}


def test_all_is_well_where_nobody_owns_or_the_owner_lives(leasectl: Leasectl, tmp_path: Path) -> None:
    for verdict in ("free", "live"):
        with resource(tmp_path / verdict, verdict):
            said = leasectl("doctor", tmp_path)
            assert (said.code, said.out, said.err) == (0, "", "leasectl: all is well\n")
            said = leasectl("doctor", tmp_path, "--json")
            assert (said.code, said.json, said.err) == (0, [], "")


@pytest.mark.parametrize(("verdict", "severity"), SEVERITIES.items())
def test_what_is_wrong_is_told_and_nothing_is_changed(
    leasectl: Leasectl, tmp_path: Path, verdict: str, severity: str
) -> None:
    with resource(tmp_path / "x", verdict):
        before = snapshot(tmp_path)
        said = leasectl("doctor", tmp_path)
        told = leasectl("doctor", "--json", tmp_path)
        assert snapshot(tmp_path) == before
    code = 1 if severity == "problem" else 0
    assert (said.code, told.code, told.err) == (code, code, "")
    one = told.json[0]
    assert (one["resource"], one["finding"], one["severity"]) == (str(tmp_path / "x"), verdict, severity)
    assert one["exit_code"] == code
    assert said.out.startswith(f"{tmp_path / 'x'}: {verdict} ({severity})\n")
    assert f"\n  remedy: {one['remedy']}\n" in said.out
    what = one["what"][:60]  # a process just started has no command line yet
    for fact in (what, one["advice"], one["evidence"]["start_id"], str(one["evidence"]["pid"])):
        assert fact in said.out
    if severity == "note":
        assert said.err == "leasectl: 1 note, no problem\n"
    else:
        assert said.err.startswith("leasectl: found 1 problem")


def test_findings_are_counted_at_the_end(leasectl: Leasectl, tmp_path: Path) -> None:
    with resource(tmp_path / "x", "gone"), resource(tmp_path / "y", "gone"), resource(tmp_path / "z", "expired"):
        assert leasectl("doctor", tmp_path).err.startswith("leasectl: found 1 problem and ")
    said = leasectl("doctor", tmp_path)
    assert (said.code, said.err) == (0, "leasectl: 3 notes, no problem\n")
    said = leasectl("doctor", tmp_path, tmp_path / "missing")
    assert (said.code, said.err.splitlines()[-1]) == (1, "leasectl: found 3 notes")


def test_every_severity_and_code_is_told_by_its_value() -> None:
    assert set(_STYLES) == set(Severity)
    assert all(code.value == code.name.lower().replace("_", "-") for code in FindingCode)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_cannot_be_used_is_65(leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]) -> None:
    with resource(tmp_path / "x", "gone"):
        file_of(tmp_path / "bad").mkdir()
        said = leasectl("doctor", tmp_path, *options)
    assert said.code == 65
    assert "invalid-record" in said.out
    assert "gone" in said.out


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_directory_that_is_missing_does_not_hide_the_others(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with resource(tmp_path / "x", "gone"):
        said = leasectl("doctor", tmp_path / "missing", tmp_path, *options)
    assert said.code == 1
    assert str(tmp_path / "x") in said.out
    assert str(tmp_path / "missing") in (said.out if options else said.err)
    if options:
        assert said.json[0]["error"] == "FileNotFoundError"


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_a_failure_and_not_well(leasectl: Leasectl, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    said = leasectl("doctor", tmp_path / name)
    assert said.code == 1
    assert "all is well" not in said.err
    assert str(tmp_path / name) in said.err
    assert leasectl("doctor", "--registry", tmp_path / name).code in (1, 65)


def test_usage_errors_are_two(leasectl: Leasectl) -> None:
    for arguments in (("",), ("a\0b",), ("--colour",)):
        said = leasectl("doctor", *arguments)
        assert (said.code, said.out) == (2, "")
        assert leasectl("doctor", *arguments, "--json").json["exit_code"] == 2


def test_the_current_directory_is_the_default(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with resource(tmp_path / "x", "gone"):
        assert str(tmp_path / "x") in leasectl("doctor").out


def test_a_registry_is_looked_at_whole_or_for_one_directory(leasectl: Leasectl, tmp_path: Path) -> None:
    registry, here, there = tmp_path / "registry", tmp_path / "here", tmp_path / "there"
    for directory in (registry, here, there):
        directory.mkdir(mode=0o755)
    with zombie() as pid:
        gone = fields_of(pid)
    for path in (here / "x", there / "y"):
        plant(path, record(**gone), registry)
    whole = leasectl("doctor", "--registry", registry, "--json").json
    part = leasectl("doctor", there, "--registry", registry, "--json").json
    assert [one["resource"] for one in whole] == [str(here / "x"), str(there / "y")]
    assert [one["resource"] for one in part] == [str(there / "y")]
    assert part[0]["remedy"] == f"leasectl reclaim --registry {registry} {there / 'y'}"
    registry.chmod(0o757)
    part = leasectl("doctor", there, "--registry", registry, "--json").json
    assert [one["finding"] for one in part] == ["unsafe-directory"]


def test_the_remedy_is_what_helps(leasectl: Leasectl, tmp_path: Path) -> None:
    """As it stands, in a shell; on names that a shell would take apart."""
    path = tmp_path / "it's 'a' $(name) caf\udce9"
    with zombie() as pid:
        gone = fields_of(pid)
    plant(path, record(**gone))
    (one,) = leasectl("doctor", tmp_path, "--json").json
    assert one["resource"].endswith("caf%E9")
    assert in_a_shell(one["remedy"]) == 0
    assert leasectl("doctor", tmp_path).code == 0


def in_a_shell(remedy: str) -> int:
    body = f'leasectl() {{ "{sys.executable}" -m leases.cli "$@"; }}\n{remedy}'
    command = ["bash", "-c", body]
    return subprocess.run(command, env=environment(), timeout=60, check=False, stdout=subprocess.DEVNULL).returncode


def test_control_characters_do_not_reach_the_terminal(leasectl: Leasectl, tmp_path: Path) -> None:
    with zombie() as pid:
        gone = fields_of(pid)
    plant(tmp_path / "x", {**record(**gone), "command": "evil\x1b[2J\nall is well", "host": "\x07"})
    plant(tmp_path / "y\x1b[2J\n", record(**gone))
    plant(tmp_path / "z", b"\x1b[2J")
    said = leasectl("doctor", tmp_path)
    assert "evil\\x1b[2J\\x0aall is well" in said.out
    assert not any(char in said.out + said.err for char in "\x1b\x07")


def test_a_hostile_process_title_is_shown_escaped(leasectl: Leasectl, tmp_path: Path) -> None:
    title = "\x1b[2J\nremedy: rm -rf /"
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", title]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline()
            fields = fields_of(stranger.pid)
            source, boot, ticks, *rest = fields["start_id"].split(":")
            other = ":".join((source, boot, str(int(ticks) + 1), *rest[:-1], str(int(rest[-1] or 0) + 1)))
            plant(tmp_path / "x", record(**{**fields, "start_id": other}))
            said = leasectl("doctor", tmp_path)
        finally:
            stranger.kill()
    assert "reused" in said.out
    assert "\x1b" not in said.out
    assert "\nremedy: rm" not in said.out
    assert "\\x1b[2J" in said.out


def test_it_is_coloured_for_people_only(tmp_path: Path) -> None:
    with resource(tmp_path / "x", "gone"):
        said = run_leasectl("doctor", tmp_path, env={"FORCE_COLOR": "1"})
    assert said.returncode == 0
    assert "\x1b" not in said.stdout


def test_an_owner_of_this_process_is_well(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", also=[tmp_path / "y"]):
        assert leasectl("doctor", tmp_path).code == 0
        assert leasectl("doctor", os.path.join(tmp_path, ".leases")).code == 0
    assert leasectl("doctor", tmp_path).code == 0
