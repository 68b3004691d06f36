"""Workers stop when their supervisor is replaced or dies, without being asked and without asking anybody.

A supervisor owns a resource and starts two workers; each puts a fence over it. First the supervisor is evicted while it
lives: it learns of it, and so do the workers that it had. Then a second supervisor is killed and not even reaped.

    python examples/worker.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ownership

STARTED = time.perf_counter()


def tell(who: str, what: str) -> None:
    print(f"{(time.perf_counter() - STARTED) * 1000:8.1f} ms  {who:<28} {what}", flush=True)


def supervise(resource: Path) -> None:
    """Own the resource and wait to be told that it is over."""
    with ownership.acquire(resource) as claim:
        print(claim.token, flush=True)
        claim.lost.wait()
        print(f"lost it: {_loss(claim)}", flush=True)
        sys.stdin.read()


def _loss(claim: ownership.Claim) -> str:
    try:
        claim.verify()
    except ownership.OwnershipLostError as lost:
        return lost.reason
    return "not at all"


def work_in_threads() -> None:
    """A worker that checks its fence before every piece of work."""
    with ownership.Fence(ownership.OwnerRef.from_env()) as fence:
        print("working", flush=True)
        try:
            while True:
                fence.check()  # before whatever must not be done for an owner that was replaced
                fence.wait(timeout=0.05)  # the work: over at once when the fence trips
        except ownership.FenceTrippedError as tripped:
            print(f"stopped: {tripped.reason}", flush=True)


async def work_in_tasks() -> None:
    """An asynchronous worker: the fence cancels its tasks, and one error leaves."""
    try:
        async with ownership.Fence(ownership.OwnerRef.from_env()), asyncio.TaskGroup() as tasks:
            print("working", flush=True)
            tasks.create_task(asyncio.sleep(3600))
            tasks.create_task(asyncio.sleep(3600))
    except ownership.FenceTrippedError as tripped:
        print(f"stopped: {tripped.reason}", flush=True)


@contextlib.contextmanager
def started(*arguments: object, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def play(resource: Path, *, kill: bool) -> None:
    with started("supervise", resource) as supervisor:
        token = int(heard(supervisor))
        tell(f"supervisor (pid {supervisor.pid})", f"owns {resource.name} with token {token}")
        owner = ownership.inspect(resource).ref
        assert owner is not None
        with started("threads", env=owner.to_env()) as first, started("tasks", env=owner.to_env()) as second:
            for worker in (first, second):
                tell(f"worker (pid {worker.pid})", heard(worker))
            if kill:
                supervisor.kill()
                tell(f"supervisor (pid {supervisor.pid})", "killed, not reaped")
            else:
                ownership.break_claim(resource, token=token)
                tell("an operator", "broke its claim")
                tell(f"supervisor (pid {supervisor.pid})", heard(supervisor))
            for worker in (first, second):
                said = heard(worker)
                tell(f"worker (pid {worker.pid})", said)
                assert said == f"stopped: {'owner-gone' if kill else 'broken'}", said


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        play(Path(directory, "app.sock"), kill=False)
        play(Path(directory, "app.sock"), kill=True)
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["supervise", path]:
            supervise(Path(path))
        case ["threads"]:
            work_in_threads()
        case ["tasks"]:
            asyncio.run(work_in_tasks())
        case _:
            sys.exit(main())
