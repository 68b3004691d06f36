"""What a diagnosis makes of the facts: fakes for processes and time, files planted by hand."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import Finding, FindingCode, Severity
from ownership._ailing_files import Held, guards_held, held_for_long, still_held
from ownership._bystander import look_at, way_on
from ownership._finding import Subject
from ownership._models import GuardState, OwnerIdentity
from ownership._paths import pinned_resource
from ownership._process import ProcessObservation, ProcessState, locked_file
from ownership.testing import FakeClock, FakeProcessTable
from tests.support.records import OTHER_INSTANCE, file_of, other_start_id, plant, plant_guard, snapshot

OWNER, PARENT, TRACER = 2000, 1900, 1800


@pytest.fixture
def table() -> Iterator[FakeProcessTable]:
    """We are pid 1000; pid 2000 owns, pid 1900 started it."""
    with FakeProcessTable() as table:
        table.add(OWNER, command="the owner")
        table.add(PARENT, command="the parent")
        table.add(TRACER, command="gdb")
        table.surround(OWNER, parent=PARENT)
        yield table


def fields(table: FakeProcessTable, **changes: Any) -> dict[str, Any]:
    me = table.current()
    identity = {"boot_id": me.boot_id, "pid_namespace": me.pid_namespace, "instance_id": OTHER_INSTANCE}
    return {"version": 1, "token": 7, "pid": OWNER, "start_id": table.observe(OWNER).start_id, **identity, **changes}


def owner_of(table: FakeProcessTable, **changes: Any) -> OwnerIdentity:
    kept = OwnerIdentity.model_fields
    return OwnerIdentity(**{name: value for name, value in fields(table, **changes).items() if name in kept})


@contextmanager
def witness(resource: Path, instance_id: str = OTHER_INSTANCE) -> Iterator[Path]:
    """A witness that is held: the other image of the fields above lives."""
    path = file_of(resource).parent / f"{instance_id}.alive"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    number = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(number, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        os.close(number)


class Meddling(FakeClock):
    """A clock during whose first wait something happens."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act: Callable[[], object] | None = act

    def wait(self, seconds: float, poller: Any = None) -> bool:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().wait(seconds, poller)


def found(directory: Path, table: FakeProcessTable, clock: FakeClock | None = None) -> list[Finding]:
    before = snapshot(directory)
    findings = list(ownership.diagnose(directory, clock=clock or FakeClock(), processes=table))
    assert clock is not None or snapshot(directory) == before
    assert all(one.what and one.remedy and "\n" not in one.remedy for one in findings)
    return findings


def codes(findings: list[Finding]) -> list[str]:
    return [one.code.value for one in findings]


# -- nothing is wrong


def test_a_live_owner_and_a_free_resource_are_healthy_and_nobody_waits(tmp_path: Path, table: FakeProcessTable) -> None:
    clock = FakeClock()
    with witness(tmp_path / "x"):
        plant(tmp_path / "x", fields(table))
        plant_guard(tmp_path / "x", GuardState(7, owner_of(table)))
        plant_guard(tmp_path / "y", GuardState(3))
        assert found(tmp_path, table, clock) == []
    assert clock.waits == []


def test_a_directory_without_records_is_healthy(tmp_path: Path, table: FakeProcessTable) -> None:
    assert found(tmp_path, table) == []
    (tmp_path / ".leases").mkdir(mode=0o700)
    assert found(tmp_path, table) == []
    assert found(tmp_path / ".leases", table) == []


def test_many_resources_of_one_owner_take_one_look_at_it(tmp_path: Path, table: FakeProcessTable) -> None:
    with witness(tmp_path / "x"):
        for index in range(50):
            plant(tmp_path / f"x{index}", fields(table))
        table.observed.clear()
        assert found(tmp_path, table) == []
    assert table.observed == [OWNER]


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_an_error(tmp_path: Path, table: FakeProcessTable, name: str) -> None:
    (tmp_path / "file").touch()
    for registry in (False, True):
        with pytest.raises(OSError, match=os.fspath(tmp_path / name)):
            list(ownership.diagnose(tmp_path / name, registry=registry, processes=table))


# -- owners


def one_of(tmp_path: Path, table: FakeProcessTable, record: dict[str, Any] | None = None) -> Finding:
    """The one finding about a resource whose owner is in the state that *table* knows by now."""
    with witness(tmp_path / "x"):
        plant(tmp_path / "x", record or fields(table))
        (finding,) = found(tmp_path, table)
    assert finding.resource == tmp_path / "x"
    assert (finding.evidence["pid"], finding.evidence["token"]) == (OWNER, 7)
    return finding


def test_a_dead_owner_blocks_nobody(tmp_path: Path, table: FakeProcessTable) -> None:
    record = fields(table, command="the owner")
    table.kill(OWNER)
    finding = one_of(tmp_path, table, record)
    assert (finding.code, finding.severity, finding.unusable) == (FindingCode.GONE, Severity.NOTE, False)
    assert finding.remedy == f"leasectl reclaim {tmp_path / 'x'}"
    assert (finding.evidence["start_id"], finding.evidence["command"]) == (record["start_id"], "the owner")


def test_a_zombie_names_the_parent_that_has_to_reap_it(tmp_path: Path, table: FakeProcessTable) -> None:
    table.zombify(OWNER)
    finding = one_of(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.ZOMBIE, Severity.NOTE)
    assert (finding.evidence["parent_pid"], finding.evidence["parent_command"]) == (PARENT, "the parent")
    assert f"pid {PARENT} (the parent) has to reap it" in finding.advice
    assert finding.remedy == f"leasectl reclaim {tmp_path / 'x'}"


def test_a_zombie_of_a_stopped_parent_is_reaped_once_that_goes_on(tmp_path: Path, table: FakeProcessTable) -> None:
    table.zombify(OWNER)
    table.stop(PARENT)
    finding = one_of(tmp_path, table)
    assert (finding.code, finding.remedy) == (FindingCode.ZOMBIE, f"kill -CONT {PARENT}")


def test_a_zombie_that_pid_1_does_not_reap_needs_an_init(tmp_path: Path, table: FakeProcessTable) -> None:
    table.zombify(OWNER)
    table.add(1, command="python app.py")
    table.surround(OWNER, parent=1)
    assert "docker run --init" in one_of(tmp_path, table).advice


def test_a_zombie_whose_parent_is_not_to_be_seen_is_one_all_the_same(tmp_path: Path, table: FakeProcessTable) -> None:
    table.zombify(OWNER)
    table.surround(OWNER)
    finding = one_of(tmp_path, table)
    assert finding.code is FindingCode.ZOMBIE
    assert "parent_pid" not in finding.evidence


def test_a_reused_number_tells_what_runs_there_now(tmp_path: Path, table: FakeProcessTable) -> None:
    record = fields(table)
    now = table.reuse(OWNER, command="a stranger")
    finding = one_of(tmp_path, table, record)
    assert (finding.code, finding.severity) == (FindingCode.REUSED, Severity.NOTE)
    assert (finding.evidence["runs_now"], finding.evidence["start_id_now"]) == ("a stranger", now)
    assert finding.evidence["start_id"] == record["start_id"]
    assert "kill" not in finding.remedy


def test_a_stopped_owner_wants_sigcont(tmp_path: Path, table: FakeProcessTable) -> None:
    table.stop(OWNER)
    finding = one_of(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.STOPPED, Severity.PROBLEM)
    assert (finding.remedy, finding.evidence["state"]) == (f"kill -CONT {OWNER}", "stopped")
    assert finding.evidence["state_source"] == "fake: stopped"


def test_a_number_that_is_reused_while_we_look_gets_no_signal(tmp_path: Path, table: FakeProcessTable) -> None:
    """Judged stopped, and by the next look another process, stopped too, has the number."""

    class Hasty(FakeProcessTable):
        def observe(self, pid: int) -> ProcessObservation:
            if len(table.observed) == 2:  # the verdict is in
                table.reuse(OWNER)
                table.stop(OWNER)
            return table.observe(pid)

    hasty = Hasty()
    hasty.become(table.current())
    table.stop(OWNER)
    with witness(tmp_path / "x"):
        plant(tmp_path / "x", fields(table))
        table.observed.clear()
        assert list(ownership.diagnose(tmp_path, clock=FakeClock(), processes=hasty)) == []
    assert len(table.observed) == 3


def test_a_traced_owner_names_its_tracer(tmp_path: Path, table: FakeProcessTable) -> None:
    table.set_state(OWNER, ProcessState.TRACED)
    table.surround(OWNER, parent=PARENT, tracer=TRACER)
    finding = one_of(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.TRACED, Severity.PROBLEM)
    assert (finding.evidence["tracer_pid"], finding.evidence["tracer_command"]) == (TRACER, "gdb")
    assert finding.remedy == f"kill {TRACER}"


@pytest.mark.parametrize("tracer", [PARENT, None])
def test_a_tracer_that_would_take_its_owner_along_is_not_to_be_killed(
    tmp_path: Path, table: FakeProcessTable, tracer: int | None
) -> None:
    table.set_state(OWNER, ProcessState.TRACED)
    table.surround(OWNER, parent=PARENT, tracer=tracer)
    assert one_of(tmp_path, table).remedy.startswith("ps ")


def test_a_frozen_owner_names_the_switches_that_thaw_it(tmp_path: Path, table: FakeProcessTable) -> None:
    table.set_state(OWNER, ProcessState.FROZEN)
    table.surround(OWNER, frozen_by=("/cgroup/a b/cgroup.freeze", "/freezer/x/freezer.state"))
    finding = one_of(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.FROZEN, Severity.PROBLEM)
    assert finding.remedy == "echo 0 > '/cgroup/a b/cgroup.freeze' && echo THAWED > /freezer/x/freezer.state"
    table.surround(OWNER)
    assert found(tmp_path, table)[0].remedy == f"ps -o pid,stat,cgroup,args -p {OWNER}"


def test_an_owner_that_does_not_renew_may_be_at_work_without_its_lease(tmp_path: Path, table: FakeProcessTable) -> None:
    record = fields(table, lease={"ttl": 2.0, "auto_renew": False, "renewed_at": 1.0})
    finding = one_of(tmp_path, table, record)
    assert (finding.code, finding.severity) == (FindingCode.EXPIRED, Severity.PROBLEM)
    assert (finding.evidence["ttl"], finding.evidence["state"]) == (2.0, "running")
    assert finding.remedy == f"leasectl reclaim {tmp_path / 'x'}"
    table.stop(OWNER)
    assert "SIGCONT" in one_of(tmp_path, table, record).advice


@pytest.mark.parametrize(
    ("changes", "code", "fact"),
    [
        ({"pid_namespace": 4026539999}, FindingCode.FOREIGN_NAMESPACE, "our_pid_namespace"),
        ({"boot_id": "another boot"}, FindingCode.FOREIGN_BOOT, "our_boot_id"),
        ({"boot_id": None}, FindingCode.UNKNOWN, None),
    ],
)
def test_an_owner_from_elsewhere_without_a_witness_can_be_broken_by_decision_only(
    tmp_path: Path, table: FakeProcessTable, changes: dict[str, Any], code: FindingCode, fact: str | None
) -> None:
    plant(tmp_path / "x", fields(table, **changes))
    (finding,) = found(tmp_path, table)
    assert (finding.code, finding.severity) == (code, Severity.PROBLEM)
    assert fact is None or fact in finding.evidence
    assert finding.evidence["witness"] == "missing"
    assert finding.remedy == f"leasectl break {tmp_path / 'x'} --token 7"


def test_an_owner_from_elsewhere_whose_witness_is_held_is_healthy(tmp_path: Path, table: FakeProcessTable) -> None:
    with witness(tmp_path / "x"):
        plant(tmp_path / "x", fields(table, pid_namespace=4026539999))
        assert found(tmp_path, table) == []


def test_an_owner_that_cannot_be_looked_at_is_unknown(tmp_path: Path, table: FakeProcessTable) -> None:
    record = fields(table)
    table.fail(OWNER, "too many open files")
    finding = one_of(tmp_path, table, record)
    assert finding.code is FindingCode.UNKNOWN
    assert "too many open files" in finding.what


def test_a_readable_record_of_a_newer_version_is_noted(tmp_path: Path, table: FakeProcessTable) -> None:
    finding = one_of(tmp_path, table, fields(table, version=2, lease="in a new form"))
    assert (finding.code, finding.severity, finding.unusable) == (FindingCode.NEWER_RECORD, Severity.NOTE, False)
    assert finding.remedy == "install a newer version of leases"
    assert finding.evidence["record_version"] == 2


# -- what may pass by itself


def test_an_owner_that_lives_without_its_record_is_found_by_its_guard(tmp_path: Path, table: FakeProcessTable) -> None:
    plant_guard(tmp_path / "x", GuardState(7, owner_of(table)))
    (finding,) = found(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.RECORD_LOST, Severity.PROBLEM)
    assert (finding.resource, finding.evidence["pid"]) == (tmp_path / "x", OWNER)
    assert finding.evidence["guard"] == str(file_of(tmp_path / "x", "guard"))
    assert finding.remedy == f"leasectl break {tmp_path / 'x'} --token 7"
    table.stop(OWNER)
    assert found(tmp_path, table)[0].remedy == f"kill -CONT {OWNER}"
    table.kill(OWNER)
    assert found(tmp_path, table) == []


def test_a_record_that_comes_back_is_not_lost(tmp_path: Path, table: FakeProcessTable) -> None:
    """Its keeper needs up to a quarter of a second; an acquire under way names itself in the guard first."""
    with witness(tmp_path / "x"):
        plant_guard(tmp_path / "x", GuardState(7, owner_of(table)))
        clock = Meddling(lambda: plant(tmp_path / "x", fields(table)))
        assert found(tmp_path, table, clock) == []
    assert 0.5 < sum(clock.waits) < 1.0


@pytest.mark.parametrize(("held", "code"), [(None, "witness-missing"), (False, "witness-free")])
def test_a_live_owner_that_other_namespaces_cannot_see_is_found(
    tmp_path: Path, table: FakeProcessTable, held: bool | None, code: str
) -> None:
    plant(tmp_path / "x", fields(table))
    if held is False:
        with witness(tmp_path / "x"):
            pass
    (finding,) = found(tmp_path, table)
    assert finding.code.value == code
    assert finding.severity is (Severity.NOTE if held is None else Severity.PROBLEM)
    assert finding.evidence["witness"] == str(file_of(tmp_path / "x").parent / f"{OTHER_INSTANCE}.alive")


def test_a_witness_that_comes_back_is_not_missing(tmp_path: Path, table: FakeProcessTable) -> None:
    held = witness(tmp_path / "x")
    plant(tmp_path / "x", fields(table))
    assert found(tmp_path, table, Meddling(held.__enter__)) == []
    held.__exit__(None, None, None)


def test_a_damaged_record_is_its_guards_owners(tmp_path: Path, table: FakeProcessTable) -> None:
    plant(tmp_path / "x", b"{")
    plant_guard(tmp_path / "x", GuardState(7, owner_of(table)))
    (finding,) = found(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.MALFORMED, Severity.PROBLEM)
    assert (finding.evidence["pid"], finding.evidence["head"]) == (OWNER, "{")
    assert finding.remedy == f"leasectl break {tmp_path / 'x'} --token 7"
    table.stop(OWNER)
    assert found(tmp_path, table)[0].remedy == f"kill -CONT {OWNER}"
    table.kill(OWNER)
    (finding,) = found(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.MALFORMED, Severity.NOTE)
    assert finding.remedy == f"leasectl reclaim {tmp_path / 'x'}"


def test_a_damaged_record_of_nobody_is_reclaimed_by_the_next_acquire(tmp_path: Path, table: FakeProcessTable) -> None:
    plant(tmp_path / "x", b"")
    (finding,) = found(tmp_path, table)
    assert (finding.code, finding.severity) == (FindingCode.MALFORMED, Severity.NOTE)
    with witness(tmp_path / "x"):
        assert found(tmp_path, table, Meddling(lambda: plant(tmp_path / "x", fields(table)))) == []


# -- files


def test_what_is_no_record_is_never_removed_by_us(tmp_path: Path, table: FakeProcessTable) -> None:
    file_of(tmp_path / "a").parent.mkdir(mode=0o700)
    file_of(tmp_path / "a").mkdir()
    file_of(tmp_path / "b").symlink_to("nowhere")
    plant(tmp_path / "c", b"x" * 70_000)
    plant(tmp_path / "d", fields(table, token=2**60))
    plant_guard(tmp_path / "e", b"y" * 600)
    findings = found(tmp_path, table)
    assert codes(findings) == ["invalid-record"] * 4 + ["invalid-guard"]
    assert [one.resource.name for one in findings] == list("abcde")
    assert all(one.unusable and one.severity is Severity.PROBLEM for one in findings)
    assert findings[0].remedy == f"rm -ri {file_of(tmp_path / 'a')}"
    assert findings[1].remedy == f"rm -i {file_of(tmp_path / 'b')}"
    assert findings[4].remedy == f"rm -i {file_of(tmp_path / 'e', 'guard')}"


def test_a_newer_record_without_an_identity_cannot_be_used(tmp_path: Path, table: FakeProcessTable) -> None:
    plant(tmp_path / "x", {"version": 2, "pid": "in a new form"})
    (finding,) = found(tmp_path, table)
    assert (finding.code, finding.unusable) == (FindingCode.NEWER_RECORD, True)
    assert finding.remedy == "install a newer version of leases"


def test_what_dead_processes_left_is_counted(tmp_path: Path, table: FakeProcessTable) -> None:
    free, kept, named = "1" * 32, "2" * 32, "3" * 32
    table.kill(OWNER)
    with witness(tmp_path / "x", kept):
        for instance_id in (free, named):
            with witness(tmp_path / "x", instance_id):
                pass
        plant_guard(tmp_path / "x", GuardState(7, owner_of(with_owner(), instance_id=named)))
        for name in (f"x.{free}.new", f"x.{kept}.new", f"y.guard.{'4' * 32}.new"):
            (tmp_path / ".leases" / name).touch()
        findings = found(tmp_path, table)
    assert codes(findings) == ["leftover-witness", "leftover-temporary"]
    assert all(one.severity is Severity.NOTE and one.resource == tmp_path / ".leases" for one in findings)
    assert findings[0].evidence["first"] == [f"{free}.alive"]
    assert findings[1].evidence["files"] == 2
    assert {one.remedy for one in findings} == {f"leasectl reclaim {tmp_path / '.leases'}"}


def with_owner() -> FakeProcessTable:
    table = FakeProcessTable()
    table.add(OWNER)
    return table


def test_a_temporary_file_that_goes_was_in_use(tmp_path: Path, table: FakeProcessTable) -> None:
    temporary = tmp_path / ".leases" / f"x.{'1' * 32}.new"
    temporary.parent.mkdir(mode=0o700)
    temporary.touch()
    assert found(tmp_path, table, Meddling(temporary.unlink)) == []


def test_nothing_is_a_leftover_while_a_record_cannot_be_read(tmp_path: Path, table: FakeProcessTable) -> None:
    file_of(tmp_path / "x").parent.mkdir(mode=0o700)
    file_of(tmp_path / "x").mkdir()
    with witness(tmp_path / "x"):
        pass
    assert codes(found(tmp_path, table)) == ["invalid-record"]


# -- names


def test_remedies_are_quoted_for_a_shell(tmp_path: Path, table: FakeProcessTable) -> None:
    record = fields(table)
    table.kill(OWNER)
    path = tmp_path / "it's; rm -rf \n caf\udce9"
    plant(path, record)
    (finding,) = found(tmp_path, table)
    assert finding.resource == path
    base = os.fsencode(tmp_path).decode()
    assert finding.remedy == f"leasectl reclaim $'{base}/it\\x27s; rm -rf \\x0a caf\\xe9'"


def test_a_resource_that_is_a_directory_is_reclaimed_itself(tmp_path: Path, table: FakeProcessTable) -> None:
    record = fields(table)
    table.kill(OWNER)
    (tmp_path / "x").mkdir()
    plant(tmp_path / "x", record)
    assert found(tmp_path, table)[0].remedy == f"leasectl reclaim {tmp_path / 'x'} --resource"


def test_a_hashed_name_without_a_readable_record_is_named_by_its_file(tmp_path: Path, table: FakeProcessTable) -> None:
    long = tmp_path / ("x" * 250)
    plant(long, b"{")
    (finding,) = found(tmp_path, table)
    assert finding.remedy == f"leasectl reclaim {tmp_path / '.leases'}"
    plant_guard(long, GuardState(7, owner_of(table)))
    (finding,) = found(tmp_path, table)
    assert finding.remedy.startswith(f"ls -l {tmp_path / '.leases'}/")
    table.kill(OWNER)
    plant(long, fields(with_owner(), resource=str(long)))
    (finding,) = found(tmp_path, table)
    assert (finding.resource, finding.remedy) == (long, f"leasectl reclaim {long}")


@pytest.mark.parametrize("name", ["%ZZ", "%00", "caf\udce9", "", ".", "a%2fb"])
def test_a_file_with_a_name_that_we_never_give_is_no_resource(
    tmp_path: Path, table: FakeProcessTable, name: str
) -> None:
    (tmp_path / ".leases").mkdir(mode=0o700)
    (tmp_path / ".leases" / f"{name}.json").write_bytes(b"{")
    (finding,) = found(tmp_path, table)
    assert finding.remedy == f"leasectl reclaim {tmp_path / '.leases'}"


def test_a_registry_is_named_in_remedies(tmp_path: Path, table: FakeProcessTable) -> None:
    registry = tmp_path / "the registry"
    registry.mkdir(mode=0o755)
    record = fields(table)
    table.kill(OWNER)
    plant(tmp_path / "x", record, registry)
    with witness(tmp_path / "x"):
        (tmp_path / ".leases" / f"{OTHER_INSTANCE}.alive").rename(registry / f"{'9' * 32}.alive")
    findings = list(ownership.diagnose(registry, registry=True, clock=FakeClock(), processes=table))
    assert [one.remedy for one in findings] == [
        f"leasectl reclaim --registry '{registry}' {tmp_path / 'x'}",
        f"leasectl reclaim --registry '{registry}'",
    ]


# -- guards that are held


def test_a_guard_is_held_for_long_if_nothing_about_it_changes() -> None:
    signature, later = (1, 2, 3, 4, 5), (1, 2, 3, 9, 5)
    holders = {locked_file(1, 2): 42}
    held = guards_held({"x": signature, "free": (1, 3, 0, 0, 0), "missing": None}, holders)
    assert held == {"x": Held(42, signature)}
    assert still_held(held, {"x": Held(42, signature)}) == held
    for now in ({}, {"x": Held(43, signature)}, {"x": Held(42, later)}):
        assert still_held(held, now) == {}


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (ProcessState.STOPPED, f"kill -CONT {OWNER}"),
        (ProcessState.FROZEN, "echo 0 > /c/cgroup.freeze"),
        (ProcessState.TRACED, f"kill {TRACER}"),
        (ProcessState.RUNNING, f"ps -o pid,stat,wchan:20,lstart,args -p {OWNER}; fuser -v /d/x.guard"),
        (ProcessState.ZOMBIE, "fuser -v /d/x.guard"),
        (None, "fuser -v /d/x.guard"),
    ],
)
def test_what_to_do_about_a_held_guard_depends_on_what_its_holder_does(
    table: FakeProcessTable, state: ProcessState | None, remedy: str
) -> None:
    table.surround(OWNER, parent=PARENT, tracer=TRACER, frozen_by=("/c/cgroup.freeze",))
    if state is None:
        table.kill(OWNER)
    else:
        table.set_state(OWNER, state)
    finding = held_for_long(Subject(pinned_resource("/x"), "/d"), OWNER, 0.6, table)
    assert (finding.code, finding.severity) == (FindingCode.GUARD_HELD, Severity.PROBLEM)
    assert (finding.evidence["holder_pid"], finding.evidence["seen_for"]) == (OWNER, "0.6 s")
    assert "critical" not in finding.advice
    assert finding.remedy == remedy


def test_a_process_that_can_run_needs_no_way_on(table: FakeProcessTable) -> None:
    assert way_on(table, look_at(table, OWNER)) is None
    assert look_at(table, 9999).doing == "gone"


def test_what_was_found_is_a_value(tmp_path: Path, table: FakeProcessTable) -> None:
    plant(tmp_path / "x", fields(table, start_id=other_start_id(fields(table)["start_id"])))
    first, second = found(tmp_path, table), found(tmp_path, table)
    assert first == second
    assert codes(first) == ["reused"]
