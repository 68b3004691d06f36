"""``python -m tests.benchmarks.leasing``: leases beside a peer's; what keeping many of them costs."""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import filelock

import leases
import ownership
from tests.benchmarks.timing import interleaved, table


def uncontended(directory: Path, rounds: int) -> None:
    """acquire + release of one lease that nobody else wants."""
    peer = filelock.SoftFileLease(directory / "peer.lock")

    def cycle() -> None:
        peer.acquire()
        peer.release()

    medians = interleaved(
        {
            "ownership.acquire": lambda: ownership.acquire(directory / "plain").release(),
            "ownership.acquire(ttl=30)": lambda: ownership.acquire(directory / "leased", ttl=30.0).release(),
            "leases.acquire(ttl=30)": lambda: leases.acquire(directory / "lease", ttl=30.0).release(),
            "filelock.SoftFileLease": cycle,
        },
        calls=100,
        rounds=rounds,
    )
    table("acquire + release of a lease, uncontended", medians, "filelock.SoftFileLease")


def calls(directory: Path) -> None:
    """What is done with a lease that is held."""
    gate = leases.Gate(directory / "gate")
    with (
        leases.acquire(directory / "x", ttl=30.0) as lease,
        leases.acquire(directory / "y", ttl=30.0, auto_renew=False) as by_hand,
    ):
        time.sleep(0.05)
        lease.verify()

        def section() -> None:
            with lease.critical():
                pass

        subjects: dict[str, Callable[[], object]] = {
            "verify()": lease.verify,
            "renew()": lease.renew,
            "renew(), auto_renew=False": by_hand.renew,
            "with critical()": section,
            "expires_in": lambda: lease.expires_in,
            "gate.check()": gate.check,
        }
        table("of a lease that is held", interleaved(subjects, calls=200, rounds=15), "verify()")


def keeping(directory: Path, count: int, seconds: float) -> None:
    """Processor time of the keeper, and memory, with *count* leases held."""
    place = directory / str(count)
    place.mkdir()
    before = _memory()
    held = [ownership.acquire(place / str(number), ttl=30.0) for number in range(count)]
    memory = (_memory() - before) / count
    time.sleep(1.0)  # what was acquired is looked at once
    used, begun = time.process_time(), time.monotonic()
    time.sleep(seconds)
    share = (time.process_time() - used) / (time.monotonic() - begun)
    each = f"{memory / 1024:6.2f} KiB a lease" if count > 1 else ""
    print(f"  {count:6,} leases   {share * 100:5.2f} % of a core   {each}")
    for claim in held:
        claim.release()


def _memory() -> float:
    """Bytes resident at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="a directory on a disk filesystem")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the keeper is watched each time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        directory = Path(name)
        print("\nthe keeper, with leases held")
        for count in (1, 100, 10_000):
            keeping(directory, count, options.seconds)
        uncontended(directory, options.rounds)
        calls(directory)


if __name__ == "__main__":
    main()
