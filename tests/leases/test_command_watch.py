"""``leasectl watch``: a table for people at a terminal, what changed for logs and programs."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ownership
from leases.commands import watch
from leases.commands._board import Board, draw
from leases.commands._changes import JsonLog, TextLog
from leases.commands._output import OutputError
from leases.commands._watched import Picture, Row, Watched
from ownership import Inspection, Verdict
from ownership.testing import sleeping_process, zombie
from tests.support.cli import LEASECTL, VERDICTS, Leasectl, environment, resource, started
from tests.support.cli import leasectl as run_leasectl
from tests.support.processes import Contender, eventually, stopped
from tests.support.records import fields_of, file_of, plant, record, snapshot
from tests.support.terminal import Terminal

STEP = Callable[[], object]


def followed(watched: Watched, display: watch.Display, *steps: STEP) -> None:
    """What *display* shows at first, and after each of *steps*."""
    left = iter(steps)
    watch.follow(watched.look(), watched.look, display, lambda: next(left)(), len(steps) + 1)
    display.close()


def lines_of(said: str) -> list[str]:
    """Lines of a log without their moments."""
    found = [line.split(" ", 1) for line in said.splitlines()]
    assert all(dt.datetime.fromisoformat(moment).tzinfo for moment, _ in found)
    return [rest for _, rest in found]


# -- what there is


@pytest.mark.parametrize("verdict", [one for one in VERDICTS if one != "free"])
def test_at_first_it_tells_what_there_is_and_changes_nothing(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        before = snapshot(tmp_path)
        said = leasectl("watch", tmp_path, "--count", "1")
        told = leasectl("watch", tmp_path, "--count", "2", "--interval", "0.1", "--json")
        shown = leasectl("show", tmp_path / "x", "--json").json
        assert snapshot(tmp_path) == before
    assert (said.code, said.err, told.code, told.err) == (0, "", 0, "")
    [line] = lines_of(said.out)
    assert line.startswith(f"+ {tmp_path / 'x'}: {verdict}, pid {shown['pid']}")
    assert f", token {shown['token']}, phase owner" in line
    [first] = told.out.splitlines()
    state = json.loads(first)
    assert state.pop("at")
    assert state == {"change": "state", "resources": [{**shown, "waiters": 0}]}


def test_nothing_is_a_state_too(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("watch", tmp_path, "--count", "1")
    assert (said.code, said.out, said.err) == (0, "", "leasectl: nobody owns anything here\n")
    said = leasectl("watch", tmp_path, "--count", "1", "--json")
    assert (said.json["resources"], said.err) == ([], "")


def test_the_current_directory_is_the_default(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ownership.acquire("x"):
        assert str(tmp_path / "x") in leasectl("watch", "--count", "1").out


def test_resources_of_several_directories_are_told_by_name(leasectl: Leasectl, tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        plant(tmp_path / name / "x", record())
    said = leasectl("watch", tmp_path / "b", tmp_path / "a", "--count", "1")
    assert [line.split()[1] for line in lines_of(said.out)] == [f"{tmp_path}/a/x:", f"{tmp_path}/b/x:"]


def test_a_registry_is_watched_whole_or_for_one_directory(leasectl: Leasectl, tmp_path: Path) -> None:
    registry, here, there = tmp_path / "registry", tmp_path / "here", tmp_path / "there"
    for directory in (registry, here, there):
        directory.mkdir(mode=0o755)
    with ownership.acquire(here / "x", also=[there / "y"], registry=registry):
        whole = leasectl("watch", "--registry", registry, "--json", "--count", "1").json
        part = leasectl("watch", there, "--registry", registry, "--json", "--count", "1").json
    assert [one["resource"] for one in whole["resources"]] == [str(here / "x"), str(there / "y")]
    assert [one["resource"] for one in part["resources"]] == [str(there / "y")]
    assert f"--registry {registry} " in part["resources"][0]["remedy"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_cannot_be_read_does_not_hide_the_rest(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    plant(tmp_path / "x", record())
    plant(tmp_path / "torn", b"{")
    file_of(tmp_path / "bad").mkdir()
    said = leasectl("watch", tmp_path, "--count", "1", *options)
    assert said.code == 0
    if options:
        bad, torn, _ = said.json["resources"]
        assert (bad["resource"], bad["verdict"], bad["exit_code"]) == (str(tmp_path / "bad"), None, 65)
        assert torn["malformed"]
    else:
        bad, torn, _ = lines_of(said.out)
        assert bad.startswith(f"+ {tmp_path / 'bad'}: unusable, ")
        assert torn.startswith(f"+ {tmp_path / 'torn'}: unknown, ")


def test_control_characters_do_not_reach_the_reader(leasectl: Leasectl, tmp_path: Path) -> None:
    evil = "evil\x1b[2J\nall is well"
    plant(tmp_path / "x", {**record(), "command": evil, "phase": evil, "endpoint": "\x9b1A"})
    plant(tmp_path / "y\x1b[2J\n\udce9", record())
    said = leasectl("watch", tmp_path, "--count", "1")
    assert not any(character in said.out + said.err for character in "\x1b\x9b\x07")
    assert len(said.out.splitlines()) == 2
    assert "evil\\x1b[2J\\nall is well" in said.out
    assert leasectl("watch", tmp_path, "--count", "1", "--json").out.isascii()


# -- what changes


def test_a_log_has_a_line_for_each_change_of_real_owners(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    x, y = tmp_path / "x", tmp_path / "y"
    with Contender() as first, Contender() as second:
        token = first.do("acquire", x)["value"]
        watched = Watched((str(tmp_path),), None, confirm_interval=0)

        def wait() -> None:
            second.start("acquire", x, timeout=60)
            eventually(lambda: ownership.waiters(tmp_path))

        with stopped(first.pid) as _:
            display = TextLog()
            followed(watched, display)
        steps: list[STEP] = [
            lambda: None,
            lambda: first.do("announce", x, phase="serving", data={"a": 1}),
            lambda: first.do("acquire", y),
            lambda: first.do("release", y),
            wait,
            lambda: (first.do("release", x), second.hear()),
            lambda: (second.signal(signal.SIGKILL), eventually(lambda: ownership.is_zombie(second.pid))),
            second.kill,
        ]
        followed(watched, display, *steps)
        lines = lines_of(capsys.readouterr().out)
    one, other = f"pid {first.pid}", f"pid {second.pid}"
    assert lines[0].startswith(f"+ {x}: stopped, {one}")
    assert f"token {token}, phase owner" in lines[0]
    told = [line.replace(f"{tmp_path}/", "") for line in lines[1:]]
    assert told[0].startswith(f"~ x: state stopped -> live, {one}")
    assert told[1].startswith('~ x: phase owner -> serving, data {} -> {"a": 1}, ' + one)
    assert told[2].startswith(f"+ y: live, {one}")
    assert told[3].startswith(f"- y: was live, {one}")
    assert told[4].startswith(f"~ x: waiters 0 -> 1, {one}")
    assert told[5].startswith(f"~ x: owner {one}")
    assert f"-> {other}" in told[5]
    assert f", token {token} -> " in told[5]
    assert "waiters 1 -> 0" in told[5]
    assert told[6].startswith(f"~ x: state live -> zombie, {other}")
    assert told[7].startswith(f"~ x: state zombie -> gone, {other}")
    assert len(told) == 8


def test_programs_get_a_document_for_each_change(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    x, y = tmp_path / "x", tmp_path / "y"
    with sleeping_process() as pid:
        plant(x, record(**fields_of(pid)))
        steps: list[STEP] = [
            lambda: plant(x, record(**fields_of(pid), phase="serving")),
            lambda: None,
            lambda: plant(y, record(**fields_of(pid), token=7)),
            lambda: file_of(x).unlink(),
        ]
        followed(Watched((str(tmp_path),), None), JsonLog(None), *steps)
    state, changed, added, removed = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["resource"] for one in state["resources"]] == [str(x)]
    assert (changed["change"], changed["resource"], changed["changed"]) == ("changed", str(x), ["phase"])
    assert (changed["before"], changed["record"]["phase"]) == (state["resources"][0], "serving")
    assert (added["change"], added["resource"], added["token"], added["waiters"]) == ("added", str(y), 7, 0)
    assert (removed["change"], removed["resource"], removed["pid"]) == ("removed", str(x), pid)
    assert all(one["at"].endswith("Z") for one in (state, changed, added, removed))


def test_several_accounts_may_own_the_same_path_in_a_sticky_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o1777)
    for number, name in enumerate((".leases", ".leases-77"), 1):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "x.json").write_text(json.dumps(record(token=number)))
    steps: list[STEP] = [lambda: (tmp_path / ".leases-77" / "x.json").unlink()]
    followed(Watched((str(tmp_path),), None), TextLog(), *steps)
    assert [line[0] for line in lines_of(capsys.readouterr().out)] == ["+", "+", "-"]


# -- directories that fail


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_directory_that_is_missing_at_the_start_is_a_failure(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for arguments in ((tmp_path, tmp_path / "missing"), ("--registry", tmp_path / "missing")):
        said = leasectl("watch", *arguments, *options)
        assert said.code == 1
        assert str(tmp_path / "missing") in (said.out if options else said.err)
        if options:
            assert said.json["error"] == "FileNotFoundError"
        else:
            assert said.out == ""


def test_a_registry_that_cannot_be_used_at_the_start_is_65(leasectl: Leasectl, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir()
    registry.chmod(0o777)
    for directories in ((), (tmp_path,)):
        said = leasectl("watch", *directories, "--registry", registry)
        assert (said.code, said.out) == (65, "")
        assert f"chmod o-w {registry}" in said.err


def test_usage_errors_are_two(leasectl: Leasectl) -> None:
    for arguments in (("--interval", "0.09"), ("--interval", "nan"), ("--count", "0"), ("",), ("a\0b",)):
        said = leasectl("watch", *arguments)
        assert (said.code, said.out) == (2, "")
        assert leasectl("watch", *arguments, "--json").json["exit_code"] == 2
    assert "must be a number of seconds >= 0.1, got '0.09'" in leasectl("watch", "--interval", "0.09").err


def test_a_directory_that_fails_later_is_told_once_and_watched_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    for one in (folder, other):
        one.mkdir()
        plant(one / "x", record())
    steps: list[STEP] = [
        lambda: shutil.rmtree(folder),
        lambda: None,
        lambda: (folder.mkdir(), plant(folder / "y", record())),
    ]
    watched = Watched((str(folder), str(other)), None)
    followed(watched, TextLog(), *steps)
    lines = [line.replace(f"{tmp_path}/", "").split(",")[0] for line in lines_of(capsys.readouterr().out)]
    assert lines == [
        "+ folder/x: live",
        "+ other/x: live",
        "! folder: No such file or directory",
        "- folder/x: was live",
        "! folder: can be looked at again",
        "+ folder/y: live",
    ]
    followed(watched, JsonLog(None), steps[0], steps[2])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["change"] for one in told] == ["state", "failed", "removed", "recovered", "added"]
    assert (told[1]["directory"], told[1]["errno"], told[3]["directory"]) == (str(folder), "ENOENT", str(folder))


def test_a_directory_that_fails_is_spelled_as_it_was_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("v")
    followed(Watched(("v",), None), TextLog(), lambda: os.rmdir("v"), lambda: os.mkdir("v"))
    lines = lines_of(capsys.readouterr().out)
    assert lines == ["! v: No such file or directory", "! v: can be looked at again"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_resource_is_no_directory_to_watch(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    with ownership.acquire("a.sock"):
        said = leasectl("watch", "a.sock", "--count", "1", *options)
    assert said.code == 1
    assert "a.sock is a resource, not a directory: leasectl show a.sock" in said.out + said.err


def test_a_command_is_told_in_short(leasectl: Leasectl, tmp_path: Path) -> None:
    plant(tmp_path / "x", {**record(), "command": "/v/bin/python3 /v/bin/leasectl run a.sock -- /bin/true"})
    assert f"pid {os.getpid()} (leasectl run a.sock -- /bin/true)" in leasectl("watch", tmp_path, "--count", "1").out
    assert "leasectl run a.sock" in drawn(Watched((str(tmp_path),), None).look(), 200)[1]
    told = leasectl("watch", tmp_path, "--count", "1", "--json").json
    assert told["resources"][0]["record"]["command"].startswith("/v/bin/python3 /v/bin/leasectl")


def test_what_is_in_a_directory_that_cannot_be_looked_at_is_not_called_gone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    plant(tmp_path / "x", record(), registry)
    steps: list[STEP] = [lambda: registry.chmod(0o777), lambda: None, lambda: registry.chmod(0o700)]
    followed(Watched((), str(registry)), TextLog(), *steps)
    assert [line[0] for line in lines_of(capsys.readouterr().out)] == ["+", "!", "!"]


# -- a program among others


@contextmanager
def watching(*arguments: object, **options: Any) -> Iterator[Any]:
    """``leasectl watch`` as a process; ended and reaped at exit."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = ["watch", *(os.fspath(one) if isinstance(one, Path) else str(one) for one in arguments)]
    with started(command, **{**pipes, "env": environment(TERM="xterm"), **options}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_changes_are_told_as_they_happen_until_it_is_interrupted(
    tmp_path: Path, number: int, code: int, options: tuple[str, ...]
) -> None:
    with watching(tmp_path, "--interval", "0.1", *options) as process:
        if options:
            assert b'"state"' in process.stdout.readline()
        else:
            assert b"nobody owns anything here" in process.stderr.readline()
        with ownership.acquire(tmp_path / "x"):
            assert str(tmp_path / "x").encode() in process.stdout.readline()
        assert (b'"removed"' if options else b" - ") in process.stdout.readline()
        process.send_signal(number)
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
        assert process.wait(60) == code


def test_a_reader_that_goes_away_ends_it_quietly_though_nothing_changes(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"), watching(tmp_path, "--interval", "30") as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def test_a_full_disk_behind_stdout_is_told_once(tmp_path: Path) -> None:
    plant(tmp_path / "x", record())
    with open("/dev/full", "w") as full:
        said = run_leasectl("watch", tmp_path, stdout=full)
    assert said.returncode == 1
    assert said.stderr.startswith("leasectl: cannot write to stdout: ")


def test_a_table_is_not_loaded_where_none_is_drawn(tmp_path: Path) -> None:
    body = (
        "import sys; from leases.cli import main; main(['watch', sys.argv[1], '--count', '1']);"
        "print(sorted({'rich', 'psutil', 'asyncio'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", body, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_waiting_ends_when_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        watch._pause(0.0)
        os.close(reader)
        with pytest.raises(OutputError) as caught:
            watch._pause(60.0)
    assert isinstance(caught.value.__cause__, BrokenPipeError)


# -- the table


@contextmanager
def on_a_terminal(terminal: Terminal, *arguments: object, **variables: str) -> Iterator[Any]:
    env = {name: value for name, value in environment(**variables).items() if name not in ("COLUMNS", "LINES")}
    with watching("--interval", "0.1", *arguments, stdout=terminal.slave, env=env) as process:
        terminal.close_slave()
        yield process


def has(*words: str) -> Callable[[list[str]], bool]:
    """Whether a line of the screen has all of *words*."""
    return lambda screen: any(all(word in line for word in words) for line in screen)


def test_a_table_follows_what_happens_and_the_last_one_stays(tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    with Terminal(200) as terminal, on_a_terminal(terminal, tmp_path, TERM="xterm") as process:
        terminal.wait_for(has("nobody owns anything here"))
        assert snapshot(tmp_path) == before
        with Contender() as owner, Contender() as other:
            token = owner.do("acquire", tmp_path / "x")["value"]
            header, row, caption = terminal.wait_for(has(f"{tmp_path}/x", str(owner.pid), "live", str(token)))
            assert header.split() == ["RESOURCE", "OWNER", "STATE", "AGE", "TOKEN", "WAITERS", "PHASE"]
            assert row.split()[-2:] == ["-", "owner"]
            assert caption.endswith("Z  1 resource")
            other.start("acquire", tmp_path / "x", timeout=60)
            terminal.wait_for(lambda screen: screen[1].split()[-2] == "1")
            owner.do("release", tmp_path / "x")
            terminal.wait_for(has(str(other.pid), "live"))
        terminal.wait_for(has(str(other.pid), "gone"))
        process.send_signal(signal.SIGINT)
        screen = terminal.read_to_the_end()
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    assert "gone" in screen[1]
    assert screen[2].endswith("Z  1 resource")
    assert len(screen) == 3
    assert "\x1b[32m" in terminal.raw  # live is green


def test_a_terminal_of_another_size_gets_another_table(tmp_path: Path) -> None:
    for number in range(30):
        plant(tmp_path / f"r{number:02}", record(command="a command " * 9))
    with Terminal(200, 40) as terminal, on_a_terminal(terminal, tmp_path, TERM="xterm") as process:
        screen = terminal.wait_for(has("Z  30 resources"))
        assert len(screen) == 32
        terminal.resize(60, 10)
        screen = terminal.wait_for(lambda screen: screen and screen[-1].endswith("30 resources, 23 more than fit here"))
        assert [line.split()[0][-4:] for line in screen[1:8]] == [f"/r{number:02}" for number in range(7)]
        assert all(len(line) <= 60 for line in screen)
        assert "PHASE" not in screen[0]
        terminal.resize(200, 40)
        screen = terminal.wait_for(lambda screen: screen and screen[-1].endswith("30 resources"))
        assert len(screen) == 32
        process.send_signal(signal.SIGTERM)
        terminal.read_to_the_end()
        assert process.wait(60) == -signal.SIGTERM
    assert "\x1b[?25l" not in terminal.raw  # whatever ends it, the cursor is there


def test_a_directory_that_fails_is_in_the_table_and_recovers(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    plant(folder / "x", record())
    with Terminal(200) as terminal, on_a_terminal(terminal, folder, TERM="xterm"):
        terminal.wait_for(has("live"))
        shutil.rmtree(folder)
        screen = terminal.wait_for(has(str(folder), "No such file or directory"))
        assert "live" not in "".join(screen)
        folder.mkdir()
        plant(folder / "x", record())
        screen = terminal.wait_for(has("live"))
        assert "No such file" not in "".join(screen)


def test_a_terminal_that_hangs_up_ends_it(tmp_path: Path) -> None:
    with Terminal() as terminal, on_a_terminal(terminal, tmp_path, "--interval", "30", TERM="xterm") as process:
        terminal.wait_for(has("nobody owns anything here"))
        terminal.hang_up()
        assert process.wait(60) == 1
        assert b"Traceback" not in process.stderr.read()


def test_a_terminal_that_only_prints_gets_lines(tmp_path: Path) -> None:
    plant(tmp_path / "x", record())
    with Terminal(200) as terminal, on_a_terminal(terminal, tmp_path, "--count", "1", TERM="dumb") as process:
        [line] = terminal.read_to_the_end()
        assert process.wait(60) == 0
    assert line.split()[1:4] == ["+", f"{tmp_path}/x:", "live,"]
    assert "\x1b" not in terminal.raw


# -- how it is drawn


def picture(*rows: Row, failures: dict[str, OSError] | None = None) -> Picture:
    at = dt.datetime(2026, 11, 29, 18, 48, 3, tzinfo=dt.UTC)
    return Picture(at, {(row.resource, 0): row for row in rows}, failures or {})


def row(resource: str, **changes: Any) -> Row:
    owner = ownership.OwnerRecord(**{**record(), **changes})
    return Row(Inspection(Path(resource), Verdict.LIVE, "", owner, owner, token=owner.token), 0)


def drawn(now: Picture, width: int = 100, height: int = 24) -> list[str]:
    console = Console(width=width, height=height)
    with console.capture() as capture:
        console.print(draw(now, width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_more_rows_than_lines_are_counted() -> None:
    rows = [row(f"/srv/r{number:04}") for number in range(1000)]
    lines = drawn(picture(*rows), height=10)
    assert len(lines) == 9
    assert [line.split()[0] for line in lines[1:-1]] == [f"/srv/r{number:04}" for number in range(7)]
    assert lines[-1] == "2026-11-29T18:48:03Z  1000 resources, 993 more than fit here"


@pytest.mark.parametrize("width", [20, 60, 80, 120, 300])
@pytest.mark.parametrize("name", ["x" * 300, "日本" * 100, "e\u0301" * 200, ""])
def test_no_line_is_longer_than_the_terminal_is_wide_and_ends_tell_paths_apart(width: int, name: str) -> None:
    rows = [row(f"/srv/{name}{end}", command="日本語 " * 50, phase="p" * 50) for end in "ab"]
    failure = FileNotFoundError(2, "No such file or directory", "/srv/" + "long/" * 100)
    now = picture(*rows, failures={"/srv/missing": failure})
    lines = drawn(now, width)
    assert len(lines) == 5
    console = Console(width=width)
    assert all(console.measure(line).maximum <= width for line in lines)
    if width >= 80:
        assert [line.split()[0][-1] for line in lines[1:3]] == ["a", "b"]


def test_the_phase_is_shown_where_there_is_room() -> None:
    now = picture(row("/srv/x", command="python supervisor.py"))
    assert "PHASE" in drawn(now, 120)[0]
    assert "PHASE" not in drawn(now, 60)[0]
    assert " supervisor.py " in drawn(now, 60)[1]


def test_markup_and_control_characters_are_drawn_as_they_are_spelled() -> None:
    line = drawn(picture(row("/srv/[red]\x1b[2J", command="[bold]:smile:[/]\x1b", phase="\x9b")), 200)[1]
    assert line.startswith("/srv/[red]\\x1b[2J")
    assert "[bold]:smile:[/]\\x1b" in line
    assert "\x1b" not in line


def test_the_table_is_drawn_for_every_state(tmp_path: Path) -> None:
    with zombie() as pid:
        plant(tmp_path / "x", record(**fields_of(pid)))
        plant(tmp_path / "torn", b"{")
        file_of(tmp_path / "bad").mkdir()
        lines = drawn(Watched((str(tmp_path),), None).look(), 200)
    assert [line.split()[0].rpartition("/")[2] for line in lines[1:4]] == ["bad", "torn", "x"]
    for line, word in zip(lines[1:4], ("unusable", "unknown", "zombie"), strict=True):
        assert word in line
    assert "not a regular file" in lines[1]
    assert "not a JSON object" in lines[2]


def test_a_board_that_was_never_drawn_is_closed() -> None:
    Board().close()


def test_an_interval_of_ages_is_no_bug(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        [sys.executable, "-m", "leases.cli", "watch", "--interval", "1e30", "--count", "2", tmp_path],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as watching:
        os.close(writer)
        assert watching.stderr is not None
        assert "bug" not in watching.stderr.read()
    assert watching.returncode == 1


@pytest.mark.parametrize("options", ["", "--json"])
def test_without_a_stdout_it_ends_as_when_nobody_reads_it_any_more(tmp_path: Path, options: str) -> None:
    script = f'exec "$@" watch {options} "$FOLDER" >&-'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *LEASECTL],
        env=environment(FOLDER=str(tmp_path)),
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
