"""Fences of real workers over real owners: ends of every kind, other namespaces, descriptors taken away, forks."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import ownership
from ownership import Fence, FenceTrippedError, OwnerRef
from ownership._process import LinuxProcesses, ProcessTable
from ownership.testing import reuse_pid
from tests.support.namespaces import NEW_PIDS
from tests.support.processes import Child, begun, program, running
from tests.support.waiting import eventually

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

OWNER = """
claim = ownership.acquire(sys.argv[1], timeout=30)
say([os.getpid(), claim.ref.to_env()])
while True:
    what = hear()
    if what == "threads":
        import ctypes
        def work():
            while True:
                time.sleep(0.01)
        threading.Thread(target=work, daemon=True).start()
        say(threading.get_native_id())
        ctypes.CDLL(None).syscall(60, 0)
    if what == "rename":
        import ctypes
        ctypes.CDLL(None).prctl(15, b"a) Z 1 (b", 0, 0, 0)
        say(True)
    if what == "release":
        claim.release()
        say(True)
    if what == "verify":
        say(attempt(claim.verify))
"""

WORKER = """
fence = ownership.Fence(ownership.OwnerRef.from_env(), **json.loads(sys.argv[1]))
say(fence.reason)
while True:
    what, argument = hear()
    if what == "wait":
        say([fence.wait(argument), fence.reason])
    if what == "check":
        say(attempt(fence.check))
"""


class Bare(LinuxProcesses):
    """Without a descriptor of the process: only its number."""

    def __init__(self) -> None:
        super().__init__(pidfd=False)

    def open_stat(self, pid: int, start_id: str) -> int | None:
        return None


WAYS: dict[str, Callable[[], ProcessTable | None]] = {
    "pidfd": lambda: None,
    "proc": lambda: LinuxProcesses(pidfd=False),
    "signal-0": Bare,
}


class Owner(Child):
    """A process that owns *path* and has told who it is."""

    def __init__(self, path: Path, prefix: tuple[str, ...] = ()) -> None:
        super().__init__(begun(OWNER, (path,), prefix))
        self.own_pid, self.env = self.hear()

    @property
    def ref(self) -> OwnerRef:
        return OwnerRef.from_env(self.env)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    with Owner(tmp_path / "x") as one:
        yield one


@pytest.mark.parametrize("way", WAYS)
def test_an_owner_killed_and_not_reaped_trips_the_fence(owner: Owner, way: str) -> None:
    """K10."""
    with Fence(owner.ref, confirm_interval=0.5, processes=WAYS[way]()) as fence:
        fence.check()
        os.kill(owner.pid, signal.SIGKILL)
        assert fence.wait(30)
        assert fence.reason == "owner-gone"
        with pytest.raises(FenceTrippedError, match="has exited, its parent has not reaped it"):
            fence.check()


def test_a_fence_that_was_just_made_is_woken_like_any_other(tmp_path: Path) -> None:
    """Its rounds are a thousand seconds apart: only its pidfd can tell."""
    with ExitStack() as stack:
        owners = [stack.enter_context(Owner(tmp_path / str(number))) for number in range(3)]
        for owner in owners:
            fence = stack.enter_context(Fence(owner.ref, poll_interval=1000, confirm_interval=1000))
            os.kill(owner.pid, signal.SIGKILL)
            assert fence.wait(30)


@pytest.mark.parametrize("way", WAYS)
def test_an_owner_whose_number_is_another_process_s_trips_the_fence(owner: Owner, way: str) -> None:
    """K12: the record has not changed since it was last looked at."""
    with Fence(owner.ref, confirm_interval=0.5, processes=WAYS[way]()) as fence:
        fence.check()
        fence.check()
        owner.kill()
        with reuse_pid(owner.own_pid):
            assert fence.wait(30)
            assert fence.reason == "owner-gone"


@pytest.mark.parametrize("way", WAYS)
def test_an_owner_whose_main_thread_has_ended_is_whole(owner: Owner, way: str) -> None:
    """K11: the stat line says Z, the process works on; then it ends."""
    processes = WAYS[way]()
    with Fence(owner.ref, poll_interval=0.05, confirm_interval=0.2, processes=processes) as fence:
        owner.ask("threads")
        eventually(lambda: Path(f"/proc/{owner.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        for _ in range(5):
            fence.check()
        assert not fence.wait(1.0)
        os.kill(owner.pid, signal.SIGKILL)
        assert fence.wait(30)


def test_a_title_like_a_stat_line_deceives_nobody(owner: Owner) -> None:
    """K05."""
    before = ownership.start_id(owner.pid)
    with (
        Fence(owner.ref, poll_interval=0.05, confirm_interval=0.1, processes=LinuxProcesses(pidfd=False)) as held,
        Fence(owner.ref, poll_interval=0.05, confirm_interval=0.1) as fence,
    ):
        owner.ask("rename")
        assert not fence.wait(0.5)
        held.check()
        fence.check()
    assert ownership.start_id(owner.pid) == before


@pytest.mark.skipif(not os.path.exists(FAKETIME), reason="libfaketime is not installed")
@pytest.mark.parametrize("offset", ["+120s", "-120s"])
def test_a_worker_whose_wall_clock_is_off_sees_the_same_owner(owner: Owner, offset: str) -> None:
    """K06."""
    faked = {"LD_PRELOAD": FAKETIME, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
    intervals = '{"poll_interval": 0.05, "confirm_interval": 0.1}'
    with running(WORKER, intervals, env={**owner.env, **faked}) as worker:
        assert worker.hear() is None
        assert worker.ask(["wait", 0.6]) == [False, None]
        owner.kill()
        assert worker.ask(["wait", 30]) == [True, "owner-gone"]


def test_a_stopped_owner_is_waited_for(owner: Owner) -> None:
    with Fence(owner.ref, poll_interval=0.05, confirm_interval=0.1) as fence:
        os.kill(owner.pid, signal.SIGSTOP)
        assert not fence.wait(0.5)
        fence.check()
        os.kill(owner.pid, signal.SIGCONT)


def test_a_worker_that_was_paused_learns_of_the_loss_before_its_next_check_returns(
    owner: Owner, tmp_path: Path
) -> None:
    """K53."""
    with running(WORKER, '{"poll_interval": 1000, "confirm_interval": 1000}', env=owner.env) as worker:
        assert worker.hear() is None
        assert worker.ask(["check", None]) is None
        os.kill(worker.pid, signal.SIGSTOP)
        ownership.break_claim(tmp_path / "x", token=owner.ref.token)
        with ownership.acquire(tmp_path / "x"):
            os.kill(worker.pid, signal.SIGCONT)
            assert worker.ask(["check", None]) == "FenceTrippedError"
        assert worker.ask(["check", None]) == "FenceTrippedError"
        assert worker.ask(["wait", 0]) == [True, "owner-replaced"]


def test_an_owner_that_was_paused_and_broken_learns_of_it_before_its_next_verify_returns(
    owner: Owner, tmp_path: Path
) -> None:
    """K53: it reads the record, not a flag; and for good."""
    os.kill(owner.pid, signal.SIGSTOP)
    ownership.break_claim(tmp_path / "x", token=owner.ref.token)
    ownership.acquire(tmp_path / "x").release()
    os.kill(owner.pid, signal.SIGCONT)
    assert owner.ask("verify") == "OwnershipLostError"
    assert owner.ask("verify") == "OwnershipLostError"


@pytest.mark.parametrize(("owner_in", "worker_in"), [(NEW_PIDS, ()), ((), NEW_PIDS), (NEW_PIDS, NEW_PIDS)])
def test_across_pid_namespaces_the_witness_stands_for_the_owner(
    tmp_path: Path, owner_in: tuple[str, ...], worker_in: tuple[str, ...]
) -> None:
    with (
        Owner(tmp_path / "x", owner_in) as owner,
        running(WORKER, "{}", prefix=worker_in, env=owner.env) as worker,
    ):
        assert worker.hear() is None
        assert worker.ask(["check", None]) is None
        assert worker.ask(["wait", 0.6]) == [False, None]
        owner.kill()  # unshare goes, and with it every process of its namespace
        assert worker.ask(["wait", 30]) == [True, "owner-gone"]


def test_a_release_is_seen_across_pid_namespaces(tmp_path: Path) -> None:
    with Owner(tmp_path / "x", NEW_PIDS) as owner, Fence(owner.ref) as fence:
        owner.ask("release")
        assert fence.wait(30)
        assert fence.reason == "record-missing"


def test_a_failure_to_look_trips_nothing_and_is_told(owner: Owner) -> None:
    """K17: no descriptors are left for two ticks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    table = LinuxProcesses(pidfd=False)
    with Fence(owner.ref, poll_interval=0.05, confirm_interval=0.05, processes=Bare()) as fence:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            eventually(lambda: fence.last_error is not None)
            with Fence(owner.ref, poll_interval=0.05, confirm_interval=0.05, processes=table) as born_poor:
                assert not born_poor.wait(0.3)
            assert not fence.tripped.is_set()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: fence.last_error is None)
        os.kill(owner.pid, signal.SIGKILL)
        assert fence.wait(30)


def test_a_dead_owner_is_noticed_though_no_descriptor_is_left(tmp_path: Path) -> None:
    body = """
    import resource
    fence = ownership.Fence(ownership.OwnerRef.from_env())
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    say(attempt(fence.check))
    hear()
    say([fence.wait(30), fence.reason, attempt(fence.check)])
    """
    with Owner(tmp_path / "x") as owner, running(body, env=owner.env) as worker:
        assert worker.hear() is None
        os.kill(owner.pid, signal.SIGKILL)
        eventually(lambda: ownership.is_zombie(owner.pid))
        assert worker.ask("end") == [True, "owner-gone", "FenceTrippedError"]


def test_many_fences_leave_the_program_half_of_its_descriptors(tmp_path: Path) -> None:
    body = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4096))
    claims = [ownership.inspect(f"{sys.argv[1]}/{n}").ref for n in range(120)]
    fences = [ownership.Fence(ref, poll_interval=0.05, confirm_interval=0.5) for ref in claims]
    say(len(os.listdir("/proc/self/fd")))
    hear()
    say([sum(fence.wait(30) for fence in fences)])
    """
    owning = """
    claims = [ownership.acquire(f"{sys.argv[1]}/{n}") for n in range(120)]
    say(True)
    hear()
    """
    with running(owning, tmp_path) as owner:
        owner.hear()
        with running(body, tmp_path) as worker:
            assert worker.hear() <= 60
            os.kill(owner.pid, signal.SIGKILL)
            assert worker.ask("end") == [120]


def test_a_limit_below_the_number_of_descriptors_that_are_polled_stops_nothing(tmp_path: Path) -> None:
    """poll(2) refuses more descriptors than RLIMIT_NOFILE allows by then."""
    body = """
    import resource
    ref = ownership.OwnerRef.from_env()
    mine = ownership.acquire(f"{sys.argv[1]}/mine")
    fences = [ownership.Fence(ref) for _ in range(60)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, hard))
    say([sum(fence.wait(0.01) for fence in fences)])
    hear()
    say([sum(fence.wait(30) for fence in fences), {fence.reason for fence in fences} == {"owner-gone"}])
    """
    with Owner(tmp_path / "x") as owner, running(body, tmp_path, env=owner.env) as worker:
        assert worker.hear() == [0]
        owner.kill()
        assert worker.ask("end") == [60, True]


def test_descriptors_closed_and_reused_by_the_program_are_left_alone(tmp_path: Path) -> None:
    """K74: what the fence held stands for the program's own files by now; between two of its looks."""
    body = """
    fence = ownership.Fence(ownership.OwnerRef.from_env(), poll_interval=0.5, confirm_interval=1.0)
    fence.check()
    while not 0.2 < time.monotonic() % 0.5 < 0.3:
        time.sleep(0.01)
    os.closerange(3, 256)
    files = [os.open(f"{sys.argv[1]}/{n}", os.O_CREAT | os.O_RDWR) for n in range(40)]
    pipes = [number for _ in range(10) for number in os.pipe()]
    for number in files:
        os.write(number, b"mine")
    say(fence.wait(1.3))
    say([os.pread(number, 100, 0).decode() for number in files] == ["mine"] * len(files))
    hear()
    say([fence.wait(30), fence.reason])
    fence.close()
    for number in (*files, *pipes):
        os.fstat(number)
    say(True)
    """
    with Owner(tmp_path / "x") as owner, running(body, tmp_path, env=owner.env) as worker:
        assert worker.hear() is False
        assert worker.hear() is True
        owner.kill()
        assert worker.ask("go on") == [True, "owner-gone"]
        assert worker.hear() is True


@pytest.mark.parametrize("reused", [False, True])
def test_after_its_descriptors_were_closed_a_fence_is_woken_as_before(tmp_path: Path, reused: bool) -> None:
    """Not only by the full look, which is a minute away; whether the owner ends before they are open again or after."""
    body = """
    fence = ownership.Fence(ownership.OwnerRef.from_env(), confirm_interval=60)
    fence.check()
    say(fence.wait(0.6))
    os.closerange(3, 256)
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(40 * (sys.argv[1] == "True"))]
    if hear() == "after":
        fence.wait(0.6)
    say("go on")
    say([fence.wait(30), fence.reason])
    """
    for moment in ("before", "after"):
        with Owner(tmp_path / "x") as owner, running(body, str(reused), env=owner.env) as worker:
            assert worker.hear() is False
            if moment == "before":
                os.kill(owner.pid, signal.SIGKILL)
            assert worker.ask(moment) == "go on"
            if moment == "after":
                os.kill(owner.pid, signal.SIGKILL)
            assert worker.hear() == [True, "owner-gone"]


def test_a_forked_worker_can_check_and_has_no_thread(owner: Owner) -> None:
    body = """
    fence = ownership.Fence(ownership.OwnerRef.from_env())
    child = os.fork()
    if child == 0:
        say([threading.active_count(), attempt(fence.check), fence.tripped.is_set()])
        hear()
        say(attempt(fence.check))
        fence.close()
        os._exit(0)
    os.waitpid(child, 0)
    """
    with running(body, env=owner.env) as worker:
        assert worker.hear() == [1, None, False]
        os.kill(owner.pid, signal.SIGKILL)
        eventually(lambda: ownership.is_zombie(owner.pid))
        assert worker.ask("again") == "FenceTrippedError"


def test_workers_of_an_owner_that_is_replaced_stop_without_being_asked(owner: Owner, tmp_path: Path) -> None:
    """K58."""
    body = """
    import socket
    server = socket.create_server(("127.0.0.1", 0))
    fence = ownership.Fence(ownership.OwnerRef.from_env(), on_trip=lambda: server.shutdown(socket.SHUT_RDWR))
    say(server.getsockname()[1])
    try:
        while True:
            server.accept()[0].close()
    except OSError:
        say([fence.tripped.is_set(), fence.reason])
    """
    with running(body, env=owner.env) as worker:
        worker.hear()
        ownership.break_claim(tmp_path / "x", token=owner.ref.token)
        assert worker.hear() == [True, "broken"]


def test_two_hundred_fences_share_one_thread_and_spawn_nothing(tmp_path: Path) -> None:
    """K19."""
    body = """
    refs = [ownership.inspect(f"{sys.argv[1]}/{number}").ref for number in range(200)]
    def tasks():
        return {int(name) for name in os.listdir("/proc/self/task")}
    fences = [ownership.Fence(ref, poll_interval=0.05, confirm_interval=0.1) for ref in refs]
    time.sleep(1)
    say([len(tasks()), any(fence.tripped.is_set() for fence in fences)])
    hear()
    say([sum(fence.wait(30) for fence in fences), {fence.reason for fence in fences} == {"owner-gone"}])
    """
    owning = """
    claims = [ownership.acquire(f"{sys.argv[1]}/{number}") for number in range(200)]
    say(True)
    hear()
    """
    trace = tmp_path / "trace"
    with ExitStack() as stack:
        owner = stack.enter_context(running(owning, tmp_path))
        owner.hear()
        worker = stack.enter_context(
            running(body, tmp_path, prefix=("strace", "-f", "-qq", "-e", "trace=fork,vfork,execve", "-o", str(trace)))
        )
        assert worker.hear() == [2, False]
        os.kill(owner.pid, signal.SIGKILL)
        assert worker.ask("end") == [200, True]
    assert trace.read_text().count("execve") == 1
    assert "fork" not in trace.read_text()


def test_a_fence_whose_thread_cannot_be_started_says_so() -> None:
    """K55."""
    body = """
    import resource
    claim = ownership.acquire(sys.argv[1])
    ref = claim.ref
    say(ref.to_env())
    hear()
    """
    worker = """
    import resource
    ref = ownership.OwnerRef.from_env()
    os.setuid(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        ownership.Fence(ref)
    except OSError as error:
        say([error.errno, str(error), threading.active_count()])
    """
    directory = subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip()
    try:
        os.chmod(directory, 0o755)
        registry = Path(directory, "registry")
        registry.mkdir()
        registry.chmod(0o755)
        owning = body.replace("acquire(sys.argv[1])", "acquire(sys.argv[1], registry=sys.argv[2])")
        with running(owning, f"{directory}/x", registry) as owner:
            env = owner.hear()
            with running(worker, 65534, env=env) as child:
                errno, text, threads = child.hear()
        assert errno == 12
        assert "thread cannot be started" in text
        assert threads == 1
    finally:
        subprocess.run(["rm", "-r", directory], check=True)


def test_a_worker_that_ends_at_once_is_told_all_the_same(tmp_path: Path) -> None:
    """``check()`` raises before the second thread has called anybody; the interpreter waits for that at its end."""
    body = """
    ref = ownership.OwnerRef.from_env(json.loads(sys.argv[1]))
    def told():
        time.sleep(0.05)
        say("told")
    fence = ownership.Fence(ref, on_trip=told)
    say("ready")
    while True:
        fence.check()
        time.sleep(0.0005)
    """
    claim = ownership.acquire(tmp_path / "x")
    command = [sys.executable, "-c", program(body), json.dumps(claim.ref.to_env())]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with Child(subprocess.Popen(command, **pipes, bufsize=0)) as worker:  # type: ignore[call-overload]
        assert worker.hear() == "ready"
        claim.release()
        assert worker.hear() == "told"
        assert worker.process.wait(60) == 1
