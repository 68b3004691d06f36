"""Commands that a refusal names: complete, so that they can be pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import ownership
from tests.support.cli import Leasectl
from tests.support.namespaces import needs_linux_root, owner, taken
from tests.support.records import file_of, plant, record

pytestmark = needs_linux_root


def commands_in(hint: str) -> list[list[str]]:
    """The arguments of every ``leasectl`` that *hint* names."""
    return [
        shlex.split(one) for one in re.findall(r"leasectl ((?:[a-z]+) [^;,)]*?)(?: returns| removes|;|,|\)|$)", hint)
    ]


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "a registry"
    path.mkdir(mode=0o700)
    return path


@pytest.mark.parametrize("refused", ["acquire", "reclaim", "wait", "run", "reclaim --dry-run"])
def test_the_way_out_of_a_refusal_can_be_pasted(leasectl: Leasectl, registry: Path, refused: str) -> None:
    """A record that cannot be judged, in a registry: the command breaks that one, and no other."""
    resource = "/data/some thing"
    plant(resource, record(1, pid_namespace=1, token=777), registry)
    match refused:
        case "acquire":
            hint = taken(resource, registry=registry).hint
        case "reclaim":
            with pytest.raises(ownership.AlreadyOwnedError) as caught:
                ownership.reclaim(resource, registry=registry)
            hint = caught.value.hint
        case "wait":
            hint = leasectl("wait", resource, "--timeout", "0", "--registry", registry, "--json").json["hint"]
        case "run":
            hint = leasectl("run", "--registry", registry, "--json", resource, "--", "true").json["hint"]
        case _:
            hint = leasectl("reclaim", "--dry-run", resource, "--registry", registry, "--json").json["hint"]
    [command] = commands_in(hint)
    assert command[0] == "break"
    assert leasectl(*command).code == 0
    assert not file_of(resource, registry=registry).exists()


def test_the_way_to_look_again_can_be_pasted(leasectl: Leasectl, registry: Path) -> None:
    with ownership.acquire("/data/x", registry=registry) as claim:
        wrong = leasectl("break", "/data/x", "--token", claim.token + 1, "--registry", registry, "--json")
        [command] = commands_in(wrong.json["hint"])
        assert command[0] == "show"
        assert leasectl(*command, "--json").json["token"] == claim.token


@pytest.mark.parametrize("where", ["beside it", "in a registry"])
def test_waiting_for_a_live_owner_can_be_pasted(leasectl: Leasectl, tmp_path: Path, registry: Path, where: str) -> None:
    options: dict[str, Any] = {"registry": registry} if where == "in a registry" else {}
    with owner(tmp_path / "x", **options):
        [command] = commands_in(
            leasectl("wait", tmp_path / "x", "--timeout", "0", "--json", *flags(options)).json["hint"]
        )
        assert command[0] == "wait"
        assert leasectl(*command, "--timeout", "0").code == 75
    assert leasectl(*command).code == 0


def flags(options: dict[str, Any]) -> list[Any]:
    return ["--registry", options["registry"]] if options else []
