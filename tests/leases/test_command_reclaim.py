"""``leasectl reclaim``: only what is provably over, one resource or a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

import ownership
from tests.support.cli import Leasectl, resource
from tests.support.records import file_of, plant, record, snapshot

OVER = ["gone", "zombie", "reused", "expired"]
HELD = ["live", "stopped", "unknown"]


@pytest.mark.parametrize("verdict", OVER)
def test_an_owner_that_is_over_is_removed(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        said = leasectl("reclaim", tmp_path / "x")
        assert said.code == 0
        assert f"reclaimed {tmp_path / 'x'}" in said.out
        assert verdict in said.out
        assert not file_of(tmp_path / "x").exists()


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.parametrize("verdict", HELD)
def test_one_that_holds_is_refused_with_the_facts(
    leasectl: Leasectl, tmp_path: Path, verdict: str, options: tuple[str, ...]
) -> None:
    with resource(tmp_path / "x", verdict):
        before = file_of(tmp_path / "x").read_bytes()
        said = leasectl("reclaim", tmp_path / "x", *options)
        told = leasectl("reclaim", tmp_path / "x", "--json", *options).json
        assert file_of(tmp_path / "x").read_bytes() == before
    assert (said.code, said.out) == (75, "")
    record = told["record"]
    for fact in (tmp_path / "x", record["pid"], verdict, told["reason"]):
        assert str(fact) in said.err
    assert (told["error"], told["verdict"]) == ("AlreadyOwnedError", verdict)


@pytest.mark.parametrize("verdict", [*OVER, "free"])
def test_a_dry_run_says_so_and_changes_nothing(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        before = snapshot(tmp_path)
        said = leasectl("reclaim", "--dry-run", tmp_path / "x")
        whole = leasectl("reclaim", "--dry-run", tmp_path)
        told = leasectl("reclaim", "--dry-run", "--json", tmp_path).json
        assert snapshot(tmp_path) == before
    assert (said.code, whole.code) == (0, 0)
    assert ("would reclaim" in said.out) == ("would reclaim" in whole.out) == (verdict != "free")
    assert all(one["reclaimed"] is False for one in told)


def test_nobody_to_evict_is_no_failure(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("reclaim", tmp_path / "x")
    assert (said.code, said.out) == (0, "")
    assert "nobody owns" in said.err
    assert leasectl("reclaim", "--json", tmp_path / "x").json["reclaimed"] is False


def test_in_a_directory_the_dead_go_and_the_held_stay(leasectl: Leasectl, tmp_path: Path) -> None:
    with resource(tmp_path / "dead", "gone"), resource(tmp_path / "odd", "unknown"), resource(tmp_path / "x", "live"):
        said = leasectl("reclaim", tmp_path)
        again = leasectl("reclaim", "--json", tmp_path)
    assert said.code == again.code == 0
    assert "1 reclaimed, 2 held" in said.err
    assert [(one["resource"], one["reclaimed"]) for one in again.json] == [
        (str(tmp_path / "odd"), False),
        (str(tmp_path / "x"), False),
    ]
    assert said.out.count("\n") == 1


def test_what_cannot_be_read_is_told_and_the_rest_done(leasectl: Leasectl, tmp_path: Path) -> None:
    with resource(tmp_path / "dead", "gone"):
        file_of(tmp_path / "bad").mkdir()
        said = leasectl("reclaim", tmp_path)
    assert said.code == 65
    assert "1 reclaimed, 0 held, 1 could not be looked at" in said.err
    assert not file_of(tmp_path / "dead").exists()


def test_a_directory_may_be_the_resource_itself(leasectl: Leasectl, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with resource(data, "gone"):
        assert "reclaimed" not in leasectl("reclaim", data).out
        assert file_of(data).exists()
        assert str(data) in leasectl("reclaim", "--resource", data).out
        assert not file_of(data).exists()


def test_the_current_directory_is_the_default(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with resource(tmp_path / "dead", "gone"):
        assert str(tmp_path / "dead") in leasectl("reclaim").out


def test_a_registry_is_reclaimed_whole_or_by_resource(leasectl: Leasectl, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o755)
    with resource(tmp_path / "elsewhere", "gone"):
        dead = {**record(pid=2**22 + 1), "start_id": "linux:a:1:2:3"}
        for name in ("x", "y"):
            plant(tmp_path / name, dead, registry)
        assert leasectl("reclaim", tmp_path / "x", "--registry", registry).code == 0
        assert not file_of(tmp_path / "x", registry=registry).exists()
        assert str(tmp_path / "y") in leasectl("reclaim", "--registry", registry).out
        assert file_of(tmp_path / "elsewhere").exists()
    assert ownership.inspect(tmp_path / "y", registry=registry).verdict == "free"


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_path_whose_directory_does_not_exist_is_wrong(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = leasectl("reclaim", tmp_path / "rnu" / "app.sock", *options)
    assert (said.code, said.out) == (1, "")
    assert f"directory {tmp_path / 'rnu'} does not exist" in said.err
    assert not (tmp_path / "rnu").exists()


def test_a_record_that_says_nothing_of_nobody_would_be_reclaimed(leasectl: Leasectl, tmp_path: Path) -> None:
    plant(tmp_path / "x", b"{")
    said = leasectl("reclaim", "--dry-run", tmp_path / "x")
    assert said.code == 0
    assert "would reclaim" in said.out
    assert file_of(tmp_path / "x").exists()
