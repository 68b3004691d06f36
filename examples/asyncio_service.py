"""An asyncio service that holds a lease: it works in tasks, and all of them end when the lease is lost.

Two of it are started: one works, the other stands by. The first is stopped for longer than its lease holds: the other
takes over at once, and the first ends with one error when it goes on. Then the second is interrupted, as by Ctrl-C: it
gives the lease up in good order.

    python examples/asyncio_service.py
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import leases
import ownership
from leases import aio

STARTED = time.perf_counter()
TTL = 1.0  # seconds; the shortest there is


def tell(who: str, what: str) -> None:
    print(f"{(time.perf_counter() - STARTED) * 1000:8.1f} ms  {who:<8} {what}", flush=True)


async def work(lease: aio.Lease, name: str) -> None:
    """One of the tasks: appends a line now and then, which it can only while the lease is held."""
    number = 0
    while True:
        await aio.append_line(lease, f"{name} {number} by {lease.token}")
        number += 1
        await asyncio.sleep(0.02)


async def serve(path: str) -> None:
    """Hold the lease and work; stand by while another one does."""

    def waiting(refused: ownership.AlreadyOwnedError) -> None:
        print("stands by", flush=True)

    async with aio.acquire(path, ttl=TTL, timeout=None, on_wait=waiting) as lease, asyncio.TaskGroup() as tasks:
        print("works", flush=True)
        for name in ("a", "b"):
            tasks.create_task(work(lease, name))


async def started(path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, __file__, str(path), stdout=asyncio.subprocess.PIPE)


async def heard(process: asyncio.subprocess.Process, who: str) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().strip()
    tell(who, line)
    return line


def send(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError):  # it has lost the lease by now, and ended
        process.send_signal(number)


async def taken_over(first: asyncio.subprocess.Process, second: asyncio.subprocess.Process) -> str:
    """Stop the *first*. Were it stopped in the very middle of a line, nobody could take over before it goes on."""
    while True:
        send(first, signal.SIGSTOP)
        tell("first", "is stopped, for longer than its lease holds")
        try:
            return await asyncio.wait_for(heard(second, "second"), 5 * TTL)
        except TimeoutError:
            send(first, signal.SIGCONT)
            await asyncio.sleep(0.1)


async def play(path: Path) -> None:
    first = await started(path)
    await heard(first, "first")
    second = await started(path)
    try:
        await heard(second, "second")
        assert await taken_over(first, second) == "works"
        send(first, signal.SIGCONT)
        assert await heard(first, "first") == "lost it: expired"
        send(second, signal.SIGINT)
        assert await heard(second, "second") == "interrupted"
        assert (await first.wait(), await second.wait()) == (leases.LeaseLostError.exit_code, 130)
    finally:
        for process in (first, second):
            if process.returncode is None:
                process.kill()
                await process.wait()
    async with aio.acquire(path):  # nobody holds it any more
        tokens = [line.split()[-1] for line in leases.read_lines(path)]
    assert tokens == sorted(tokens)  # no line of the first one after the other's
    tell("reader", f"{len(tokens)} lines of {len(set(tokens))} holders, none out of order")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder, "journal")))
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2:
        try:
            asyncio.run(serve(sys.argv[1]))
        except leases.LeaseLostError as lost:
            print(f"lost it: {lost.reason}", flush=True)
            sys.exit(lost.exit_code)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.exit(130)
    else:
        sys.exit(main())
