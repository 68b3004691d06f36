"""``leasectl roster``: who drives what, what is lost; and that looking changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from leases import Roster
from ownership import UnsafeDirectoryError
from tests.support.cli import Leasectl
from tests.support.processes import running
from tests.support.records import snapshot

DRIVER = """
import leases
roster = leases.Roster(sys.argv[1])
roster.start("theirs", "half\\x1b way", data={"n": 1})
roster.start("done").finish("well done")
say(os.getpid())
hear()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.roster"


def test_it_shows_who_drives_what_and_changes_nothing(leasectl: Leasectl, path: Path) -> None:
    with running(DRIVER, path) as driver:
        driver.hear()
        Roster(path).start("ours")
        before = snapshot(path.parent)
        said = leasectl("roster", "show", path)
        told = leasectl("roster", "show", path, "--json")
        everything = leasectl("roster", "show", "--all", path)
        nothing = leasectl("roster", "lost", path)
        assert snapshot(path.parent) == before
    first, second, counts = said.out.splitlines()
    assert first.startswith(
        f"theirs: running (half\\x1b way), live, the process is running; driven by pid {driver.pid} ("
    )
    assert second.startswith(f"ours: running, live, this process; driven by pid {os.getpid()} (")
    assert counts == "2 running, 0 lost, 1 finished"
    assert (said.code, told.code, nothing.code, nothing.out) == (0, 0, 0, "")
    assert "done: finished (well done), its driver said so" in everything.out
    tasks = {one["task"]: one for one in told.json["tasks"]}
    assert {name: one["state"] for name, one in tasks.items()} == {
        "theirs": "running",
        "ours": "running",
        "done": "finished",
    }
    assert tasks["theirs"]["pid"] == driver.pid
    assert tasks["theirs"]["data"] == {"n": 1}
    assert (told.json["running"], told.json["lost"], told.json["finished"]) == (2, 0, 1)


def test_it_lists_what_is_lost_and_says_so_by_its_exit_code(leasectl: Leasectl, path: Path) -> None:
    with running(DRIVER, path) as driver:
        driver.hear()
        driver.process.kill()
        os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
        before = snapshot(path.parent)
        said = leasectl("roster", "lost", path)
        told = leasectl("roster", "lost", path, "--json")
        assert snapshot(path.parent) == before
    assert (said.code, told.code) == (12, 12)
    assert said.out.startswith("theirs: lost (half\\x1b way), zombie, ")
    assert [one["task"] for one in told.json["tasks"]] == ["theirs"]
    assert told.json["tasks"][0]["verdict"] == "zombie"
    assert leasectl("roster", "show", path).out.splitlines()[-1] == "0 running, 1 lost, 1 finished"


def test_a_path_without_a_file_is_a_mistake(leasectl: Leasectl, path: Path) -> None:
    for command in ("show", "lost"):
        said = leasectl("roster", command, path)
        assert said.code == 1
        assert str(path) in said.err
    assert leasectl("roster", "show", path, "--json").json["errno"] == "ENOENT"


def test_where_there_is_no_roster_yet_the_remedy_is_not_to_make_a_directory(leasectl: Leasectl, path: Path) -> None:
    assert "the first start() makes it" in leasectl("roster", "show", path).err
    assert "the first start() makes it" in leasectl("roster", "lost", path, "--json").json["hint"]
    assert "make the directory first" in leasectl("roster", "lost", path.parent / "none" / "x").err


@pytest.mark.parametrize("what", ["missing", "file", "link"])
def test_a_registry_that_is_none_is_the_same_error_as_of_every_other_command(
    leasectl: Leasectl, path: Path, what: str
) -> None:
    Roster(path).start("a").finish()
    registry = path.with_name("registry")
    if what == "file":
        registry.touch()
    elif what == "link":
        path.with_name("else").mkdir(mode=0o700)
        registry.symlink_to("else")
    expected = leasectl("show", path, "--registry", registry, "--json")
    assert expected.code in (1, 65)
    for command in ("show", "lost"):
        said = leasectl("roster", command, path, "--registry", registry, "--json")
        assert (said.code, said.json) == (expected.code, expected.json)
    roster = Roster(path, registry=registry)
    for act in (roster.restore, lambda: roster.task("a"), lambda: roster.follow("a"), lambda: roster.start("b")):
        with pytest.raises((OSError, UnsafeDirectoryError)) as failed:
            act()
        assert type(failed.value).__name__ == expected.json["error"]


def test_what_is_no_roster_is_unusable(leasectl: Leasectl, path: Path) -> None:
    path.write_text("hello\n")
    for command in ("show", "lost"):
        said = leasectl("roster", command, path)
        assert said.code == 65
        assert "no roster" in said.err
    assert leasectl("roster", "show", "").code == 2


def test_an_empty_roster_is_one(leasectl: Leasectl, path: Path) -> None:
    path.write_bytes(b'{"roster":1,"generation":1,"token":0}\n')
    assert leasectl("roster", "show", path).out == "0 running, 0 lost, 0 finished\n"


def test_a_number_that_no_float_can_say_is_null(leasectl: Leasectl, path: Path) -> None:
    """``1e999`` is JSON, which another program may write; infinity is none."""
    Roster(path).start("t", data={"many": [1.5, 2], "deep": ["Infinity"]}).finish()
    path.write_bytes(path.read_bytes().replace(b"[1.5,2]", b"[1e999,-1e999]"))
    said = leasectl("roster", "show", path, "--json")
    [task] = json.loads(said.out, parse_constant=pytest.fail)["tasks"]
    assert (said.code, task["data"]) == (0, {"many": [None, None], "deep": ["Infinity"]})
