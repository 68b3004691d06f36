"""``leasectl wait``: until nobody holds it, and not a file is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

import ownership
from tests.support.cli import Leasectl, resource
from tests.support.records import snapshot


@pytest.mark.parametrize("verdict", ["free", "gone", "zombie", "reused", "expired"])
def test_what_nobody_holds_needs_no_waiting(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        before = snapshot(tmp_path)
        said = leasectl("wait", tmp_path / "x")
        told = leasectl("wait", tmp_path / "x", "--json").json
        assert snapshot(tmp_path) == before
    assert (said.code, said.err) == (0, "")
    assert f"{tmp_path / 'x'}: {verdict}" in said.out
    assert told["verdict"] == verdict


@pytest.mark.parametrize("verdict", ["live", "stopped", "unknown"])
def test_what_is_held_times_out_with_the_facts(leasectl: Leasectl, tmp_path: Path, verdict: str) -> None:
    with resource(tmp_path / "x", verdict):
        said = leasectl("wait", tmp_path / "x", "--timeout", "0.25")
        told = leasectl("wait", tmp_path / "x", "--timeout", "0", "--json").json
    assert (said.code, said.out) == (75, "")
    assert said.err.count("waiting: ") == 1
    assert verdict in said.err
    assert (told["error"], told["verdict"], told["exit_code"]) == ("AcquireTimeoutError", verdict, 75)


@pytest.mark.parametrize("timeout", ["-1", "nan", "inf", "soon", ""])
def test_a_timeout_that_is_none_is_a_usage_error(leasectl: Leasectl, tmp_path: Path, timeout: str) -> None:
    said = leasectl("wait", tmp_path / "x", "--timeout", timeout)
    assert said.code == 2
    assert "--timeout" in said.err
    assert "forever" in said.err


def test_a_path_whose_directory_does_not_exist_is_not_free_but_wrong(leasectl: Leasectl, tmp_path: Path) -> None:
    said = leasectl("wait", tmp_path / "rnu" / "app.sock")
    assert (said.code, said.out) == (1, "")
    assert f"directory {tmp_path / 'rnu'} does not exist" in said.err
    assert "hint: " in said.err
    told = leasectl("wait", tmp_path / "rnu" / "app.sock", "--json").json
    assert (told["error"], told["errno"], told["exit_code"]) == ("FileNotFoundError", "ENOENT", 1)


def test_in_a_registry_a_path_needs_no_directory(leasectl: Leasectl, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir(mode=0o755)
    assert leasectl("wait", tmp_path / "rnu" / "app.sock", "--registry", tmp_path / "registry").code == 0


def test_a_name_whose_folder_is_still_to_be_made_is_free(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ownership._paths.account", lambda uid: ("somebody", str(tmp_path)))
    path = ownership.named("nightly")
    assert not path.parent.exists()
    assert leasectl("wait", path).code == 0
    assert leasectl("show", path).code == 10
