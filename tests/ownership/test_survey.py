"""Looking again and again: what changed is told at the next look, and what did not is not asked for."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import Inspection, Survey, Verdict
from ownership._models import GuardState
from ownership.testing import FakeClock, FakeProcessTable, zombie
from tests.support.records import fields_of, file_of, identity, plant, plant_guard, record, snapshot


@dataclass
class Scene:
    """A directory, the time, and the processes of a machine on which this one is pid 1000."""

    directory: Path
    clock: FakeClock
    table: FakeProcessTable

    def survey(self, **options: Any) -> Survey:
        return Survey(self.directory, clock=self.clock, processes=self.table, **options)

    def owner(self, name: str, pid: int, **changes: Any) -> None:
        """Process *pid*, made if there is none, owns *name*."""
        me = self.table.current()
        start_id = self.table.observe(pid).start_id or self.table.add(pid)
        fields = record(pid, start_id=start_id, boot_id=me.boot_id, pid_namespace=me.pid_namespace, **changes)
        plant(self.directory / name, fields)
        self.table.observed.clear()

    def looked_at(self) -> list[int]:
        """Who was looked at since the last call."""
        found = sorted(self.table.observed)
        self.table.observed.clear()
        return found

    def settle(self) -> None:
        """All files are old enough to be believed, at the next look or the one after."""
        self.clock.advance(3.0)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with FakeProcessTable() as table:
        yield Scene(tmp_path, FakeClock(wall_ns=time.time_ns()), table)


def verdicts(found: list[Inspection]) -> dict[str, str]:
    return {one.resource.name: one.verdict.value for one in found}


def everything(directory: Path, table: FakeProcessTable, clock: FakeClock) -> list[Inspection]:
    return list(ownership.inspect_all(directory, clock=clock, processes=table))


def test_it_tells_what_inspect_all_tells(scene: Scene) -> None:
    for pid, name in enumerate(("a", "b", "c", "d"), 2000):
        scene.owner(name, pid, phase="serving")
    scene.owner("lease", 2000, lease={"ttl": 1.0, "auto_renew": False, "renewed_at": 0.0})
    scene.table.zombify(2000)
    scene.table.stop(2001)
    scene.table.reuse(2002)
    scene.table.kill(2003)
    plant(scene.directory / "malformed", b"{")
    plant(scene.directory / "named", b"{")
    plant_guard(scene.directory / "named", GuardState(token=7, owner=identity(2001)))
    plant(scene.directory / "foreign", record(boot_id="another-boot"))
    file_of(scene.directory / "odd").mkdir()
    before = snapshot(scene.directory)
    survey = scene.survey()
    for _ in range(8):
        found, expected = survey.look(), everything(scene.directory, scene.table, scene.clock)
        assert len(found) == 9
        for one, other in zip(found, expected, strict=True):
            assert (type(one.error), str(one.error)) == (type(other.error), str(other.error))
            if one.error is None:
                assert one == other
        scene.clock.advance(1.0)
    assert snapshot(scene.directory) == before


def test_what_did_not_change_is_not_looked_at_again(scene: Scene) -> None:
    for number in range(20):
        scene.owner(f"r{number}", 2000 + number)
    scene.settle()
    survey = scene.survey()
    first = survey.look()
    assert scene.looked_at() == list(range(2000, 2020))
    again = survey.look()
    assert scene.looked_at() == []
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_a_young_record_is_read_again_until_it_can_be_believed(scene: Scene) -> None:
    scene.owner("x", 2000)
    scene.clock.step_wall(-5.0)  # it was written a moment ago, or even later
    survey = scene.survey()
    for _ in range(3):
        survey.look()
        assert scene.looked_at() == [2000]
    scene.clock.step_wall(10.0)
    survey.look()
    assert scene.looked_at() == [2000]
    survey.look()
    assert scene.looked_at() == []


def test_a_changed_record_is_read_at_once_and_no_other(scene: Scene) -> None:
    scene.owner("x", 2000)
    scene.owner("y", 2001)
    scene.settle()
    survey = scene.survey()
    survey.look()
    scene.owner("x", 2000, phase="serving")
    scene.looked_at()
    found = survey.look()
    assert [one.record and one.record.phase for one in found] == ["serving", "owner"]
    assert scene.looked_at() == [2000]


def test_a_changed_guard_is_read_at_once(scene: Scene) -> None:
    scene.owner("x", 2000)
    plant(scene.directory / "malformed", b"{")
    scene.settle()
    survey = scene.survey()
    assert [one.owner and one.owner.pid for one in survey.look()] == [None, 2000]
    plant_guard(scene.directory / "malformed", GuardState(token=7, owner=identity(2001)))
    assert [one.owner and one.owner.pid for one in survey.look()] == [2001, 2000]


def test_records_that_come_and_go_are_told_at_the_next_look(scene: Scene) -> None:
    scene.owner("x", 2000)
    survey = scene.survey()
    assert verdicts(survey.look()) == {"x": "live"}
    scene.owner("a", 2001)
    assert verdicts(survey.look()) == {"a": "live", "x": "live"}
    file_of(scene.directory / "x").unlink()
    assert verdicts(survey.look()) == {"a": "live"}
    scene.owner("x", 2001)
    assert verdicts(survey.look()) == {"a": "live", "x": "live"}


def test_an_owner_whose_number_is_free_is_looked_at_at_once(scene: Scene) -> None:
    scene.owner("x", 2000)
    scene.owner("y", 2000)
    scene.owner("z", 2001)
    scene.settle()
    survey = scene.survey()
    survey.look()
    scene.looked_at()
    scene.table.kill(2000)
    assert verdicts(survey.look()) == {"x": "gone", "y": "gone", "z": "live"}
    assert scene.looked_at() == [2000]  # once for both
    survey.look()
    assert scene.looked_at() == []  # and it stays dead


def test_a_zombie_that_is_reaped_is_gone_at_the_next_look(scene: Scene) -> None:
    scene.owner("x", 2000)
    scene.table.zombify(2000)
    scene.settle()
    survey = scene.survey()
    assert verdicts(survey.look()) == {"x": "zombie"}
    scene.table.kill(2000)
    assert verdicts(survey.look()) == {"x": "gone"}


@pytest.mark.parametrize(
    ("what", "verdict"), [("zombify", "zombie"), ("stop", "stopped"), ("reuse", "reused"), ("fail", "unknown")]
)
def test_what_shows_in_no_file_is_told_within_the_confirm_interval(scene: Scene, what: str, verdict: str) -> None:
    scene.owner("x", 2000)
    scene.settle()
    survey = scene.survey(confirm_interval=5.0)
    survey.look()
    getattr(scene.table, what)(2000)
    for _ in range(4):
        scene.clock.advance(1.0)
        assert verdicts(survey.look()) == {"x": "live"}
    scene.clock.advance(1.0)
    [found] = survey.look()
    assert found.verdict.value == verdict
    assert found == everything(scene.directory, scene.table, scene.clock)[0]
    assert found.previous is None
    assert found.token == 1000


def test_a_lease_that_ran_out_is_told_within_the_confirm_interval(scene: Scene) -> None:
    now = scene.clock.monotonic()
    scene.owner("x", 2000, lease={"ttl": 5.0, "auto_renew": False, "renewed_at": now})
    survey = scene.survey()
    assert verdicts(survey.look()) == {"x": "live"}
    scene.clock.advance(10.0)
    assert verdicts(survey.look()) == {"x": "expired"}


def test_looks_at_owners_are_spread_so_that_none_costs_all_at_once(scene: Scene) -> None:
    for number in range(20):
        scene.owner(f"r{number}", 2000 + number)
    scene.settle()
    survey = scene.survey(confirm_interval=5.0)
    survey.look()
    scene.looked_at()
    for _ in range(3):
        seen: list[int] = []
        for _ in range(5):
            scene.clock.advance(1.0)
            survey.look()
            some = scene.looked_at()
            assert len(some) == 4
            seen += some
        assert sorted(seen) == list(range(2000, 2020))


def test_after_a_pause_nothing_is_older_than_the_confirm_interval(scene: Scene) -> None:
    for number in range(20):
        scene.owner(f"r{number}", 2000 + number)
    survey = scene.survey(confirm_interval=5.0)
    survey.look()
    scene.looked_at()
    scene.clock.advance(3600.0)
    survey.look()
    assert scene.looked_at() == list(range(2000, 2020))


def test_without_a_confirm_interval_every_owner_is_looked_at_every_time(scene: Scene) -> None:
    scene.owner("x", 2000)
    scene.settle()
    survey = scene.survey(confirm_interval=0)
    for _ in range(3):
        survey.look()
        assert scene.looked_at() == [2000]


def test_an_owner_in_another_pid_namespace_is_not_asked_by_its_number(scene: Scene) -> None:
    scene.owner("x", 2000)
    plant(scene.directory / "foreign", record(4000, start_id="linux:x", pid_namespace=1))
    scene.settle()
    survey = scene.survey()
    assert verdicts(survey.look())["foreign"] == "unknown"
    scene.clock.advance(6.0)
    assert verdicts(survey.look())["foreign"] == "unknown"
    assert 4000 not in scene.looked_at()


def test_a_record_that_cannot_be_read_does_not_hide_the_others_and_is_tried_again(scene: Scene) -> None:
    scene.owner("x", 2000)
    file_of(scene.directory / "odd").mkdir()
    survey = scene.survey()
    odd, x = survey.look()
    assert isinstance(odd.error, ownership.InvalidRecordError)
    assert (odd.verdict, x.error) == (Verdict.UNKNOWN, None)
    file_of(scene.directory / "odd").rmdir()
    scene.owner("odd", 2001)
    assert verdicts(survey.look()) == {"odd": "live", "x": "live"}


def test_a_directory_may_come_go_and_come_back(scene: Scene) -> None:
    directory = scene.directory = scene.directory / "folder"
    survey = scene.survey()
    with pytest.raises(FileNotFoundError) as caught:
        survey.look()
    assert caught.value.filename == str(directory)
    directory.mkdir()
    assert survey.look() == []
    scene.owner("x", 2000)
    assert verdicts(survey.look()) == {"x": "live"}
    shutil.rmtree(directory / ".leases")
    assert survey.look() == []
    shutil.rmtree(directory)
    with pytest.raises(FileNotFoundError):
        survey.look()
    directory.mkdir()
    scene.owner("x", 2001)
    [found] = survey.look()
    assert found.owner is not None
    assert found.owner.pid == 2001


def test_another_lock_directory_at_the_same_path_is_read_anew(scene: Scene) -> None:
    scene.owner("x", 2000)
    scene.settle()
    survey = scene.survey()
    survey.look()
    (scene.directory / ".leases").rename(scene.directory / "old")
    scene.owner("x", 2001)
    [found] = survey.look()
    assert found.owner is not None
    assert found.owner.pid == 2001


def test_a_registry_is_surveyed_by_whole_paths(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    clock = FakeClock(wall_ns=time.time_ns() + 3_000_000_000)
    survey = Survey(registry, registry=True, clock=clock, confirm_interval=1.0)
    with ownership.acquire("/data/" + "long/" * 60 + "é", registry=registry) as claim:
        for _ in range(3):
            [found] = survey.look()
            assert found == next(ownership.inspect_all(registry, registry=True))
            assert found.ref == claim.ref
            clock.advance(1.0)
    assert survey.look() == []


def test_real_owners_are_seen_coming_and_going(tmp_path: Path) -> None:
    survey = Survey(tmp_path, confirm_interval=0)
    with ownership.acquire(tmp_path / "x") as claim:
        [found] = survey.look()
        assert (found.record, found.reason) == (claim.record, "held by this process")
        claim.announce("serving")
        assert survey.look()[0].record == claim.record
    assert survey.look() == []
    with zombie() as pid:
        plant(tmp_path / "x", record(**fields_of(pid)))
        assert verdicts(survey.look()) == {"x": "zombie"}
    assert verdicts(survey.look()) == {"x": "gone"}


def test_it_keeps_no_directory_open(tmp_path: Path) -> None:
    plant(tmp_path / "x", record())
    survey = Survey(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        survey.look()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # while claims of ours keep their thread, it lets go of it


@pytest.mark.parametrize("directory", ["", "a\0b", None])
def test_a_directory_that_cannot_be_one_is_refused(directory: Any) -> None:
    with pytest.raises(ValueError, match="directory must be a path"):
        Survey(directory)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "5"])
def test_a_confirm_interval_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="confirm_interval must be a finite number"):
        Survey("/srv", confirm_interval=seconds)


def test_many_unchanged_records_of_one_owner_cost_one_look_at_it(scene: Scene) -> None:
    count = 300
    scene.owner("r0", 2000)
    raw = file_of(scene.directory / "r0").read_bytes()
    for number in range(1, count):
        file_of(scene.directory / f"r{number}").write_bytes(raw)
    scene.settle()
    survey = scene.survey()
    assert len(survey.look()) == count
    assert len(scene.looked_at()) == count
    assert len(survey.look()) == count
    assert scene.looked_at() == []
    scene.clock.advance(5.0)
    assert len(survey.look()) == count
    assert scene.looked_at() == [2000]
