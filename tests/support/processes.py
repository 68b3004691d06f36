"""Real processes for tests: programs that are talked to line by line, always ended and reaped by their own pid."""

from __future__ import annotations

import collections
import fcntl
import json
import os
import select
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import ownership
from tests.support import warm
from tests.support.warm import TESTS

ROOT = str(Path(ownership.__file__).resolve().parents[1])
PATIENCE = 60.0  # seconds until a silent child counts as hung; generous, since machines are shared

PRELUDE = f"""\
import json, os, signal, sys, threading, time
sys.path[:0] = [{ROOT!r}, {TESTS!r}]
import ownership
def say(*values):
    os.write(1, (json.dumps(values if len(values) > 1 else values[0]) + "\\n").encode())
def hear():
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return json.loads(line)
def attempt(function, *arguments, **keywords):
    try:
        return function(*arguments, **keywords)
    except BaseException as error:
        return type(error).__name__
"""

HERD = """
def herd(count, work, before=lambda: None, after=lambda: None):
    "What *work(number)* returned in each of *count* forked processes that begin at once, *before* and *after* that."
    start, go = os.pipe()
    ready, ready_end = os.pipe()
    children, outcomes = [], []
    for number in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(go)
                os.write(ready_end, b".")
                os.read(start, 1)
                answer = work(number)
            except BaseException as error:
                answer = {"error": type(error).__name__, "text": str(error)[:300]}
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        children.append((child, reading))
    awaited = count
    while awaited:
        awaited -= len(os.read(ready, awaited))
    before()
    for descriptor in (ready, ready_end, start, go):
        os.close(descriptor)
    after()
    for child, reading in children:
        text = b""
        while chunk := os.read(reading, 65536):
            text += chunk
        os.close(reading)
        os.waitpid(child, 0)
        outcomes.append(json.loads(text) if text else {"error": "died"})
    return outcomes

class Inside:
    "A section that must be entered by one process at a time; tells whether somebody was there already."
    def __init__(self, path):
        self.path = path
    def __enter__(self):
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            return False
    def __exit__(self, *_):
        os.unlink(self.path)
"""


class Child:
    """A program that says one JSON value a line and hears the same way."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self._heard = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, value: Any) -> None:
        self._input.write((json.dumps(value) + "\n").encode())

    def hear(self, patience: float = PATIENCE) -> Any:
        """The next value; :class:`EOFError` when it has ended, :class:`TimeoutError` when it is silent."""
        deadline = time.monotonic() + patience
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._output], [], [], left)[0]:
                raise TimeoutError(f"nothing heard from {self.process.args!r} in {patience} s")
            chunk = os.read(self._output.fileno(), 65536)
            if not chunk:
                raise EOFError(f"child ended with {self.process.wait(PATIENCE)}")
            self._heard += chunk
        line, self._heard = self._heard.split(b"\n", 1)
        return json.loads(line)

    def ask(self, value: Any, patience: float = PATIENCE) -> Any:
        self.say(value)
        return self.hear(patience)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once and reap it."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        self.kill()
        self._input.close()
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def program(body: str) -> str:
    """A Python program that has ``ownership``, ``say``, ``hear`` and ``attempt``."""
    return PRELUDE + textwrap.dedent(body)


def begun(
    body: str, arguments: tuple[object, ...] = (), prefix: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """The process of *body*, which listens and speaks through pipes."""
    return warm.start(
        program(body),
        [*map(str, arguments)],
        prefix=prefix,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        bufsize=0,
    )


def running(body: str, *arguments: object, prefix: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Child:
    """Start *body*; use it as a context manager."""
    return Child(begun(body, arguments, prefix, env))


def run(body: str, *arguments: object, prefix: tuple[str, ...] = (), patience: float = PATIENCE) -> Any:
    """Run *body* to its end and return the one value it said."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = warm.start(program(body), [*map(str, arguments)], prefix=prefix, text=True, **pipes)
    return json.loads(warm.finish(process, patience))


CONTENDER = """
claims = {}
say(os.getpid())
while True:
    request = hear()
    what, path, keywords = request[0], request[1], request[2] if len(request) > 2 else {}
    begun = time.monotonic()
    try:
        if what == "acquire":
            if keywords.pop("tells", False):  # say so when it begins to wait
                keywords["on_wait"] = lambda error: say("waiting")
            claims[path] = ownership.acquire(path, **keywords)
            found = claims[path].token
        elif what == "inspect":
            found = ownership.inspect(path).verdict.value
        elif what == "break":
            found = ownership.break_claim(path, **keywords).verdict.value
        elif what == "pass":  # acquire and release at once
            claim = ownership.acquire(path, **keywords)
            found = claim.token
            claim.release()
        else:
            found = getattr(claims[path], what)(**keywords)
        say({"value": found, "took": time.monotonic() - begun})
    except Exception as error:
        facts = {name: getattr(error, name, None) for name in ("holder", "hint", "reason")}
        say({"error": type(error).__name__, "text": str(error), **facts, "took": time.monotonic() - begun})
"""


class Contender(Child):
    """Another process that acquires, inspects, breaks and releases on request."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        super().__init__(begun(CONTENDER, prefix=prefix))
        self.own_pid = int(self.hear())  # differs from the one we started if *prefix* forks

    def do(self, what: str, path: os.PathLike[str] | str, **keywords: Any) -> dict[str, Any]:
        return self.ask([what, os.fspath(path), keywords])

    def start(self, what: str, path: os.PathLike[str] | str, **keywords: Any) -> None:
        """Ask without waiting for the answer, which :meth:`hear` gives."""
        self.say([what, os.fspath(path), keywords])

    def passes(self, path: os.PathLike[str] | str, **keywords: Any) -> bool:
        """Whether it could acquire and release *path*."""
        return "value" in self.do("pass", path, **keywords)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP *pid*, a child of ours or its child, and wait until it is; SIGCONT at the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: ownership.is_stopped(pid))  # every thread of it
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def state_of(pid: int) -> str:
    """The state letter of ``/proc/<pid>/stat``; ``X`` when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def eventually(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait until *condition* holds; its value. A bounded wait for what no event tells."""
    deadline = time.monotonic() + patience
    pause = 0.0005
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {patience} s in vain"
        select.select([], [], [], pause)
        pause = min(pause * 2, 0.02)
    return value


def lock_directory(resource: Path) -> Path:
    return resource.parent / ".leases"


def files(resource: Path) -> set[str]:
    """Names of all files in *resource*'s lock directory; empty when there is none."""
    try:
        return set(os.listdir(lock_directory(resource)))
    except FileNotFoundError:
        return set()


def residue(resource: Path) -> set[str]:
    """What is there besides guards, the marker for version control, and witnesses of live processes' images."""
    return {name for name in files(resource) if name != ".gitignore" and not name.endswith((".guard", ".alive"))}


def is_locked(path: Path) -> bool:
    """Whether somebody holds an exclusive flock(2) on it; false when it is gone."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False


def opened_since(before: list[str]) -> list[str]:
    """What this process has open that was not in *before*. What the keeper has let go of since hides nothing."""
    return list((collections.Counter(open_descriptors()) - collections.Counter(before)).elements())


def open_descriptors(pid: int | None = None) -> list[str]:
    """What a process has open, without numbers."""
    folder = f"/proc/{pid or os.getpid()}/fd"
    found = []
    for number in os.listdir(folder):
        try:
            found.append(os.readlink(f"{folder}/{number}"))
        except FileNotFoundError:  # the listing's own
            continue
    return sorted(found)
