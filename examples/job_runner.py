"""A job runner that is killed in the middle and goes on where it was: nothing is done twice, nothing is forgotten.

The runner keeps a roster of its jobs. It is killed with SIGKILL in the middle of one; the next runner finds what is
finished, what is lost, and takes the lost job over from its last checkpoint. Whoever started both follows that job, and
is told of both ends.

    python examples/job_runner.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import leases

JOBS = ("extract", "transform", "load", "report")
STEPS = 4
STARTED = time.perf_counter()


def tell(who: str, what: str) -> None:
    print(f"{(time.perf_counter() - STARTED) * 1000:8.1f} ms  {who:<22} {what}", flush=True)


def run(path: Path, *, hang_in: str = "") -> None:
    """Do every job that is not finished yet, whoever had begun it."""
    roster = leases.Roster(path)
    found = roster.restore()
    known = {task.name: task for task in (*found.running, *found.lost, *found.finished)}
    for name in JOBS:
        if name not in known:
            job = roster.start(name, data={"step": 0})
        elif known[name].state == "lost":
            job = roster.claim_lost(name)
            print(f"takes over {name} at step {known[name].data['step']}", flush=True)
        else:
            continue  # finished, or another runner has it
        with job:  # finished as done at the end of the block, as failed if it raises
            for step in range((job.before.data["step"] if job.before else 0) + 1, STEPS + 1):
                job.update(f"step {step} of {STEPS}", data={"step": step})  # on the disk before we go on
                if name == hang_in and step == STEPS // 2:
                    print(f"in the middle of {name}", flush=True)
                    time.sleep(3600)
        print(f"finished {name}", flush=True)


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def play(path: Path) -> None:
    roster = leases.Roster(path)
    with started("run", path, "transform") as first:
        assert first.stdout is not None
        for line in first.stdout:
            tell(f"runner (pid {first.pid})", line.strip())
            if line.startswith("in the middle"):
                break
        following = roster.follow("transform")
        first.kill()
        lost = following.wait(60)
        tell("follower", f"{lost.name} is {lost.state}: {lost.reason}; it said {lost.status!r}")
        assert (lost.state, lost.data) == ("lost", {"step": 2})
        with started("run", path) as second:
            assert second.stdout is not None
            for line in second.stdout:
                tell(f"runner (pid {second.pid})", line.strip())
    ended = roster.wait("transform", 60)
    tell("follower", f"{ended.name} is {ended.state}: {ended.status}, token {lost.token} -> {ended.token}")
    assert ended.state == "finished"
    assert ended.token > lost.token
    assert len(roster.restore().finished) == len(JOBS)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        play(Path(directory, "jobs.roster"))
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", path, *hang_in]:
            run(Path(path), hang_in="".join(hang_in))
        case _:
            sys.exit(main())
