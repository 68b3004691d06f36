"""A web application of which there is one: uvicorn on a socket that this process alone owns.

Run without arguments it starts one, asks it, and shows that a second one is refused.

    python examples/uvicorn_single.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvicorn

import ownership


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Says who serves."""
    if scope["type"] == "http":
        body = b"served by pid %d\n" % os.getpid()
        headers = [(b"connection", b"close"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def serve(path: Path) -> int:
    """Serve *path*, as the only one, until told to stop or until it is lost."""
    try:
        owned = ownership.listen(path)
    except ownership.ContentionError as refused:
        print(f"not started: {refused}", file=sys.stderr)
        return refused.exit_code
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again when it is done
    with owned:
        server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_level="warning"))
        owned.claim.on_loss(lambda lost: setattr(server, "should_exit", True))
        server.run(sockets=[owned.socket])
    return 0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "web.sock")
        command = [sys.executable, __file__, str(path)]
        with subprocess.Popen(command) as server:
            try:
                with ownership.connect(path, timeout=20.0) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    print(connection.makefile().read().strip().splitlines()[-1])
                second = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
                print(f"a second one: exit code {second.returncode}: {second.stderr.strip()}")
                assert second.returncode == 75
            finally:
                server.terminate()
        assert not path.exists()
    return 0


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])) if len(sys.argv) == 2 else main())
