"""Faults at exact points: strace(1) at the N-th system call of one operation, exceptions where signal handlers run.

Run as a program this file is the *server*: preloaded with the library, it forks one *actor* per request, which performs
one operation between two markers. The actor's main thread alone is traced, from before the operation on, so that the
calls of the operation, and nothing else, are counted.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import gc
import inspect
import json
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

BEGIN, END = "/marker/begin", "/marker/end"

CHANGING = (
    *("flock", "link", "linkat", "unlink", "unlinkat", "rename", "renameat", "renameat2", "write", "pwrite64"),
    *("fsync", "ftruncate"),
)
MAKING = ("openat", "mkdir", "mkdirat", "fchmod", "fchown", "fchownat", "utimensat")
READING = ("fstat", "newfstatat", "statx", "lstat", "stat", "pread64", "read", "getdents64", "readlink", "pidfd_open")
ENDING = ("close", "clone", "clone3")
CALLS = (*CHANGING, *MAKING, *READING, *ENDING)
MARKERS = ("access", "faccessat", "faccessat2")
_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType)
_TOOL = 4  # of sys.monitoring, which names 0 to 2 and 5 for others


@dataclass(frozen=True)
class Point:
    """The *index*-th call of *name* inside the operation, which is the *when*-th that is traced."""

    name: str
    index: int
    when: int
    shown: str

    def __str__(self) -> str:
        return f"{self.name}#{self.index} {self.shown}"


@dataclass
class Outcome:
    """What became of an actor."""

    status: int
    said: list[Any] = field(default_factory=list)
    trace: str = ""

    @property
    def was_killed(self) -> bool:
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


class Server:
    """The tests' side of the server: start actors, with or without a fault."""

    def __init__(self, scratch: Path) -> None:
        from tests.support.processes import ROOT, TESTS, Child

        self._scratch = scratch
        env = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}"}
        command = [sys.executable, "-B", "-W", "ignore", os.path.abspath(__file__)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._child = Child(subprocess.Popen(command, env={**os.environ, **env}, bufsize=0, **pipes))
        self._tracer: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        self._child.close()
        if self._tracer is not None:  # it ends with the actor, which hears that nobody is there any more
            self._tracer.kill()
            self._tracer.communicate()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def perform(self, operation: str, path: Path, *, named: bool = False, **keywords: Any) -> Outcome:
        """Perform *operation* without a fault."""
        self._start(operation, path, named, keywords)
        return self.finish()

    def traced(self, operation: str, path: Path, fault: str = "", *, named: bool = False, **keywords: Any) -> Outcome:
        """Perform *operation* under strace with *fault*, an ``inject=`` expression; both over when this returns."""
        self.begin(operation, path, fault, named=named, **keywords)
        return self.finish()

    def begin(self, operation: str, path: Path, fault: str, *, named: bool = False, **keywords: Any) -> int:
        """Start a traced actor and leave it at its operation; its pid. :meth:`hear` and :meth:`finish` follow."""
        pid = self._start(operation, path, named, keywords, waits=True)
        output = self._scratch / "trace"
        traced = ",".join(f"?{name}" for name in (*CALLS, *MARKERS))
        command = ["strace", "-p", str(pid), "-o", str(output), "-s", "300", "-e", f"trace={traced}"]
        command += ["-e", "signal=none", *(["-e", f"inject={fault}"] if fault else [])]
        self._tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._tracer.stderr is not None
        told = self._tracer.stderr.readline()
        if b"attached" not in told:
            raise OSError(f"strace: {told.decode().strip()}")
        self._child.say("go")
        return pid

    def hear(self) -> Any:
        return self._child.hear()

    def go_on(self) -> None:
        """Let an actor that pauses go on."""
        self._child.say("go")

    def finish(self) -> Outcome:
        outcome = Outcome(0)
        while not isinstance(heard := self._child.hear(), dict) or "status" not in heard:
            outcome.said.append(heard)
        outcome.status = heard["status"]
        if self._tracer is not None:
            self._tracer.communicate(timeout=60)
            self._tracer = None
            outcome.trace = (self._scratch / "trace").read_text(errors="replace")
        return outcome

    def _start(self, operation: str, path: Path, named: bool, keywords: dict[str, Any], waits: bool = False) -> int:
        self._child.say([operation, str(path), named, waits, keywords])
        return int(self._child.hear()) if waits else 0


def can_trace() -> bool:
    """Whether strace is there and may attach."""
    if shutil.which("strace") is None:
        return False
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as idle:
        try:
            seen = subprocess.Popen(["strace", "-p", str(idle.pid)], stderr=subprocess.PIPE)
            assert seen.stderr is not None
            attached = b"attached" in seen.stderr.readline()
        finally:
            idle.kill()
        seen.communicate(timeout=60)
    return attached


def points(trace: str) -> list[Point]:
    """Every call between the markers of an undisturbed run, the end marker as the last."""
    counts: collections.Counter[str] = collections.Counter()
    offsets: collections.Counter[str] | None = None
    found = []
    for line in trace.splitlines():
        call = re.match(r"([a-z_0-9]+)\((.*)", line)
        if call is None:
            continue
        name, rest = call.groups()
        counts[name] += 1
        if BEGIN in rest and name in MARKERS:
            offsets = counts.copy()
        elif offsets is not None:
            found.append(Point(name, counts[name] - offsets[name], counts[name], rest[:120]))
            if END in rest and name in MARKERS:
                return found
    raise ValueError(f"no markers in the trace:\n{trace}")


class Interrupter:
    """Does something at the N-th point of an operation where CPython would run a signal handler.

    It runs them when a Python function is entered and when a call of a C function has returned (and when a loop jumps
    back, which is always near one of those). Profiling stops there too, so every point can be had, one after another.

    :param act: what the handler does; may raise
    :param ignored: files whose code is not part of the operation
    """

    def __init__(self, act: Callable[[], Any], ignored: tuple[str, ...] = ()) -> None:
        self._act = act
        self._ignored = (__file__, *ignored)
        self._left = 0
        self._thread = 0
        self.point = ""

    def run(self, number: int, operation: Callable[[], Any]) -> Any:
        """Do *operation*, interrupted at point *number* (from 1); :attr:`point` stays empty if it has fewer."""
        self._left = number
        self._thread = threading.get_ident()
        self.point = ""
        from ownership import _pinned

        collects = gc.isenabled()
        gc.disable()  # what the collector calls is not part of the operation
        never = 1 << 62  # a fresh file is read again: were it not always one, later runs would have fewer points
        try:
            with mock.patch.multiple(_pinned, _FINE_NS=never, _COARSE_NS=never):
                self._watch()
                try:
                    return operation()
                finally:
                    self._ignore()
        finally:
            if collects:
                gc.enable()

    def _watch(self) -> None:
        if sys.version_info < (3, 12):
            sys.setprofile(self._profile)
        else:  # where profiling stops at times while other threads begin and end
            monitoring, events = sys.monitoring, sys.monitoring.events
            monitoring.use_tool_id(_TOOL, "interrupter")
            monitoring.register_callback(_TOOL, events.PY_START, self._started)
            monitoring.register_callback(_TOOL, events.C_RETURN, self._returned)
            monitoring.set_events(_TOOL, events.PY_START | events.CALL)

    def _ignore(self) -> None:
        if sys.version_info < (3, 12):
            sys.setprofile(None)
        else:
            sys.monitoring.set_events(_TOOL, 0)
            sys.monitoring.free_tool_id(_TOOL)

    def _profile(self, frame: types.FrameType, event: str, called: Any) -> None:
        if event == "call":
            self._look(frame.f_code, frame.f_lineno)
        elif event == "c_return":
            self._look(frame.f_code, frame.f_lineno, called)

    def _started(self, code: types.CodeType, _: int) -> None:
        self._look(code, code.co_firstlineno)

    def _returned(self, code: types.CodeType, _: int, called: Any, first: object) -> None:
        if isinstance(called, _FUNCTIONS):  # not an object that is made, and would be lost again
            self._look(code, sys._getframe(1).f_lineno, called)

    def _look(self, code: types.CodeType, line: int, called: Any = None) -> None:
        if self._thread != threading.get_ident() or code.co_filename in self._ignored:
            return
        if called is None and code.co_flags & inspect.CO_GENERATOR:
            return  # may be told when one is closed, and handlers do not run there
        self._left -= 1
        if self._left == 0:
            after = "" if called is None else f" after {getattr(called, '__name__', called)}"
            self.point = f"{os.path.basename(code.co_filename)}:{line} {code.co_name}{after}"
            self._act()


class Fork:
    """A process that was forked in the middle of an operation, and waits there.

    :ivar point: where; empty if the operation has fewer points
    """

    def __init__(self) -> None:
        self.point = ""
        self._waiting, self._going = os.pipe()
        self._child = 0

    def fork(self) -> None:
        self._child = os.fork()
        if self._child == 0:
            os.close(self._going)
            os.read(self._waiting, 1)

    def go_on(self) -> None:
        """Let it go on, and wait until it has ended."""
        if self._going >= 0:
            os.close(self._going)
            self._going = -1
        if self._child:
            os.waitpid(self._child, 0)
            self._child = 0

    def close(self) -> None:
        self.go_on()
        os.close(self._waiting)


@contextlib.contextmanager
def forking(number: int, operation: Callable[[], Any], ignored: tuple[str, ...] = ()) -> Iterator[Fork]:
    """Do *operation*, in which a handler forks at point *number*; the child carries it out, too, once it may go on."""
    fork, process = Fork(), os.getpid()
    interrupter = Interrupter(fork.fork, ignored)
    try:
        try:
            interrupter.run(number, operation)
        finally:
            if os.getpid() != process:
                os._exit(0)
        fork.point = interrupter.point
        yield fork
    finally:
        fork.close()


# -- the server, a program of its own


def _serve() -> None:
    import ownership
    import ownership._directory as directory

    logging.disable()  # it would write to where the tests' own output goes
    _warm_up(ownership)
    while True:
        line = os.read(0, 65536)
        if not line:
            return
        operation, path, named, waits, keywords = json.loads(line)
        pid = os.fork()
        if pid == 0:
            directory.LockDirectory.unnamed_by_default = not named and directory.LockDirectory.unnamed_by_default
            ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)  # any process may trace us
            actor = Actor(path, waits, keywords)
            try:
                getattr(actor, operation)()
                atexit._run_exitfuncs()
            except BaseException as error:
                _say({"raised": repr(error), "from": traceback.format_tb(error.__traceback__)[-2:]})
                os._exit(3)
            os._exit(0)
        _say({"status": os.waitpid(pid, 0)[1]})


def _warm_up(ownership: Any) -> None:
    """Import, compile and cache whatever a first operation would."""
    import tempfile

    import leases

    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            claim = ownership.acquire(folder + "/warm")
            claim.announce("warm")
            claim.verify()
            claim.release()
            ownership.reclaim(folder + "/warm")
            ownership.inspect(folder + "/warm")
            leases.Roster(folder + "/roster").restore()
    gc.collect()
    gc.freeze()
    gc.disable()


def _say(value: Any) -> None:
    os.write(1, (json.dumps(value) + "\n").encode())


class Actor:
    """One forked process that performs one operation between the markers."""

    def __init__(self, path: str, waits: bool, keywords: dict[str, Any]) -> None:
        import ownership

        self.ownership = ownership
        self.path, self.waits, self.keywords = path, waits, keywords
        self.claim: Any = None

    def _between(self, operation: Callable[[], Any]) -> Any:
        if self.waits:
            _say(os.getpid())
            select.select([0], [], [])  # not among the traced calls: the tracer may attach before it or within
            os.read(0, 65536)
        os.access(BEGIN, os.F_OK)
        value: Any = None
        failure: BaseException | None = None
        try:
            value = operation()
        except BaseException as error:
            failure = error
        os.access(END, os.F_OK)
        if failure is not None:
            known = isinstance(failure, self.ownership.OwnershipError)
            named = isinstance(failure, OSError) and bool(failure.filename)
            _say({"error": type(failure).__name__, "text": str(failure), "typed": known or named})
        else:
            _say({"value": None if value is None else str(value)})
        return value

    def _pause(self) -> None:
        if self.keywords.get("pause"):
            _say("paused")
            os.read(0, 65536)

    def _acquire(self, timeout: float = 0) -> Any:
        leased = {name: self.keywords[name] for name in ("ttl", "auto_renew") if name in self.keywords}
        return self.ownership.acquire(self.path, also=self.keywords.get("also", []), timeout=timeout, **leased)

    def _finish(self) -> None:
        """Say what kinds of files are open, after everything was done once more without a fault and given up."""
        self._acquire(timeout=10).release()  # somebody else may be trying at this moment
        gc.collect()
        _say({"open": kept_open()})

    def acquire(self) -> None:
        """Acquire; let others look while the outcome stands; then the same again."""
        claim = self._between(self._acquire)
        self._pause()
        if claim is not None:
            claim.verify()
            claim.release()
        self._finish()

    def release(self) -> None:
        claim = self._acquire()
        self._between(claim.release)
        self._pause()
        self._finish()

    def announce(self) -> None:
        self._keeping(self._acquire(), lambda claim: claim.announce("serving", data={"answer": 42}))

    def renew(self) -> None:
        """Renew a lease, by hand or in its critical section."""

        def renewed(claim: Any) -> None:
            with claim.critical():
                assert claim.renew()

        self._keeping(self._acquire(), renewed)

    def renew_for(self) -> None:
        """Renew the lease of another process on its behalf."""
        running = self.ownership.find(self.path)
        self._between(lambda: self.ownership.renew(running.ref))
        self._pause()
        assert self.ownership.renew(running.ref)
        self._say_open()

    def verify(self) -> None:
        """Verify after the record was deleted: it is put back."""
        claim = self._acquire()
        os.unlink(claim.path.parent / ".leases" / f"{claim.path.name}.json")
        self._keeping(claim, lambda claim: claim.verify())

    def _keeping(self, claim: Any, operation: Callable[[Any], None]) -> None:
        """Do something that leaves us the owner whatever becomes of it."""
        self._between(lambda: operation(claim))
        _say({"ours": _outcome(claim.verify)})
        self._pause()
        operation(claim)
        claim.release()
        self._finish()

    def reclaim(self) -> None:
        self._between(lambda: self.ownership.reclaim(self.path).verdict.value)
        self._pause()
        self._finish()

    def inspect(self) -> None:
        self._between(lambda: self.ownership.inspect(self.path).verdict.value)
        self._pause()
        self._finish()

    def break_claim(self) -> None:
        """Evict a live owner."""
        token = self.keywords["token"]
        self._between(lambda: self.ownership.break_claim(self.path, token=token).verdict.value)
        self._pause()
        self.ownership.break_claim(self.path, token=token)
        self._finish()

    def adopt(self) -> None:
        """Adopt what another process hands over."""
        claim = self._between(lambda: self.ownership.adopt(dict(self.keywords["heir"])))
        self._pause()
        if claim is None:
            try:
                claim = self.ownership.adopt(dict(self.keywords["heir"]))
            except self.ownership.HandoverError:  # it had taken the record before it failed, and gave it up
                return
        claim.verify()
        claim.release()

    def retire(self) -> None:
        """Close what stays ours until we end; then give it up all the same."""
        claim = self._acquire()
        self._between(claim.retire)
        self._pause()
        claim.release()
        self._finish()

    def ask(self) -> None:
        """Ask an owner to go, and give up at once: nothing is waited for, so every run makes the same calls."""
        self._between(lambda: self.ownership.replace(self.path, grace=60, timeout=0))
        self._pause()
        try:
            self.ownership.replace(self.path, grace=60, timeout=0)
        except self.ownership.AcquireTimeoutError:
            pass
        end = time.monotonic() + 10
        while self.ownership._keeper.KEEPER.holdings and time.monotonic() < end:  # what could not be withdrawn at once
            time.sleep(0.01)
        self._say_open()

    def _say_open(self) -> None:
        """What is open in the end, of somebody who does not own the path."""
        self.ownership.acquire(f"{self.path}-too").release()  # the witness is there in any case then
        gc.collect()
        _say({"open": kept_open()})

    def replace(self) -> None:
        """Ask an owner to go, a child of ours that ends once it is asked, or with us."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
            self.claim = self._acquire()
            os.write(writing, b".")
            while True:
                signal.pause()
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)

        def end(_: object) -> None:
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

        claim = self._between(lambda: self.ownership.replace(self.path, grace=60, on_wait=end))
        self._pause()
        if claim is not None:
            claim.verify()
            claim.release()
        try:
            end(None)
        except ChildProcessError:
            pass
        self._finish()

    def pass_on(self) -> None:
        """Acquire and release."""
        begun = time.monotonic()
        claim = self._acquire()
        took = time.monotonic() - begun
        token = claim.token
        claim.release()
        _say({"token": token, "took": took})

    def roster(self) -> None:
        """Change a roster: ``start`` a task, ``finish`` one, ``claim_lost`` one, or ``compact`` it; then again."""
        import leases

        roster, what = leases.Roster(self.path, timeout=10), self.keywords["what"]
        task = roster.start(f"{os.getpid()}") if what == "finish" else None
        lost = self.keywords.get("lost")
        acts = {
            "start": lambda: roster.start("new").token,
            "finish": lambda: task.finish(),  # type: ignore[union-attr]
            "claim_lost": lambda: roster.claim_lost(lost).token,
            "compact": roster.compact,
        }
        self._between(acts[what])
        _say({"running": [one.name for one in roster.restore().running if one.name != "live"]})
        self._pause()
        with roster.start(f"again {os.getpid()}"):
            pass
        self._finish()

    def die(self) -> None:
        """Acquire, and be killed as the owner."""
        self.claim = self._acquire()
        os.kill(os.getpid(), signal.SIGKILL)


def kind_of(number: str) -> str:
    """What kind of file a descriptor of ours stands for."""
    try:
        path = os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return "the listing itself"
    kind = re.sub("[0-9a-f]{32}|[0-9]+", "N", os.path.basename(path).removesuffix(" (deleted)"))
    return "#N" if kind.endswith(".new") else kind  # the same file, made in the other form


def kept_open() -> list[str]:
    """The kinds of files that we have open all the time, not those that another thread reads at the moment."""
    looks = []
    for _ in range(3):
        looks.append(collections.Counter(kind_of(number) for number in os.listdir("/proc/self/fd")))
        time.sleep(0.02)
    return sorted((looks[0] & looks[1] & looks[2]).elements())


def _outcome(function: Callable[[], Any]) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _serve()
