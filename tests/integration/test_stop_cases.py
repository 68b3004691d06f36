"""``stop`` on real processes: zombies, groups without their leader, numbers that were given out again, other accounts.

Each kernel that matters is tried: one whose pidfds reach groups (this one, from Linux 6.9 on), one whose do not, and
one without pidfds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import OwnerIdentity, OwnerRef, StopReport, StopTimeoutError
from ownership._process import ProcessTable, system_processes
from ownership._process._kernel import Kernel
from ownership._process._linux import LinuxProcesses
from ownership.testing import reuse_pid, wait_until
from tests.support.families import Family, family, needs_group_pidfds, state_of
from tests.support.namespaces import AS_NOBODY, NOBODY, elsewhere, other_accounts_can_run_us, owner, run
from tests.support.records import file_of, identity, snapshot

HIDDEN = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")


class Older(Kernel):
    """A kernel before Linux 6.9."""

    def pidfd_send_signal(self, pidfd: int, number: int, flags: int) -> None:
        if flags:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        super().pidfd_send_signal(pidfd, number, flags)


KERNELS: dict[str, Callable[[], ProcessTable]] = {
    "this": system_processes,
    "older": lambda: LinuxProcesses(kernel=Older()),
    "without pidfds": lambda: LinuxProcesses(pidfd=False),
}


@pytest.fixture(params=KERNELS, ids=str)
def processes(request: pytest.FixtureRequest) -> ProcessTable:
    return KERNELS[request.param]()


def named(pid: int, processes: ProcessTable | None = None) -> OwnerIdentity:
    """The process *pid* as it would have named itself in a record, seen by that kernel."""
    return identity(pid, start_id=(processes or system_processes()).observe(pid).start_id)


def sent(report: StopReport) -> list[tuple[str, str, int]]:
    return [(one.signal, one.target, one.number) for one in report.signalled]


class Reaper:
    """Reaps a leader as soon as it ends, as an attentive parent does."""

    def __init__(self, group: Family) -> None:
        self._thread = threading.Thread(target=group.reap)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)


def test_a_group_gets_term_and_is_gone(processes: ProcessTable) -> None:
    with family(3) as group:
        report = ownership.stop(named(group.pid, processes), 20.0, processes=processes)
        assert (report.scope, report.gone, report.survivors) == ("group", True, ())
        assert sent(report) == [("SIGTERM", "group", group.pid)]
        assert group.living == []
        assert state_of(group.pid) == "Z"  # gone, though nobody has reaped it
        assert group.reap() == -signal.SIGTERM


def test_a_group_that_ignores_term_is_killed(processes: ProcessTable) -> None:
    with family(2, "deaf") as group:
        report = ownership.stop(named(group.pid, processes), 0.1, processes=processes)
        assert sent(report) == [("SIGTERM", "group", group.pid), ("SIGKILL", "group", group.pid)]
        assert report.signalled[1].after - report.signalled[0].after >= 0.1
        assert group.living == []
        assert group.reap() == -signal.SIGKILL


def test_a_zombie_leader_with_living_children_is_not_gone_before_they_are(processes: ProcessTable) -> None:
    with family(2, "brief") as group:
        assert len(group.living) == 2
        report = ownership.stop(named(group.pid, processes), 20.0, processes=processes)
        assert sent(report) == [("SIGTERM", "group", group.pid)]
        assert group.living == []


def test_children_that_are_zombies_do_not_block(processes: ProcessTable) -> None:
    with family(3, "ending", "handles") as group:
        report = ownership.stop(named(group.pid, processes), 20.0, processes=processes)
        assert sent(report) == [("SIGTERM", "group", group.pid)]
        assert group.reap() == 7


def test_a_group_of_zombies_is_gone_and_gets_no_signal(processes: ProcessTable) -> None:
    with family(2, "ending", "brief") as group:
        report = ownership.stop(named(group.pid, processes), processes=processes)
        assert (report.gone, report.signalled) == (True, ())


def test_children_that_outlive_their_reaped_leader_are_killed_all_the_same(processes: ProcessTable) -> None:
    """With a pidfd by the leader's, which it was reaped behind; else because they belonged to the group."""
    with family(2, "deaf children", "handles") as group, Reaper(group):
        report = ownership.stop(named(group.pid, processes), 0.3, processes=processes)
        assert sent(report) == [("SIGTERM", "group", group.pid), ("SIGKILL", "group", group.pid)]
        assert group.living == []


def test_a_group_whose_leader_was_gone_from_the_start_is_told_of_and_not_signalled(processes: ProcessTable) -> None:
    with family(1, "brief") as group:
        who = named(group.pid, processes)
        group.reap()
        with pytest.raises(StopTimeoutError) as caught:
            ownership.stop(who, processes=processes)
        assert [one.pid for one in caught.value.survivors] == group.children == group.living
        assert caught.value.report.signalled == ()


def test_a_stopped_leader_is_continued_and_handles_term(processes: ProcessTable) -> None:
    with family(1, "handles") as group:
        for pid in (group.pid, *group.children):
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda one=pid: state_of(one) == "T")
        report = ownership.stop(named(group.pid, processes), 20.0, processes=processes)
        child = group.children[0]
        assert sent(report) == [
            ("SIGTERM", "group", group.pid),
            ("SIGCONT", "process", group.pid),
            ("SIGCONT", "process", child),
        ]
        assert group.reap() == 7


def test_a_leader_whose_main_thread_has_ended_lives_and_is_ended(processes: ProcessTable) -> None:
    with family(1, "threads") as group:
        wait_until(lambda: state_of(group.pid) == "Z")
        assert ownership.is_alive(group.pid)
        report = ownership.stop(named(group.pid, processes), 20.0, processes=processes)
        assert sent(report) == [("SIGTERM", "group", group.pid)]
        assert not ownership.is_alive(group.pid)


def test_children_that_left_the_group_are_left_alone() -> None:
    with family(2, "leaving") as group:
        assert ownership.stop(named(group.pid), 20.0).gone
        assert len(group.living) == 2


def test_in_our_own_group_only_the_owner_is_ended(processes: ProcessTable) -> None:
    with family(2, start_new_session=False) as group:
        report = ownership.stop(named(group.pid, processes), 20.0, processes=processes)
        assert (report.scope, sent(report)) == ("process", [("SIGTERM", "process", group.pid)])
        assert len(group.living) == 2


def test_a_hundred_members_are_gone_at_once() -> None:
    with family(100) as group:
        assert ownership.stop(named(group.pid), 30.0).gone
        assert group.living == []


# numbers that are given out again


def test_a_reused_leader_is_a_stranger(processes: ProcessTable) -> None:
    with family() as group:
        who = named(group.pid, processes)
        group.process.kill()
        group.reap()
        with family(1, pid=group.pid) as stranger:
            report = ownership.stop(who, processes=processes)
            assert (report.gone, report.signalled) == (True, ())
            assert (state_of(stranger.pid), len(stranger.living)) == ("S", 1)


def test_a_reused_number_of_a_process_in_our_group_is_a_stranger(processes: ProcessTable) -> None:
    with family() as group:
        who = named(group.pid, processes)
        group.process.kill()
        group.reap()
        with reuse_pid(group.pid) as stranger:
            assert ownership.stop(who, processes=processes).signalled == ()
            assert ownership.is_alive(stranger)


def test_a_reused_group_number_without_a_leader_is_never_signalled(processes: ProcessTable) -> None:
    """The group of a stranger that had the number, and is gone too."""
    with family() as group:
        who = named(group.pid, processes)
        group.process.kill()
        group.reap()
        with family(1, "brief", pid=group.pid) as stranger:
            stranger.reap()
            with pytest.raises(StopTimeoutError, match="cannot be told") as caught:
                ownership.stop(who, processes=processes)
            assert [one.pid for one in caught.value.survivors] == stranger.living == stranger.children
            assert caught.value.report.signalled == ()


@needs_group_pidfds
def test_a_group_number_that_is_reused_while_the_leaders_pidfd_is_held_is_out_of_its_reach() -> None:
    processes = system_processes()
    with family() as group:
        who = named(group.pid)
        handle = processes.open_handle(group.pid, who.start_id)
        assert handle is not None
        try:
            group.process.kill()
            group.reap()
            with family(1, "brief", pid=group.pid) as stranger:
                stranger.reap()
                with pytest.raises(ProcessLookupError):
                    processes.send_group_of(handle, group.pid, who.start_id, signal.SIGKILL)
                assert len(stranger.living) == 1
                assert ownership.group_has_live_member(group.pid)
        finally:
            os.close(handle)


class Interrupted(Kernel):
    """Between the last look and the first real signal something happens."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens = [happens]

    def pidfd_send_signal(self, pidfd: int, number: int, flags: int) -> None:
        if number and self._happens:
            self._happens.pop()()
        super().pidfd_send_signal(pidfd, number, flags)


@needs_group_pidfds
@pytest.mark.parametrize("words", [(), ("brief",)], ids=["led", "leaderless"])
@pytest.mark.parametrize("ours", [False, True], ids=["group", "process"])
def test_a_number_that_is_reused_between_the_look_and_the_signal_is_safe(words: tuple[str, ...], ours: bool) -> None:
    """The signal finds nobody, as the leader's pidfd leads to the group that was, or to the process."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(family(start_new_session=not ours))
        strangers = []

        def recycle() -> None:
            group.process.kill()
            group.reap()
            stranger = stack.enter_context(family(2, *words, pid=group.pid))
            if words:
                stranger.reap()
            strangers.append(stranger)

        report = ownership.stop(named(group.pid), processes=LinuxProcesses(kernel=Interrupted(recycle)))
        assert (report.gone, report.signalled) == (True, ())
        (stranger,) = strangers
        assert stranger.living == stranger.children
        assert words or ownership.is_alive(stranger.pid)


def test_a_group_that_is_emptied_between_the_look_and_the_signal_is_gone() -> None:
    with family(2) as group:

        def end() -> None:
            for pid in (*group.children, group.pid):
                os.kill(pid, signal.SIGKILL)
            group.reap()
            wait_until(lambda: not group.living)

        report = ownership.stop(named(group.pid), processes=LinuxProcesses(kernel=Interrupted(end)))
        assert report.gone
        assert report.survivors == ()


# other accounts, hidden processes


def test_the_process_of_another_account_is_an_error_and_gets_no_signal(processes: ProcessTable) -> None:
    with family(1) as group:
        who = named(group.pid, processes)
        error: Any = elsewhere(lambda: ownership.stop(who, processes=processes), uid=NOBODY)
        assert isinstance(error, PermissionError)
        assert (error.errno, f"pid {group.pid}" in str(error), f"uid {NOBODY}" in str(error)) == (
            errno.EPERM,
            True,
            True,
        )
        assert str(group.pid) in error.hint  # type: ignore[attr-defined]
        assert (state_of(group.pid), len(group.living)) == ("S", 1)


def test_a_member_of_another_account_survives_and_is_named() -> None:
    """A set-user-ID program, for instance. Whoever may be signalled is."""
    body = """
    import signal
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        child = os.fork()
        os.setresuid(*[65534] * 3) if child else None
        os.write(writer, b".")
        signal.pause()
    os.read(reader, 1), os.read(reader, 1)
    seen = ownership._process.system_processes().observe(pid)
    me = ownership._process.system_processes().current()
    who = ownership.OwnerIdentity(pid=pid, start_id=seen.start_id, instance_id="0" * 32, boot_id=me.boot_id,
                                  pid_namespace=me.pid_namespace)
    child = int(open(f"/proc/{pid}/task/{pid}/children").read())
    ownership._stop.AFTER_KILL = 0.05
    sys.stdout.flush()
    if (doer := os.fork()) == 0:
        os.setresuid(*[65534] * 3)
        try:
            ownership.stop(who, 0.05)
        except ownership.StopTimeoutError as error:
            say([[one.pid for one in error.survivors], [one.signal for one in error.report.signalled], child])
        os._exit(0)
    os.waitpid(doer, 0)
    os.kill(child, 9)
    os.waitpid(pid, 0)
    """
    survivors, signals, child = run(body)
    assert survivors == [child]
    assert signals[0] == "SIGTERM"


_OWN_FAMILY = """
    import signal
    signal.signal(signal.SIGCHLD, signal.SIG_IGN if sys.argv[1] == "reaped" else signal.SIG_DFL)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.write(writer, b".")
        signal.pause()
    os.read(reader, 1)
    table = ownership._process.system_processes()
    me, seen = table.current(), table.observe(pid)
    who = ownership.OwnerIdentity(pid=pid, start_id=seen.start_id, instance_id="0" * 32, boot_id=me.boot_id,
                                  pid_namespace=me.pid_namespace)
    ownership._stop.AFTER_KILL = 0.05
    try:
        say(["gone", ownership.stop(who, 0.05).gone])
    except ownership.StopTimeoutError as error:
        say([str(error), len(error.survivors)])
"""


def test_under_hidepid_a_group_counts_as_live_until_it_is_proven_empty() -> None:
    assert run(_OWN_FAMILY, "zombie", prefix=HIDDEN) == ["gone", True]  # root sees everybody
    if not other_accounts_can_run_us():
        pytest.skip("other accounts cannot run this interpreter")
    told, survivors = run(_OWN_FAMILY, "zombie", prefix=(*HIDDEN, *AS_NOBODY))
    assert "hidepid" in told
    assert survivors == 0
    assert run(_OWN_FAMILY, "reaped", prefix=(*HIDDEN, *AS_NOBODY)) == ["gone", True]


def test_in_a_pid_namespace_of_its_own_it_works_the_same() -> None:
    assert run(_OWN_FAMILY, "zombie", prefix=("unshare", "-pf", "--mount-proc", "--kill-child")) == ["gone", True]


def test_with_proc_of_another_namespace_an_owner_is_refused() -> None:
    """Without its own ``/proc`` it does not know which namespace it is in."""
    with family() as group:
        who = named(group.pid).model_dump_json()
        body = """
        who = ownership.OwnerIdentity.model_validate_json(sys.argv[1])
        try:
            ownership.stop(who)
        except ownership.AlreadyOwnedError as error:
            say(error.verdict)
        """
        assert run(body, who, prefix=("unshare", "-pf", "--kill-child")) == "unknown"
        assert state_of(group.pid) == "S"


# owners


def test_an_owner_that_lost_its_record_to_another_is_stopped_by_whoever_has_its_ref(open_directory: Path) -> None:
    """K58: ownership gates nothing here, neither that of the caller nor that of the owner."""
    path = open_directory / "app.sock"
    with owner(path) as lost:
        one = ownership.inspect(path)
        ref = one.ref
        assert ref is not None
        os.kill(lost.pid, signal.SIGSTOP)  # else its keeper puts the record back
        wait_until(lambda: ownership.is_stopped(lost.pid))
        ownership.break_claim(path, token=ref.token)
        with ownership.acquire(path) as claim:
            before = snapshot(open_directory)
            travelled = OwnerRef.from_env(ref.to_env())
            report = ownership.stop(travelled, 20.0)
            assert (report.gone, report.signalled[0].signal, report.signalled[0].number) == (True, "SIGTERM", lost.pid)
            claim.verify()
            assert snapshot(open_directory) == before
        assert state_of(lost.pid) == "Z"


def test_nothing_is_removed_after_a_stop(open_directory: Path) -> None:
    """K70: the record of an owner that was ended stays; the next acquire takes over."""
    path = open_directory / "app.sock"
    with owner(path) as one:
        ref = ownership.inspect(path).ref
        assert ref is not None
        before = snapshot(open_directory)
        assert ownership.stop(ref, 20.0).gone
        assert snapshot(open_directory) == before
        assert ownership.inspect(path).verdict == "zombie"
        assert file_of(path).exists()
        assert one.said == ref.token
        ownership.acquire(path).release()


def test_a_process_tree_that_goes_on_forking_is_ended() -> None:
    """Every member starts a successor and ends, again and again: KILL reaches all of them at one moment."""
    body = """
    import signal
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for _ in range(4):
            if os.fork() == 0:
                os.write(writer, b".")
                while True:
                    if os.fork():
                        os._exit(0)
        while True:
            signal.pause()
    for _ in range(4):
        os.read(reader, 1)
    table = ownership._process.system_processes()
    me, seen = table.current(), table.observe(pid)
    who = ownership.OwnerIdentity(pid=pid, start_id=seen.start_id, instance_id="0" * 32, boot_id=me.boot_id,
                                  pid_namespace=me.pid_namespace)
    try:
        report = ownership.stop(who, 0.1)
        say([report.gone, [one.signal for one in report.signalled], ownership.group_has_live_member(pid)])
    finally:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    """
    assert run(body) == [True, ["SIGTERM", "SIGKILL"], False]


def test_what_find_gives_can_be_stopped(tmp_path: Path) -> None:
    with owner(tmp_path / "x"):
        found = ownership.find(tmp_path / "x")
        assert found is not None
        assert ownership.stop(found).gone
    with pytest.raises(ValueError, match="ref must be what find"):
        ownership.stop("x")  # type: ignore[arg-type]
