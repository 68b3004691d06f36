"""Clients that start the server when it is not there: one of them does, whoever asks, and however many at once.

python examples/client.py
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

import ownership

SERVER = Path(__file__).with_name("asyncio_supervisor.py")


def ask(path: Path, answers: list[str]) -> None:
    """Ask the server of *path*, started if need be."""
    with ownership.ensure(path, [sys.executable, SERVER, path], timeout=20.0) as connection:
        connection.sendall(b"hello\n")
        answers.append(connection.makefile().read().strip())


def ask_together(path: Path, count: int) -> str:
    answers: list[str] = []
    began = time.perf_counter()
    clients = [threading.Thread(target=ask, args=(path, answers)) for _ in range(count)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    took = (time.perf_counter() - began) * 1000
    assert len(answers) == count
    assert len(set(answers)) == 1, "they all reached the same server"
    print(f"{count} clients after {took:.0f} ms: {answers[0]}")
    return answers[0]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "app.sock")
        first = ask_together(path, 10)
        assert ask_together(path, 1) == first
        running = ownership.find(path)
        assert running is not None
        done = ownership.stop(running, grace=5.0)
        print(f"stopped pid {running.record.pid} after {done.took * 1000:.0f} ms")
        assert ask_together(path, 10) != first
        ownership.stop(ownership.find(path) or running, grace=5.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
