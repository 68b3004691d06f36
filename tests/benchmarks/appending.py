"""``python -m tests.benchmarks.appending``: session files and asyncio, beside what one would write by hand."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import filelock

import leases
import ownership
from leases import aio, append_line
from tests.benchmarks.timing import interleaved, table

LINE = "x" * 200


def appending(directory: Path, rounds: int) -> None:
    """One line of 200 bytes, by a holder and by somebody who locks for each line."""
    mine, bare = directory / "session", directory / "bare"
    lock = filelock.FileLock(directory / "bare.lock")

    def write() -> None:
        with open(bare, "a") as file:
            file.write(LINE + "\n")

    def locked() -> None:
        with lock:
            write()

    def locked_and_synced() -> None:
        with lock, open(bare, "a") as file:
            file.write(LINE + "\n")
            file.flush()
            os.fsync(file.fileno())

    with leases.acquire(mine, ttl=30.0) as lease:
        medians = interleaved(
            {
                "append_line": lambda: append_line(lease, LINE),
                "FileLock, open, write, close": locked,
                "open, write, close; no lock": write,
            },
            calls=200,
            rounds=rounds,
        )
        table("a line of 200 bytes", medians, "FileLock, open, write, close")
        medians = interleaved(
            {
                "append_line(fsync=True)": lambda: append_line(lease, LINE, fsync=True),
                "FileLock, open, write, fsync, close": locked_and_synced,
            },
            calls=5,
            rounds=rounds,
        )
        table("the same, on the disk", medians, "FileLock, open, write, fsync, close")
        reads = interleaved({"read_lines": lambda: sum(1 for _ in leases.read_lines(mine))}, calls=1, rounds=5)
        count = sum(1 for _ in leases.read_lines(mine))
        print(f"\n  read_lines: {reads['read_lines'] / count * 1e9:.0f} ns a line ({count:,} lines)")


async def awaiting(directory: Path, rounds: int) -> None:
    """What an await costs beside the call."""

    async def a_call(what: Callable[[], Awaitable[object]], calls: int = 200) -> float:
        best = []
        for _ in range(rounds):
            begun = time.perf_counter()
            for _ in range(calls):
                await what()
            best.append((time.perf_counter() - begun) / calls)
        return sorted(best)[len(best) // 2]

    async def cycle() -> None:
        async with aio.acquire(directory / "cycle", ttl=30.0):
            pass

    print("\nawaited")
    async with aio.acquire(directory / "awaited", ttl=30.0) as lease:
        for name, what in {
            "await lease.verify()": lease.verify,
            "await aio.append_line(lease, line)": lambda: aio.append_line(lease, LINE),
            "async with aio.acquire(ttl=30)": cycle,
            "asyncio.to_thread(lease.verify)": lambda: asyncio.to_thread(lease.lease.verify),
        }.items():
            print(f"  {name:36} {await a_call(what) * 1e6:8.1f} µs")


async def lag(directory: Path, count: int, seconds: float) -> None:
    """How late a loop is that holds *count* leases and does nothing else."""
    lags: list[float] = []

    async def beat() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - before - 0.001)

    held = [await aio.acquire(directory / f"lag-{number}", ttl=5.0) for number in range(count)]
    beating = asyncio.create_task(beat())
    await asyncio.sleep(seconds)
    beating.cancel()
    lags.sort()
    at = {share: lags[min(len(lags) - 1, int(len(lags) * share))] * 1e3 for share in (0.5, 0.99, 0.999, 1)}
    print(f"  {count:5,} leases   " + "   ".join(f"{share:.1%} {late:6.2f} ms" for share, late in at.items()))
    await asyncio.gather(*(lease.release() for lease in held))


async def idle(directory: Path, count: int, seconds: float) -> None:
    """What *count* tasks cost that wait for an owner who stays, in shares of a core; and how fast all are cancelled."""
    path = directory / "idle"
    reading, writing = os.pipe()
    owner = os.fork()
    if owner == 0:
        claim = ownership.acquire(path)
        os.write(writing, b".")
        time.sleep(3600)
        claim.release()
        os._exit(0)
    try:
        os.read(reading, 1)
        waiting: list[object] = []
        acquire = functools.partial(aio.acquire, path, timeout=None, on_wait=waiting.append)
        tasks = [asyncio.create_task(acquire()._open()) for _ in range(count)]
        while len(waiting) < count:
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        before, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        share = (time.process_time() - cpu) / (time.monotonic() - before)
        before = time.monotonic()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        took = time.monotonic() - before
        print(f"  {count:5,} waiters   {share:6.1%} of a core   cancelled in {took * 1e3:6.1f} ms")
    finally:
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        os.close(reading), os.close(writing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="a directory on a disk filesystem")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the loop is watched each time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        appending(Path(name), options.rounds)
        asyncio.run(awaiting(Path(name), options.rounds))
        print("\nhow late the loop is, beyond asyncio.sleep(0.001)")
        for count in (0, 1_000):
            asyncio.run(lag(Path(name), count, options.seconds))
        print("\ntasks that wait for an owner who stays")
        for count in (1, 100, 400):
            asyncio.run(idle(Path(name), count, options.seconds))


if __name__ == "__main__":
    main()
