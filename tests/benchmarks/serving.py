"""``python -m tests.benchmarks.serving``: reaching a server, starting one for many clients, following one that died."""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ownership
from tests.benchmarks.timing import interleaved, spread, table

SERVER = """
import ownership, sys
with ownership.listen(sys.argv[1], timeout=None, data={"version": "1"}, backlog=512) as owned:
    while True:
        connection = owned.socket.accept()[0]
        try:
            connection.sendall(b"x")
        except OSError:
            pass
        connection.close()
"""


def command(path: Path) -> list[str]:
    return [sys.executable, "-c", SERVER, os.fspath(path)]


@contextmanager
def server(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command(path)) as process:
        try:
            yield process
        finally:
            process.kill()


def bare(path: Path) -> bytes:
    """Connect, and hear that the server has accepted."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.fspath(path))
        return connection.recv(1)


def answers(path: Path) -> float:
    """The moment at which somebody has accepted."""
    while True:
        with suppress(OSError):
            if bare(path):
                return time.perf_counter()
        time.sleep(0.0005)


def reaching(directory: Path) -> None:
    path = directory / "reached"

    def connected() -> bytes:
        with ownership.connect(path) as connection:
            return connection.recv(1)

    def ensured(**keywords: object) -> bytes:
        with ownership.ensure(path, None, **keywords) as connection:  # type: ignore[arg-type]
            return connection.recv(1)  # type: ignore[no-any-return]

    with server(path):
        answers(path)
        subjects = {
            "connect and an answer": lambda: bare(path),
            "ownership.connect, the same": connected,
            "ownership.ensure": ensured,
            "ensure(match=...), its owner verified": lambda: ensured(match={"version": "1"}),
        }
        medians = interleaved(subjects, calls=50, rounds=40)
    table("a server that runs", medians, "connect and an answer")


def own_start(directory: Path, number: int) -> float:
    """Seconds that the server takes to start when nobody else does anything."""
    path = directory / f"alone{number}"
    begun = time.perf_counter()
    with server(path):
        return answers(path) - begun


def cold(directory: Path, clients: int, number: int) -> float:
    """Seconds until the last of *clients* that ask at once for a server that is not there has its answer."""
    path = directory / f"cold{number}"
    start, go = os.pipe()
    done, over = os.pipe()
    children = []
    for _ in range(clients):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(start, 1)
            try:
                with ownership.ensure(path, command(path), 60.0) as connection:
                    connection.recv(1)
                os.write(over, b".")
            finally:
                os._exit(0)
        children.append(child)
    os.close(start)
    begun = time.perf_counter()
    os.close(go)
    reached = 0
    while reached < clients:
        reached += len(os.read(done, clients))
    took = time.perf_counter() - begun
    for child in children:
        os.waitpid(child, 0)
    os.close(done)
    os.close(over)
    running = ownership.find(path)
    assert running is not None
    ownership.stop(running)
    return took


def following(directory: Path, rounds: int) -> list[float]:
    """Seconds from SIGKILL of an owner that nobody reaps to the answer of a standby."""
    found = []
    for number in range(rounds):
        path = directory / f"followed{number}"
        with server(path) as first:
            answers(path)
            with server(path):
                while not ownership.waiters(directory).get(path):
                    time.sleep(0.01)
                begun = time.perf_counter()
                os.kill(first.pid, 9)
                os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
                found.append(answers(path) - begun)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", help="where to measure, on a disk filesystem; default: a temporary directory")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        directory = Path(folder)
        reaching(directory)
        print("\nstarting and following")
        alone = [own_start(directory, number) for number in range(arguments.rounds)]
        spread("a server alone, to its first answer", alone)
        together = [cold(directory, 30, number) for number in range(arguments.rounds)]
        spread("30 clients at once, to the last answer", together)
        beyond = statistics.median(together) - statistics.median(alone)
        print(f"  30 clients beyond the server's own start: {beyond * 1e3:.0f} ms")
        spread("SIGKILL, unreaped, to a standby's answer", following(directory, arguments.rounds))


if __name__ == "__main__":
    main()
