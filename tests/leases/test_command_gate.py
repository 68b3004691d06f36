"""``leasectl gate``: closed while a command runs or until it is told, opened by decision; and ``run`` with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ownership
from leases import Gate
from ownership import Verdict
from tests.support.cli import Leasectl, environment, quick, started
from tests.support.processes import eventually
from tests.support.records import file_of, snapshot

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def keep(path: Path, into: Path) -> list[str]:
    """A CMD that keeps the record of *path* as it is while CMD runs."""
    return quick(f"import shutil; shutil.copy({str(file_of(path))!r}, {str(into)!r})")


def test_it_is_closed_while_cmd_runs(leasectl: Leasectl, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    said = leasectl("gate", "close", tmp_path / "g", "--reason", "why not", "--", *keep(tmp_path / "g", seen))
    assert (said.code, said.out) == (0, "")
    assert said.err == f"leasectl: gate {tmp_path / 'g'} is closed\n"
    record = json.loads(seen.read_text())
    assert record["labels"] == {"gate": "closed", "reason": "why not"}
    assert record["lease"]["ttl"] == 5.0
    assert not Gate(tmp_path / "g").is_closed
    assert leasectl("gate", "close", tmp_path / "g", "--", "sh", "-c", "exit 3").code == 3


def test_whoever_asks_it_is_refused_meanwhile(leasectl: Leasectl, tmp_path: Path) -> None:
    run = ("run", "--gate", tmp_path / "g", tmp_path / "x")
    assert leasectl(*run, "--", "true").code == 0
    with Gate(tmp_path / "g").close(reason="upgrade"):
        said = leasectl(*run, "--", "true")
        told = leasectl(*run, "--json", "--", "true").json
        assert leasectl(*run, "--conflict-exit-code", "3", "--", "true").code == 3
        closed = leasectl("gate", "close", tmp_path / "g", "--", "true")
    assert (said.code, closed.code) == (75, 75)
    for one in (said, closed):
        assert f"gate {tmp_path / 'g'} is closed by pid" in one.err
        assert ": upgrade (" in one.err
        assert f"leasectl gate open {tmp_path / 'g'}" in one.err
    assert (told["error"], told["reason"], told["exit_code"]) == ("GateClosedError", "upgrade", 75)


def test_a_gate_of_another_directory_is_a_usage_error(leasectl: Leasectl, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    said = leasectl("run", "--gate", tmp_path / "d" / "g", tmp_path / "x", "--", "true")
    assert said.code == 2
    assert "gate must rule the lock directory of" in said.err


@pytest.mark.parametrize("reason", ["caf\udcff", "x" * 70_000], ids=["no text", "long"])
def test_a_reason_that_no_record_holds_is_a_usage_error(leasectl: Leasectl, tmp_path: Path, reason: str) -> None:
    said = leasectl("gate", "close", tmp_path / "g", "--reason", reason, "--", "true")
    assert (said.code, said.out) == (2, "")
    assert "labels" in said.err
    assert not Gate(tmp_path / "g").is_closed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_without_a_command_it_is_closed_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    gate = Gate(tmp_path / "g")
    with started(["gate", "close", str(tmp_path / "g")], env=environment(), **PIPES) as process:
        eventually(lambda: gate.is_closed)
        process.send_signal(signal.SIGUSR1)
        assert gate.is_closed
        process.send_signal(number)
        assert process.wait(30) == 0
    assert not gate.is_closed


@pytest.mark.skipif(sys.platform != "linux", reason="what is pending is told by /proc")
def test_a_signal_that_was_ignored_at_the_start_leaves_it_closed(tmp_path: Path) -> None:
    """``nohup leasectl gate close``, or in the background of a script."""
    gate = Gate(tmp_path / "g")
    body = (
        "import os, signal, sys\n"
        "for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT): signal.signal(number, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    arguments = ["-m", "leases.cli", "gate", "close", str(tmp_path / "g")]
    with subprocess.Popen([sys.executable, "-c", body, *arguments], env=environment(), **PIPES) as process:
        try:
            eventually(lambda: gate.is_closed)
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                process.send_signal(number)
                eventually(lambda: not is_pending(process.pid))
            assert gate.is_closed
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert not gate.is_closed


def is_pending(pid: int) -> bool:
    """Whether a signal has been sent to it that it has not taken yet."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nShdPnd:")[2].split()[0], 16) != 0


def test_it_is_opened_by_decision_and_its_closer_ends(leasectl: Leasectl, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "g")
    with started(["gate", "close", str(tmp_path / "g"), "--json"], env=environment(), **PIPES) as process:
        eventually(lambda: gate.is_closed)
        said = leasectl("gate", "open", tmp_path / "g")
        assert (said.code, said.err) == (0, "")
        assert f"gate {tmp_path / 'g'} is open; it was closed by pid {process.pid}: live" in said.out
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 76
        told = json.loads(out)
        assert (told["error"], told["reason"]) == ("LeaseLostError", "broken")
    said = leasectl("gate", "open", tmp_path / "g")
    assert (said.code, said.out, said.err) == (0, "", f"leasectl: gate {tmp_path / 'g'} is open already\n")
    told = leasectl("gate", "open", tmp_path / "g", "--json").json
    assert (told["closed"], told["opened"]) == (False, False)


def test_a_command_is_ended_when_the_gate_is_opened(leasectl: Leasectl, tmp_path: Path) -> None:
    body = "import time; print(flush=True); time.sleep(60)"
    arguments = ["gate", "close", str(tmp_path / "g"), "--", *quick(body)]
    with started(arguments, env=environment(), **PIPES) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert leasectl("gate", "open", tmp_path / "g", "--json").json["opened"]
        assert process.wait(30) == 76


def test_an_owner_that_is_no_gate_is_not_evicted(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        said = leasectl("gate", "open", tmp_path / "x")
        assert said.code == 1
        assert f"is no gate that was closed: pid {claim.record.pid} owns it (live)" in said.err
        assert f"leasectl break --token {claim.token}" in said.err
        claim.verify()


def test_show_says_who_closed_it_and_why_and_changes_nothing(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("gate", "show", tmp_path / "g")
    assert (said.code, said.out.splitlines()[0].split()) == (0, ["gate", "open"])
    with Gate(tmp_path / "g").close(reason="an\x1b upgrade") as gate:
        before = snapshot(tmp_path)
        said = leasectl("gate", "show", tmp_path / "g")
        told = leasectl("gate", "show", tmp_path / "g", "--json")
        after = snapshot(tmp_path)
        witness = str(tmp_path / ".leases" / f"{gate.ref.owner.instance_id}.alive")
        assert before.pop(witness)[:6] == after.pop(witness)[:6]  # it beats
        assert before == after
    assert (said.code, told.code) == (75, 75)
    assert [line.split(maxsplit=1)[1] for line in said.out.splitlines()[:2]] == ["closed", "an\\x1b upgrade"]
    assert (told.json["closed"], told.json["why"], told.json["verdict"]) == (True, "an\x1b upgrade", "live")


def test_a_registry_has_a_gate_too(leasectl: Leasectl, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o755)
    shared = ("--registry", registry)
    with Gate("/gate", registry=registry):
        assert leasectl("run", *shared, "--gate", "/gate", "/x", "--", "true").code == 75
        assert leasectl("gate", "show", *shared, "/gate").code == 75
        assert leasectl("gate", "open", *shared, "/gate").code == 0
    assert leasectl("run", *shared, "--gate", "/gate", "/x", "--", "true").code == 0


# leases


def test_run_may_own_for_a_ttl(leasectl: Leasectl, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    assert leasectl("run", "--ttl", "7.5", tmp_path / "x", "--", *keep(tmp_path / "x", seen)).code == 0
    lease = json.loads(seen.read_text())["lease"]
    assert (lease["ttl"], lease["auto_renew"]) == (7.5, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ttl", "5", "--exec"), "--ttl and --exec exclude each other"),
        (("--ttl", "0.5"), "must be a number of seconds >= 1"),
        (("--ttl", "forever"), "must be a number of seconds >= 1"),
    ],
)
def test_a_ttl_that_cannot_be_is_a_usage_error(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    said = leasectl("run", *options, tmp_path / "x", "--", "true")
    assert said.code == 2
    assert message in said.err
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE


def test_leases_are_shown_and_listed(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "plain"):
        assert "LEASE" not in leasectl("list", tmp_path).out
        with ownership.acquire(tmp_path / "x", ttl=30.0), ownership.acquire(tmp_path / "y", ttl=60, auto_renew=False):
            shown = leasectl("show", tmp_path / "x").out
            assert "ttl 30 s, renewed automatically, runs out in " in shown
            assert "renewed by hand" in leasectl("show", tmp_path / "y").out
            assert leasectl("show", tmp_path / "x", "--json").json["record"]["lease"]["ttl"] == 30.0
            header, *rows = leasectl("list", tmp_path).out.splitlines()
            assert header.split() == ["RESOURCE", "VERDICT", "PID", "AGE", "TOKEN", "LEASE", "PHASE", "COMMAND"]
            assert [row[header.index("LEASE") :].split("  ")[0] for row in rows] == ["-", "30 of 30 s", "60 of 60 s"]
            seen = leasectl("watch", tmp_path, "--count", "1").out
            assert "phase owner, lease 30 s" in seen


@pytest.mark.parametrize("act", ["show", "open"])
def test_a_gate_whose_directory_does_not_exist_is_wrong_and_one_that_nobody_closed_is_open(
    leasectl: Leasectl, tmp_path: Path, act: str
) -> None:
    said = leasectl("gate", act, tmp_path / "rnu" / "x.gate")
    assert (said.code, said.out) == (1, "")
    assert f"directory {tmp_path / 'rnu'} does not exist" in said.err
    assert leasectl("gate", act, tmp_path / "rnu" / "x.gate", "--json").json["exit_code"] == 1
    assert leasectl("gate", act, tmp_path / "x.gate").code == 0
