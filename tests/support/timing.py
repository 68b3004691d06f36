"""Times on machines that are shared: one slow moment says nothing, a slow way of doing it is slow every time."""

from __future__ import annotations

from collections.abc import Callable

_ROUNDS = 8


def assert_at_best(seconds: float, measured: Callable[[], float]) -> None:
    """At least one of some rounds took less than that many seconds.

    :param measured: makes one round, checks what has to be true of it, and tells how many seconds it took
    """
    took: list[float] = []
    while not took or took[-1] >= seconds:
        assert len(took) < _ROUNDS, took
        took.append(measured())
