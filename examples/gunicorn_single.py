"""The same for gunicorn: its master owns the socket, its workers inherit it.

python examples/gunicorn_single.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication

import ownership


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Says who serves."""
    body = b"served by worker %d of pid %d\n" % (os.getpid(), os.getppid())
    start_response("200 OK", [("Connection", "close"), ("Content-Length", str(len(body)))])
    return [body]


class Single(BaseApplication):  # type: ignore[misc]
    """gunicorn on a socket that is listened on already."""

    def __init__(self, owned: ownership.Listener) -> None:
        self.owned = owned
        super().__init__()

    def load_config(self) -> None:
        self.cfg.set("bind", f"fd://{self.owned.fileno()}")
        self.cfg.set("workers", 2)
        self.cfg.set("loglevel", "warning")

    def load(self) -> Callable[..., Iterable[bytes]]:
        return application


def serve(path: Path) -> int:
    try:
        owned = ownership.listen(path)
    except ownership.ContentionError as refused:
        print(f"not started: {refused}", file=sys.stderr)
        return refused.exit_code
    with owned:
        Single(owned).run()
    return 0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "web.sock")
        command = [sys.executable, __file__, str(path)]
        with subprocess.Popen(command) as server:
            try:
                with ownership.connect(path, timeout=20.0) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    said = connection.makefile().read().strip().splitlines()[-1]
                print(said)
                assert said.endswith(f"of pid {server.pid}")
                second = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
                print(f"a second one: exit code {second.returncode}")
                assert second.returncode == 75
            finally:
                server.terminate()
        assert not path.exists()
    return 0


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])) if len(sys.argv) == 2 else main())
