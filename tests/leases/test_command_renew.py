"""``leasectl renew``, and ``leasectl run --no-auto-renew``: a lease that lasts as long as its work gets on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ownership
from tests.support.cli import LEASECTL, Held, Leasectl, environment, holding, started
from tests.support.cli import leasectl as run_leasectl
from tests.support.namespaces import needs_linux_root
from tests.support.records import file_of
from tests.support.waiting import eventually

pytestmark = needs_linux_root

PIPES: dict[str, Any] = {
    **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
    "text": True,
    "env": environment(),
}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nobody so far."""
    monkeypatch.delenv("LEASES_OWNER", raising=False)


def works_for(monkeypatch: pytest.MonkeyPatch, claim: ownership.Claim) -> None:
    for name, value in claim.ref.to_env().items():
        monkeypatch.setenv(name, value)


def test_the_lease_of_whoever_it_works_for_is_renewed(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ownership.acquire(tmp_path / "x", ttl=600, auto_renew=False) as claim:
        works_for(monkeypatch, claim)
        before = claim.record.lease
        said = leasectl("renew")
        assert said.code == 0
        assert said.out == f"renewed: {tmp_path}/x, runs out in 600.0 s unless it is renewed again\n"
        claim.verify()
        after = ownership.inspect(tmp_path / "x").record
        assert before is not None
        assert after is not None
        assert after.lease is not None
        assert after.lease.renewed_at > before.renewed_at
        told = leasectl("renew", "--json", tmp_path / "y" / ".." / "x").json
        assert (told["renewed"], told["verdict"]) == (True, "live")
        assert 599 < told["expires_in"] <= 600


@pytest.mark.parametrize("ttl", [None, 600.0])
def test_what_needs_no_renewal_is_left_as_it_is(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ttl: float | None
) -> None:
    with ownership.acquire(tmp_path / "x", ttl=ttl) as claim:
        works_for(monkeypatch, claim)
        before = file_of(tmp_path / "x").read_bytes()
        said = leasectl("renew")
        assert (said.code, said.out) == (0, "")
        assert "is still its owner's" in said.err
        assert leasectl("renew", "--json").json["renewed"] is False
        assert file_of(tmp_path / "x").read_bytes() == before


def test_what_is_not_its_owners_any_more_is_told(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = ownership.acquire(tmp_path / "x", ttl=600, auto_renew=False)
    works_for(monkeypatch, claim)
    ownership.break_claim(tmp_path / "x", token=claim.token)
    said = leasectl("renew")
    assert (said.code, said.out) == (76, "")
    assert "is not our owner's any more" in said.err
    told = leasectl("renew", "--json")
    assert (told.code, told.json["exit_code"]) == (76, 76)
    claim.release()


def test_nobody_renews_who_works_for_nobody(leasectl: Leasectl, worker: None, tmp_path: Path) -> None:
    said = leasectl("renew")
    assert said.code == 2
    assert "LEASES_OWNER is not set" in said.err
    assert "leasectl run --ttl SECONDS --no-auto-renew" in said.err


def test_another_resource_is_not_renewed(leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ownership.acquire(tmp_path / "x", ttl=600, auto_renew=False) as claim:
        works_for(monkeypatch, claim)
        before = file_of(tmp_path / "x").read_bytes()
        said = leasectl("renew", tmp_path / "y")
        assert said.code == 2
        assert f"LEASES_OWNER is about {tmp_path}/x, not about" in said.err
        assert file_of(tmp_path / "x").read_bytes() == before


def test_another_registry_is_not_renewed_in(
    leasectl: Leasectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    with ownership.acquire("/data/x", ttl=600, auto_renew=False, registry=registry) as claim:
        works_for(monkeypatch, claim)
        assert leasectl("renew", "--registry", registry).code == 0
        said = leasectl("renew", "--registry", tmp_path)
        assert said.code == 2
        assert f"LEASES_OWNER is about the registry {registry}" in said.err


def test_the_clock_of_another_time_namespace_renews_nothing(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", ttl=600, auto_renew=False) as claim:
        prefix = ("unshare", "-T", "--monotonic", "1000", "--fork", "--kill-child")
        done = run_leasectl("renew", prefix=prefix, env=claim.ref.to_env())
        assert done.returncode == 1
        assert "measured by a clock that is not known to be ours" in done.stderr


def test_a_variable_that_says_nothing_is_a_usage_error(leasectl: Leasectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASES_OWNER", "{}")
    said = leasectl("renew")
    assert said.code == 2
    assert "LEASES_OWNER cannot be read" in said.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--no-auto-renew",), "--no-auto-renew needs --ttl"),
        (("--no-auto-renew", "--ttl", "5", "--also", "y"), "--also exclude each other"),
        (("--exec", "--ttl", "5"), "nothing would renew it"),
    ],
)
def test_what_nothing_would_renew_is_refused(
    leasectl: Leasectl, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    said = leasectl("run", *options, tmp_path / "x", "--", "true")
    assert said.code == 2
    assert why in " ".join(said.err.split())
    assert not (tmp_path / ".leases").exists()


# real ones


def renewing(number: int) -> str:
    """A command that renews, says so, and hangs."""
    command = [*LEASECTL, "renew"]
    return (
        "import os, subprocess, sys; print(os.getpid(), flush=True)\n"
        f"for _ in range({number}): subprocess.run({command!r}, check=True)\n"
        "sys.stdin.read()"
    )


def test_a_command_that_gets_on_keeps_its_lease_and_one_that_is_stuck_loses_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with holding(path, "--ttl", "1", "--no-auto-renew", body=renewing(2)) as held:
        assert held.line().startswith("renewed: ")
        assert held.line().startswith("renewed: ")
        with ownership.acquire(path, timeout=20) as claim:  # it does not renew any more
            code, said = held.ended()
            claim.verify()
    assert code == 76
    assert "its lease ran out unrenewed" in said


def test_one_that_replaces_leasectl_renews_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with holding(path, "--ttl", "600", "--no-auto-renew", "--exec", body=renewing(1)) as held:
        assert held.cmd == held.pid
        assert held.line().startswith("renewed: ")
        one = ownership.inspect(path)
        assert one.record is not None
        assert one.record.pid == held.pid
        held.end_input()
        assert held.ended()[0] == 0


def test_a_loss_in_the_last_moment_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    body = (
        "import os, sys; print(os.getpid(), flush=True); import ownership\n"
        "ref = ownership.OwnerRef.from_env(); sys.stdin.read()\n"
        "ownership.break_claim(ref.path, token=ref.token); os._exit(0)"
    )
    command = [sys.executable, "-c", body]
    with started(["run", "--ttl", "600", "--no-auto-renew", str(path), "--", *command], **PIPES) as process:
        try:
            held = Held(process)
            held.end_input()
            assert held.ended()[0] == 76
        finally:
            process.kill()


def test_leasectl_itself_does_not_renew_what_its_command_has_to(tmp_path: Path) -> None:
    """However long nobody wants it."""
    path = tmp_path / "x"
    with holding(path, "--ttl", "1", "--no-auto-renew") as held:
        eventually(lambda: ownership.inspect(path).verdict == "expired")
        assert run_leasectl("show", path).returncode == 15
        held.end_input()
        assert held.ended()[0] == 0
    assert ownership.inspect(path).verdict == "free"
