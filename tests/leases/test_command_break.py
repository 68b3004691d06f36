"""``leasectl break``: one decision about one owner, named by its token."""

from __future__ import annotations

from pathlib import Path

import pytest

import ownership
from tests.support.cli import VERDICTS, Leasectl, resource
from tests.support.records import file_of


@pytest.mark.parametrize("verdict", [one for one in VERDICTS if one != "free"])
def test_the_owner_of_that_token_is_evicted_whatever_its_state(
    leasectl: Leasectl, tmp_path: Path, verdict: str
) -> None:
    with resource(tmp_path / "x", verdict):
        token = ownership.inspect(tmp_path / "x").token
        said = leasectl("break", tmp_path / "x", "--token", token)
        assert not file_of(tmp_path / "x").exists()
        assert ownership.inspect(tmp_path / "x").verdict == "free"
    assert said.code == 0
    assert str(token) in said.out


def test_the_evicted_owner_is_told(leasectl: Leasectl, tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    assert leasectl("break", tmp_path / "x", "--token", claim.token, "--json").json["broken"] is True
    with pytest.raises(ownership.OwnershipLostError) as told:
        claim.verify()
    assert told.value.reason == "broken"


def test_another_token_changes_nothing(leasectl: Leasectl, tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        said = leasectl("break", tmp_path / "x", "--token", claim.token - 1)
        told = leasectl("break", tmp_path / "x", "--token", claim.token - 1, "--json").json
        claim.verify()
    assert (said.code, said.out) == (75, "")
    assert str(claim.token) in said.err
    assert told["token"] == claim.token


def test_nobody_to_break_is_no_failure(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("break", tmp_path / "x", "--token", 1)
    assert (said.code, said.out) == (0, "")
    assert "nobody owns" in said.err
    assert leasectl("break", tmp_path / "x", "--token", 1, "--json").json["broken"] is False


@pytest.mark.parametrize("token", ["x", "-1", "1.5", str(2**53 + 1)])
def test_a_token_that_cannot_be_one_is_a_usage_error(leasectl: Leasectl, tmp_path: Path, token: str) -> None:
    said = leasectl("break", tmp_path / "x", "--token", token)
    assert said.code == 2
    assert token in said.err


def test_the_token_must_be_given(leasectl: Leasectl, tmp_path: Path) -> None:
    assert leasectl("break", tmp_path / "x").code == 2


def test_a_path_whose_directory_does_not_exist_is_wrong(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("break", tmp_path / "rnu" / "app.sock", "--token", "1")
    assert (said.code, said.out) == (1, "")
    assert f"directory {tmp_path / 'rnu'} does not exist" in said.err
