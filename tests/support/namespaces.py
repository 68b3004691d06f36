"""Doing things elsewhere: in a forked child, as another account, in other namespaces; every child reaped by its pid."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ownership
from tests.support import warm

ctypes.CDLL(None)  # imported while we may still read it: another account might not
ROOT = str(Path(ownership.__file__).resolve().parents[1])
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
NEW_PIDS = ("unshare", "-pf", "--mount-proc", "--kill-child")

needs_linux_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="namespaces and other accounts take root on Linux"
)


@functools.cache
def other_accounts_can_run_us() -> bool:
    """An interpreter below somebody's home directory is theirs alone."""
    return subprocess.run([*AS_NOBODY, sys.executable, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0


_PRELUDE = f"""\
import json, os, signal, subprocess, sys, time
sys.path.insert(0, {ROOT!r})
import ownership
def say(value):
    os.write(1, json.dumps(value).encode() + b"\\n")
def hear():
    return sys.stdin.readline().rstrip("\\n")
def attempt(function, *args, **kwargs):
    "What came of it: the facts of the claim, which is given up again, or of the error."
    started = time.monotonic()
    try:
        claim = function(*args, **kwargs)
        facts = {{"error": None, "token": claim.token, "record": claim.record.model_dump(mode="json")}}
        claim.release()
    except BaseException as error:
        facts = {{
            "error": type(error).__name__,
            "bases": [base.__name__ for base in type(error).__mro__],
            "errno": getattr(error, "errno", None),
            "filename": os.fsdecode(getattr(error, "filename", None) or ""),
            "message": str(error),
            "hint": getattr(error, "hint", ""),
            "verdict": getattr(error, "verdict", None),
            "reason": getattr(error, "reason", None),
        }}
    facts["seconds"] = time.monotonic() - started
    return facts
"""


# -- programs: interpreters of their own


def program(body: str, *arguments: object, prefix: Sequence[str] = ()) -> list[str]:
    """The command that runs *body* in a new interpreter, after *prefix* (unshare, setpriv, ...)."""
    return [*prefix, sys.executable, "-c", _PRELUDE + textwrap.dedent(body), *map(str, arguments)]


def run(body: str, *arguments: object, prefix: Sequence[str] = (), env: dict[str, str] | None = None) -> Any:
    """Run *body* as a program of its own and return what it said."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return json.loads(warm.finish(_begun(body, arguments, prefix, env, **pipes)))


def _begun(
    body: str, arguments: tuple[object, ...], prefix: Sequence[str], env: dict[str, str] | None, **options: Any
) -> Any:
    source, env = _PRELUDE + textwrap.dedent(body), {**os.environ, **(env or {})}
    return warm.start(source, [*map(str, arguments)], prefix=prefix, text=True, env=env, **options)


class Program:
    """A program that is talked to line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def said(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the program ended without a word"
        return json.loads(line)

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send it *number* and reap it."""
        self.process.send_signal(number)
        self.process.wait(timeout=30)


@contextlib.contextmanager
def running(
    body: str, *arguments: object, prefix: Sequence[str] = (), env: dict[str, str] | None = None
) -> Iterator[Program]:
    """Start *body* as a program of its own; killed and reaped at exit."""
    with _begun(body, arguments, prefix, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


# -- children: forks of the test itself, which cost a hundredth of an interpreter


def elsewhere(function: Callable[[], Any], *, uid: int = 0, gid: int | None = None, umask: int = 0o022) -> Any:
    """What *function* returns, or the exception it raises, in a forked child of another account or umask."""
    reader, writer = os.pipe()
    pid = _fork()
    if pid == 0:
        os.close(reader)
        _carry_out(function, writer, uid, gid, umask)
    os.close(writer)
    try:
        with open(reader, "rb") as stream:
            return pickle.load(stream)  # as far as the answer goes: a grandchild may keep the pipe open
    finally:
        os.waitpid(pid, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the keeper's thread; the child knows what to do
        return os.fork()


def _carry_out(function: Callable[[], Any], writer: int, uid: int, gid: int | None, umask: int) -> None:
    try:
        os.umask(umask)
        if uid or gid is not None:
            os.setgroups([])
            os.setresgid(*[uid if gid is None else gid] * 3)
            os.setresuid(uid, uid, uid)
        try:
            answer = function()
        except Exception as error:
            answer = error
        with open(writer, "wb") as stream:
            pickle.dump(answer, stream)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


class Child:
    """A forked child that has said one thing and stays until it is told to go on, or killed."""

    def __init__(self, pid: int, said: Any, gate: int) -> None:
        self.pid, self.said, self._gate = pid, said, gate
        self._reaped = False

    def go_on(self) -> None:
        os.write(self._gate, b"\n")

    def kill(self, *, reap: bool = True) -> None:
        if not self._reaped:
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            if reap:
                self.reap()

    def reap(self) -> None:
        if not self._reaped:
            os.waitpid(self.pid, 0)
            self._reaped = True

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        os.close(self._gate)


def owner(
    *args: Any, uid: int = 0, umask: int = 0o022, then: Callable[[Any], Any] | None = None, **kwargs: Any
) -> Child:
    """A child that acquires with these arguments and stays: use it in a ``with`` block, which kills and reaps it.

    Its ``said`` is the token. *then* is called with the claim when the child is told to go on.
    """
    answer, writer = os.pipe()
    waiting, gate = os.pipe()
    pid = _fork()
    if pid == 0:
        try:
            os.close(gate)
            os.umask(umask)
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            claim = ownership.acquire(*args, **kwargs)
            os.write(writer, pickle.dumps(claim.token))
            os.close(writer)
            while os.read(waiting, 1):
                if then is not None:
                    then(claim)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    os.close(waiting)
    with open(answer, "rb") as stream:
        raw = stream.read()
    child = Child(pid, pickle.loads(raw) if raw else None, gate)
    if not raw:
        child.__exit__()
        raise AssertionError("the owner did not come to own")
    return child


def die_owning(*args: Any, **kwargs: Any) -> int:
    """Acquire in a child that is killed and reaped while it owns; its pid."""
    with owner(*args, **kwargs) as child:
        child.kill()
        return child.pid


def taken(*args: Any, **kwargs: Any) -> Any:
    """Acquire and give up again: the token, or the error as a value."""
    try:
        claim = ownership.acquire(*args, **kwargs)
    except Exception as error:
        return error
    token = claim.token
    claim.release()
    return token
