"""A supervisor that alone serves a socket, and three workers that stop when it is gone.

The supervisor owns the socket and starts its workers. Each makes sure that who answers is its supervisor, and watches
it by a fence; the supervisor makes sure that who reports is a worker of its own. Then the supervisor is killed: the
workers stop by themselves, and a new supervisor listens at the same path at once.

    python examples/supervisor.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ownership

WORKERS = 3


def supervise(path: Path) -> None:
    """Serve *path*: workers report, clients ask which workers there are."""
    with ownership.listen(path, data={"version": "1.0"}) as owned:
        owned.on_path_lost(ownership.Listener.rebind)
        environment = {**os.environ, **owned.claim.ref.to_env()}
        children = [subprocess.Popen([sys.executable, __file__, "work"], env=environment) for _ in range(WORKERS)]
        reported: set[int] = set()
        try:
            while True:
                connection, _ = owned.socket.accept()
                with connection:
                    question = connection.recv(16)
                    if question == b"report":
                        try:
                            reported.add(ownership.verify_worker(connection).pid)
                        except ownership.PeerError as stranger:
                            print(f"turned away: {stranger}", flush=True)
                    else:
                        connection.sendall(json.dumps(sorted(reported)).encode())
        finally:
            for child in children:
                child.terminate()
                child.wait()


def work() -> int:
    """Work until the supervisor that started us is gone, or somebody else owns in its place."""
    supervisor = ownership.OwnerRef.from_env()
    with ownership.Fence(supervisor) as fence:
        with ownership.connect(supervisor.path, timeout=10.0) as connection:
            ownership.verify_peer(connection, supervisor)
            connection.sendall(b"report")
        while True:
            try:
                fence.check()
            except ownership.FenceTrippedError as tripped:
                print(f"  worker {os.getpid()} stops: {tripped.reason}", flush=True)
                return 0
            time.sleep(0.02)  # the work


def ask(path: Path) -> list[int]:
    """The workers that have reported."""
    with ownership.connect(path, timeout=10.0) as connection:
        owner = ownership.verify_peer(connection, path)
        connection.sendall(b"workers")
        workers: list[int] = json.loads(connection.recv(4096))
        print(f"pid {owner.record.pid} serves {path.name} with workers {workers}", flush=True)
        return workers


def reported(path: Path) -> list[int]:
    """Wait for all of them."""
    while len(workers := ask(path)) < WORKERS:
        time.sleep(0.05)
    return workers


def start(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "supervise", str(path)])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "app.sock")
        first = start(path)
        workers = reported(path)
        print(f"killing pid {first.pid}, which is not reaped", flush=True)
        first.kill()
        second = start(path)
        try:
            while any(ownership.is_alive(pid) for pid in workers):
                time.sleep(0.02)
            assert not set(reported(path)) & set(workers), "they are others"
            try:
                ownership.listen(path)
            except ownership.AlreadyOwnedError as refused:
                print(f"a third is refused: {refused}", flush=True)
        finally:
            second.terminate()
            second.wait()
            first.wait()
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["supervise", path]:
            supervise(Path(path))
        case ["work"]:
            sys.exit(work())
        case _:
            sys.exit(main())
