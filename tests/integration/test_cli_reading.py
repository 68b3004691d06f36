"""The commands that only read, on real files: other accounts, other namespaces, thousands of records, closed pipes."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ownership
from ownership._models import GuardState
from tests.support.cli import LEASECTL, ROOT, VERDICTS, environment, leasectl, resource, started
from tests.support.namespaces import AS_NOBODY, NEW_PIDS, NOBODY, needs_linux_root, other_accounts_can_run_us
from tests.support.records import (
    file_of,
    identity,
    lock_directory,
    other_start_id,
    plant,
    plant_guard,
    record,
    snapshot,
)
from tests.support.terminal import Terminal

pytestmark = needs_linux_root

HIDDEN = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh", *AS_NOBODY)
# every reading command, again and again in one process; says its exit codes
READ_ALL = """
import contextlib, io, json, sys
from leases.cli import main
rounds, directory, registry, *names = sys.argv[1:]
where = ["--registry", registry] if registry else []
codes = {}
for _ in range(int(rounds)):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for name in names:
            path = f"{directory}/{name}"
            found = [main(["show", path, *where])]
            found += [main(["wait", path, "--timeout", "0", "--json", *where])]
            found += [main(["reclaim", "--dry-run", path, *where])]
            codes.setdefault(name, set()).add(tuple(found))
        codes.setdefault("list", set()).add((main(["list", *([] if registry else [directory]), *where]),))
        watched = ["watch", "--count", "1", *([] if registry else [directory]), *where]
        codes.setdefault("watch", set()).add((main(watched),))
        main(["reclaim", "--dry-run", *([] if registry else [directory]), *where])
print(json.dumps({name: sorted(found) for name, found in codes.items()}))
"""


@pytest.fixture
def nobody() -> tuple[str, ...]:
    """What makes a command run as another account."""
    if not other_accounts_can_run_us():
        pytest.skip("other accounts cannot run this interpreter")
    return AS_NOBODY


def read_all(
    directory: Path, registry: Path | None, names: list[str], prefix: tuple[str, ...], rounds: int
) -> dict[str, list[list[int]]]:
    command = [*prefix, sys.executable, "-c", READ_ALL, str(rounds), str(directory), str(registry or ""), *names]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[int]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "prefix",
    [(), NEW_PIDS, AS_NOBODY, HIDDEN],
    ids=["here", "another pid namespace", "another account", "another account under hidepid"],
)
@pytest.mark.parametrize("rounds", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_reading_again_and_again_leaves_every_byte_as_it_was(
    open_directory: Path, prefix: tuple[str, ...], rounds: int
) -> None:
    if AS_NOBODY[0] in prefix and not other_accounts_can_run_us():
        pytest.skip("other accounts cannot run this interpreter")
    registry = open_directory / "registry"
    registry.mkdir(mode=0o755)
    with contextlib.ExitStack() as stack:
        for verdict in VERDICTS:
            stack.enter_context(resource(open_directory / verdict, verdict))
        plant(open_directory / "malformed", b"{")
        plant_guard(open_directory / "malformed", GuardState(token=5, owner=identity()))
        plant(open_directory / "foreign", record(boot_id="another-boot"))
        for path in lock_directory(open_directory / "x").iterdir():
            name = (
                path.name
                if path.suffix in (".alive", ".gitignore")
                else file_of(open_directory / path.stem, "", registry).name
            )
            path_there = registry / f"{name.rstrip('.')}{path.suffix if path.suffix != '.alive' else ''}"
            path_there.write_bytes(path.read_bytes())
            path_there.chmod(0o644)
        names = [*VERDICTS, "malformed", "foreign"]
        before = snapshot(open_directory)
        found = read_all(open_directory, registry if AS_NOBODY[0] in prefix else None, names, prefix, rounds)
        assert snapshot(open_directory) == before
    assert all(len(codes) == 1 for codes in found.values()), found
    if not prefix:
        shows = {name: codes[0][0] for name, codes in found.items() if name in VERDICTS}
        assert shows == {
            "live": 0,
            "free": 10,
            "stopped": 11,
            "gone": 12,
            "zombie": 13,
            "reused": 14,
            "expired": 15,
            "unknown": 16,
        }


def test_another_account_judges_through_the_registry_and_is_refused(
    open_directory: Path, nobody: tuple[str, ...]
) -> None:
    """EPERM from the owner's process is not its death."""
    registry = open_directory / "registry"
    registry.mkdir(mode=0o755)
    with ownership.acquire(open_directory / "x", registry=registry) as claim:
        before = file_of(open_directory / "x", registry=registry).read_bytes()
        shown = leasectl("show", open_directory / "x", "--registry", registry, prefix=nobody)
        refused = leasectl("run", open_directory / "x", "--registry", registry, "--", "true", prefix=nobody)
        assert file_of(open_directory / "x", registry=registry).read_bytes() == before
        claim.verify()
    assert (shown.returncode, refused.returncode) == (0, 75)
    assert f"pid {os.getpid()}" in refused.stderr
    assert "live" in refused.stderr


def test_the_lock_directory_of_another_account_has_a_code_of_its_own_and_the_remedy(
    open_directory: Path, nobody: tuple[str, ...]
) -> None:
    open_directory.chmod(0o777 | 0o1000)
    (open_directory / f".leases-{NOBODY}").mkdir(mode=0o700)  # made by root, with an older tool
    for command in (["run", open_directory / "x", "--", "true"], ["show", open_directory / "x"]):
        said = leasectl(*command, prefix=nobody)
        assert said.returncode == 65
        assert "uid 0" in said.stderr
        assert f"chown -R {NOBODY}" in said.stderr
    told = json.loads(leasectl("show", open_directory / "x", "--json", prefix=nobody).stdout)
    assert (told["errno"], told["exit_code"]) == ("EACCES", 65)


def test_a_directory_in_which_nothing_can_be_made_is_a_failure_with_path_and_hint(
    open_directory: Path, nobody: tuple[str, ...]
) -> None:
    said = leasectl("run", open_directory / "x", "--", "true", prefix=nobody)
    assert said.returncode == 1
    assert str(open_directory) in said.stderr
    assert "hint: " in said.stderr


def test_a_lock_directory_that_cannot_be_read_is_told_when_listing(
    open_directory: Path, nobody: tuple[str, ...]
) -> None:
    with ownership.acquire(open_directory / "x"):
        said = leasectl("list", open_directory, prefix=nobody)
    assert said.returncode == 65
    assert ".leases" in said.stderr + said.stdout


def test_a_lock_directory_that_cannot_be_read_does_not_hide_the_next(
    open_directory: Path, nobody: tuple[str, ...]
) -> None:
    open_directory.chmod(0o1777)
    (open_directory / ".leases").mkdir(mode=0o700)
    (open_directory / f".leases-{NOBODY}").mkdir(mode=0o700)
    os.chown(open_directory / f".leases-{NOBODY}", NOBODY, NOBODY)
    plant_in = open_directory / f".leases-{NOBODY}" / "x.json"
    plant_in.write_text(json.dumps(record(boot_id="another-boot")))
    os.chown(plant_in, NOBODY, NOBODY)
    for options in ((), ("--json",)):
        said = leasectl("list", open_directory, *options, prefix=nobody)
        assert said.returncode == 0  # each account has its own in a sticky directory
        assert str(open_directory / "x") in said.stdout
        assert str(open_directory / ".leases") in said.stdout + said.stderr


# -- many


@pytest.fixture(scope="module", params=[1000, pytest.param(10_000, marks=pytest.mark.slow)])
def many(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A directory with thousands of records of dead owners."""
    directory = tmp_path_factory.mktemp("many")
    fields = record()
    dead = {**fields, "start_id": other_start_id(fields["start_id"])}
    plant(directory / "first", dead)
    for index in range(request.param - 1):
        raw = json.dumps({**dead, "pid": 2**30 + index, "instance_id": f"{index:032x}"})
        (directory / ".leases" / f"r{index}.json").write_text(raw)
    return directory


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_thousands_of_records_are_listed_with_the_live_one(many: Path, options: tuple[str, ...]) -> None:
    dead = sum(name.endswith(".json") for name in os.listdir(many / ".leases"))
    with ownership.acquire(many / "live"):
        said = leasectl("list", many, *options)
    assert said.returncode == 0
    rows = json.loads(said.stdout) if options else said.stdout.splitlines()[1:]
    assert len(rows) == dead + 1
    assert sum((one["verdict"] if options else one.split()[1]) == "live" for one in rows) == 1


def test_a_reader_that_has_seen_enough_is_no_error(many: Path) -> None:
    for command in (["list", many], ["list", many, "--json"], ["reclaim", "--dry-run", many]):
        with started(
            [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 1


def test_a_full_disk_behind_stdout_is_told_once(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        said = leasectl("show", tmp_path / "x", stdout=full)
    assert said.returncode == 1
    assert said.stderr == f"leasectl: cannot write to stdout: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("--version",), ("show", "--help")])
def test_a_full_disk_behind_help_is_told_once_too(arguments: tuple[str, ...]) -> None:
    if arguments == ("--version",) and not importlib.util.find_spec("leasectl"):
        pytest.skip("not installed, so that its version is unknown")
    with open("/dev/full", "w") as full:
        said = leasectl(*arguments, stdout=full)
    assert said.returncode == 1
    assert said.stderr == f"leasectl: cannot write to stdout: {os.strerror(errno.ENOSPC)}\n"


def test_a_reader_that_has_seen_enough_of_the_help_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    said = leasectl("--help", stdout=writer)
    os.close(writer)
    assert (said.returncode, said.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [(), ("gate",), ("roster",), ("show",), ("list", "/nowhere/at/all")])
def test_a_full_disk_behind_stderr_changes_no_exit_code(arguments: tuple[str, ...]) -> None:
    code = leasectl(*arguments).returncode
    with open("/dev/full", "w") as full:
        done = subprocess.run([*LEASECTL, *arguments], stderr=full, env=environment(), timeout=60)
    assert done.returncode == code


# -- the terminal


def test_a_table_is_drawn_for_people_and_plain_for_pipes(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with ownership.acquire(tmp_path / "x"):
        piped = leasectl("list", tmp_path, env={"FORCE_COLOR": "1"})
        with subprocess.Popen(
            [*LEASECTL, "list", str(tmp_path)], stdout=slave, env=environment(TERM="xterm", COLUMNS="200")
        ) as process:
            os.close(slave)
            seen = read_to_the_end(master)
            assert process.wait(60) == 0
    os.close(master)
    assert "\x1b[" in seen
    assert "live" in seen
    assert "\x1b" not in piped.stdout


def test_a_narrow_terminal_gets_a_line_for_each_owner(tmp_path: Path) -> None:
    for name in ("a", "b"):
        plant(tmp_path / f"{'long' * 20}.{name}", {**record(), "command": "server " + "--option " * 10})
    with (
        Terminal(60) as terminal,
        subprocess.Popen(
            [*LEASECTL, "list", str(tmp_path)], stdout=terminal.slave, env=terminal_environment()
        ) as process,
    ):
        terminal.close_slave()
        lines = [line.rstrip() for line in terminal.read_to_the_end() if line.strip()]
        assert process.wait(60) == 0
    assert len(lines) == 3
    assert all(len(line) <= 60 for line in lines)
    assert [line.split()[0][-2:] for line in lines[1:]] == [".a", ".b"]


def terminal_environment() -> dict[str, str]:
    """What says nothing of the size of a terminal, which is asked then."""
    return {name: value for name, value in environment(TERM="xterm").items() if name not in ("COLUMNS", "LINES")}


def read_to_the_end(descriptor: int) -> str:
    said = b""
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # EIO: the other end of a terminal is closed
            chunk = b""
        if not chunk:
            return said.decode()
        said += chunk


# -- starting


def test_starting_loads_nothing_that_only_tables_and_waiting_need(tmp_path: Path) -> None:
    program = (
        "import sys; from leases.cli import main; code = main(['show', sys.argv[1]]); "
        "print(code, sorted({'rich', 'psutil'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "x")]
    said = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.splitlines()[-1] == "10 []"


def test_waiting_ends_when_the_owner_does(tmp_path: Path) -> None:
    with (
        ownership.acquire(tmp_path / "x") as claim,
        subprocess.Popen(
            [*LEASECTL, "wait", str(tmp_path / "x")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as waiting,
    ):
        try:
            assert waiting.stderr is not None
            assert f"pid {os.getpid()}" in waiting.stderr.readline()
            claim.release()
            assert waiting.wait(30) == 0
        finally:
            waiting.kill()


INSTALLED = str(Path(ROOT, "leases", "_leasectl.py"))  # becomes a module of its own, ``leasectl``


def test_the_program_can_be_started_as_installed(tmp_path: Path) -> None:
    """Its entry point is a function without arguments that returns the exit code."""
    body = "import sys, runpy; sys.exit(runpy.run_path(sys.argv.pop(1))['main']())"
    done = subprocess.run(
        [sys.executable, "-c", body, INSTALLED, "show", str(tmp_path / "x")],
        env=environment(),
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert done.returncode == 10


@pytest.mark.parametrize("module", ["signal", "leases", "click", "pydantic_core", "ownership._errors", "ownership"])
def test_ctrl_c_while_it_is_being_imported_is_130_without_a_word(tmp_path: Path, module: str) -> None:
    with ownership.acquire(tmp_path / "x"):
        command = [sys.executable, "-X", "importtime", INSTALLED, "wait", str(tmp_path / "x")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as started:
            try:
                assert started.stderr is not None
                for line in started.stderr:
                    if line.rpartition("|")[2].strip() == module:
                        break
                else:
                    raise AssertionError(f"{module} was not imported")
                started.send_signal(signal.SIGINT)
                said = [line for line in started.stderr if not line.startswith("import time:")]
                assert started.wait(30) == 130
            finally:
                started.kill()
    assert "Traceback" not in "".join(said)
    assert not said or said[-1] == "leasectl: interrupted\n"


@pytest.mark.parametrize("arguments", [("schema",), ("show", "x")], ids=["schema", "show"])
def test_ctrl_c_after_the_last_word_changes_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """When the interpreter ends: what was asked has been told."""
    body = (
        "import atexit, os, runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); sys.exit(runpy.run_path(sys.argv.pop(1))['main']())"
    )
    command = [sys.executable, "-c", body, INSTALLED, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (10 if arguments[0] == "show" else 0, "")
    assert done.stdout


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    """Started in the background of a script, for instance."""
    with ownership.acquire(tmp_path / "x") as claim:
        command = [sys.executable, INSTALLED, "wait", str(tmp_path / "x")]
        script = (
            "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, *command], stderr=subprocess.PIPE, text=True, env=environment()
        ) as started:
            try:
                assert started.stderr is not None
                assert f"pid {os.getpid()}" in started.stderr.readline()
                started.send_signal(signal.SIGINT)
                claim.release()
                assert started.wait(30) == 0
            finally:
                started.kill()
