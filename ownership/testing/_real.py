"""Real processes in the states that are hard to come by. Each is a child of the caller and reaped by its own number."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from ownership._process import is_stopped, is_zombie

_LAST_PID = "/proc/sys/kernel/ns_last_pid"
_ATTEMPTS = 200
_TICK = 0.02  # seconds; start ticks are 10 ms wide
_PATIENCE = 10.0  # seconds
# ends by itself when its standard input does, so it never outlives the test that made it
_SLEEPER = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
_QUITTER = [sys.executable, "-I", "-S", "-c", ""]


def wait_until(condition: Callable[[], object], timeout: float = 10.0, *, interval: float = 0.005) -> None:
    """Return as soon as *condition* is true.

    :param timeout: seconds
    :param interval: seconds between two looks
    :raises TimeoutError: it was not true in time
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{condition} was not true within {timeout} s")
        time.sleep(interval)


@contextlib.contextmanager
def sleeping_process() -> Iterator[int]:
    """Yield the pid of a child that lives and does nothing; killed and reaped at exit.

    It may be killed or stopped by the body. Not guaranteed: its state once the body has reaped it.
    """
    with _child(_SLEEPER) as child:
        yield child.pid


@contextlib.contextmanager
def zombie() -> Iterator[int]:
    """Yield the pid of a child that has exited and is not reaped; reaped at exit.

    Not available on Windows, which has no zombies. A program that reaps every child (SIGCHLD ignored, a handler that
    waits for any) takes the zombie away.
    """
    with _child(_QUITTER) as child:
        wait_until(lambda: is_zombie(child.pid))
        yield child.pid


@contextlib.contextmanager
def stopped_process() -> Iterator[int]:
    """Yield the pid of a child that is stopped by SIGSTOP; killed and reaped at exit."""
    with _child(_SLEEPER) as child:
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(child.pid))
        yield child.pid


@contextlib.contextmanager
def reuse_pid(pid: int) -> Iterator[int]:
    """Give the free number *pid* to a new child that lives and does nothing, and yield it; killed and reaped at exit.

    Linux only, through ``/proc/sys/kernel/ns_last_pid`` (proc_sys_kernel(5)): needs root, CAP_SYS_ADMIN or
    CAP_CHECKPOINT_RESTORE. The new process starts at least one clock tick after the call, so even ids without a pidfd
    inode differ from those of a process reaped before. Other forks on the machine may take the number first: tried
    again, 200 times at most, and a short process that got it is waited for, 10 s at most.

    :raises RuntimeError: the number is that of a child of ours or stays taken, the kernel does not allow it, or every
        attempt lost the race
    """
    time.sleep(_TICK)
    for _ in range(_ATTEMPTS):
        _require_free(pid)
        _set_last_pid(pid - 1)
        with _child(_SLEEPER) as child:
            if child.pid == pid:
                yield pid
                return
    raise RuntimeError(f"pid {pid} was not given out in {_ATTEMPTS} attempts; run the test on a quieter machine")


@contextlib.contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=os.sep)
    pidfd = _pidfd(child.pid)
    try:
        yield child
    finally:
        assert child.stdin is not None
        child.stdin.close()
        if pidfd is None:
            child.kill()  # looks first whether it was reaped
            child.wait()
        else:
            _end(child, pidfd)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _end(child: subprocess.Popen[bytes], pidfd: int) -> None:
    """End and reap that very child. The body may have reaped it, and its number may belong to another child of ours."""
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    finally:
        os.close(pidfd)
        child.returncode = -signal.SIGKILL  # it is reaped: Popen never looks at the number again


def _require_free(pid: int) -> None:
    """Wait for the number: a process of somebody else may have got it, and most of them are short."""
    try:
        wait_until(lambda: _is_our_child(pid) or not _in_use(pid), _PATIENCE)
    except TimeoutError:
        raise RuntimeError(f"pid {pid} is still in use by a process of somebody else; try again") from None
    if _is_our_child(pid):
        raise RuntimeError(f"pid {pid} is still in use; end that child and reap it before another gets its number")


def _is_our_child(pid: int) -> bool:
    """Whether it is a child of ours, living or not; it is not reaped."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _in_use(pid: int) -> bool:
    """Whether the number is taken at all, also as that of a thread, a group or a session."""
    for find in (os.getpgid, lambda number: os.killpg(number, 0)):
        try:
            find(pid)
        except ProcessLookupError:
            continue
        except PermissionError:
            pass
        return True
    return False


def _set_last_pid(pid: int) -> None:
    try:
        with open(_LAST_PID, "w", encoding="ascii") as file:
            file.write(str(pid))
    except OSError as error:
        raise RuntimeError(
            f"cannot choose the next pid: {_LAST_PID}: {error.strerror}; "
            "run the test as root on Linux, or with CAP_CHECKPOINT_RESTORE"
        ) from error
