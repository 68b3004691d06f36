"""``leasectl ensure``: somebody answers at a socket, or one is started, or it is said why not."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ownership
from tests.integration.test_ensure_cases import SUPERVISOR, end_supervisors, starts
from tests.support.cli import Leasectl
from tests.support.cli import leasectl as run_leasectl
from tests.support.namespaces import die_owning


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    found = tmp_path / "app.sock"
    yield found
    end_supervisors(found)


def command(path: Path, way: str) -> list[str]:
    return ["--", sys.executable, "-c", SUPERVISOR, os.fspath(path), way]


def test_it_starts_one_and_says_who_answers(leasectl: Leasectl, path: Path) -> None:
    said = leasectl("ensure", path, *command(path, "serve"))
    assert (said.code, said.err) == (0, "")
    (pid,) = starts(path)
    assert said.out.startswith(f"{path}: pid {pid} (")
    again = leasectl("ensure", "--json", path, *command(path, "serve"))
    assert again.code == 0
    told = json.loads(again.out)
    assert (told["pid"], told["answers"]) == (pid, True)
    assert starts(path) == [pid]


def test_an_owner_that_does_not_match_is_held_by_another(leasectl: Leasectl, path: Path) -> None:
    with ownership.listen(path, data={"version": "1"}):
        assert leasectl("ensure", "--match", "version=1", path).code == 0
        said = leasectl("ensure", "--match", "version=2", path)
        assert said.code == 75
        assert "version is '1', not '2'" in said.err
        assert leasectl("ensure", "--match", "version=2", "--on-mismatch", "use", path).code == 0


def test_the_end_of_what_was_started_is_told_with_what_it_said(leasectl: Leasectl, path: Path) -> None:
    said = leasectl("ensure", path, *command(path, "fail"))
    assert said.code == 1
    assert "exit code 1" in said.err
    assert "  | no such luck" in said.err
    told = json.loads(leasectl("ensure", "--json", path, *command(path, "fail")).out)
    assert (told["error"], told["returncode"], told["exit_code"]) == ("StartError", 1, 1)
    assert "the configuration is wrong" in told["stderr"]


def test_how_it_ended_is_told_whatever_whoever_started_us_ignores(path: Path) -> None:
    """SIGCHLD ignored, and the system forgets how children end."""
    done = run_leasectl(
        "ensure",
        "--timeout",
        "50",
        path,
        *command(path, "fail"),
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert done.returncode == 1
    assert "has ended (exit code 1)" in done.stderr
    assert "  | no such luck" in done.stderr


def test_without_a_command_nobody_is_started(leasectl: Leasectl, path: Path) -> None:
    said = leasectl("ensure", "--timeout", "0", path)
    assert said.code == 1
    assert "nobody serves it" in said.err
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [["--match", "version"], ["--match", "=1"], ["--on-mismatch", "shrug"], ["--on-mismatch", "replace"]],
)
def test_what_cannot_be_right_is_a_usage_error(leasectl: Leasectl, path: Path, arguments: list[str]) -> None:
    assert leasectl("ensure", *arguments, path).code == 2


def test_somebody_whom_no_record_names_is_not_called_its_owner(leasectl: Leasectl, path: Path) -> None:
    die_owning(path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(os.fspath(path))
        other.listen()
        said = leasectl("ensure", path)
        assert said.code == 0
        assert said.out == f"{path}: answers, though no record says who that is\n"
        assert leasectl("ensure", "--json", path).json["verified"] is False
