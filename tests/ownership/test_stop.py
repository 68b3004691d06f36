"""Decisions of ``stop``, on processes that live, die and get their number reused at the worst moment."""

from __future__ import annotations

import errno
import json
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import ownership
from ownership import (
    AlreadyOwnedError,
    OwnerIdentity,
    OwnerRecord,
    OwnerRef,
    OwnershipError,
    StopReport,
    StopTimeoutError,
    Verdict,
)
from ownership._clock import Poller
from ownership.testing import FakeClock, FakeProcessTable, ProcessState

TERM, KILL, CONT = signal.SIGTERM, signal.SIGKILL, signal.SIGCONT
OWNER, CHILD, OTHER = 2000, 2001, 2002
INSTANCE = "0123456789abcdef0123456789abcdef"

# what the kernel offers: pidfds that reach groups, pidfds that do not, no pidfds
KERNELS: dict[str, dict[str, bool]] = {
    "6.9": {},
    "5.3": {"group_handles": False},
    "old": {"handles": False},
}


class Table(FakeProcessTable):
    """One of these kernels."""

    def __init__(self, kernel: str) -> None:
        super().__init__(**KERNELS[kernel])
        self.knows_groups = kernel == "6.9"


@pytest.fixture(params=KERNELS, ids=str)
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    with Table(request.param) as table:
        yield table


def identity(table: FakeProcessTable, number: int = OWNER, **changes: Any) -> OwnerIdentity:
    """The process *number* as it would name itself in a record."""
    me, seen = table.current(), table.observe(number)
    fields = {
        "pid": number,
        "start_id": seen.start_id,
        "instance_id": INSTANCE,
        "boot_id": me.boot_id,
        "pid_namespace": me.pid_namespace,
    }
    return OwnerIdentity(**{**fields, **changes})


def stop(table: FakeProcessTable, owner: Any = None, grace: float = 0.5, clock: FakeClock | None = None) -> StopReport:
    who = identity(table) if owner is None else owner
    return ownership.stop(who, grace, clock=clock or FakeClock(), processes=table)


def sent(report: StopReport) -> list[tuple[str, str, int]]:
    return [(one.signal, one.target, one.number) for one in report.signalled]


def family(table: FakeProcessTable, *children: int, **parts: Any) -> OwnerIdentity:
    """An owner that leads its group, and children in it."""
    table.add(OWNER, **parts)
    for child in children:
        table.add(child, group=OWNER, **parts)
    return identity(table)


# who is signalled


def test_the_group_of_an_owner_that_leads_one_is_ended_and_nobody_else(table: FakeProcessTable) -> None:
    family(table, CHILD)
    table.add(OTHER)
    report = stop(table)
    assert (report.scope, report.gone, report.survivors) == ("group", True, ())
    assert sent(report) == [("SIGTERM", "group", OWNER)]
    assert [table.observe(pid).exists for pid in (OWNER, CHILD, OTHER)] == [False, False, True]


def test_of_an_owner_in_the_group_of_another_only_its_process_is_ended(table: FakeProcessTable) -> None:
    table.add(OTHER)
    table.add(OWNER, group=OTHER)
    table.add(CHILD, group=OTHER)
    report = stop(table)
    assert (report.scope, sent(report)) == ("process", [("SIGTERM", "process", OWNER)])
    assert [table.observe(pid).exists for pid in (OWNER, CHILD, OTHER)] == [False, True, True]


def test_our_own_group_is_never_signalled_even_if_the_owner_leads_it() -> None:
    table = FakeProcessTable(OWNER)
    owner = identity(table, instance_id=INSTANCE)
    me = replace(table.current(), pid=CHILD, start_id=table.add(CHILD, group=OWNER))
    table.become(me)
    table.set_group(CHILD, OWNER)
    report = stop(table, owner)
    assert (report.scope, table.signals) == ("process", [("process", OWNER, TERM)])


def test_our_own_group_is_left_alone_when_the_owner_that_led_it_is_gone() -> None:
    table = FakeProcessTable(OWNER)
    owner = identity(table, instance_id=INSTANCE)
    table.become(replace(table.current(), pid=CHILD, start_id=table.add(CHILD, group=OWNER)))
    table.set_group(CHILD, OWNER)
    table.kill(OWNER)
    report = stop(table, owner)
    assert (report.scope, report.gone, table.signals) == ("process", True, [])


def test_kill_follows_when_term_was_ignored_for_the_whole_grace(table: FakeProcessTable) -> None:
    family(table, CHILD, ignores=[TERM])
    report = stop(table, grace=3.0)
    assert sent(report) == [("SIGTERM", "group", OWNER), ("SIGKILL", "group", OWNER)]
    first, second = report.signalled
    assert second.after - first.after >= 3.0
    assert second.when > first.when
    assert report.gone
    assert report.took >= 3.0


def test_without_grace_kill_follows_at_once(table: FakeProcessTable) -> None:
    family(table, ignores=[TERM])
    clock = FakeClock()
    assert [one.signal for one in stop(table, grace=0, clock=clock).signalled] == ["SIGTERM", "SIGKILL"]


def test_whoever_survives_kill_is_named_after_a_bounded_wait(table: FakeProcessTable) -> None:
    family(table)
    table.add(CHILD, group=OWNER, ignores=[TERM, KILL], command="stuck --in device")
    clock = FakeClock()
    with pytest.raises(StopTimeoutError) as caught:
        stop(table, clock=clock)
    error = caught.value
    assert [(one.pid, one.state, one.command) for one in error.survivors] == [(CHILD, "running", "stuck --in device")]
    assert error.survivors[0].start_id == table.observe(CHILD).start_id
    assert error.report.gone is False
    assert sent(error.report) == [("SIGTERM", "group", OWNER), ("SIGKILL", "group", OWNER)]
    assert clock.monotonic() - 1000.0 < 7.0
    for fact in (f"pid {OWNER}", f"pid {CHILD}", "SIGTERM, SIGKILL"):
        assert fact in str(error)
    assert f"-p {CHILD}" in error.hint


def test_the_error_is_what_a_caller_would_guess_and_pickles(table: FakeProcessTable) -> None:
    family(table, ignores=[TERM, KILL])
    with pytest.raises(TimeoutError) as caught:
        stop(table)
    error = caught.value
    assert isinstance(error, OwnershipError)
    assert isinstance(error, StopTimeoutError)
    assert (error.exit_code, error.errno) == (1, errno.ETIMEDOUT)
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.survivors, twin.report, twin.hint, str(twin)) == (
        error.survivors,
        error.report,
        error.hint,
        str(error),
    )


def test_waiting_ends_the_moment_that_nobody_is_left() -> None:
    """Woken by the handle of whoever is still there: the clock has not moved."""
    table = FakeProcessTable()
    family(table, CHILD, ignores=[TERM])
    ending = [OWNER, CHILD]

    class Busy(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            table.kill(ending.pop(0))
            return super().wait(seconds, poller)

    clock = Busy()
    report = stop(table, clock=clock)
    assert (sent(report), report.gone) == ([("SIGTERM", "group", OWNER)], True)
    assert clock.monotonic() == 1000.0


def test_a_handle_that_wakes_for_nothing_is_not_waited_on_again() -> None:
    table = FakeProcessTable()
    family(table, ignores=[TERM])

    class Loose(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            table.close()  # everything given out polls readable from now on
            return super().wait(seconds, poller)

    clock = Loose()
    assert stop(table, clock=clock).gone
    assert len(clock.waits) < 100


# zombies


def test_a_zombie_owner_without_living_children_is_gone_and_nothing_is_sent(table: FakeProcessTable) -> None:
    family(table, CHILD)
    table.zombify(OWNER)
    table.zombify(CHILD)
    report = stop(table)
    assert (report.gone, report.signalled, report.survivors) == (True, (), ())
    assert table.signals == []


def test_a_zombie_owner_whose_children_live_is_not_gone(table: FakeProcessTable) -> None:
    """It holds the number, so the group is certainly its own."""
    family(table, CHILD)
    table.zombify(OWNER)
    report = stop(table)
    assert sent(report) == [("SIGTERM", "group", OWNER)]
    assert table.observe(CHILD).exists is False


def test_children_that_nobody_reaps_do_not_block(table: FakeProcessTable) -> None:
    family(table, CHILD, OTHER, lingers=True)
    report = stop(table)
    assert (sent(report), report.gone) == ([("SIGTERM", "group", OWNER)], True)
    assert table.observe(CHILD).state is ProcessState.ZOMBIE


def test_a_process_that_is_dumping_core_is_not_gone(table: FakeProcessTable) -> None:
    family(table, ignores=[TERM, KILL])
    table.set_state(OWNER, ProcessState.DUMPING)
    with pytest.raises(StopTimeoutError):
        stop(table)


# numbers that are given out again


@pytest.mark.parametrize("leads", [True, False])
def test_an_owner_whose_number_was_reused_is_gone_and_the_stranger_untouched(
    table: FakeProcessTable, leads: bool
) -> None:
    owner = family(table)
    table.reuse(OWNER)
    if not leads:
        table.add(OTHER)
        table.set_group(OWNER, OTHER)
    table.add(CHILD, group=OWNER)
    report = stop(table, owner)
    assert (report.gone, report.signalled, table.signals) == (True, (), [])


def test_a_group_whose_leader_was_gone_from_the_start_is_told_of_and_never_signalled(table: FakeProcessTable) -> None:
    """Nobody can tell whether the number was given out again since."""
    owner = family(table, CHILD)
    table.kill(OWNER)
    with pytest.raises(StopTimeoutError) as caught:
        stop(table, owner)
    assert [one.pid for one in caught.value.survivors] == [CHILD]
    assert (caught.value.report.signalled, table.signals) == ((), [])
    assert "cannot be told" in str(caught.value)


def test_an_owner_that_was_gone_with_all_its_group_is_gone(table: FakeProcessTable) -> None:
    owner = family(table)
    table.kill(OWNER)
    assert (stop(table, owner).gone, table.signals) == (True, [])


def test_a_leader_that_goes_first_leaves_its_group_to_whoever_belonged_to_it(table: FakeProcessTable) -> None:
    family(table)
    table.add(CHILD, group=OWNER, ignores=[TERM])
    report = stop(table)
    assert sent(report) == [("SIGTERM", "group", OWNER), ("SIGKILL", "group", OWNER)]
    assert table.observe(CHILD).exists is False


def test_a_group_that_is_emptied_between_look_and_signal_is_gone(table: FakeProcessTable) -> None:
    family(table, CHILD)

    def end() -> None:
        for pid in (OWNER, CHILD):
            if table.observe(pid).exists:
                table.kill(pid)

    table.before_signal = end
    report = stop(table)
    assert (report.gone, report.signalled, table.signals) == (True, (), [])


def test_a_process_that_ends_between_look_and_signal_is_gone(table: FakeProcessTable) -> None:
    table.add(OTHER)
    table.add(OWNER, group=OTHER)
    table.before_signal = lambda: table.kill(OWNER) if table.observe(OWNER).exists else None
    report = stop(table)
    assert (report.gone, report.signalled, table.signals) == (True, (), [])


def test_a_process_whose_number_is_reused_between_look_and_signal_is_gone(table: FakeProcessTable) -> None:
    table.add(OTHER)
    table.add(OWNER, group=OTHER)
    owner, start_id = identity(table), table.observe(OWNER).start_id
    table.before_signal = lambda: table.reuse(OWNER) and None if table.observe(OWNER).start_id == start_id else None
    assert stop(table, owner).gone
    assert table.observe(OWNER).exists


def test_with_handles_a_number_that_is_reused_between_look_and_signal_is_safe() -> None:
    table = FakeProcessTable()
    owner = family(table, CHILD)

    def recycle() -> None:
        table.before_signal = None
        table.kill(CHILD)
        table.reuse(OWNER, command="stranger")
        table.add(CHILD, group=OWNER, command="stranger")

    table.before_signal = recycle
    report = stop(table, owner)
    assert (report.gone, report.signalled, table.signals) == (True, (), [])
    assert table.command_of(OWNER) == table.command_of(CHILD) == "stranger"


def strangers(table: FakeProcessTable) -> None:
    """Everybody of the owner's group ends; a stranger's group without a leader has the number, and its child's."""
    for pid in (OWNER, CHILD):
        if table.observe(pid).exists:
            table.kill(pid)
    table.add(OWNER)
    table.add(CHILD, group=OWNER, command="stranger")
    table.kill(OWNER)


def test_a_leaderless_group_of_strangers_with_that_number_is_never_signalled(table: Table) -> None:
    """Only seen while they belonged to the owner's group, and by their start ids, do members vouch for the number."""
    owner = family(table)
    table.add(CHILD, group=OWNER, ignores=[TERM])

    class Turning(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            if not self.waits:
                strangers(table)
            return super().wait(seconds, poller)

    clock = Turning()
    if table.knows_groups:  # the handle of the leader proves that its group is empty
        assert stop(table, owner, clock=clock).gone
    else:
        with pytest.raises(StopTimeoutError, match="cannot be told") as caught:
            stop(table, owner, clock=clock)
        assert [one.command for one in caught.value.survivors] == ["stranger"]
    assert table.signals == [("group", OWNER, TERM)]
    assert table.observe(CHILD).exists


def test_a_member_that_left_the_group_does_not_vouch_for_it(table: FakeProcessTable) -> None:
    owner = family(table, ignores=[])
    table.add(CHILD, group=OWNER, ignores=[TERM])

    class Leaving(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            if not self.waits:
                table.set_group(CHILD, CHILD)
            return super().wait(seconds, poller)

    assert stop(table, owner, clock=Leaving()).gone
    assert table.signals == [("group", OWNER, TERM)]
    assert table.observe(CHILD).exists


def test_an_owner_that_leaves_the_group_it_led_is_signalled_by_itself(table: FakeProcessTable) -> None:
    owner = family(table, CHILD, ignores=[TERM])
    table.add(OTHER)

    class Leaving(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            table.set_group(OWNER, OTHER)
            return super().wait(seconds, poller)

    report = stop(table, owner, clock=Leaving())
    assert sent(report)[1:] == [("SIGKILL", "process", OWNER), ("SIGKILL", "group", OWNER)]
    assert (report.gone, table.observe(OTHER).exists) == (True, True)


def test_a_child_forked_while_the_leader_ends_is_not_overlooked() -> None:
    """The leader lives before the listing, is a zombie after it, and left a child that the listing did not have."""

    class Forking(FakeProcessTable):
        def list_group(self, pgid: int) -> Any:
            listing = super().list_group(pgid)
            if ("group", OWNER, TERM) in self.signals and self.observe(OWNER).state is ProcessState.RUNNING:
                self.add(CHILD, group=OWNER, ignores=[TERM])
                self.zombify(OWNER)
            return listing

    table = Forking()
    table.add(OWNER, ignores=[TERM])
    report = stop(table)
    assert [one.signal for one in report.signalled] == ["SIGTERM", "SIGKILL"]
    assert table.observe(CHILD).exists is False


# groups that cannot be listed


def test_a_group_that_cannot_be_listed_counts_as_live(table: FakeProcessTable) -> None:
    """Here a zombie is all that there is, but nobody can see that."""
    family(table, lingers=True)
    table.conceal("/proc is mounted with hidepid=invisible")
    with pytest.raises(StopTimeoutError, match="hidepid=invisible") as caught:
        stop(table)
    assert (caught.value.survivors, caught.value.report.gone) == ((), False)
    assert table.signals == [("group", OWNER, TERM), ("group", OWNER, KILL)]  # the leader was there for both


def test_a_group_that_cannot_be_listed_but_is_proven_empty_is_gone(table: FakeProcessTable) -> None:
    family(table, CHILD)
    table.conceal()
    assert stop(table).gone


def test_a_hidden_member_is_reached_through_the_handle_of_the_leader() -> None:
    table = FakeProcessTable()
    family(table)
    table.add(CHILD, group=OWNER, ignores=[TERM])
    table.conceal(hidden=[CHILD])
    assert stop(table).gone
    assert table.signals == [("group", OWNER, TERM), ("group", OWNER, KILL)]


def test_a_hidden_member_vouches_for_nothing() -> None:
    table = FakeProcessTable(group_handles=False)
    family(table)
    table.add(CHILD, group=OWNER, ignores=[TERM])
    table.conceal(hidden=[CHILD])
    with pytest.raises(StopTimeoutError, match="cannot be told"):
        stop(table)
    assert table.signals == [("group", OWNER, TERM)]


# stopped processes


def test_whoever_is_stopped_is_continued_after_term(table: FakeProcessTable) -> None:
    family(table, CHILD)
    table.stop(OWNER)
    table.stop(CHILD)
    report = stop(table)
    assert sent(report) == [
        ("SIGTERM", "group", OWNER),
        ("SIGCONT", "process", OWNER),
        ("SIGCONT", "process", CHILD),
    ]
    assert report.gone


def test_one_that_is_stopped_again_is_not_continued_twice(table: FakeProcessTable) -> None:
    family(table, ignores=[TERM])
    table.stop(OWNER)

    class Stopping(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            table.stop(OWNER)
            return super().wait(seconds, poller)

    assert stop(table, clock=Stopping()).gone
    assert [number for _, _, number in table.signals] == [TERM, CONT, KILL]


@pytest.mark.parametrize("state", [ProcessState.TRACED, ProcessState.FROZEN])
def test_one_that_a_tracer_holds_or_a_freezer_is_never_continued(table: FakeProcessTable, state: ProcessState) -> None:
    family(table, CHILD)
    table.set_state(OWNER, state)
    table.set_state(CHILD, state)
    stop(table)
    assert [number for _, _, number in table.signals] == [TERM, KILL]


# who may not be signalled


def test_the_process_of_another_account_is_an_error_and_nothing_was_sent(table: FakeProcessTable) -> None:
    family(table)
    table.add(CHILD, group=OWNER)
    owner = identity(table)
    table.kill(OWNER)
    table.add(OWNER, start_id=owner.start_id, forbidden=True)
    ref = OwnerRef(resource="/run/app.sock", token=7, owner=owner)
    with pytest.raises(PermissionError) as caught:
        stop(table, ref)
    error: Any = caught.value
    assert (error.errno, error.filename) == (errno.EPERM, "/run/app.sock")
    assert f"pid {OWNER}" in error.strerror
    assert str(OWNER) in error.hint
    assert table.signals == []
    assert pickle.loads(pickle.dumps(error)).hint == error.hint
    with pytest.raises(PermissionError, match=str(OWNER)):
        stop(table, owner)


def test_a_member_of_another_account_is_a_survivor(table: FakeProcessTable) -> None:
    family(table)
    table.add(CHILD, group=OWNER, forbidden=True)
    with pytest.raises(StopTimeoutError) as caught:
        stop(table)
    assert [one.pid for one in caught.value.survivors] == [CHILD]
    assert caught.value.report.signalled[0].signal == "SIGTERM"


def test_an_owner_that_changes_its_account_meanwhile_is_a_survivor(table: FakeProcessTable) -> None:
    owner = family(table, ignores=[TERM])

    class Changing(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            if not self.waits:
                table.kill(OWNER)
                table.add(OWNER, start_id=owner.start_id, forbidden=True)
            return super().wait(seconds, poller)

    with pytest.raises(StopTimeoutError) as caught:
        stop(table, owner, clock=Changing())
    assert [one.signal for one in caught.value.report.signalled] == ["SIGTERM"]


# who cannot be told


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"boot_id": "another"}, "another boot"),
        ({"boot_id": None}, "unknown"),
        ({"pid_namespace": 4026531999}, "another pid namespace"),
        ({"pid_namespace": None}, "unknown"),
    ],
)
def test_of_another_boot_or_pid_namespace_nobody_is_signalled_nor_looked_at(
    table: FakeProcessTable, changes: dict[str, Any], reason: str
) -> None:
    """Whoever has the number here is a stranger."""
    table.add(OWNER)
    owner = identity(table, **changes)
    table.observed.clear()
    with pytest.raises(AlreadyOwnedError, match=reason) as caught:
        stop(table, OwnerRef(resource="/run/app.sock", token=7, owner=owner))
    assert (table.observed, table.signals) == ([], [])
    assert (caught.value.verdict, caught.value.owner, caught.value.exit_code) == (Verdict.UNKNOWN, owner, 75)
    assert caught.value.resource == "/run/app.sock"
    assert "leasectl break /run/app.sock --token 7" in caught.value.hint


def test_a_process_whose_start_id_cannot_be_read_is_not_signalled(table: FakeProcessTable) -> None:
    owner = family(table, CHILD)
    table.fail(OWNER, exists=True)
    with pytest.raises(AlreadyOwnedError) as caught:
        stop(table, owner)
    assert (caught.value.verdict, table.signals) == (Verdict.UNKNOWN, [])


def test_a_zombie_that_cannot_be_told_from_the_owner_does_not_vouch_for_its_group(table: FakeProcessTable) -> None:
    """Whoever it is, the owner is over; but whose group that is, nobody knows."""
    family(table, CHILD)
    table.zombify(OWNER)
    with pytest.raises(StopTimeoutError) as caught:
        stop(table, identity(table, start_id="psutil:1764430000.25"))
    assert ([one.pid for one in caught.value.survivors], table.signals) == ([CHILD], [])


def test_probes_that_fail_for_a_while_are_asked_again(table: FakeProcessTable) -> None:
    owner = family(table, ignores=[TERM])

    class Failing(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            (table.fail if len(self.waits) == 0 else table.resume)(OWNER)
            return super().wait(seconds, poller)

    assert stop(table, owner, clock=Failing()).gone


def test_a_look_that_fails_when_kill_is_due_is_taken_again(table: FakeProcessTable) -> None:
    owner = family(table, ignores=[TERM])

    class Failing(FakeClock):
        def wait(self, seconds: float, poller: Poller | None = None) -> bool:
            woken = super().wait(seconds, poller)
            (table.fail if 1000.5 <= self.monotonic() < 1000.55 else table.resume)(OWNER)
            return woken

    report = stop(table, owner, clock=Failing())
    assert [one.signal for one in report.signalled] == ["SIGTERM", "SIGKILL"]


def test_the_first_process_is_never_signalled() -> None:
    table = FakeProcessTable()
    table.add(1)
    with pytest.raises(AlreadyOwnedError, match="pid 1 is never signalled"):
        stop(table, identity(table, 1))
    assert table.signals == []


def test_the_first_process_that_is_not_the_owner_means_that_the_owner_is_gone() -> None:
    table = FakeProcessTable()
    table.add(1)
    owner = identity(table, 1)
    table.reuse(1)
    assert (stop(table, owner).gone, table.signals) == (True, [])


@pytest.mark.parametrize("pid", [0, -1, -2000, 2**31, True, "2000", None])
def test_what_is_no_process_number_is_refused_and_never_passed_to_kill(table: FakeProcessTable, pid: Any) -> None:
    """Such an identity cannot be made or read; somebody may still force one."""
    with pytest.raises(ValueError, match="pid"):
        identity(table, OWNER, start_id="linux:a:1:2:3", pid=pid)
    family(table)
    forced = identity(table).model_copy(update={"pid": pid})
    with pytest.raises(ValueError, match="pid"):
        stop(table, forced)
    assert table.signals == []


def test_we_do_not_stop_ourselves(table: FakeProcessTable) -> None:
    me = table.current()
    for owner in (identity(table, me.pid), identity(table, me.pid, instance_id=me.instance_id)):
        with pytest.raises(ValueError, match=r"ref must name another process, pid \d+ is this one"):
            stop(table, owner)
    assert table.signals == []


# arguments


@pytest.mark.parametrize("grace", [-0.1, float("inf"), float("nan"), 10**400, True, "1", None])
def test_grace_is_a_bounded_time(table: FakeProcessTable, grace: Any) -> None:
    family(table)
    with pytest.raises(ValueError, match="grace must be a finite number of seconds >= 0"):
        stop(table, grace=grace)
    assert table.signals == []


@pytest.mark.parametrize("ref", [OWNER, "/run/app.sock", {"pid": OWNER}])
def test_a_number_or_a_path_names_no_owner(table: FakeProcessTable, ref: Any) -> None:
    with pytest.raises(ValueError, match="ref must be"):
        ownership.stop(ref, processes=table)


def _as_ref(owner: OwnerIdentity) -> OwnerRef:
    return OwnerRef(resource="/nowhere/x", token=7, owner=owner)


def _as_record(owner: OwnerIdentity) -> OwnerRecord:
    fields = {**owner.model_dump(mode="json"), "token": 7, "command": "daemon", "resource": "/nowhere/x"}
    return OwnerRecord.model_validate_json(json.dumps(fields))


@pytest.mark.parametrize("form", [_as_ref, _as_record, lambda owner: owner], ids=["ref", "record", "identity"])
def test_an_owner_is_stopped_by_any_form_of_its_identity_whatever_files_say(
    table: FakeProcessTable, form: Callable[[OwnerIdentity], Any]
) -> None:
    owner = family(table)
    assert stop(table, form(owner)).gone
    assert table.signals == [("group", OWNER, TERM)]


# groups by number


def test_a_group_has_a_live_member_or_not(table: FakeProcessTable) -> None:
    family(table, CHILD)
    assert ownership.group_has_live_member(OWNER, processes=table)
    table.zombify(OWNER)
    assert ownership.group_has_live_member(OWNER, processes=table)
    table.zombify(CHILD)
    assert not ownership.group_has_live_member(OWNER, processes=table)
    table.conceal()
    assert ownership.group_has_live_member(OWNER, processes=table)
    assert not ownership.signal_group_if_held(OWNER, TERM, processes=table)
    assert table.signals == []


def test_a_member_of_whom_nothing_can_be_told_counts_as_live(table: FakeProcessTable) -> None:
    family(table, CHILD)
    table.zombify(OWNER)
    table.fail(CHILD, exists=True)
    assert ownership.group_has_live_member(OWNER, processes=table)


@pytest.mark.parametrize("gone", [(), (OWNER,)], ids=["led", "leaderless"])
def test_a_group_is_signalled_while_somebody_holds_it(table: FakeProcessTable, gone: tuple[int, ...]) -> None:
    family(table, CHILD)
    for pid in gone:
        table.kill(pid)
    assert ownership.signal_group_if_held(OWNER, signal.SIGUSR1, processes=table)
    assert table.signals == [("group", OWNER, signal.SIGUSR1)]


def test_an_empty_group_is_never_signalled(table: FakeProcessTable) -> None:
    assert not ownership.signal_group_if_held(OWNER, TERM, processes=table)
    family(table, CHILD)
    table.zombify(OWNER)
    table.zombify(CHILD)
    assert not ownership.signal_group_if_held(OWNER, TERM, processes=table)
    assert table.signals == []


def test_a_group_that_empties_between_look_and_signal_was_not_signalled(table: FakeProcessTable) -> None:
    family(table)
    table.before_signal = lambda: table.kill(OWNER)
    assert not ownership.signal_group_if_held(OWNER, TERM, processes=table)


def test_a_group_of_another_account_is_an_error(table: FakeProcessTable) -> None:
    table.add(OWNER, forbidden=True)
    with pytest.raises(PermissionError):
        ownership.signal_group_if_held(OWNER, TERM, processes=table)


@pytest.mark.parametrize("pgid", [1, 0, -1, -OWNER, 2**31, True, 1.5, "2000", None])
def test_selectors_of_kill_are_no_groups(table: FakeProcessTable, pgid: Any) -> None:
    for ask in (
        lambda: ownership.group_has_live_member(pgid, processes=table),
        lambda: ownership.signal_group_if_held(pgid, TERM, processes=table),
        lambda: table.send_group(pgid, TERM),
    ):
        with pytest.raises(ValueError, match="pgid must be an integer from 2"):
            ask()
    assert table.signals == []


def test_our_own_group_is_never_signalled_by_number(table: FakeProcessTable) -> None:
    assert ownership.group_has_live_member(1000, processes=table)
    with pytest.raises(ValueError, match="1000 is our own"):
        ownership.signal_group_if_held(1000, TERM, processes=table)
    assert table.signals == []


@pytest.mark.parametrize("number", [0, -1, 65, True, "TERM", 1.0, None])
def test_a_signal_is_the_number_of_one(table: FakeProcessTable, number: Any) -> None:
    family(table)
    with pytest.raises(ValueError, match="signal must be"):
        ownership.signal_group_if_held(OWNER, number, processes=table)
    assert table.signals == []


def test_nobody_is_stopped_already() -> None:
    """What ``find()`` gives when nobody owns."""
    done = ownership.stop(None)
    assert done.gone
    assert not done.signalled
