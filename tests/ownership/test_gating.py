"""Gates as acquire sees them: asked inside the guard, and only about their own lock directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, GateClosedError, Verdict
from tests.support.namespaces import needs_linux_root
from tests.support.processes import ROOT, Contender, is_locked, residue
from tests.support.records import file_of

pytestmark = needs_linux_root


class FakeGate:
    """A gate that does what it is told when it is asked."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.asked = 0
        self._act = act

    def check(self) -> None:
        self.asked += 1
        self._act()


class Placed(FakeGate):
    """A gate that has a path."""

    def __init__(self, path: Path, registry: Path | None = None) -> None:
        super().__init__()
        self.path, self.registry = path, registry


def test_it_is_asked_inside_every_guard_and_before_anything_is_published(tmp_path: Path) -> None:
    found: list[bool] = []

    def look() -> None:
        found.extend(is_locked(file_of(tmp_path / name, "guard")) for name in "xy")
        found.extend(not file_of(tmp_path / name).exists() for name in "xy")

    gate = FakeGate(look)
    with ownership.acquire(tmp_path / "x", also=[tmp_path / "y"], gate=gate):
        assert found == [True] * 4
        assert gate.asked == 1


def test_what_it_raises_leaves_nothing_of_ours(tmp_path: Path) -> None:
    def close() -> None:
        raise GateClosedError("closed", resource=tmp_path / "gate", reason="upgrade", hint="wait")

    with pytest.raises(GateClosedError) as closed:
        ownership.acquire(tmp_path / "x", also=[tmp_path / "y"], gate=FakeGate(close), ttl=5.0, timeout=10)
    assert (closed.value.reason, closed.value.exit_code) == ("upgrade", 75)
    assert residue(tmp_path / "x") == set()
    with ownership.acquire(tmp_path / "x", also=[tmp_path / "y"]):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(5, "no"), RuntimeError("no")])
def test_a_gate_that_cannot_be_asked_is_not_open(tmp_path: Path, error: Any) -> None:
    def fail() -> None:
        raise error

    with pytest.raises((KeyboardInterrupt, OSError, RuntimeError)):
        ownership.acquire(tmp_path / "x", gate=FakeGate(fail))
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE
    with Contender() as contender:
        assert contender.passes(tmp_path / "x")


def test_a_waiter_is_refused_when_its_turn_has_come(tmp_path: Path) -> None:
    def close() -> None:
        if gate.asked > 1:
            raise GateClosedError("closed", resource=tmp_path / "gate")

    gate = FakeGate(close)
    claim = ownership.acquire(tmp_path / "x")
    with pytest.raises(GateClosedError):
        ownership.acquire(tmp_path / "x", gate=gate, timeout=30, on_wait=lambda error: claim.release())
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.FREE


def test_an_open_gate_changes_nothing(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", gate=FakeGate()), pytest.raises(AlreadyOwnedError):
        ownership.acquire(tmp_path / "x", gate=FakeGate())


def test_what_cannot_be_asked_is_no_gate(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gate must have a method check\(\), got 5"):
        ownership.acquire(tmp_path / "x", gate=5)  # type: ignore[arg-type]
    assert not (tmp_path / ".leases").exists()


def test_it_rules_its_own_lock_directory_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    gate = Placed(tmp_path / "a" / "gate")
    for resources in ([tmp_path / "b" / "x"], [tmp_path / "a" / "x", tmp_path / "b" / "x"]):
        with pytest.raises(ValueError, match=r"gate must rule the lock directory of .*/b/x, got"):
            ownership.acquire(resources[0], also=resources[1:], gate=gate)
    assert not (tmp_path / "b" / ".leases").exists()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with ownership.acquire(tmp_path / "link" / "x", gate=gate), ownership.acquire(tmp_path / "a" / "gate", gate=gate):
        assert gate.asked == 2


def test_a_registry_is_one_lock_directory(tmp_path: Path) -> None:
    for name in ("registry", "other"):
        (tmp_path / name).mkdir(mode=0o700)
    gate = Placed(tmp_path / "gate", tmp_path / "registry")
    with ownership.acquire("/anything", registry=tmp_path / "registry", gate=gate):
        assert gate.asked == 1
    for keywords in ({"registry": tmp_path / "other"}, {}):
        with pytest.raises(ValueError, match="gate must rule"):
            ownership.acquire(tmp_path / "x", gate=gate, **keywords)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gate must rule"):
        ownership.acquire(tmp_path / "x", gate=Placed(tmp_path / "gate"), registry=tmp_path / "registry")


def test_the_first_acquire_of_a_process_may_look_at_records_inside_the_guard(tmp_path: Path) -> None:
    """Nothing is used there yet: what is looked at is let go of again, but not what is being acquired."""
    body = f"""
import ownership
class Gate:
    def check(self):
        ownership.inspect({str(tmp_path / "gate")!r})
claim = ownership.acquire({str(tmp_path / "x")!r}, gate=Gate(), ttl=5.0)
claim.verify()
claim.announce("there")
claim.release()
"""
    subprocess.run([sys.executable, "-c", body], check=True, env={**os.environ, "PYTHONPATH": ROOT})
    assert residue(tmp_path / "x") == set()


# passing the guards


def test_every_guard_is_passed_with_a_record_or_without(tmp_path: Path) -> None:
    assert ownership.pass_guards(tmp_path / "gate") == 0
    ownership.acquire(tmp_path / "x").release()
    with ownership.acquire(tmp_path / "y"), ownership.acquire(tmp_path / "gate"):
        assert ownership.pass_guards(tmp_path / "gate") == 2


def test_whoever_sits_inside_is_named(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim, Contender() as other:
        other.do("acquire", tmp_path / "y")
        with claim.critical():
            assert ownership.pass_guards(tmp_path / "gate", timeout=0) == 2  # this thread: nobody else decides
            said = other.ask(["inspect", str(tmp_path), {}])
            assert said["value"] == "free"
    with Contender() as other:
        body = ["acquire", str(tmp_path / "z"), {}]
        other.say(body)
        assert "value" in other.hear()


@pytest.mark.parametrize("timeout", [-1, "x"])
def test_a_timeout_that_cannot_be_right_is_refused(tmp_path: Path, timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be"):
        ownership.pass_guards(tmp_path / "gate", timeout=timeout)
