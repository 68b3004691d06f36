"""Commands that a refusal names: complete, so that they can be pasted."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import leases
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


# -- names of every kind

ODD = [b"plain", b"a'b\"c$(id)", b"a\nb", b"-dash", b"sp ace", b"\xff\xfe", b"t\tab", b"\x1bx", "é☃".encode(), b"\\x41"]


def words(text: str) -> list[bytes]:
    """The arguments of the one ``leasectl`` in *text*, as a shell would give them to it."""
    [command] = re.findall(r"leasectl [a-z]+ .*?(?= returns| removes|;|,|\)? or end|$)", text)
    script = f'leasectl() {{ printf "%s\\0" "$@"; }}; {command.removesuffix(")")}'
    done = subprocess.run(["bash", "-c", os.fsencode(script)], stdout=subprocess.PIPE, check=True)
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", ODD, ids=repr)
def test_a_command_names_the_very_file_whatever_its_name(
    leasectl: Leasectl, tmp_path: Path, registry: Path, name: bytes, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / os.fsdecode(name)
    monkeypatch.chdir(tmp_path)
    where: tuple[str, ...] = ("--registry", registry.name) if shared else ()
    expected = [*((b"--registry", os.fsencode(registry)) if shared else ()), os.fsencode(path)]
    with ownership.acquire(path, registry=registry if shared else None):
        shown = leasectl("show", *where, path).out
        dry, json_dry = leasectl("reclaim", "--dry-run", *where, path), leasectl("reclaim", "--json", *where, path)
        for told in (
            shown[shown.index("remedy ") :].splitlines()[0],
            leasectl("show", "--json", *where, path).json["remedy"],
            dry.err[dry.err.index("hint: ") :].splitlines()[0],
            json_dry.json["hint"],
        ):
            assert words(told)[1:] == expected, told


@pytest.mark.parametrize("command", ["list", "doctor", "watch"])
@pytest.mark.parametrize("name", ODD, ids=repr)
def test_where_a_resource_is_taken_for_a_directory_the_command_names_it(
    leasectl: Leasectl, tmp_path: Path, name: bytes, command: str
) -> None:
    path = tmp_path / os.fsdecode(name)
    with ownership.acquire(path):
        told = leasectl(command, *(("--count", 1) if command == "watch" else ()), path).err
    [line] = [one for one in told.splitlines() if "leasectl show" in one]
    assert words(line[line.index("leasectl show") :])[1:] == [os.fsencode(path)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", ODD, ids=repr)
def test_the_command_that_opens_a_gate_names_it(tmp_path: Path, registry: Path, name: bytes, shared: bool) -> None:
    path = tmp_path / os.fsdecode(name)
    gate = leases.Gate(path, registry=registry if shared else None)
    with gate.close("upgrade"), pytest.raises(ownership.GateClosedError) as refused:
        gate.check()
    expected = [*((b"--registry", os.fsencode(registry)) if shared else ()), os.fsencode(path)]
    assert words(refused.value.hint)[2:] == expected


@pytest.mark.parametrize("shared", [False, True])
def test_whoever_answers_and_is_not_the_owner_is_looked_up_in_its_registry(
    tmp_path: Path, registry: Path, shared: bool
) -> None:
    path = tmp_path / "app.sock"
    with ownership.listen(path, release="close") as owned, ownership.connect(path) as connection:
        other = registry if shared else None
        with pytest.raises(ownership.PeerError) as refused:
            ownership.verify_peer(connection, tmp_path / "other", registry=other)
        assert owned.claim.held
    expected = [*((b"--registry", os.fsencode(registry)) if shared else ()), os.fsencode(tmp_path / "other")]
    assert words(refused.value.hint.replace(" says", ";"))[1:] == expected
