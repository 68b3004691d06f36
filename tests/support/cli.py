"""``leasectl``, in this process and as a program of its own; and resources in every state it can find them in."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ownership
from leases.cli import main
from ownership.testing import sleeping_process, stopped_process, zombie
from tests.support import warm
from tests.support.records import fields_of, other_start_id, plant, record

ROOT = str(Path(ownership.__file__).resolve().parents[1])
LEASECTL = (sys.executable, "-m", "leases.cli")
_QUICK = (sys.executable, "-I", "-S", "-c")

VERDICTS = ("free", "live", "stopped", "gone", "zombie", "reused", "expired", "unknown")


@dataclass
class Said:
    """What one call in this process returned and said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Leasectl:
    """``leasectl`` in this process: call it with its arguments."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Said:
        self._capsys.readouterr()
        code = main([os.fspath(one) if isinstance(one, os.PathLike) else str(one) for one in arguments])
        return Said(code, *self._capsys.readouterr())


# -- a program of its own


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ROOT, **changes}


def leasectl(
    *arguments: object, prefix: Sequence[str] = (), env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``leasectl`` to its end, by default with its output captured."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    options |= {"text": True, "errors": "surrogateescape", "env": environment(**(env or {}))}
    with started(_spelled(arguments), prefix, **options) as process:
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def started(arguments: Sequence[str | bytes], prefix: Sequence[str] = (), **options: Any) -> Any:
    """The process of ``leasectl``, where it makes no difference forked from one that has it imported."""
    called = "import sys; from leases.cli import main; sys.exit(main())"
    command = [*LEASECTL, *arguments]
    return warm.start(called, list(map(os.fsdecode, arguments)), prefix=prefix, command=command, **options)


def _spelled(arguments: Sequence[object]) -> list[str | bytes]:
    return [
        one if isinstance(one, bytes) else os.fspath(one) if isinstance(one, Path) else str(one) for one in arguments
    ]


def quick(body: str) -> list[str]:
    """The command of a small Python program that starts fast."""
    return [*_QUICK, body]


SLEEP = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


class Held:
    """A ``leasectl run`` whose CMD has said its pid."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.cmd = int(self.line())

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line that CMD says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"ended without a word: {self.process.stderr.read() if self.process.stderr else ''}"
        return line.strip()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said on stderr, once it has ended."""
        assert self.process.stderr is not None
        code = self.process.wait(30)
        return code, self.process.stderr.read()


@contextlib.contextmanager
def holding(
    path: Path, *options: object, body: str = SLEEP, prefix: Sequence[str] = (), **popen: Any
) -> Iterator[Held]:
    """``leasectl run`` with CMD running *body*, which has to say its pid first; both are over at exit."""
    arguments = ["run", *_spelled(options), os.fspath(path), "--", *quick(body)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(arguments, prefix, text=True, env=environment(), **{**pipes, **popen}) as process:
        try:
            yield Held(process)
        finally:
            process.kill()  # and the kernel kills CMD


# -- resources


@contextlib.contextmanager
def resource(path: Path, verdict: str) -> Iterator[None]:
    """Have *path* judged *verdict*: a record of a real process in that state."""
    with contextlib.ExitStack() as stack:
        if verdict == "free":
            path.parent.joinpath(".leases").mkdir(mode=0o700, exist_ok=True)
        elif verdict == "live":
            stack.enter_context(ownership.acquire(path))
        else:
            plant(path, {**record(**_identity(stack, verdict)), "resource": str(path), "command": "planted"})
        yield


def _identity(stack: contextlib.ExitStack, verdict: str) -> dict[str, Any]:
    match verdict:
        case "stopped":
            return fields_of(stack.enter_context(stopped_process()))
        case "zombie":
            return fields_of(stack.enter_context(zombie()))
        case "gone":
            with zombie() as pid:
                return fields_of(pid)
        case "reused":
            pid = stack.enter_context(sleeping_process())
            return fields_of(pid, start_id=other_start_id(fields_of(pid)["start_id"]))
        case "expired":
            pid = stack.enter_context(sleeping_process())
            return fields_of(pid, lease={"ttl": 1.0, "auto_renew": False, "renewed_at": 0.0})
        case "unknown":
            return fields_of(stack.enter_context(sleeping_process()), boot_id="another-boot")
    raise ValueError(f"verdict must be one of {VERDICTS}, got {verdict!r}")
