"""Judging an owner that no record names: the rules are those of records, and doubt is unknown."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import OwnerIdentity, Verdict, judge_owner
from ownership.testing import FakeProcessTable, sleeping_process, stopped_process, zombie
from tests.support.records import OTHER_INSTANCE, fields_of, identity, lock_directory, other_start_id, snapshot


def verdict(owner: OwnerIdentity, path: Path, **more: Any) -> Verdict:
    return judge_owner(owner, beside=path, **more).verdict


@pytest.mark.parametrize("used", [False, True], ids=["no lock directory", "lock directory"])
def test_real_processes_are_judged_as_their_records_are(tmp_path: Path, used: bool) -> None:
    path = tmp_path / "x"
    if used:
        ownership.acquire(path).release()
    before = snapshot(tmp_path)
    with sleeping_process() as pid:
        assert verdict(identity(pid), path) is Verdict.LIVE
        other = other_start_id(fields_of(pid)["start_id"])
        assert verdict(identity(pid, start_id=other), path) is Verdict.REUSED
    with stopped_process() as pid:
        assert verdict(identity(pid), path) is Verdict.STOPPED
    with zombie() as pid:
        one = identity(pid)
        assert verdict(one, path) is Verdict.ZOMBIE
    assert verdict(one, path) is Verdict.GONE
    for changes in ({"boot_id": "another"}, {"boot_id": None}, {"pid_namespace": 1}):
        assert verdict(one.model_copy(update=changes), path) is Verdict.UNKNOWN
    assert {name: facts[:6] for name, facts in snapshot(tmp_path).items()} == {
        name: facts[:6] for name, facts in before.items()
    }


def test_this_process_lives_whether_it_owns_anything_or_not(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    owner = claim.ref.owner
    claim.release()
    assert judge_owner(owner, beside=tmp_path / "x")[:3] == (Verdict.LIVE, "this process", "")


def test_an_earlier_image_of_this_process_is_gone_once_its_witness_is_free(tmp_path: Path) -> None:
    ownership.acquire(tmp_path / "x").release()
    earlier = identity()
    assert verdict(earlier, tmp_path / "x") is Verdict.LIVE  # without a witness it cannot be told from a second copy
    (lock_directory(tmp_path / "x") / f"{OTHER_INSTANCE}.alive").write_bytes(b"\0" * 8)
    assert verdict(earlier, tmp_path / "x") is Verdict.GONE


def test_a_probe_that_fails_is_no_death(tmp_path: Path) -> None:
    with FakeProcessTable() as table:
        owner = FakeProcessTable(pid=2000).current()
        one = OwnerIdentity(**{name: getattr(owner, name, None) for name in OwnerIdentity.model_fields})
        table.fail(2000)
        assert verdict(one, tmp_path / "x", processes=table) is Verdict.UNKNOWN

        class Failing(FakeProcessTable):
            def current(self) -> Any:
                raise OSError(errno.EMFILE, "too many")

        assert verdict(one, tmp_path / "x", processes=Failing()) is Verdict.UNKNOWN
        with pytest.raises(ValueError, match="owner must be"):
            judge_owner(owner, beside=tmp_path / "x")  # type: ignore[arg-type]


def test_who_may_not_ask_witnesses_looks_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "x"
    lock_directory(path).symlink_to("elsewhere")  # unsafe
    with sleeping_process() as pid:
        one = identity(pid)
        assert verdict(one, path) is Verdict.LIVE
        found = judge_owner(one.model_copy(update={"pid_namespace": 1}), beside=path)
        assert found.verdict is Verdict.UNKNOWN
        assert "its witness cannot be asked" in found.reason
    assert verdict(one, path) is Verdict.GONE
