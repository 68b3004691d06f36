"""``leasectl run`` in this process: who owns while CMD runs, and what it returns."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import ownership
from tests.support.cli import Leasectl, quick, resource
from tests.support.records import file_of, names, plant, record


def owner_while(path: Path, into: Path) -> list[str]:
    """A CMD that keeps the record of *path* as it is while CMD runs."""
    return quick(f"import shutil; shutil.copy({str(file_of(path))!r}, {str(into)!r})")


def test_this_process_owns_while_cmd_runs_and_nobody_afterwards(leasectl: Leasectl, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    said = leasectl(
        "run", tmp_path / "x", "--label", "app=1.2", "--label", "by=", "--", *owner_while(tmp_path / "x", seen)
    )
    assert (said.code, said.out, said.err) == (0, "", "")
    kept = json.loads(seen.read_text())
    assert (kept["pid"], kept["labels"]) == (os.getpid(), {"app": "1.2", "by": ""})
    assert ownership.inspect(tmp_path / "x").verdict == "free"


@pytest.mark.parametrize("code", [0, 1, 3, 75, 255])
def test_the_exit_code_is_that_of_cmd(leasectl: Leasectl, tmp_path: Path, code: int) -> None:
    assert leasectl("run", tmp_path / "x", "--", "sh", "-c", f"exit {code}").code == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_an_end_by_a_signal_is_128_and_its_number(leasectl: Leasectl, tmp_path: Path, number: signal.Signals) -> None:
    assert (
        leasectl("run", tmp_path / "x", "--", "sh", "-c", f"ulimit -c 0; kill -{number.value} $$").code == 128 + number
    )


@pytest.mark.parametrize("options", [(), ("--exec",)])
@pytest.mark.parametrize(
    ("cmd", "code"), [("no-such-program", 127), ("/no/such/program", 127), ("/", 126), ("plain", 126)]
)
def test_what_cannot_be_run_leaves_nothing_owned(
    leasectl: Leasectl, tmp_path: Path, cmd: str, code: int, options: tuple[str, ...]
) -> None:
    if cmd == "plain":
        cmd = str(tmp_path / "plain")
        Path(cmd).write_text("no program\n")
    said = leasectl("run", tmp_path / "x", *options, "--", cmd)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith(f"leasectl: {cmd}: ")
    assert ownership.inspect(tmp_path / "x").verdict == "free"
    told = leasectl("run", tmp_path / "x", "--json", *options, "--", cmd).json
    assert (told["error"], told["exit_code"]) == ("CommandError", code)


def test_the_handlers_and_the_mask_of_this_process_are_as_before(leasectl: Leasectl, tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        return signal.pthread_sigmask(signal.SIG_BLOCK, []), *map(signal.getsignal, signal.valid_signals())

    before = state()
    for options in ((), ("--exec",)):
        for cmd in ("true", "no-such-program"):
            if not (options and cmd == "true"):
                leasectl("run", tmp_path / "x", *options, "--", cmd)
    assert state() == before


@pytest.mark.parametrize("verdict", ["live", "stopped", "unknown"])
def test_a_refusal_carries_every_fact(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        owner = ownership.inspect(tmp_path / "x").record
        said = leasectl("run", tmp_path / "x", "--", "true")
        told = leasectl("run", tmp_path / "x", "--json", "--", "true", "--json").json
    assert owner is not None
    assert (said.code, said.out) == (75, "")
    for fact in (tmp_path / "x", owner.pid, verdict, told["reason"], told["hint"]):
        assert str(fact) in said.err
    assert told | {"error": "AlreadyOwnedError", "exit_code": 75, "pid": owner.pid, "verdict": verdict} == told
    assert (told["start_id"], told["instance_id"]) == (owner.start_id, owner.instance_id)
    assert "reclaim" not in said.err


@pytest.mark.parametrize("verdict", ["gone", "zombie", "reused", "expired", "free"])
def test_an_owner_that_is_over_is_no_hindrance(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        assert leasectl("run", tmp_path / "x", "--", "true").code == 0


@pytest.mark.parametrize("timeout", ["0", "0.01"])
def test_the_exit_code_of_a_conflict_can_be_chosen(leasectl: Leasectl, tmp_path: Path, timeout: str) -> None:
    with ownership.acquire(tmp_path / "x"):
        options = ("--timeout", timeout, "--conflict-exit-code", "0")
        said = leasectl("run", tmp_path / "x", *options, "--", "false")
        told = leasectl("run", tmp_path / "x", *options, "--json", "--", "false").json
    assert said.code == 0
    assert "is held by" in said.err
    assert told["exit_code"] == 0


def test_waiting_is_announced_once_with_who_holds_it(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"):
        said = leasectl("run", tmp_path / "x", "--timeout", "0.01", "--", "true")
    assert said.code == 75
    assert said.err.count("waiting: ") == 1
    assert f"pid {os.getpid()}" in said.err.splitlines()[0]


def test_several_resources_are_owned_together_or_not_at_all(leasectl: Leasectl, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    cmd = owner_while(tmp_path / "y", seen)
    assert leasectl("run", tmp_path / "x", "--also", tmp_path / "y", "--", *cmd).code == 0
    assert json.loads(seen.read_text())["pid"] == os.getpid()
    with ownership.acquire(tmp_path / "y"):
        said = leasectl("run", tmp_path / "x", "--also", tmp_path / "y", "--", "true")
        assert ownership.inspect(tmp_path / "x").verdict == "free"
    assert said.code == 75
    assert str(tmp_path / "y") in said.err


def test_the_records_can_be_in_a_registry(leasectl: Leasectl, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o755)
    with ownership.acquire(tmp_path / "x", registry=registry):
        assert leasectl("run", tmp_path / "x", "--registry", registry, "--", "true").code == 75
        assert leasectl("run", tmp_path / "x", "--", "true").code == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--label", "novalue"),
        ("--label", "=x"),
        ("--label", "a=\udcff"),
        ("--timeout", "-1"),
        ("--grace", "forever"),
        ("--grace", "-1"),
        ("--conflict-exit-code", "256"),
        ("--ttl", "0.5"),
    ],
)
def test_options_that_cannot_be_right_are_usage_errors(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = leasectl("run", tmp_path / "x", *options, "--", "true")
    assert said.code == 2
    assert options[0] in said.err
    assert not (tmp_path / ".leases").exists()


def test_a_command_is_needed(leasectl: Leasectl, tmp_path: Path) -> None:
    assert leasectl("run", tmp_path / "x").code == leasectl("run", tmp_path / "x", "--").code == 2
    assert leasectl("run", tmp_path / "x", "--", "").code == 2


def test_a_missing_directory_is_told_with_its_path(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("run", tmp_path / "missing" / "x", "--", "true")
    assert said.code == 1
    assert str(tmp_path / "missing") in said.err


def test_a_malformed_record_that_nobody_is_known_to_own_is_replaced(leasectl: Leasectl, tmp_path: Path) -> None:
    plant(tmp_path / "x", {**record(), "pid": 0})
    assert leasectl("run", tmp_path / "x", "--", "true").code == 0
    assert "x.json" not in names(tmp_path / ".leases")


def test_what_comes_after_the_dashes_is_passed_as_it_is(leasectl: Leasectl, tmp_path: Path) -> None:
    into = tmp_path / "into"
    body = f"import os, sys; open({str(into)!r}, 'wb').write(b'|'.join(map(os.fsencode, sys.argv[1:])))"
    arguments = ["--json", "--", "-x", "", "caf\udce9", "--timeout"]
    assert leasectl("run", tmp_path / "x", "--", *quick(body), *arguments).code == 0
    assert into.read_bytes() == b"--json|--|-x||caf\xe9|--timeout"


def test_a_loss_that_shows_only_at_the_end_is_still_told(leasectl: Leasectl, tmp_path: Path) -> None:
    """CMD itself deletes the record and puts a later owner's there, then succeeds."""
    later = tmp_path / "later.json"
    later.write_text(json.dumps(record(token=2**52)))
    body = f"import os; os.replace({str(later)!r}, {str(file_of(tmp_path / 'x'))!r})"
    said = leasectl("run", tmp_path / "x", "--json", "--", *quick(body))
    assert said.code == 76
    assert (said.json["error"], said.json["reason"]) == ("OwnershipLostError", "owner-replaced")
    assert "is not ours any more" in said.err


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_forgotten_mark_before_cmd_is_told(leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]) -> None:
    said = leasectl("run", *options, tmp_path / "a.lock", "ls", "-l")
    assert said.code == 2
    assert "No such option" in said.out + said.err
    assert "put -- before CMD" in said.out + said.err
    said = leasectl("run", *options, "--colour", tmp_path / "a.lock", "--", "ls", "-l")
    assert said.code == 2
    assert "put --" not in said.out + said.err


def test_the_help_says_whose_json_is_on_stdout(leasectl: Leasectl) -> None:
    told = " ".join(leasectl("run", "--help").out.split())
    assert "--json writes JSON only for errors; what CMD writes is on the same stdout" in told
