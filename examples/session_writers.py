"""Three writers want one session file, by three names; one appends at a time, and one that was paused cannot.

Each is told which session holds the file, waits for its turn, and appends whole lines. The first is stopped for longer
than its lease holds, as by a debugger: the second takes over, and what the first then wants to append is refused. The
third finds half a line that a killed writer has left, and cuts it.

    python examples/session_writers.py
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import leases
import ownership

STARTED = time.perf_counter()
TTL = 1.0  # seconds; the shortest there is


def tell(who: str, what: str) -> None:
    print(f"{(time.perf_counter() - STARTED) * 1000:8.1f} ms  {who:<8} {what}", flush=True)


def write(path: str, session: str) -> None:
    """Hold the session file, and append whatever comes."""

    def waiting(refused: ownership.AlreadyOwnedError) -> None:
        holder = refused.record.labels["session"] if refused.record else "somebody"
        print(f"waits, it is held by session {holder}", flush=True)

    try:
        with leases.acquire(path, ttl=TTL, timeout=30.0, labels={"session": session}, on_wait=waiting) as lease:
            print("holds it", flush=True)
            for text in sys.stdin:
                leases.append_line(lease, json.dumps({"session": session, "token": lease.token, "said": text.strip()}))
                print(f"appended {text.strip()!r}", flush=True)
    except leases.LeaseLostError as lost:
        print(f"refused: {lost.reason}", flush=True)


@contextlib.contextmanager
def writer(folder: Path, name: str, session: str) -> Iterator[subprocess.Popen[str]]:
    """A writer that works in *folder*, and calls the file *name*."""
    command = [sys.executable, __file__, name, session]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str], who: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    tell(who, line)
    return line


def play(folder: Path) -> None:
    path = folder / "session.jsonl"
    path.touch()
    (folder / "alias.jsonl").symlink_to(path)
    with writer(folder, str(path), "one") as first, contextlib.ExitStack() as later:
        heard(first, "one")
        second = later.enter_context(writer(folder, "alias.jsonl", "two"))
        heard(second, "two")
        say(first, "hello")
        heard(first, "one")
        os.kill(first.pid, signal.SIGSTOP)
        tell("one", "is stopped, for longer than its lease holds")
        heard(second, "two")
        say(second, "I took over")
        heard(second, "two")
        say(first, "where was I?")
        os.kill(first.pid, signal.SIGCONT)
        assert heard(first, "one") == "refused: expired"
        second.kill()
        with path.open("a") as file:
            file.write('{"session": "two", "said": "half a li')
        tell("two", "was killed in the middle of a line")
    with writer(folder, f"../{folder.name}/{path.name}", "three") as third:
        heard(third, "three")
        say(third, "and on")
        heard(third, "three")
    for line in leases.read_lines(path):
        tell("reader", line.decode())
    assert [json.loads(line)["said"] for line in leases.read_lines(path)] == ["hello", "I took over", "and on"]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder))
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write(sys.argv[1], sys.argv[2])
    else:
        sys.exit(main())
