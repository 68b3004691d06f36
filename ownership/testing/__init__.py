"""For the tests of programs that use this library: fakes that obey, and real processes in awkward states."""

from ownership._process import ProcessState
from ownership.testing._clock import FakeClock
from ownership.testing._processes import FakeProcessTable
from ownership.testing._real import reuse_pid, sleeping_process, stopped_process, wait_until, zombie

__all__ = [
    "FakeClock",
    "FakeProcessTable",
    "ProcessState",
    "reuse_pid",
    "sleeping_process",
    "stopped_process",
    "wait_until",
    "zombie",
]
