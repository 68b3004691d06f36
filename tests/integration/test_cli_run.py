"""``leasectl run`` as a real process: who dies with whom, which signals arrive, what is left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ownership
from tests.support.cli import LEASECTL, SLEEP, environment, holding, leasectl, quick
from tests.support.namespaces import NEW_PIDS, needs_linux_root
from tests.support.records import file_of, names
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="facts about Linux")

PASSED_ON = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
# says its pid, takes the first signal it gets, and exits with 40 and its number
TAKE_ONE = """
import os, signal, sys
every = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
print(os.getpid(), flush=True)
sys.exit(40 + signal.sigwait(every))
"""
# counts interrupts until it gets SIGUSR1
COUNT = r"""
import os, signal, sys
count = 0
def interrupted(*_):
    global count
    count += 1
def told(*_):
    os.write(1, b"interrupts %d\n" % count)
    os._exit(0)
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGUSR1, told)
PREPARE
os.write(1, b"%d\n" % os.getpid())
while True:
    signal.pause()
"""
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@contextmanager
def watched(pid: int) -> Iterator[select.poll]:
    """A poll object that is ready once the process *pid* of now has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        yield poller
    finally:
        os.close(descriptor)


def members(mask: str) -> set[int]:
    """The signals in a mask of ``/proc/<pid>/status``, but those that the C library keeps for itself."""
    return {number for number in range(1, 32) if int(mask, 16) >> (number - 1) & 1}


def become_zombie(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


# -- the end of leasectl


def test_killing_leasectl_kills_cmd_and_the_next_run_takes_over_from_the_zombie(tmp_path: Path) -> None:
    with holding(tmp_path / "x") as held, watched(held.cmd) as cmd:
        os.kill(held.pid, signal.SIGKILL)
        become_zombie(held.pid)  # and stays one
        assert cmd.poll(10_000), "CMD outlived leasectl"
        assert leasectl("show", tmp_path / "x").returncode == 13
        begun = time.monotonic()
        assert leasectl("run", tmp_path / "x", "--", "true").returncode == 0
        assert time.monotonic() - begun < 5
        assert leasectl("show", tmp_path / "x").returncode == 10


def test_a_leasectl_killed_before_cmd_runs_takes_cmd_with_it(tmp_path: Path) -> None:
    """CMD's first act is to look who its parent is: never anybody but leasectl."""
    body = "import os; print(os.getpid(), os.getppid(), flush=True)"
    with subprocess.Popen(
        [*LEASECTL, "run", os.fspath(tmp_path / "x"), "--", *quick(body)], stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.read().split()[1]) == process.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_next_acquire_needs_no_clean_exit(tmp_path: Path, number: int) -> None:
    with holding(tmp_path / "x") as held:
        held.process.send_signal(number)
        held.process.wait(30)
        for _ in range(2):
            begun = time.monotonic()
            with ownership.acquire(tmp_path / "x"):
                assert time.monotonic() - begun < 1


# -- signals


@pytest.mark.parametrize("number", PASSED_ON)
def test_signals_are_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    with holding(tmp_path / "x", body=TAKE_ONE) as held:
        os.kill(held.pid, number)
        assert held.ended() == (40 + number, "")
    assert ownership.inspect(tmp_path / "x").verdict == "free"


def test_a_cmd_that_dies_of_the_signal_gives_128_and_its_number(tmp_path: Path) -> None:
    with holding(tmp_path / "x") as held:
        os.kill(held.pid, signal.SIGTERM)
        assert held.ended() == (128 + signal.SIGTERM, "")


def test_nothing_is_released_before_cmd_was_reaped(tmp_path: Path) -> None:
    body = f"import os, signal; signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'told\\n')); {SLEEP}"
    with holding(tmp_path / "x", body=body) as held:
        os.kill(held.pid, signal.SIGTERM)
        assert held.line() == "told"
        found = ownership.inspect(tmp_path / "x")
        assert found.verdict == "live"
        assert found.record is not None
        assert found.record.pid == held.pid
        held.end_input()
        assert held.ended() == (0, "")
    assert ownership.inspect(tmp_path / "x").verdict == "free"


@pytest.mark.parametrize(
    ("prepare", "typed"),
    [("", 1), ("os.setpgid(0, 0)", 1), ("os.setsid()", 1)],
    ids=["in the foreground group", "in a group of its own", "in a session of its own"],
)
def test_a_typed_interrupt_reaches_cmd_exactly_once(tmp_path: Path, prepare: str, typed: int) -> None:
    """The terminal sends it to the whole foreground group; only a CMD that left the group gets it from leasectl."""
    master, slave = pty.openpty()

    def on_the_terminal() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    body = COUNT.replace("PREPARE", prepare)
    command = [*LEASECTL, "run", os.fspath(tmp_path / "x"), "--", *quick(body)]
    with subprocess.Popen(
        command, stdin=slave, stdout=subprocess.PIPE, text=True, env=environment(), preexec_fn=on_the_terminal
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            os.write(master, b"\x03")
            eventually(lambda: os.read(master, 100))  # the echo: the terminal has acted
            os.kill(process.pid, signal.SIGUSR1)  # taken after the interrupt, whose number is lower
            assert process.stdout.readline() == f"interrupts {typed}\n"
            assert process.wait(30) == 0
        finally:
            process.kill()
            os.close(master)
            os.close(slave)


def test_cmd_starts_with_the_signals_that_leasectl_was_started_with(tmp_path: Path) -> None:
    """Mask and ignored signals as they were, whatever leasectl does with its own; its exit status is not lost."""

    def odd() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR2})
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    body = "print(*(l.split()[1] for l in open('/proc/self/status') if l[:6] in ('SigBlk', 'SigIgn')))"
    python_ignores = {signal.SIGPIPE, signal.SIGXFSZ}  # CMD here is Python itself
    done = leasectl("run", tmp_path / "x", "--", *quick(f"{body}; raise SystemExit(9)"), preexec_fn=odd)
    blocked, ignored = (members(mask) for mask in done.stdout.split())
    assert done.returncode == 9
    assert blocked == {signal.SIGUSR2}
    assert ignored == {signal.SIGCHLD, signal.SIGHUP} | python_ignores


@pytest.mark.parametrize("options", [(), ("--exec",)])
def test_cmd_is_not_left_with_what_python_ignores(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = leasectl("run", tmp_path / "x", *options, "--", "grep", "SigIgn", "/proc/self/status")
    assert members(done.stdout.split()[1]) == set()


@pytest.mark.parametrize("arguments", [("run", "x"), ("gate", "close", "g"), ("replace", "x")], ids=" ".join)
def test_an_interrupt_between_fork_and_exec_ends_cmd_and_is_no_bug(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Ctrl-C reaches the whole group, also whoever is about to become CMD."""
    body = """
    import os, signal, sys
    from leases.cli import main
    from leases.commands import _child
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _child.death_tie = lambda: lambda: os.kill(os.getpid(), signal.SIGINT)
    sys.exit(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body), *arguments, "--", "sleep", "60"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 130, done.stderr
    assert "bug" not in done.stderr
    assert ownership.inspect(tmp_path / arguments[-1]).verdict == "free"


# -- loss while holding


def broken(path: Path) -> None:
    assert leasectl("break", path, "--token", ownership.inspect(path).token).returncode == 0


def test_a_loss_ends_cmd_with_76_and_the_reason(tmp_path: Path) -> None:
    with holding(tmp_path / "x", body=TAKE_ONE) as held:
        broken(tmp_path / "x")
        code, said = held.ended()
    assert code == 76
    assert f"{tmp_path / 'x'} is not ours any more" in said
    assert f"ending pid {held.cmd}" in said


def test_a_cmd_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    with holding(tmp_path / "x", "--grace", "0.5", body=STUBBORN) as held, watched(held.cmd) as cmd:
        begun = time.monotonic()
        broken(tmp_path / "x")
        assert held.ended()[0] == 76
        assert time.monotonic() - begun >= 0.5
        assert cmd.poll(0), "CMD outlived the loss"


def test_a_stopped_cmd_is_ended_too(tmp_path: Path) -> None:
    with holding(tmp_path / "x", "--grace", "0") as held:
        os.kill(held.cmd, signal.SIGSTOP)
        broken(tmp_path / "x")
        assert held.ended()[0] == 76


def test_a_loss_is_json_on_request(tmp_path: Path) -> None:
    with holding(tmp_path / "x", "--json") as held:
        broken(tmp_path / "x")
        assert held.ended()[0] == 76
        told = json.loads(held.line())
    assert (told["error"], told["reason"], told["exit_code"]) == ("OwnershipLostError", "broken", 76)


def test_a_cmd_that_breaks_its_own_claim_and_succeeds_is_a_loss(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "x")
    body = f"""
        token=$({sys.executable} -m leases.cli show --json {path} | sed 's/.*"token": \\([0-9]*\\), "pid.*/\\1/')
        {sys.executable} -m leases.cli break {path} --token $token
    """
    done = leasectl("run", path, "--", "sh", "-c", body)
    assert (done.returncode, "is not ours any more" in done.stderr) == (76, True), done.stderr


def test_a_deleted_record_is_no_loss(tmp_path: Path) -> None:
    with holding(tmp_path / "x") as held:
        file_of(tmp_path / "x").unlink()
        eventually(file_of(tmp_path / "x").exists)
        held.end_input()
        assert held.ended() == (0, "")


# -- --exec


def test_exec_names_cmd_itself_until_it_ends(tmp_path: Path) -> None:
    with holding(tmp_path / "x", "--exec") as held:
        assert held.cmd == held.pid
        found = ownership.inspect(tmp_path / "x")
        assert found.record is not None
        assert (found.verdict, found.record.pid) == ("live", held.pid)
        assert found.record.start_id == ownership.start_id(held.pid)
        assert found.record.command.startswith(sys.executable)
        assert "leases.cli" not in found.record.command
        refused = leasectl("run", tmp_path / "x", "--", "true")
        assert refused.returncode == 75
        assert str(held.pid) in refused.stderr
        os.kill(held.pid, signal.SIGKILL)
        become_zombie(held.pid)
        assert leasectl("run", tmp_path / "x", "--", "true").returncode == 0


def test_exec_of_a_shell_names_the_shell(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*LEASECTL, "run", "--exec", os.fspath(tmp_path / "x"), "--", "sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as shell:
        try:
            assert shell.stdin is not None
            assert shell.stdout is not None
            shell.stdin.write("echo $$\n")
            shell.stdin.flush()
            assert int(shell.stdout.readline()) == shell.pid
            record = ownership.inspect(tmp_path / "x").record
            assert record is not None
            assert (record.pid, record.command) == (shell.pid, "sh")
            assert record.start_id == ownership.start_id(shell.pid)
        finally:
            shell.kill()
            shell.wait()
    assert ownership.inspect(tmp_path / "x").verdict == "gone"


@needs_linux_root
def test_the_owner_after_exec_is_live_in_another_pid_namespace_and_gone_after_its_end(tmp_path: Path) -> None:
    with holding(tmp_path / "x", "--exec") as held:
        assert leasectl("show", tmp_path / "x", prefix=NEW_PIDS).returncode == 0
        assert leasectl("run", tmp_path / "x", "--", "true", prefix=NEW_PIDS).returncode == 75
        held.process.kill()
        become_zombie(held.pid)
        assert leasectl("show", tmp_path / "x", prefix=NEW_PIDS).returncode == 12


@pytest.mark.parametrize("cmd", [["x" * 9000], ["caf\udce9", "\x1b[2J\n"]])
@pytest.mark.parametrize("options", [(), ("--exec",)])
def test_any_command_line_can_be_named_in_the_record(tmp_path: Path, cmd: list[str], options: tuple[str, ...]) -> None:
    with holding(tmp_path / "x", *options) as held:
        assert held.process.poll() is None
    body = f"import shutil; shutil.copy({str(file_of(tmp_path / 'x'))!r}, {str(tmp_path / 'seen')!r})"
    assert leasectl("run", *options, tmp_path / "x", "--", *quick(body), *cmd).returncode == 0
    shown = json.loads((tmp_path / "seen").read_text())["command"]
    assert len(shown) <= 200
    assert shown.isprintable()


# -- what is inherited


def test_cmd_has_our_streams_directory_and_environment(tmp_path: Path) -> None:
    body = "import os, sys; print(sys.stdin.read(), os.getcwd(), os.environ['GREETING'])"
    with open(tmp_path / "in", "w+") as stream:
        stream.write("words")
        stream.flush()
        stream.seek(0)
        done = leasectl("run", "x", "--", *quick(body), cwd=tmp_path, env={"GREETING": "hello"}, stdin=stream)
    assert done.stdout.split() == ["words", str(tmp_path), "hello"]


@pytest.mark.parametrize("options", [(), ("--exec",)])
def test_cmd_inherits_the_descriptors_it_was_given_and_none_of_ours(tmp_path: Path, options: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    try:
        body = "import glob, os; print(*map(os.readlink, filter(os.path.islink, glob.glob('/proc/self/fd/*'))))"
        done = leasectl("run", tmp_path / "x", *options, "--", *quick(body), pass_fds=[writer])
        given = os.readlink(f"/proc/self/fd/{writer}")
    finally:
        os.close(reader)
        os.close(writer)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert given in found
    assert sum(".leases" in one for one in found) == (1 if options else 0)  # exec takes the witness along


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("options", ["", "--exec"])
def test_closed_standard_streams_are_no_trap(tmp_path: Path, closed: str, options: str) -> None:
    """No lock file takes the place of a closed stream; CMD finds it closed as well."""
    into = tmp_path / "into"
    body = (
        "import os, sys; file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT);"
        "os.write(file, str([n for n in range(3) if n != file and os.path.exists(f'/proc/self/fd/{n}')]).encode())"
    )
    command = " ".join([*LEASECTL, "run", options, str(tmp_path / "x"), "--", *quick("").copy()[:-1]])
    script = f'exec {command} "$BODY" {into} {closed}'
    done = subprocess.run(
        ["sh", "-c", script],
        env=environment(BODY=body),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 0
    left = [number for number in (0, 1, 2) if f"{number}>" not in closed and f"{number}<" not in closed]
    first = min(set(range(3)) - set(left))
    assert json.loads(into.read_text()) == [number for number in left if number != first]
    assert names(tmp_path / ".leases") >= {"x.guard"}


def test_a_guard_that_a_stopped_process_holds_is_told_as_busy(tmp_path: Path) -> None:
    """A refusal that names nobody as the owner, and whoever is inside."""
    with ownership.acquire(tmp_path / "x"):
        pass
    guard = file_of(tmp_path / "x", "guard")
    body = f"import fcntl; f = open({str(guard)!r}, 'r+'); fcntl.flock(f, fcntl.LOCK_EX); {SLEEP}"
    with subprocess.Popen(quick(body), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as inside:
        try:
            assert inside.stdout is not None
            inside.stdout.readline()
            done = leasectl("run", tmp_path / "x", "--json", "--", "true")
            told = json.loads(done.stdout)
            text = leasectl("run", tmp_path / "x", "--", "true")
        finally:
            inside.kill()
    assert done.returncode == text.returncode == 75
    assert (told["error"], told["holder"]) == ("GuardTimeoutError", inside.pid)
    assert str(inside.pid) in text.stderr
    assert str(tmp_path) in text.stderr


def test_a_run_that_waits_is_woken_and_runs(tmp_path: Path) -> None:
    with holding(tmp_path / "x") as first:
        command = [*LEASECTL, "run", os.fspath(tmp_path / "x"), "--timeout", "forever", "--", *quick(SLEEP)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        ) as second:
            try:
                assert second.stderr is not None
                assert second.stdout is not None
                announced = second.stderr.readline()
                assert f"pid {first.pid}" in announced
                first.end_input()
                assert int(second.stdout.readline()) > 0
                record = ownership.inspect(tmp_path / "x").record
                assert record is not None
                assert record.pid == second.pid
                second.communicate("", timeout=30)
                assert second.returncode == 0
            finally:
                second.kill()


def test_ctrl_c_while_waiting_is_130_and_leaves_nothing(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        command = [*LEASECTL, "run", os.fspath(tmp_path / "x"), "--timeout", "forever", "--", "true"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as waiting:
            try:
                assert waiting.stderr is not None
                waiting.stderr.readline()
                waiting.send_signal(signal.SIGINT)
                assert waiting.wait(30) == 130
                assert "Traceback" not in waiting.stderr.read()
            finally:
                waiting.kill()
        claim.verify()


def test_a_stopped_owner_is_named_with_the_way_to_resume_it(tmp_path: Path) -> None:
    with holding(tmp_path / "x") as held:
        os.kill(held.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, held.pid, os.WSTOPPED | os.WNOWAIT)
        done = leasectl("run", tmp_path / "x", "--", "true")
        assert done.returncode == 75
        assert f"kill -CONT {held.pid}" in done.stderr
        os.kill(held.pid, signal.SIGCONT)


def test_stopping_leasectl_for_a_while_changes_nothing(tmp_path: Path) -> None:
    """Ctrl-Z and fg: whoever waits for a signal with a deadline must not take the continuing for one."""
    with holding(tmp_path / "x") as held:
        for _ in range(3):
            os.kill(held.pid, signal.SIGSTOP)
            eventually(lambda: ownership.inspect(tmp_path / "x").verdict is ownership.Verdict.STOPPED)
            begun = time.monotonic()
            eventually(lambda: time.monotonic() - begun > 0.6)  # noqa: B023 more than two ticks
            os.kill(held.pid, signal.SIGCONT)
            eventually(lambda: ownership.inspect(tmp_path / "x").verdict is ownership.Verdict.LIVE)
        begun = time.monotonic()
        eventually(lambda: time.monotonic() - begun > 0.6)
        assert ownership.exists(held.cmd)
        assert ownership.inspect(tmp_path / "x").verdict is ownership.Verdict.LIVE


@pytest.mark.parametrize("become", [(), ("--exec",)], ids=["run", "exec"])
def test_the_command_finds_whom_it_works_for(tmp_path: Path, become: tuple[str, ...]) -> None:
    body = """
    import os, sys, ownership
    ref = ownership.OwnerRef.from_env()
    with ownership.Fence(ref) as fence:
        fence.check()
        print(ref.resource, ref.owner.pid == (os.getpid() if sys.argv[1:] else os.getppid()))
    """
    done = leasectl("run", *become, tmp_path / "x", "--", sys.executable, "-c", textwrap.dedent(body), *become)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'x'} True\n")
