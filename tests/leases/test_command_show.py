"""``leasectl show``: every verdict has its exit code, and the facts are there for people and programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ownership
from leases.commands.show import EXIT_CODES
from ownership._models import GuardState
from ownership.testing import sleeping_process
from tests.support.cli import VERDICTS, Leasectl, resource
from tests.support.namespaces import die_owning
from tests.support.records import OTHER_INSTANCE, file_of, identity, plant, plant_guard, record, snapshot

CODES = {"live": 0, "free": 10, "stopped": 11, "gone": 12, "zombie": 13, "reused": 14, "expired": 15, "unknown": 16}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_has_its_exit_code_and_changes_nothing(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        before = snapshot(tmp_path)
        for options in ((), ("--json",)):
            said = leasectl("show", tmp_path / "x", *options)
            assert (said.code, said.err) == (CODES[verdict], "")
            assert verdict in said.out
        assert snapshot(tmp_path) == before


def test_every_verdict_there_is_has_a_code() -> None:
    assert set(EXIT_CODES) == set(ownership.Verdict)


def test_people_see_every_fact_of_the_record(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", labels={"app": "1.2"}) as claim:
        claim.announce("serving", endpoint="tcp:127.0.0.1:8123", data={"jobs": 3})
        said = leasectl("show", tmp_path / "x")
    ours = claim.record
    for fact in (ours.pid, ours.start_id, ours.instance_id, ours.token, ours.host, ours.command):
        assert str(fact) in said.out
    for fact in ("live", "serving", "tcp:127.0.0.1:8123", "app=1.2", '{"jobs": 3}', "ago", str(tmp_path / "x")):
        assert fact in said.out


def test_programs_get_one_object_with_the_record_as_in_its_file(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        told = leasectl("show", "--json", tmp_path / "x").json
        assert told["record"] == json.loads(file_of(tmp_path / "x").read_bytes())
    assert (told["resource"], told["verdict"], told["token"]) == (str(tmp_path / "x"), "live", claim.token)
    assert (told["pid"], told["instance_id"]) == (claim.record.pid, claim.record.instance_id)


@pytest.mark.parametrize("command", ["show", "show --json", "list --json", "watch --count 1 --json"])
def test_a_number_that_no_float_can_say_is_null(leasectl: Leasectl, tmp_path: Path, command: str) -> None:
    """``1e999`` is JSON, which another program may write; infinity is none."""
    plant(tmp_path / "x", {**record(), "data": {"much": 1.5}})
    file_of(tmp_path / "x").write_bytes(file_of(tmp_path / "x").read_bytes().replace(b": 1.5", b": 1e999"))
    said = leasectl(*command.split(), tmp_path / "x" if command.startswith("show") else tmp_path)
    assert '{"much": null}' in said.out


def test_the_ending_before_is_shown(leasectl: Leasectl, tmp_path: Path) -> None:
    ownership.acquire(tmp_path / "x").release("end of the shift")
    assert "end of the shift" in leasectl("show", tmp_path / "x").out
    assert leasectl("show", "--json", tmp_path / "x").json["previous"]["how"] == "released"


@pytest.mark.parametrize(
    ("verdict", "offered"),
    [("live", "wait"), ("stopped", "kill -CONT"), ("zombie", "reclaim"), ("gone", "reclaim"), ("unknown", "break")],
)
def test_removal_is_offered_only_for_a_proven_end(
    leasectl: Leasectl, tmp_path: Path, verdict: str, offered: str
) -> None:
    with resource(tmp_path / "x", verdict):
        remedy = leasectl("show", "--json", tmp_path / "x").json["remedy"]
    assert offered in remedy
    assert ("reclaim" in remedy) == (verdict in ("zombie", "gone"))


def test_a_missing_directory_means_that_nobody_owns_it(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("show", tmp_path / "missing" / "x")
    assert said.code == 10
    assert f"reason       directory {tmp_path / 'missing'} does not exist" in said.out
    told = leasectl("show", tmp_path / "missing" / "x", "--json").json
    assert told["reason"] == f"directory {tmp_path / 'missing'} does not exist"


def test_a_missing_registry_is_an_error(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("show", tmp_path / "x", "--registry", tmp_path / "missing")
    assert said.code == 1
    assert str(tmp_path / "missing") in said.err


def test_a_registry_is_looked_into_and_named_in_the_remedy(leasectl: Leasectl, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o755)
    with ownership.acquire(tmp_path / "x", registry=registry):
        assert leasectl("show", tmp_path / "x").code == 10
        said = leasectl("show", tmp_path / "x", "--registry", registry)
    assert said.code == 0
    assert f"--registry {registry}" in said.out


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_is_no_record_at_all_is_unusable(leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]) -> None:
    file_of(tmp_path / "x").parent.mkdir(mode=0o700)
    file_of(tmp_path / "x").mkdir()
    said = leasectl("show", tmp_path / "x", *options)
    assert said.code == 65
    if options:
        assert (said.json["error"], said.json["exit_code"], said.err) == ("InvalidRecordError", 65, "")
    else:
        assert said.out == ""
        assert str(tmp_path / "x") in said.err or str(file_of(tmp_path / "x")) in said.err


@pytest.mark.parametrize("pid", [0, -1, 1.5, True, "123", 2**31, 10**30, None, "missing"])
def test_nonsense_pids_are_malformed_and_never_signalled(leasectl: Leasectl, tmp_path: Path, pid: object) -> None:
    fields = {**record(), "pid": pid}
    if pid == "missing":
        del fields["pid"]
    plant(tmp_path / "x", fields)
    plant_guard(tmp_path / "x", b"")
    said = leasectl("show", tmp_path / "x")
    assert said.code == 16
    assert "malformed record (pid: " in said.out
    assert leasectl("list", tmp_path).code == 0
    assert leasectl("show", tmp_path / "x", "--json").json["malformed"].startswith("pid: ")


def test_control_characters_in_a_record_do_not_reach_the_terminal(leasectl: Leasectl, tmp_path: Path) -> None:
    with resource(tmp_path / "y", "gone"):
        plant(tmp_path / "x", {**record(), "command": "evil\x1b[2J\nverdict free", "labels": {"a": "\x07"}})
        for said in (leasectl("show", tmp_path / "x"), leasectl("list", tmp_path)):
            assert "evil\\x1b[2J\\n" in said.out
            assert not any(char in said.out for char in "\x1b\x07")


def test_a_path_that_is_not_utf8_is_shown_as_records_spell_it(leasectl: Leasectl, tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9"
    with ownership.acquire(path) as claim:
        said = leasectl("show", path)
        assert leasectl("show", "--json", path).json["resource"] == claim.record.resource
    assert said.code == 0
    assert "caf%E9" in said.out


def test_the_owner_of_a_malformed_record_is_whoever_its_guard_names(leasectl: Leasectl, tmp_path: Path) -> None:
    with sleeping_process() as pid:
        plant(tmp_path / "x", b"{")
        plant_guard(tmp_path / "x", GuardState(token=5, owner=identity(pid)))
        for said, told in (
            (leasectl("show", tmp_path / "x"), leasectl("show", tmp_path / "x", "--json").json),
            (
                leasectl("run", tmp_path / "x", "--", "true"),
                leasectl("run", tmp_path / "x", "--json", "--", "true").json,
            ),
        ):
            assert (told["pid"], told["instance_id"], told["verdict"]) == (pid, OTHER_INSTANCE, "unknown")
            for fact in (tmp_path / "x", pid, "unknown"):
                assert str(fact) in said.out + said.err
        assert str(pid) in leasectl("list", tmp_path).out.splitlines()[1].split()


def test_the_token_of_a_free_resource_is_its_last(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        assert f"\ntoken        {claim.token}\n" in leasectl("show", tmp_path / "x").out
    said = leasectl("show", tmp_path / "x").out
    assert f"\nlast token   {claim.token}\n" in said
    assert "\ntoken" not in said


def test_when_an_owner_died_is_not_known_but_when_it_was_found_dead(leasectl: Leasectl, tmp_path: Path) -> None:
    die_owning(tmp_path / "x")
    assert leasectl("reclaim", tmp_path / "x").code == 0
    previous = leasectl("show", tmp_path / "x", "--json").json["previous"]
    assert previous["how"] == "died"
    assert "\nprevious     found dead at 20" in leasectl("show", tmp_path / "x").out


def test_a_record_that_says_nothing_of_nobody_has_the_remedy_that_doctor_names(
    leasectl: Leasectl, tmp_path: Path
) -> None:
    plant(tmp_path / "x", b"{\n")
    told = leasectl("show", tmp_path / "x", "--json").json
    [finding] = leasectl("doctor", tmp_path, "--json").json
    assert finding["remedy"] == f"leasectl reclaim {tmp_path / 'x'}"
    assert finding["remedy"] in told["remedy"]
    assert "break" not in told["remedy"]
    for said in (leasectl("show", tmp_path / "x"), leasectl("doctor", tmp_path)):
        assert "{\\x0a" in said.out
        assert "\\\\" not in said.out


@pytest.mark.parametrize("command", ["show", "wait", "reclaim", "break", "stop"])
def test_failures_and_usage_are_among_the_exit_codes_in_the_help(leasectl: Leasectl, command: str) -> None:
    said = leasectl(command, "--help").out
    assert re.search(r"^ +1  \S", said, re.MULTILINE)
    assert re.search(r"^ +2  usage", said, re.MULTILINE)


def test_what_removes_the_record_of_a_directory_removes_no_other(leasectl: Leasectl, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with resource(tmp_path / "x", "gone"):
        remedy = leasectl("show", tmp_path / "x", "--json").json["remedy"]
        assert f"leasectl reclaim --resource {tmp_path / 'x'} removes" in remedy
        assert leasectl("reclaim", "--resource", tmp_path / "x").code == 0
        assert ownership.inspect(tmp_path / "x").verdict == "free"
