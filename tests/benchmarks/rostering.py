"""``python -m tests.benchmarks.rostering``: a roster of 100,000 tasks loaded; what beginning and ending one costs."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import leases
from leases._roster_lines import FINISHED, RUNNING, State
from tests.benchmarks.timing import interleaved, spread, table


def written(path: Path, count: int, *, ends: bool) -> None:
    """A roster of *count* tasks as one driver leaves it that ends them all but one in a hundred, or none."""
    roster = leases.Roster(path)
    first = roster.start("first").token
    by = roster.task("first").owner
    assert by is not None
    now = time.time()
    with path.open("ab") as file:
        for number in range(count - 1):
            state = State(f"job-{number:06d}", first, by.instance_id, RUNNING, "", {"input": number}, now, now)
            file.write(state.line)
            if ends and number % 100:
                file.write(state._replace(state=FINISHED, status="done").line)


def loading(directory: Path, count: int, rounds: int) -> None:
    """restore() by a new process's first look, and the next one."""
    for ends, told in ((False, "all unfinished, a line each"), (True, "99 % finished, two lines each")):
        path = directory / f"{count}-{ends}"
        written(path, count, ends=ends)
        first, again = [], []
        for _ in range(rounds):
            roster = leases.Roster(path)
            begun = time.perf_counter()
            found = roster.restore()
            first.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            roster.restore()
            again.append(time.perf_counter() - begun)
            assert sum(map(len, found)) == count
        print(f"  {told}, {path.stat().st_size / 1e6:.1f} MB")
        spread("    restore(), first look", first)
        spread("    restore(), next look", again)
        begun = time.perf_counter()
        leases.Roster(path).compact()
        print(f"    compact() {time.perf_counter() - begun:.2f} s, then {path.stat().st_size / 1e6:.1f} MB")


def changing(directory: Path, rounds: int) -> None:
    """What a driver pays, each call on the disk when it returns; and what the disk alone takes."""
    roster = leases.Roster(directory / "changed")
    task, plain = roster.start("task"), os.open(directory / "plain", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    line = b"x" * 200 + b"\n"
    names = iter(range(10_000_000))

    def append() -> None:
        os.write(plain, line)
        os.fsync(plain)

    medians = interleaved(
        {
            "write + fsync of one line": append,
            "task.update()": lambda: task.update("on its way"),
            "roster.start() + finish()": lambda: roster.start(f"one-{next(names)}").finish(),
            "roster.task()": lambda: roster.task("task"),
        },
        calls=20,
        rounds=rounds,
    )
    table("one roster, one process", medians, "write + fsync of one line")
    os.close(plain)


def noticing(directory: Path, rounds: int) -> None:
    """SIGKILL of a driver that nobody reaps, to the follower that knows."""
    roster, taken = leases.Roster(directory / "followed"), []
    context = multiprocessing.get_context("fork")
    for number in range(rounds):
        began = context.Event()
        driver = context.Process(target=_drive, args=(str(directory / "followed"), f"task-{number}", began))
        driver.start()
        began.wait(60)
        following = roster.follow(f"task-{number}")
        assert driver.pid is not None
        begun = time.perf_counter()
        os.kill(driver.pid, signal.SIGKILL)
        assert following.wait(60).state == "lost"
        taken.append(time.perf_counter() - begun)
        driver.join()
    print("\nfollowing")
    spread("SIGKILL of a driver, to its task being lost", taken)
    assert statistics.median(taken) < 10


def _drive(path: str, name: str, began: object) -> None:
    leases.Roster(path).start(name)
    began.set()  # type: ignore[attr-defined]
    signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="a directory on a disk filesystem")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        directory = Path(name)
        print(f"\na roster of {options.tasks:,} tasks")
        loading(directory, options.tasks, options.rounds)
        changing(directory, options.rounds)
        noticing(directory, options.rounds)


if __name__ == "__main__":
    main()
