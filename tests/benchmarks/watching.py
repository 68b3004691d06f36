"""``python -m tests.benchmarks.watching``: fences and the keeper beside what a hand-rolled watch would call."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

import ownership
from ownership._clock import SYSTEM_CLOCK
from ownership._confirmations import Confirmations
from ownership._process import LinuxProcesses, ProcessTable
from ownership._sentry import Sentry
from tests.benchmarks.timing import interleaved, spread, table

_OWNER = """
import ownership, sys
claims = [ownership.acquire(path) for path in sys.argv[1:]]
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(*paths: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that owns *paths* until it is ended."""
    command = [sys.executable, "-c", _OWNER, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def reference(path: Path) -> ownership.OwnerRef:
    found = ownership.inspect(path).ref
    assert found is not None
    return found


def ticking(directory: Path) -> None:
    """One round of a fence in steady state, the poll of its pidfd included, beside the peers."""
    path = directory / "ticked"
    with owner(path) as process:
        ref, pid, record = reference(path), process.pid, str(directory / ".leases" / "ticked.json")
        processes = ownership._fence.system_processes()  # type: ignore[attr-defined]
        sentry = Sentry(ref, 1e9, SYSTEM_CLOCK, processes, Confirmations(processes))
        time.sleep(0.1)
        sentry.look()
        sentry.look()
        peer = psutil.Process(pid)

        def kill_and_stat() -> None:
            os.kill(pid, 0)
            os.stat(record)

        def tick() -> None:
            processes.has_ended(sentry.handle)
            sentry.look()

        medians = interleaved(
            {
                "os.kill(pid, 0) + os.stat(record)": kill_and_stat,
                "fence, one round": sentry.look,
                "fence, one round + poll of its pidfd": tick,
                "psutil is_running()": peer.is_running,
                "psutil status()": peer.status,
            },
            calls=500,
            rounds=15,
        )
        sentry.close()
    table("one look at an owner", medians, "os.kill(pid, 0) + os.stat(record)")


def load(title: str, seconds: float) -> None:
    """Print what this process costs while nothing but the keeper's thread works."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    time.sleep(seconds)
    after, spent = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begun
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    threads = threading.active_count() - 1
    print(f"  {title:58} {used / spent * 100:6.2f} % of a core, {threads} thread(s) besides the main one")


def many_fences(directory: Path, seconds: float) -> None:
    paths = [directory / f"fenced-{number}" for number in range(200)]
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(owner(path))
        for path in paths:
            stack.enter_context(ownership.Fence(reference(path)))
        time.sleep(1)
        load("200 fences of 200 owners", seconds)


def many_claims(directory: Path, seconds: float, count: int = 10_000) -> None:
    claims = [ownership.acquire(directory / f"claim-{number}") for number in range(count)]
    time.sleep(6)
    load(f"keeper, {count} claims, quiet directory", seconds)
    for notify in (True, False):
        ownership._keeper.KEEPER._rounds = ownership._keeper.Rounds(notify=notify)  # type: ignore[attr-defined]
        time.sleep(1)
        with foreign_acquires(directory / "foreign"):
            load(f"the same, a foreign acquire every tick, {'inotify' if notify else 'without inotify'}", seconds)
    for claim in claims:
        claim.release()


@contextmanager
def foreign_acquires(path: Path) -> Iterator[None]:
    body = "import ownership, sys, time\nwhile True: ownership.acquire(sys.argv[1]).release(); time.sleep(0.25)"
    with subprocess.Popen([sys.executable, "-c", body, str(path)]) as process:
        try:
            time.sleep(1)
            yield
        finally:
            process.kill()


def trips(
    directory: Path, rounds: int, title: str, processes: Callable[[], ProcessTable | None], **given: float
) -> None:
    """From SIGKILL of an owner that nobody reaps to the tripped fence."""
    waits = []
    for number in range(rounds):
        path = directory / f"{title.split()[0]}-{number}"
        with owner(path) as process, ownership.Fence(reference(path), processes=processes(), **given) as fence:  # type: ignore[arg-type]
            time.sleep(0.3 + 0.05 * (number % 7))
            begun = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            assert fence.wait(30)
            waits.append(time.monotonic() - begun)
    spread(f"SIGKILL to tripped fence, {title}", waits)


def losses(directory: Path, rounds: int) -> None:
    waits, returns = [], []
    for number in range(rounds):
        with ownership.acquire(directory / "lost") as claim:
            time.sleep(0.05 + 0.037 * (number % 7))
            begun = time.monotonic()
            ownership.break_claim(directory / "lost", token=claim.token)
            assert claim.lost.wait(5)
            waits.append(time.monotonic() - begun)
        record = directory / ".leases" / "swept.json"
        with ownership.acquire(directory / "swept"):
            time.sleep(0.05 + 0.037 * (number % 7))
            record.unlink()
            begun = time.monotonic()
            while not record.exists():
                time.sleep(0.001)
            returns.append(time.monotonic() - begun)
    spread("break to claim.lost", waits)
    spread("record deleted to record back", returns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="of every measurement of load")
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        directory = Path(name)
        ticking(directory)
        print("\nthe thread of a process")
        many_fences(directory, given.seconds)
        many_claims(directory, given.seconds)
        print("\nhow soon it is known")
        trips(directory, given.rounds, "pidfd", lambda: None)
        trips(directory, given.rounds, "held /proc descriptor", lambda: LinuxProcesses(pidfd=False))
        bare = max(2, given.rounds // 5)
        trips(directory, bare, "bare signal 0 (confirm_interval 5 s)", lambda: Bare(pidfd=False))
        losses(directory, given.rounds)


class Bare(LinuxProcesses):
    """Without a descriptor of the process: only its number."""

    def open_stat(self, pid: int, start_id: str) -> int | None:
        return None


if __name__ == "__main__":
    main()
