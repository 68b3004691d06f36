"""Medians of interleaved rounds, so that whatever else the machine does hits everybody alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(subjects: Mapping[str, Callable[[], object]], *, calls: int, rounds: int) -> dict[str, float]:
    """Median seconds a call of each subject, over *rounds* rounds of *calls* calls."""
    spent: dict[str, list[float]] = {name: [] for name in subjects}
    for subject in subjects.values():
        subject()
    for _ in range(rounds):
        for name, subject in subjects.items():
            begin = time.perf_counter()
            for _ in range(calls):
                subject()
            spent[name].append((time.perf_counter() - begin) / calls)
    return {name: statistics.median(times) for name, times in spent.items()}


def table(title: str, medians: Mapping[str, float], base: str, *, unit: str = "µs") -> None:
    """Print *medians* with their ratio to *base*."""
    scale = {"µs": 1e6, "ms": 1e3}[unit]
    print(f"\n{title}")
    for name, seconds in medians.items():
        print(f"  {name:34} {seconds * scale:10.1f} {unit}   {seconds / medians[base]:6.2f} x {base}")


def spread(title: str, seconds: list[float]) -> None:
    """Print median, 95th percentile and worst of *seconds*."""
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    print(
        f"  {title:44} median {statistics.median(ordered) * 1e3:7.2f} ms   "
        f"95% {late * 1e3:7.2f} ms   worst {ordered[-1] * 1e3:7.2f} ms   ({len(ordered)} times)"
    )
