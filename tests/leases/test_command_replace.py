"""``leasectl replace``, and what ``show``, ``list`` and ``doctor`` say of requests and of what was closed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

import ownership
from ownership.testing import sleeping_process, zombie
from tests.support.cli import Leasectl, quick
from tests.support.families import state_of
from tests.support.records import fields_of, file_of, plant, record, snapshot
from tests.support.waiting import eventually


def request(path: Path, pid: int) -> None:
    """Have *pid* ask the owner of *path* to go, by hand: mark and request."""
    fields = {**record(pid), "token": 5000, "phase": "request", "reason": "upgrade", "command": "deploy now"}
    file_of(path, "request").write_text(json.dumps(fields | {"acquired_at": "2026-11-29T15:12:04.123456Z"}))
    guard = file_of(path, "guard")
    guard.write_bytes(guard.read_bytes()[:511].ljust(511) + b"?")


def test_the_owner_is_stopped_and_cmd_owns_in_its_place(leasectl: Leasectl, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    cmd = quick(f"import shutil; shutil.copy({str(file_of(tmp_path / 'x'))!r}, {str(seen)!r}); raise SystemExit(7)")
    with sleeping_process() as pid:
        plant(tmp_path / "x", {**record(pid), "command": "old"})
        said = leasectl("replace", tmp_path / "x", "--reason", "up", "--grace", "0", "--label", "app=2", "--", *cmd)
        assert state_of(pid) == "Z"
    assert (said.code, said.out) == (7, "")
    assert said.err.startswith("leasectl: asking its owner to go: ")
    kept = json.loads(seen.read_text())
    assert (kept["pid"], kept["labels"]) == (os.getpid(), {"app": "2"})
    found = ownership.inspect(tmp_path / "x")
    assert found.verdict == "free"


def test_without_cmd_the_resource_is_free_afterwards(leasectl: Leasectl, tmp_path: Path) -> None:
    for options in ((), ("--json",)):
        with sleeping_process() as pid:
            plant(tmp_path / "x", record(pid))
            said = leasectl("replace", tmp_path / "x", "--grace", "0", *options)
            assert state_of(pid) == "Z"
        assert said.code == 0
        assert (json.loads(said.out)["replaced"] is True) if options else ("is free" in said.out)
        assert not file_of(tmp_path / "x").exists()
        assert not file_of(tmp_path / "x", "request").exists()


def test_where_nobody_owns_it_is_run(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("replace", tmp_path / "x", "--", "sh", "-c", "exit 3")
    assert (said.code, said.err) == (3, "")


def test_the_younger_of_two_is_told_of_the_older_and_exits_75(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as owner, sleeping_process() as asker, ownership.acquire(tmp_path / "y"):
        plant(tmp_path / "x", record(owner))
        file_of(tmp_path / "x", "guard").write_bytes(b"")
        request(tmp_path / "x", asker)
        said = leasectl("replace", tmp_path / "x", "--", "true")
        assert said.code == 75
        assert f"pid {asker} (deploy now)" in said.err
        assert "(upgrade)" in said.err
        told = leasectl("replace", tmp_path / "x", "--json", "--", "true").json
        assert (told["error"], told["pid"], told["exit_code"]) == ("AlreadyOwnedError", asker, 75)
        assert leasectl("replace", tmp_path / "x", "--conflict-exit-code", "9").code == 9
        said = leasectl("run", tmp_path / "x", "--", "true")
        assert said.code == 75
        assert ownership.is_alive(owner)


def test_bad_arguments_are_usage_errors(leasectl: Leasectl, tmp_path: Path) -> None:
    assert leasectl("replace").code == 2
    assert leasectl("replace", tmp_path / "x", "--grace", "soon").code == 2
    assert leasectl("replace", tmp_path / "x", "--grace", "-1").code == 2
    assert "leasectl replace PATH -- CMD" in leasectl("replace", tmp_path / "x", "ls", "-l").err


def test_a_missing_directory_is_an_error(leasectl: Leasectl, tmp_path: Path) -> None:
    assert leasectl("replace", tmp_path / "no" / "x", "--", "true").code == 1


def test_show_tells_who_asks_why_and_since_when_and_changes_nothing(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as asker, ownership.acquire(tmp_path / "x"):
        request(tmp_path / "x", asker)
        before = snapshot(tmp_path)
        said = leasectl("show", tmp_path / "x")
        assert said.code == 0
        assert f"pid {asker} (deploy now) asks the owner to go since 2026-11-29T15:12:04.123456Z: upgrade" in said.out
        told = leasectl("show", tmp_path / "x", "--json").json["request"]
        assert (told["pid"], told["reason"], told["token"], told["stands"]) == (asker, "upgrade", 5000, True)
        assert leasectl("list", tmp_path).code == 0
        assert leasectl("doctor", tmp_path).code == 0
        assert snapshot(tmp_path) == before


def test_show_and_doctor_tell_of_a_request_that_nobody_stands_for(leasectl: Leasectl, tmp_path: Path) -> None:
    with zombie() as asker, ownership.acquire(tmp_path / "x"):
        request(tmp_path / "x", asker)
        assert "asked the owner to go, and does not any more" in leasectl("show", tmp_path / "x").out
        said = leasectl("doctor", tmp_path)
        assert said.code == 0
        assert "leftover-request (note)" in said.out
        assert "leasectl break" in said.out
        assert leasectl("break", tmp_path / "x", "--token", "5000").code == 0
        assert leasectl("doctor", tmp_path).out == ""


def test_breaking_the_token_of_a_request_says_that_it_was_withdrawn_and_that_the_owner_goes_on(
    leasectl: Leasectl, tmp_path: Path
) -> None:
    with sleeping_process() as asker, ownership.acquire(tmp_path / "x") as claim:
        request(tmp_path / "x", asker)
        said = leasectl("break", tmp_path / "x", "--token", "5000")
        assert (said.code, said.err) == (0, "")
        assert said.out == (
            f"withdrawn: the request of pid {asker} (deploy now) for {tmp_path / 'x'}; "
            f"the owner, pid {os.getpid()}, goes on\n"
        )
        request(tmp_path / "x", asker)
        told = leasectl("break", tmp_path / "x", "--token", "5000", "--json").json
        assert (told["broken"], told["withdrawn"], told["request"]["pid"]) == (False, True, asker)
        claim.verify()
        told = leasectl("break", tmp_path / "x", "--token", claim.token, "--json").json
        assert (told["broken"], told["withdrawn"]) == (True, False)


def test_a_replace_whose_request_is_withdrawn_ends_with_75(leasectl: Leasectl, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with sleeping_process() as owner:
        plant(path, record(owner))

        def withdraw() -> None:
            eventually(lambda: file_of(path, "request").exists())
            token = json.loads(file_of(path, "request").read_text())["token"]
            ownership.break_claim(path, token=token)

        thread = threading.Thread(target=withdraw)
        thread.start()
        said = leasectl("replace", path, "--grace", "60", "--", "true")
        thread.join()
        assert ownership.is_alive(owner)
    assert said.code == 75
    assert "does not stand any more, by decision" in said.err


@pytest.mark.parametrize("reason", ["", "upgrade"])
def test_a_record_that_was_closed_says_so_and_when_it_will_be_free(
    leasectl: Leasectl, tmp_path: Path, reason: str
) -> None:
    with sleeping_process() as pid:
        plant(tmp_path / "x", {"version": 1, "token": 7, **fields_of(pid), "phase": "closed", "reason": reason})
        said = leasectl("show", tmp_path / "x")
        assert said.code == 0
        why = f" ({reason})" if reason else ""
        assert f"closed{why}, free once its process has ended" in said.out
        assert "closed" in leasectl("list", tmp_path).out
        refused = leasectl("run", tmp_path / "x", "--", "true")
        assert refused.code == 75
        assert f"closed{why}, free once its process has ended" in refused.err
        found = leasectl("doctor", tmp_path)
        assert found.code == 0
        assert "closed (note)" in found.out


def test_what_was_closed_by_a_process_that_has_ended_is_gone_in_good_order(leasectl: Leasectl, tmp_path: Path) -> None:
    with zombie() as pid:
        fields = fields_of(pid)
        plant(tmp_path / "x", {"version": 1, "token": 7, **fields, "phase": "closed", "reason": "upgrade"})
        said = leasectl("show", tmp_path / "x")
        assert said.code == 13
        assert "closed in good order (upgrade), its process has ended" in said.out


def test_a_refusal_names_options_and_no_ids_that_are_for_programs(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as pid:
        plant(tmp_path / "x", record(pid))
        said = leasectl("run", tmp_path / "x", "--", "true")
        told = leasectl("run", tmp_path / "x", "--json", "--", "true").json
    assert said.code == 75
    assert "(--timeout, leasectl wait" in said.err
    assert told["start_id"] not in said.err
    assert told["instance_id"] not in said.err
