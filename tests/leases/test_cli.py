"""The boundary: what every command has, and how everything that goes wrong ends."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import ownership
from leases.cli import leasectl as group
from leases.cli import main
from leases.commands._failure import exit_code, report
from leases.commands._output import printable, short, shown
from tests.support.cli import Leasectl, environment

COMMANDS = (
    *("run", "show", "list", "wait", "reclaim", "break", "stop", "replace", "renew", "ensure", "gate", "roster"),
    *("doctor", "watch", "schema"),
)


def test_the_commands_are_these() -> None:
    assert tuple(group.list_commands(click.Context(group))) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_json_and_registry_and_tells_its_exit_codes(leasectl: Leasectl, name: str) -> None:
    said = leasectl(name, "--help")
    assert said.code == 0
    for needed in ("--json", "--registry DIR", "Exit status:"):
        assert needed in said.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_form_of_help_is_known(leasectl: Leasectl, name: str) -> None:
    assert leasectl(name, "-h").out == leasectl(name, "--help").out


def test_without_a_command_it_shows_its_help(leasectl: Leasectl) -> None:
    said = leasectl()
    assert said.code in (0, 2)  # as this version of click has it
    assert "Commands:" in said.out + said.err


@pytest.mark.parametrize("arguments", [("nonsense",), ("show",), ("show", "x", "y"), ("list", "--colour")])
def test_usage_errors_are_two_for_people_and_programs(leasectl: Leasectl, arguments: tuple[str, ...]) -> None:
    said = leasectl(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("leasectl: ")
    said = leasectl(*arguments, "--json")
    assert (said.code, said.err) == (2, "")
    assert said.json["exit_code"] == 2


PATHS = (  # each as one argument, written @
    *("show @", "list @", "wait @", "reclaim @", "reclaim --dry-run @", "break @ --token 1", "stop @", "doctor @"),
    *("watch --count 1 @", "roster show @", "roster lost @", "gate show @", "gate open @", "gate close @ -- true"),
    *("run @ -- true", "run x --gate @ -- true", "run x --also @ -- true", "replace @", "replace x --gate @"),
    *("renew @", "ensure @ --timeout 0", "show --registry @ x", "list --registry @", "reclaim --registry @"),
    *("gate close --registry @ g -- true", "doctor --registry @", "watch --count 1 --registry @"),
)


@pytest.mark.parametrize("line", PATHS)
def test_an_empty_path_is_a_usage_error_and_not_the_current_directory(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = leasectl(*("" if word == "@" else word for word in line.split()))
    assert (said.code, said.out) == (2, "")
    assert "must be a path, got an empty one" in said.err
    assert not list(tmp_path.iterdir())


TOO_LONG = ("x" * 70_000, "/".join(["x" * 200] * 30), "x" * 300)
LOOKING = ("list", "doctor", "watch", "roster", "renew")  # where there is none; renew asks LEASES_OWNER first


@pytest.mark.parametrize("path", TOO_LONG, ids=["long", "deep", "component"])
@pytest.mark.parametrize(
    "line", [line for line in PATHS if "@" in line and "--registry" not in line and not line.startswith(LOOKING)]
)
def test_a_path_that_no_system_takes_is_a_usage_error(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = leasectl(*(path if word == "@" else word for word in line.split()))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("leasectl: ")
    assert not list(tmp_path.iterdir())


def test_a_bug_is_one_line_and_the_way_to_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEASES_TRACEBACK", raising=False)
    assert report(ZeroDivisionError("so it goes"), as_json=False) == 70
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == "leasectl: bug: ZeroDivisionError: so it goes"
    assert "LEASES_TRACEBACK=1" in said.err
    assert "Traceback" not in said.err


def test_the_traceback_of_a_bug_is_there_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASES_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError) as raised:
        print(1 / 0)
    assert report(raised.value, as_json=True) == 70
    said = capsys.readouterr()
    assert "Traceback" in said.err
    assert json.loads(said.out)["error"] == "ZeroDivisionError"


def test_ctrl_c_is_130() -> None:
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(click.Abort()) == 130


@pytest.mark.parametrize(
    ("number", "path", "code"),
    [
        (errno.ENOENT, "/srv/missing", 1),
        (errno.EACCES, "/srv/locked", 1),
        (errno.EACCES, "/srv/locked/.leases", 1),  # not there: still to be made
        (errno.EACCES, "/srv/.leases/x.guard", 65),
        (errno.EIO, "/srv/.leases/x.json", 65),
        (errno.EACCES, "/srv/registry/x.guard", 65),
        (errno.EACCES, "/srv/registry", 65),
        (errno.ENOSPC, "/srv/.leases/x.json", 1),
        (errno.EMFILE, None, 1),
    ],
)
def test_system_errors_about_lock_files_are_told_from_others(number: int, path: str | None, code: int) -> None:
    error = OSError(number, os.strerror(number), path)
    assert exit_code(error, "/srv/registry") == code


def test_a_lock_directory_that_is_there_and_not_ours_is_unusable(tmp_path: Path) -> None:
    (tmp_path / ".leases").mkdir()
    assert exit_code(PermissionError(errno.EACCES, "not yours", str(tmp_path / ".leases"))) == 65


def test_system_errors_carry_path_fact_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/srv/missing")
    assert report(error, as_json=False) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "leasectl: /srv/missing: No such file or directory"
    assert lines[1].startswith("  hint: ")
    assert report(error, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["errno"], told["resource"]) == ("ENOENT", "/srv/missing")


def test_the_exit_code_is_on_the_class_of_our_own_errors() -> None:
    assert exit_code(ownership.OwnershipLostError("gone", reason="broken")) == 76
    assert exit_code(ownership.UnsafeDirectoryError("open to all", resource="/srv")) == 65
    assert exit_code(ownership.HandoverError("nobody came")) == 1


def test_text_from_elsewhere_is_made_printable() -> None:
    assert printable("a\x1b[0m\n\udcff") == "a\\x1b[0m\\n\\udcff"
    assert shown(Path("/caf\udce9")) == "/caf%E9"
    assert shown("/café") == "/café"
    assert len(short("x" * 1000)) == 200
    assert short("x" * 200) == "x" * 200


def test_start_up_imports_nothing_heavy_that_it_does_not_need(tmp_path: Path) -> None:
    """psutil and rich never on this path, no command but the one called."""
    body = (
        "import sys; from leases.cli import main; main(['show', sys.argv[1]]);"
        "print(sorted({'rich', 'psutil', 'asyncio', 'leases.commands.run', 'leases.commands.list'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", body, str(tmp_path / "x")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_main_reads_the_command_line_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["leasectl", "show", str(tmp_path / "x")])
    assert main() == 10
