"""Real process groups: a leader and its children, which all end by themselves when the test lets go of them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ownership.testing import _real, wait_until


def _pidfds_reach_groups() -> bool:
    try:
        pidfd = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return False
    try:
        signal.pidfd_send_signal(pidfd, 0, None, 4)
    except OSError as error:
        return error.errno == errno.ESRCH  # we lead no group
    finally:
        os.close(pidfd)
    return True


needs_group_pidfds = pytest.mark.skipif(not _pidfds_reach_groups(), reason="pidfds reach groups from Linux 6.9 on")

# every member reads the standard input of the leader: closing it ends them all
_PROGRAM = """
import json, os, signal, sys
children, *words = json.loads(sys.argv[1])
def tell(value):
    os.write(1, json.dumps(value).encode() + b"\\n")
def rest():
    while os.read(0, 1) == b"\\n": pass
    os._exit(0)
if "deaf" in words:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pids = []
for _ in range(children):
    pid = os.fork()
    if pid == 0:
        if "ending" in words: os._exit(0)
        if "leaving" in words: os.setsid()
        if "deaf children" in words: signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"")
        rest()
    pids.append(pid)
if "handles" in words:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
tell(pids)
if "threads" in words:
    import ctypes, threading
    threading.Thread(target=rest).start()
    ctypes.CDLL(None).syscall(60, 0)
if "brief" in words:
    os._exit(0)
rest()
"""


class Family:
    """A leader of a group, a child of ours, and its children."""

    def __init__(self, process: subprocess.Popen[bytes], children: list[int]) -> None:
        self.process = process
        self.pid = process.pid
        self.children = children

    def reap(self) -> int:
        return self.process.wait(30)

    @property
    def living(self) -> list[int]:
        """The children that live."""
        return [pid for pid in self.children if state_of(pid) not in "ZX"]


def state_of(pid: int) -> str:
    """The state letter of its stat line; ``X`` when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def group_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[2])


@contextlib.contextmanager
def family(children: int = 0, *words: str, pid: int | None = None, **popen: Any) -> Iterator[Family]:
    """A leader of a session of its own with *children*; all are over at exit, and the leader is reaped.

    :param words: ``deaf`` ignore TERM, all; ``deaf children`` only they; ``handles`` the leader exits with 7 on TERM;
        ``ending`` children exit at once, unreaped; ``leaving`` children leave the group; ``brief`` the leader ends at
        once; ``threads`` only the leader's main thread does
    :param pid: the number to give to the leader, as root
    """
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps([children, *words])]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": os.sep, "start_new_session": True, **popen}
    with _started(command, pid, options) as process:
        try:
            assert process.stdout is not None
            found = Family(process, json.loads(process.stdout.readline()))
            _settle(found, words)
            yield found
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.kill()


def _settle(found: Family, words: tuple[str, ...]) -> None:
    """All have begun to rest, or have ended."""
    if not {"brief", "threads"} & set(words):
        wait_until(lambda: state_of(found.pid) == "S")
    if "leaving" in words:
        wait_until(lambda: all(group_of(pid) == pid for pid in found.children))
    elif "ending" in words:
        wait_until(lambda: not found.living)
    else:  # asleep in read(2), so that whatever comes before it was done
        wait_until(lambda: all(state_of(pid) == "S" for pid in found.children))
    if "brief" in words:
        wait_until(lambda: state_of(found.pid) == "Z")


def _started(command: list[str], pid: int | None, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    if pid is None:
        return subprocess.Popen(command, **options)
    for _ in range(200):
        _real._require_free(pid)
        _real._set_last_pid(pid - 1)
        process = subprocess.Popen(command, **options)
        if process.pid == pid:
            return process
        with process:
            process.kill()
    raise RuntimeError(f"pid {pid} was not given out")
