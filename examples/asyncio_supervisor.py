"""An asyncio server that alone serves a socket: it puts its path back, and stops when it has lost what it owns.

Run without arguments it shows that: a server is started and asked; the path of its socket is deleted, and is back;
another one is refused; the server is terminated, ends cleanly, and its record says so.

    python examples/asyncio_supervisor.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ownership


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One question, one answer."""
    question = await reader.readline()
    writer.write(b"pid %d heard: %s" % (os.getpid(), question))
    await writer.drain()
    writer.close()


async def serve(path: Path) -> None:
    """Serve *path* until terminated, or until somebody else owns it."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    with ownership.listen(path) as owned:
        owned.on_path_lost(ownership.Listener.rebind)
        owned.claim.on_loss(lambda lost: loop.call_soon_threadsafe(over.set))
        loop.add_signal_handler(signal.SIGTERM, over.set)
        async with await asyncio.start_unix_server(answer, sock=owned.socket):
            await over.wait()


def ask(path: Path, question: str) -> str:
    with ownership.connect(path, timeout=10.0) as connection:
        connection.sendall(question.encode() + b"\n")
        return connection.makefile().read().strip()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "app.sock")
        command = [sys.executable, __file__, str(path)]
        with subprocess.Popen(command) as server:
            try:
                print(ask(path, "hello"))
                path.unlink()
                print("the socket is deleted")
                while not path.exists():
                    time.sleep(0.02)
                print(ask(path, "are you still there?"))
                again = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
                print(f"another one: {again.stderr.strip().splitlines()[-1]}")
            finally:
                server.terminate()
        seen = ownership.inspect(path)
        print(f"terminated: {seen.verdict}, {'found' if path.exists() else 'no'} socket")
        with ownership.listen(path) as owned:
            previous = ownership.inspect(path).previous
            assert previous is not None
            print(f"pid {os.getpid()} serves {owned.endpoint} now; the last owner: {previous.how}")
            assert previous.how == "closed"
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2:
        try:
            asyncio.run(serve(Path(sys.argv[1])))
        except ownership.ContentionError as refused:
            sys.exit(f"{refused}")
    else:
        sys.exit(main())
