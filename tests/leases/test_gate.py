"""The shutdown gate: who is refused, what its closer is told, and that it never closes half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import leases
import ownership
from leases import Gate, LeaseLostError
from ownership import GateClosedError, GuardTimeoutError, Verdict
from ownership.testing import FakeClock
from tests.support.processes import Contender, residue
from tests.support.records import file_of, plant


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def enter(gate: Gate, name: str = "x") -> None:
    ownership.acquire(gate.path.with_name(name), gate=gate).release()


def test_while_it_is_closed_nobody_new_gets_in(gate: Gate) -> None:
    before = ownership.acquire(gate.path.with_name("before"), gate=gate)
    enter(gate)
    with gate:
        assert gate.is_closed
        with pytest.raises(GateClosedError):
            enter(gate)
        before.announce("still here")
        assert {one.resource.name for one in ownership.inspect_all(gate.path.parent)} == {"gate", "before"}
    assert not gate.is_closed
    enter(gate)
    before.release()
    assert residue(gate.path) == set()


def test_who_is_refused_is_told_who_closed_it_since_when_and_why(gate: Gate) -> None:
    with gate.close(reason="upgrade\nto 1.3"), pytest.raises(GateClosedError) as closed:
        enter(gate)
    error = closed.value
    assert error.record is not None
    assert (error.exit_code, error.reason, error.record.pid) == (75, "upgrade\nto 1.3", os.getpid())
    assert f"gate {gate.path} is closed by pid {os.getpid()}" in str(error)
    assert f"{error.record.acquired_at:%Y-%m-%dT%H:%M}" in str(error)
    assert "upgrade\\nto 1.3" in str(error)
    assert f"leasectl gate open {gate.path}" in error.hint
    assert error.resource == str(gate.path)


def test_any_object_at_that_path_is_the_same_gate(gate: Gate) -> None:
    other = Gate(gate.path)
    with gate:
        with pytest.raises(GateClosedError):
            other.check()
        with pytest.raises(GateClosedError):
            other.close()
        with pytest.raises(GateClosedError):
            other.open()
        assert gate.close() is gate
        gate.verify()
    other.open()
    other.check()


def test_only_its_closer_is_asked_whether_it_still_is(gate: Gate) -> None:
    with pytest.raises(LeaseLostError, match="is not closed by us"):
        gate.verify()


def test_a_broken_gate_is_open_and_its_closer_learns_of_it(gate: Gate) -> None:
    gate.close()
    found = gate.inspect()
    ownership.break_claim(gate.path, token=found.token)
    enter(gate)
    with pytest.raises(LeaseLostError) as lost:
        gate.verify()
    assert lost.value.reason == "broken"
    with gate:
        assert gate.is_closed
        gate.verify()
    assert not gate.is_closed


def test_a_closer_that_was_late_is_told_that_somebody_may_have_got_in(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", ttl=1.0)
    with gate:
        lease = gate._lease
        assert lease is not None
        part = lease.claim._holding.part
        assert part.term is not None
        part.term.freeze()
        part.term._frozen = 0.0  # as after a pause that was longer than the ttl
        with pytest.raises(LeaseLostError, match="was open for a while") as lost:
            gate.verify()
        assert lost.value.reason == "expired"
        gate.close()
        gate.verify()


def test_an_expired_gate_is_open(tmp_path: Path) -> None:
    clock = FakeClock()
    gate = Gate(tmp_path / "gate", clock=clock)
    closer = leases.acquire(gate.path, ttl=5.0, auto_renew=False, clock=clock)
    with pytest.raises(GateClosedError):
        enter(gate)
    clock.advance(5)
    enter(gate)
    closer.release()


def test_a_gate_that_cannot_be_read_is_not_open(gate: Gate) -> None:
    plant(gate.path, b"x" * 100_000)
    for act in (gate.check, lambda: enter(gate), gate.close):
        with pytest.raises(ownership.InvalidRecordError):
            act()
    file_of(gate.path).unlink()
    enter(gate)


def test_a_busy_guard_keeps_it_open_and_its_holder_is_named(gate: Gate) -> None:
    with Contender() as other, Contender() as third:
        assert "value" in other.do("acquire", gate.path.with_name("x"))
        assert third.passes(gate.path.with_name("y"))
        with ownership.acquire(gate.path.with_name("z")) as claim, claim.critical():
            said = third.do("inspect", gate.path.with_name("z"))
            assert said["value"] == "live"
            assert _closed_elsewhere(gate) == ("GuardTimeoutError", os.getpid())
            assert not gate.is_closed
        with gate:
            pass


def _closed_elsewhere(gate: Gate) -> tuple[str, int | None]:
    from tests.support.namespaces import elsewhere

    error = elsewhere(lambda: Gate(gate.path).close(timeout=0.05))
    assert isinstance(error, GuardTimeoutError)
    assert "could not be closed" in str(error)
    return type(error).__name__, error.holder


def test_it_is_closed_from_inside_a_critical_section(gate: Gate) -> None:
    """Nobody else can be inside that guard."""
    with ownership.acquire(gate.path.with_name("x")) as claim, claim.critical(), gate.close(timeout=0):
        gate.verify()


def test_its_own_guard_is_in_nobodys_way(gate: Gate) -> None:
    with gate, pytest.raises(GateClosedError):
        ownership.acquire(gate.path, gate=gate)
    with ownership.acquire(gate.path, gate=gate), pytest.raises(GateClosedError):
        gate.check()


def test_an_interrupted_close_leaves_it_open(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **keywords: object) -> int:
        assert gate.is_closed
        raise KeyboardInterrupt

    monkeypatch.setattr(ownership, "pass_guards", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gate.close()
    assert not gate.is_closed


def test_it_rules_a_registry(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    gate = Gate(tmp_path / "gate", registry=registry)
    with gate, pytest.raises(GateClosedError):
        ownership.acquire("/anything", registry=registry, gate=gate)
    ownership.acquire("/anything", registry=registry, gate=gate).release()


def test_another_directory_is_none_of_its_business(gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(ValueError, match="gate must rule the lock directory of"):
        ownership.acquire(tmp_path / "d" / "x", gate=gate)


@pytest.mark.parametrize("ttl", [0.5, float("nan"), True, "5"])
def test_a_ttl_that_cannot_be_right_is_refused(tmp_path: Path, ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl must be a finite number"):
        Gate(tmp_path / "gate", ttl)


@pytest.mark.parametrize("path", ["", b"", "a\0b", None, 3], ids=repr)
def test_a_path_that_cannot_be_one_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path must be a path"):
        Gate(path)


def test_a_holder_whose_lease_ran_out_is_not_missing_while_it_may_go_on(gate: Gate) -> None:
    """It got in before, and nobody has taken over: it would own beside whatever the gate was closed for."""
    clock = FakeClock()
    with leases.acquire(gate.path.with_name("x"), ttl=5.0, auto_renew=False, gate=gate, clock=clock) as lease:
        clock.advance(9.0)
        with gate:
            found = {one.ref.path.name: one for one in ownership.running(gate.path.parent, clock=clock)}
            assert found["x"].verdict is Verdict.EXPIRED
            assert ownership.find(lease.path, clock=clock) is None
            assert lease.renew()
            assert [one.verdict for one in ownership.running(gate.path.parent, clock=clock)] == [Verdict.LIVE] * 2
