"""Who the owner is, whatever its number, title, clock or state: only proof evicts, and proof always does."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, Verdict
from ownership.testing import FakeClock, FakeProcessTable, reuse_pid, sleeping_process, stopped_process, zombie
from tests.support.namespaces import die_owning, elsewhere, needs_linux_root, owner, program, run, running, taken
from tests.support.records import file_of, guard_of, me, other_start_id, plant, record
from tests.support.waiting import eventually

pytestmark = needs_linux_root
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@contextlib.contextmanager
def quick(seconds: float = 1.0) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


# pid reuse (K01, K02, K08, K09)


def test_a_record_whose_pid_is_another_process_now_is_taken_over_at_once(tmp_path: Path) -> None:
    with sleeping_process() as pid:
        start_id = other_start_id(record(pid)["start_id"])
        plant(tmp_path / "x", record(pid, start_id=start_id))
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.REUSED
        with quick(), ownership.acquire(tmp_path / "x") as claim:
            ours = me()
            assert (claim.record.pid, claim.record.start_id, claim.record.instance_id) == (
                ours.pid,
                ours.start_id,
                ours.instance_id,
            )
            assert claim.token > 1000
        assert ownership.is_alive(pid)


def test_a_really_reused_pid_is_another_owner(tmp_path: Path) -> None:
    pid = die_owning(tmp_path / "x")
    with reuse_pid(pid):
        found = ownership.inspect(tmp_path / "x")
        assert found.verdict is Verdict.REUSED
        assert str(pid) in found.reason
        with quick():
            assert isinstance(taken(tmp_path / "x"), int)
        assert ownership.is_alive(pid)


def test_our_own_pid_in_an_older_record_is_not_us(tmp_path: Path) -> None:
    """A new container gives the new process the very pid of the dead one."""
    ours = me()
    plant(tmp_path / "x", record(os.getpid(), start_id=other_start_id(ours.start_id)))
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.REUSED
    assert isinstance(taken(tmp_path / "x"), int)


def test_our_own_pid_from_another_boot_is_not_us(tmp_path: Path) -> None:
    """Without a witness nothing is proven; with its witness there and free, it is."""
    boot = "11111111-2222-4333-8444-555555555555"
    other = record(os.getpid(), boot_id=boot, start_id=me().start_id.replace(me().boot_id or "", boot))
    plant(tmp_path / "x", other)
    assert taken(tmp_path / "x").verdict is Verdict.UNKNOWN
    (tmp_path / ".leases" / f"{other['instance_id']}.alive").touch()
    assert isinstance(taken(tmp_path / "x"), int)


@pytest.mark.parametrize("where", ["same thread", "another thread", "another spelling"])
def test_a_second_claim_of_the_same_process_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "link").symlink_to(".")
    with ownership.acquire(tmp_path / "x") as claim:
        before = file_of(tmp_path / "x").read_bytes()
        found: list[Any] = []
        match where:
            case "same thread":
                found.append(taken(tmp_path / "x"))
            case "another thread":
                thread = threading.Thread(target=lambda: found.append(taken(tmp_path / "x", timeout=0.2)))
                thread.start()
                thread.join()
            case "another spelling":
                found.append(taken(tmp_path / "link" / "x"))
        [error] = found
        assert isinstance(error, AlreadyOwnedError)
        assert error.verdict is Verdict.LIVE
        assert "held by this process" in error.reason
        assert claim.record.instance_id in str(error)
        claim.verify()
        assert file_of(tmp_path / "x").read_bytes() == before


@pytest.mark.parametrize("age", [0, 86400])
def test_a_record_without_a_start_id_is_malformed_whatever_its_age(tmp_path: Path, age: int) -> None:
    """K08: a stranger has the pid; nobody is known to own, so it is cleared after the time its keeper would need."""
    with sleeping_process() as pid:
        old = {key: value for key, value in record(pid).items() if key != "start_id"}
        path = plant(tmp_path / "x", old)
        os.utime(path, (time.time() - age,) * 2)
        assert ownership.inspect(tmp_path / "x").malformed
        clock = FakeClock()
        assert isinstance(taken(tmp_path / "x", clock=clock), int)
        assert sum(clock.waits) == pytest.approx(1.0, abs=0.01)
        assert ownership.is_alive(pid)


def test_a_pid_that_does_not_exist_is_gone_without_a_word_about_start_times(tmp_path: Path) -> None:
    pid = die_owning(tmp_path / "x")
    found = ownership.inspect(tmp_path / "x")
    assert (found.verdict, found.reason) == (Verdict.GONE, f"no process {pid}")
    assert isinstance(taken(tmp_path / "x"), int)
    assert guard_of(tmp_path / "x")["previous"]["how"] == "released"


def test_an_owner_that_ends_between_two_looks_is_gone(tmp_path: Path) -> None:
    """K09: it exists when first looked at, and its stat line is gone a moment later."""

    def vanish() -> Any:
        from ownership._process._kernel import Kernel
        from ownership._process._linux import LinuxProcesses

        class Racing(Kernel):
            def pidfd_open(self, pid: int, *rest: Any) -> int:
                number: int = super().pidfd_open(pid, *rest)
                if pid == child.pid:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                return number

        child = owner(tmp_path / "x")
        return taken(tmp_path / "x", processes=LinuxProcesses(kernel=Racing()))

    assert isinstance(elsewhere(vanish), int)


# titles and clocks (K05, K06, K07)


def test_a_title_that_looks_like_a_stat_line_changes_nothing(tmp_path: Path) -> None:
    title = ctypes.create_string_buffer(b"a) Z 1 (b")
    rename = lambda _claim=None: ctypes.CDLL(None).prctl(15, title, 0, 0, 0)  # noqa: E731
    with owner(tmp_path / "before", then=rename) as child:
        before = ownership.inspect(tmp_path / "before")
        assert before.record is not None
        child.go_on()
        comm = Path(f"/proc/{child.pid}/comm")
        eventually(lambda: comm.read_text().startswith("a) Z 1 (b"))
        after = ownership.inspect(tmp_path / "before")
        assert (before.verdict, after.verdict) == (Verdict.LIVE, Verdict.LIVE)
        assert ownership.start_id(child.pid) == before.record.start_id
        assert isinstance(taken(tmp_path / "before"), AlreadyOwnedError)

    def named_first() -> Any:
        rename()
        with ownership.acquire(tmp_path / "after") as claim:
            seen = elsewhere(lambda: ownership.inspect(tmp_path / "after"))
            return seen.verdict, seen.record.start_id == claim.record.start_id

    assert elsewhere(named_first) == (Verdict.LIVE, True)


@pytest.mark.skipif(not os.path.exists(FAKETIME), reason="libfaketime is not installed")
@pytest.mark.parametrize("offset", ["+120s", "-120s"])
def test_a_step_of_the_wall_clock_moves_nobody(tmp_path: Path, offset: str) -> None:
    env = {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    body = """
        found = ownership.inspect(sys.argv[1])
        say([time.time(), attempt(ownership.acquire, sys.argv[1]), found.record.start_id,
             ownership.start_id(found.record.pid)])
        """
    with owner(tmp_path / "x") as child:
        now, refused, recorded, seen = run(body, tmp_path / "x", env=env)
        assert abs(abs(now - time.time()) - 120) < 60
        assert (refused["error"], refused["verdict"]) == ("AlreadyOwnedError", "live")
        assert recorded == seen == ownership.start_id(child.pid)


def test_time_zone_locale_and_path_move_nobody(tmp_path: Path) -> None:
    """K07: owner and contender disagree about everything that text could depend on."""
    there = {"TZ": "UTC", "LC_ALL": "C"}
    here = {"TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "PATH": ""}
    body = """
        found = ownership.inspect(sys.argv[1])
        say([attempt(ownership.acquire, sys.argv[1]), found.record.start_id, ownership.start_id(found.record.pid)])
        """
    own = "claim = ownership.acquire(sys.argv[1]); say(claim.record.start_id); hear(); claim.release()"
    with running(own, tmp_path / "x", env=there) as process:
        start_id = process.said()
        refused, recorded, seen = run(body, tmp_path / "x", env=here)
        assert (refused["error"], refused["verdict"]) == ("AlreadyOwnedError", "live")
        assert start_id == recorded == seen
        assert "2026" in refused["message"] or "20" in refused["message"]
        process.tell()


# states (K10, K52, K16)


def test_a_zombie_owner_is_evicted_at_once(tmp_path: Path) -> None:
    with owner(tmp_path / "x") as child:
        child.kill(reap=False)
        found = ownership.inspect(tmp_path / "x")
        assert found.verdict is Verdict.ZOMBIE
        assert found.running is None
        with quick():
            assert taken(tmp_path / "x") > child.said
        child.reap()


def test_a_zombie_of_a_stopped_parent_is_evicted_at_once(tmp_path: Path) -> None:
    body = """
        child = os.fork()
        if child == 0:
            ownership.acquire(sys.argv[1])
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        say(child)
        os.kill(os.getpid(), signal.SIGSTOP)
        """
    with running(body, tmp_path / "x") as parent:
        child = parent.said()
        eventually(lambda: ownership.is_stopped(parent.pid))
        assert ownership.is_zombie(child)
        with quick():
            assert isinstance(taken(tmp_path / "x"), int)


def test_a_waiter_gets_it_within_a_second_of_its_owners_death(tmp_path: Path) -> None:
    """Reaped or not."""
    for reap in (True, False):
        with owner(tmp_path / "x") as child:
            timer = threading.Timer(0.2, child.kill, kwargs={"reap": reap})
            started = time.monotonic()
            timer.start()
            assert isinstance(taken(tmp_path / "x", timeout=20.0), int)
            assert time.monotonic() - started < 0.2 + 1.0
            timer.join()
            child.reap()


def test_a_stopped_owner_is_never_robbed(tmp_path: Path) -> None:
    """K52: however old its record looks, past several ticks of its keeper; and afterwards it works on."""
    with owner(tmp_path / "x") as child:
        os.kill(child.pid, signal.SIGSTOP)
        eventually(lambda: ownership.is_stopped(child.pid))
        os.utime(file_of(tmp_path / "x"), (0, 0))
        error = taken(tmp_path / "x", timeout=1.0)
        assert isinstance(error, ownership.AcquireTimeoutError)
        assert error.verdict is Verdict.STOPPED
        assert f"kill -CONT {child.pid}" in error.hint
        found = ownership.inspect(tmp_path / "x")
        assert (found.verdict, found.running is not None) == (Verdict.STOPPED, True)
        with pytest.raises(AlreadyOwnedError):
            ownership.reclaim(tmp_path / "x")
        os.kill(child.pid, signal.SIGCONT)
        eventually(lambda: ownership.inspect(tmp_path / "x").verdict is Verdict.LIVE)
        assert ownership.inspect(tmp_path / "x").token == child.said


def test_an_owner_held_by_a_debugger_is_stopped_not_gone(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with owner(tmp_path / "x") as child:
        threads = [int(one) for one in os.listdir(f"/proc/{child.pid}/task")]
        for thread in threads:
            assert libc.ptrace(16, thread, None, None) == 0  # PTRACE_ATTACH
            os.waitpid(thread, 0x40000000)  # __WALL
        try:
            assert taken(tmp_path / "x").verdict is Verdict.STOPPED
        finally:
            for thread in threads:
                libc.ptrace(17, thread, None, None)
        assert taken(tmp_path / "x").verdict is Verdict.LIVE


def test_helpers_make_the_states_they_promise(tmp_path: Path) -> None:
    for make, verdict in (
        (zombie, Verdict.ZOMBIE),
        (stopped_process, Verdict.STOPPED),
        (sleeping_process, Verdict.LIVE),
    ):
        with make() as pid:
            plant(tmp_path / "x", record(pid))
            assert ownership.inspect(tmp_path / "x").verdict is verdict


# probes that fail (K17)


def test_a_contender_without_descriptors_evicts_nobody(tmp_path: Path) -> None:
    """Whatever it is that cannot be opened, at any number of spare descriptors: an error, or a refusal."""

    def starving(spare: int) -> Any:
        ownership.inspect(tmp_path / "x")
        taken(tmp_path / "warm")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        lowest = os.dup(0)
        os.close(lowest)
        numbers = [int(one) for one in os.listdir("/proc/self/fd")]
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, hard))
        open_below = sum(number < lowest + spare for number in numbers)
        outcome = taken(tmp_path / "x")
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        return outcome, open_below

    with owner(tmp_path / "x") as child:
        before = file_of(tmp_path / "x").read_bytes()
        for spare in range(7):
            error, _ = elsewhere(lambda: starving(spare))  # noqa: B023
            assert isinstance(error, OSError), spare
            if isinstance(error, AlreadyOwnedError):
                assert error.verdict in (Verdict.LIVE, Verdict.UNKNOWN)
            else:
                assert error.errno == errno.EMFILE
                assert "limit of open files" in getattr(error, "hint", ""), spare
        assert file_of(tmp_path / "x").read_bytes() == before
        assert child.said == ownership.inspect(tmp_path / "x").token


@pytest.mark.parametrize("detail", ["/proc/7/stat: Input/output error", "/proc/7/stat: Cannot allocate memory"])
def test_a_probe_that_fails_is_no_death(tmp_path: Path, detail: str) -> None:
    table = FakeProcessTable()
    start_id = table.add(7)
    ours = table.current()
    plant(
        tmp_path / "x",
        record(start_id=start_id, pid=7, boot_id=ours.boot_id, pid_namespace=ours.pid_namespace),
    )
    for exists in (None, True):
        table.fail(7, detail, exists=exists)
        with pytest.raises(AlreadyOwnedError) as caught:
            ownership.acquire(tmp_path / "x", processes=table)
        assert caught.value.verdict is Verdict.UNKNOWN
        assert detail in caught.value.reason
        assert "leasectl break" in caught.value.hint
        with pytest.raises(AlreadyOwnedError):
            ownership.reclaim(tmp_path / "x", processes=table)
    table.kill(7)
    ownership.acquire(tmp_path / "x", processes=table).release()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EMFILE, errno.EINTR, errno.EPERM])
def test_a_failing_read_of_the_process_is_no_death(tmp_path: Path, number: int) -> None:
    from ownership._process._kernel import Kernel
    from ownership._process._linux import LinuxProcesses

    class Failing(Kernel):
        def open(self, path: str, *rest: Any, **named: Any) -> int:
            if failing and f"/{child.pid}" in path:
                raise OSError(number, os.strerror(number))
            return super().open(path, *rest, **named)

        def pidfd_open(self, pid: int, *rest: Any) -> int:
            if failing and pid == child.pid:
                raise OSError(number, os.strerror(number))
            result: int = super().pidfd_open(pid, *rest)
            return result

    failing = False
    with owner(tmp_path / "x") as child:
        table = LinuxProcesses(kernel=Failing())
        table.current()
        failing = True
        with pytest.raises(AlreadyOwnedError) as caught:
            ownership.acquire(tmp_path / "x", processes=table)
        assert caught.value.verdict in (Verdict.UNKNOWN, Verdict.LIVE)
        assert child.said == ownership.inspect(tmp_path / "x").token


# nonsense pids (K18)


@pytest.mark.parametrize("pid", [0, -1, 1.5, True, "123", 2**31, 10**30, None], ids=repr)
def test_a_nonsense_pid_is_never_asked_for(tmp_path: Path, pid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Malformed, reclaimed when nobody is known to own, and no signal goes anywhere."""
    signals: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *args: signals.append(args))
    monkeypatch.setattr(os, "killpg", lambda *args: signals.append(args))
    plant(tmp_path / "x", record() | {"pid": pid})
    assert ownership.inspect(tmp_path / "x").malformed
    assert ownership.find(tmp_path / "x") is None
    clock = FakeClock()
    assert isinstance(taken(tmp_path / "x", clock=clock), int)
    assert sum(clock.waits) >= 1.0
    assert signals == []


def test_a_thread_id_in_a_record_is_no_owner(tmp_path: Path) -> None:
    """Signal 0 accepts one."""
    numbers: list[int] = []
    done = threading.Event()
    thread = threading.Thread(target=lambda: (numbers.append(threading.get_native_id()), done.wait()))
    thread.start()
    try:
        eventually(lambda: numbers)
        os.kill(numbers[0], 0)
        plant(tmp_path / "x", record() | {"pid": numbers[0], "start_id": other_start_id(me().start_id)})
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.GONE
        assert isinstance(taken(tmp_path / "x"), int)
    finally:
        done.set()
        thread.join()


# times (K56)


@pytest.mark.parametrize("at", [7200, 0, 4102444800], ids=["in two hours", "1970", "2100"])
def test_no_time_in_a_record_or_of_a_file_is_evidence(tmp_path: Path, at: int) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at + (time.time() if at == 7200 else 0)))
    when = time.time() + at if at == 7200 else at
    with sleeping_process() as pid:
        plant(tmp_path / "live", record(pid, acquired_at=stamp, updated_at=stamp))
        plant(tmp_path / "dead", record(2**22 + 9, acquired_at=stamp, updated_at=stamp))
        for name in ("live", "dead"):
            os.utime(file_of(tmp_path / name), (when, when))
        assert taken(tmp_path / "live").verdict is Verdict.LIVE
        with quick():
            assert isinstance(taken(tmp_path / "dead"), int)


def test_a_guard_from_the_future_still_gives_greater_tokens(tmp_path: Path) -> None:
    """The machine's clock was years ahead once: tokens go on from there."""
    ahead = 4102444800 * 1_000_000
    plant(tmp_path / "x", record(2**22 + 9, token=ahead))
    assert taken(tmp_path / "x") == ahead + 1
    assert taken(tmp_path / "x") == ahead + 2


# locks (K72)


def test_reading_in_the_owners_process_does_not_drop_its_locks(tmp_path: Path) -> None:
    """POSIX record locks would be gone at the first close of any descriptor of the file."""
    with ownership.acquire(tmp_path / "x") as claim:
        for path in (tmp_path / ".leases").iterdir():
            with open(path, "rb") as file:
                file.read()
        ownership.inspect(tmp_path / "x")
        list(ownership.inspect_all(tmp_path))
        assert isinstance(taken(tmp_path / "x"), AlreadyOwnedError)
        assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), AlreadyOwnedError)
        body = "say(ownership.inspect(sys.argv[1]).verdict)"
        assert run(body, tmp_path / "x", prefix=("unshare", "-pf", "--mount-proc")) == "live"
        claim.verify()


# leaving (K49)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, 0])
def test_no_clean_exit_is_needed(tmp_path: Path, number: int) -> None:
    if number:
        with owner(tmp_path / "x") as child:
            os.kill(child.pid, number)
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            child.reap()
    else:
        elsewhere(lambda: ownership.acquire(tmp_path / "x").token)
    with quick():
        assert isinstance(taken(tmp_path / "x"), int)
        assert isinstance(taken(tmp_path / "x"), int)


def test_a_program_that_ends_by_itself_leaves_nothing_that_holds(tmp_path: Path) -> None:
    done = subprocess.run(
        program("claim = ownership.acquire(sys.argv[1])", tmp_path / "x"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with quick():
        assert isinstance(taken(tmp_path / "x"), int)
