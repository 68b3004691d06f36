"""Waiting for a fact, bounded, instead of sleeping for a guess."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(predicate: Callable[[], object], timeout: float = 10.0) -> None:
    """Return as soon as *predicate* is true; an AssertionError if it is not within *timeout* seconds."""
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, f"{predicate} was not true within {timeout:g} s"
        time.sleep(0.005)
