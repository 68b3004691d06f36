"""``python -m tests.benchmarks.acquire``: acquire and release beside peers, takeover, waking, crowds, start-up."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import filelock
import portalocker

import ownership
from tests.benchmarks.timing import interleaved, spread, table


def uncontended(directory: Path, rounds: int) -> None:
    """acquire + release of one resource that nobody else wants, beside peers with a reused object."""
    native = filelock.FileLock(directory / "native.lock")
    strict = filelock.StrictSoftFileLock(directory / "strict.lock")
    soft = filelock.SoftFileLock(directory / "soft.lock")
    lease = filelock.SoftFileLease(directory / "lease.lock")
    porta = portalocker.Lock(directory / "porta.lock", timeout=0)
    pid = portalocker.PidFileLock(directory / "porta.pid", timeout=0)
    medians = interleaved(
        {
            "ownership.acquire": _ours(directory / "ours"),
            "filelock.FileLock": _cycle(native),
            "filelock.SoftFileLock": _cycle(soft),
            "filelock.SoftFileLease": _cycle(lease),
            "filelock.StrictSoftFileLock": _cycle(strict),
            "portalocker.Lock": _cycle(porta),
            "portalocker.PidFileLock": _cycle(pid),
        },
        calls=100,
        rounds=rounds,
    )
    table(f"acquire + release, uncontended, {_filesystem(directory)}", medians, "filelock.FileLock")
    print(f"  {'':34} {medians['ownership.acquire'] / medians['filelock.SoftFileLock']:29.2f} x filelock.SoftFileLock")


def _cycle(lock: object) -> Callable[[], None]:
    acquire: Callable[[], object] = lock.acquire  # type: ignore[attr-defined]
    release: Callable[[], object] = lock.release  # type: ignore[attr-defined]

    def cycle() -> None:
        acquire()
        release()

    return cycle


def _filesystem(directory: Path) -> str:
    found = subprocess.run(
        ["findmnt", "-n", "-o", "FSTYPE", "-T", directory], capture_output=True, text=True, check=False
    )
    return (found.stdout.split() or [str(directory)])[-1]


def verifying(directory: Path) -> None:
    """verify() of an untouched claim beside the one system call it cannot do without."""
    with ownership.acquire(directory / "verified") as claim:
        time.sleep(0.05)
        record = directory / ".leases" / "verified.json"
        medians = interleaved(
            {"claim.verify()": claim.verify, "os.stat of the record": lambda: os.stat(record)}, calls=2000, rounds=15
        )
    table("verify, nothing changed", medians, "os.stat of the record")


_OWNER = """
import ownership, sys, time
claim = ownership.acquire(sys.argv[1], timeout=60)
print(flush=True)
time.sleep(600)
"""
_WAITER = """
import ownership, sys, time
with ownership.acquire(sys.argv[1], timeout=60, on_wait=lambda error: print("waiting", flush=True)) as claim:
    print(time.monotonic(), flush=True)
    sys.stdin.readline()
"""


def _start(program: str, resource: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(resource)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def takeover(directory: Path, times: int) -> None:
    """From SIGKILL of an owner that nobody reaps to a waiting contender owning."""
    delays = []
    for number in range(times):
        resource = directory / f"takeover-{number}"
        owner = _start(_OWNER, resource)
        _line(owner)
        waiter = _start(_WAITER, resource)
        _line(waiter)
        time.sleep(0.02)
        killed = time.monotonic()
        owner.send_signal(signal.SIGKILL)
        delays.append(float(_line(waiter)) - killed)
        waiter.communicate("\n")
        owner.communicate()
    spread("SIGKILL, unreaped, to the next owner", delays)


def waking(directory: Path, times: int) -> None:
    """From release to a waiting contender owning."""
    delays = []
    for number in range(times):
        resource = directory / f"waking-{number}"
        claim = ownership.acquire(resource)
        waiter = _start(_WAITER, resource)
        _line(waiter)
        time.sleep(0.02)
        released = time.monotonic()
        claim.release()
        delays.append(float(_line(waiter)) - released)
        waiter.communicate("\n")
    spread("release to the next owner", delays)


_CROWD = """
import ownership, sys, time
print(flush=True)
sys.stdin.readline()
begin = time.monotonic()
with ownership.acquire(sys.argv[1], timeout=120):
    print(time.monotonic() - begin, flush=True)
    time.sleep(0.02)
"""


def crowd(directory: Path, size: int = 30) -> None:
    """Many waiters that hold 20 ms each: all served, and how unevenly."""
    waiters = [_start(_CROWD, directory / "crowd") for _ in range(size)]
    for waiter in waiters:
        _line(waiter)
    for waiter in waiters:
        assert waiter.stdin is not None
        waiter.stdin.write("\n")
        waiter.stdin.flush()
    waits = [float(_line(waiter)) for waiter in waiters]
    for waiter in waiters:
        waiter.communicate()
    mean = sum(waits) / len(waits)
    worst = max(waits) / mean
    print(f"  {size} waiters, 20 ms each: all served; mean wait {mean * 1e3:.0f} ms, worst {worst:.2f} x mean")


def neighbours(directory: Path, rounds: int) -> None:
    """acquire + release beside 10 and beside 10,000 other records."""
    subjects: dict[str, Callable[[], object]] = {}
    for count in (10, 10_000):
        place = directory / f"beside-{count}"
        place.mkdir()
        with ownership.acquire(place / "template"):
            text = (place / ".leases" / "template.json").read_bytes()
        for number in range(count):
            (place / ".leases" / f"other-{number}.json").write_bytes(text)
        subjects[f"beside {count:,} records"] = _ours(place / "ours")
    medians = interleaved(subjects, calls=100, rounds=rounds)
    table("acquire + release in a crowded directory", medians, "beside 10 records")


def _ours(resource: Path) -> Callable[[], object]:
    return lambda: ownership.acquire(resource).release()


# importing pydantic loads next to nothing of it: that comes with the first model that is defined
_ONE_MODEL = """
import pydantic, filelock, psutil
class Model(pydantic.BaseModel):
    number: int = 1
"""


def importing() -> None:
    """Starting an interpreter with the library, beside its dependencies alone, and leasectl beside the interpreter."""

    def run(*command: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)

    medians = interleaved(
        {
            "import pydantic, filelock, psutil": run("-c", "import pydantic, filelock, psutil"),
            "the same, one pydantic model defined": run("-c", _ONE_MODEL),
            "import ownership": run("-c", "import ownership"),
        },
        calls=1,
        rounds=15,
    )
    table("start-up", medians, "the same, one pydantic model defined", unit="ms")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "x")
        medians = interleaved(
            {
                "python -c pass": run("-c", "pass"),
                "leasectl run PATH -- true": run("-m", "leases.cli", "run", path, "--", "true"),
            },
            calls=1,
            rounds=15,
        )
    table("command line", medians, "python -c pass", unit="ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="a directory on a disk filesystem")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a directory on tmpfs")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--times", type=int, default=50)
    options = parser.parse_args()
    for base in (options.disk, options.memory):
        with tempfile.TemporaryDirectory(dir=base) as directory:
            uncontended(Path(directory), options.rounds)
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        directory_path = Path(name)
        verifying(directory_path)
        neighbours(directory_path, options.rounds)
        print("\nwaiting")
        takeover(directory_path, options.times)
        waking(directory_path, options.times)
        crowd(directory_path)
    importing()


if __name__ == "__main__":
    main()
