"""``leasectl list``: everything in a directory, and what cannot be read is no reason to hide the rest."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import os
from pathlib import Path

import pytest

import ownership
from leases.cli import main
from leases.commands._command import brief
from leases.commands._facts import age
from ownership import OwnerRecord
from tests.support.cli import VERDICTS, Leasectl, resource
from tests.support.namespaces import NOBODY, die_owning, elsewhere, needs_linux_root
from tests.support.records import file_of, plant, record, snapshot


@pytest.mark.parametrize("verdict", [one for one in VERDICTS if one != "free"])
def test_a_row_has_the_facts_and_nothing_is_changed(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        before = snapshot(tmp_path)
        said = leasectl("list", tmp_path)
        told = leasectl("list", "--json", tmp_path).json
        assert snapshot(tmp_path) == before
    assert said.code == 0
    header, row = said.out.splitlines()
    assert header.split() == ["RESOURCE", "VERDICT", "PID", "AGE", "TOKEN", "PHASE", "COMMAND"]
    assert row.split()[:3] == [str(tmp_path / "x"), verdict, str(told[0]["pid"])]
    assert (told[0]["verdict"], told[0]["record"]["phase"]) == (verdict, "owner")


def test_the_current_directory_is_the_default(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ownership.acquire("x"):
        assert str(tmp_path / "x") in leasectl("list").out


def test_an_empty_directory_is_an_empty_list(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("list", tmp_path)
    assert (said.code, said.out) == (0, "")
    assert leasectl("list", tmp_path, "--json").json == []


@pytest.mark.parametrize("kind", ["file", "dangling", "symlink"])
@pytest.mark.parametrize("line", ["list", "list --json", "reclaim", "reclaim --dry-run", "reclaim --json"])
def test_what_stands_where_the_lock_directory_should_be_is_unusable(
    leasectl: Leasectl, tmp_path: Path, kind: str, line: str
) -> None:
    """As for whoever acquires there, or shows one resource: no owner is seen through it, which is not that none is."""
    (tmp_path / "elsewhere").mkdir()
    with ownership.acquire(tmp_path / "elsewhere" / "x") as claim:
        lock_directory = tmp_path / ".leases"
        if kind == "file":
            lock_directory.touch()
        else:
            lock_directory.symlink_to("nowhere" if kind == "dangling" else "elsewhere/.leases")
        said = leasectl(*line.split(), tmp_path)
        shown = leasectl("show", tmp_path / "x")
        seen = leasectl("watch", "--count", "1", tmp_path)
        claim.verify()
    assert (said.code, shown.code, seen.code) == (65, 65, 0)
    what = f"{lock_directory}: the lock directory is {'not a directory' if kind == 'file' else 'a symlink'}"
    for told in (said.out + said.err, shown.err, seen.out):
        assert what in told
        assert "nobody owns" not in told


def test_what_other_accounts_have_in_a_sticky_directory_is_no_failure(leasectl: Leasectl, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    other = os.geteuid() + 1
    (tmp_path / f".leases-{other}").touch()
    said = leasectl("list", tmp_path)
    assert (said.code, said.out) == (0, "")
    (tmp_path / f".leases-{os.geteuid()}").symlink_to(f".leases-{other}")
    assert leasectl("list", tmp_path).code == 65


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_directory_that_cannot_be_listed_does_not_hide_the_others(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with ownership.acquire(tmp_path / "x"):
        said = leasectl("list", tmp_path / "missing", tmp_path, *options)
    assert said.code == 1
    assert str(tmp_path / "x") in said.out
    assert str(tmp_path / "missing") in (said.out if options else said.err)
    if options:
        assert said.json[-1]["error"] == "FileNotFoundError"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_unreadable_record_is_listed_with_its_error(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with ownership.acquire(tmp_path / "x"):
        file_of(tmp_path / "bad").mkdir()
        said = leasectl("list", tmp_path, *options)
    assert said.code == 65
    assert str(tmp_path / "x") in said.out
    if options:
        (bad,) = [one for one in said.json if "error" in one]
        assert bad["resource"] == str(tmp_path / "bad")
        assert bad["exit_code"] == 65
    else:
        assert "unusable" in said.out


def test_a_registry_is_listed_whole_or_for_one_directory(leasectl: Leasectl, tmp_path: Path) -> None:
    registry, here, there = tmp_path / "registry", tmp_path / "here", tmp_path / "there"
    for directory in (registry, here, there):
        directory.mkdir(mode=0o755)
    with ownership.acquire(here / "x", also=[there / "y"], registry=registry):
        whole = leasectl("list", "--registry", registry, "--json").json
        part = leasectl("list", there, "--registry", registry, "--json").json
    assert [one["resource"] for one in whole] == [str(here / "x"), str(there / "y")]
    assert [one["resource"] for one in part] == [str(there / "y")]


def test_names_that_are_not_utf8_are_listed(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "caf\udce9") as claim:
        assert claim.record.resource in leasectl("list", tmp_path).out
        assert leasectl("list", tmp_path, "--json").json[0]["resource"] == claim.record.resource


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_age_is_in_one_unit(seconds: int, shown: str) -> None:
    now = dt.datetime(2026, 11, 29, tzinfo=dt.UTC)
    assert age(OwnerRecord(**record(), acquired_at=now - dt.timedelta(seconds=seconds)), now) == shown


def test_an_owner_that_does_not_say_since_when_has_no_age() -> None:
    assert age(OwnerRecord(**record())) == "-"


def test_a_lock_directory_can_be_named_itself(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        assert str(tmp_path / "x") in leasectl("list", os.path.join(tmp_path, ".leases")).out


def test_a_file_whose_name_is_not_ours_hides_nothing(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        (tmp_path / ".leases" / "caf\udce9.json").write_bytes(b"{")
        said = leasectl("list", tmp_path)
    assert said.code == 0
    assert [row.split()[1] for row in said.out.splitlines()] == ["VERDICT", "unknown", "live"]


COMMANDS = {
    "/tmp/v/bin/python3 /tmp/v/bin/leasectl run a.sock -- sleep 60": "leasectl run a.sock -- sleep 60",
    "python supervisor.py /etc/x": "supervisor.py /etc/x",
    "/usr/bin/python3.13t ./x.py": "x.py",
    "/usr/bin/python3 -m http.server": "python3 -m http.server",
    "/bin/sh -c 'exec /bin/x'": "sh -c 'exec /bin/x'",
    "/usr/bin/python3": "python3",
    "/usr/sbin/nginx -c /etc/nginx.conf": "nginx -c /etc/nginx.conf",
    "'/opt/my app/bin/python' '/opt/my app/a b.py' --x": "'a b.py' --x",
    "'/opt/it'\"'\"'s/server' -v": "server -v",
    "[kworker/0:1]": "[kworker/0:1]",
    "nginx: master process /usr/sbin/nginx": "nginx: master process /usr/sbin/nginx",
    "python '/tmp/cut in the midd…": "python '/tmp/cut in the midd…",
    "'/tmp/cut…": "'/tmp/cut…",
    "planted": "planted",
    "": "",
    "/": "/",
}


@pytest.mark.parametrize(("command", "shown"), COMMANDS.items())
def test_a_command_is_shown_without_its_folders(command: str, shown: str) -> None:
    assert brief(command) == shown


def test_the_table_shows_a_short_command_and_json_the_whole(leasectl: Leasectl, tmp_path: Path) -> None:
    command = "/tmp/v/bin/python3 /tmp/v/bin/leasectl run a.sock -- /bin/true"
    plant(tmp_path / "x", {**record(), "command": command})
    assert leasectl("list", tmp_path).out.splitlines()[1].endswith("  leasectl run a.sock -- /bin/true")
    assert leasectl("list", tmp_path, "--json").json[0]["record"]["command"] == command


@pytest.mark.parametrize("command", ["list", "doctor"])
@pytest.mark.parametrize("there", [True, False], ids=["a file", "no file"])
@pytest.mark.parametrize("shared", [True, False], ids=["in a registry", "beside it"])
def test_a_resource_is_no_directory(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, there: bool, shared: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("reg", mode=0o755)
    options = ("--registry", "reg") if shared else ()
    if there:
        Path("a.sock").touch()
    with ownership.acquire("a.sock", registry="reg" if shared else None):
        said = leasectl(command, "a.sock", *options)
        told = leasectl(command, "a.sock", "--json", *options)
    show = "leasectl show --registry reg a.sock" if shared else "leasectl show a.sock"
    assert (said.code, told.code) == (1, 1)
    assert said.err.startswith(f"leasectl: a.sock is a resource, not a directory: {show}\n")
    assert show in told.out


def test_a_file_that_nobody_owns_is_just_no_directory(leasectl: Leasectl, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    said = leasectl("list", tmp_path / "x")
    assert said.code == 1
    assert "Not a directory" in said.err


def test_a_lock_directory_that_everybody_may_write_in_is_not_believed(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        (tmp_path / ".leases").chmod(0o777)
        for command in ("list", "reclaim"):
            said = leasectl(command, tmp_path)
            assert said.code == 65
            assert "every account may write in it" in said.out + said.err
        (tmp_path / ".leases").chmod(0o700)


@needs_linux_root
def test_what_another_account_keeps_to_itself_is_no_failure(open_directory: Path) -> None:
    open_directory.chmod(0o1777)
    for uid in (0, NOBODY):
        elsewhere(lambda: die_owning(open_directory / "x"), uid=uid)

    def listed() -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            return main(["list", str(open_directory)]), said.getvalue()

    code, text = elsewhere(listed, uid=NOBODY)
    assert code == 0
    assert ".leases-0" in text
    assert [row.split()[1] for row in text.splitlines()[1:]] == ["unusable", "gone"]


@pytest.mark.parametrize("owned", [True, False])
def test_a_directory_that_everybody_may_write_in_is_listed_as_unusable(
    leasectl: Leasectl, open_directory: Path, owned: bool
) -> None:
    """As ``show`` and every acquire say: what is listed there may be anybody's."""
    with contextlib.ExitStack() as stack:
        if owned:
            stack.enter_context(ownership.acquire(open_directory / "x"))
        open_directory.chmod(0o777)
        shown, said = leasectl("show", open_directory / "x"), leasectl("list", open_directory, "--json")
        *others, last = sorted(said.json, key=lambda one: "error" in one)
        assert (shown.code, said.code, last["resource"]) == (65, 65, str(open_directory))
        assert last["hint"] == f"chmod o-w {open_directory}"
        assert [one["verdict"] for one in others] == ["live"] * owned
        open_directory.chmod(0o1777)
        assert leasectl("list", open_directory).code == 0
