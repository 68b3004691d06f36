"""The end of one process: waited for by whatever the system has for it, and believed when a full look confirms it."""

from __future__ import annotations

import math
from functools import partial

from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._process import Comparison, ProcessState, ProcessTable, compare_start_ids
from ownership._watch import Watch

POLL = 0.25  # seconds between looks at a process that has no handle here
_SAFETY = 2.0  # seconds between looks at one whose handle is watched


def has_ended(processes: ProcessTable, pid: int, start_id: str) -> bool:
    """Whether that very process has certainly ended: gone, a zombie, or its number is another one's."""
    seen = processes.observe(pid)
    if seen.exists is False:
        return True
    same = Comparison.UNKNOWN if seen.start_id is None else compare_start_ids(start_id, seen.start_id)
    return same is Comparison.DIFFERENT or (same is Comparison.SAME and seen.state is ProcessState.ZOMBIE)


class Ending:
    """Waits for the end of one process.

    Woken by its pidfd, else by what psutil has (kqueue, a handle of Windows), else by looking every *poll* seconds.

    :param poll: seconds between two looks where nothing wakes
    """

    def __init__(
        self, processes: ProcessTable, pid: int, start_id: str, *, clock: Clock = SYSTEM_CLOCK, poll: float = POLL
    ) -> None:
        self._processes = processes
        self._pid = pid
        self._start_id = start_id
        self._clock = clock
        self._poll = poll
        self._watch = Watch()
        self._gone = False
        try:
            self._watched = self._watch.process(partial(processes.open_handle, pid, start_id))
        except ProcessLookupError:
            self._gone, self._watched = True, False

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has ended, at most *timeout* seconds from now.

        :param timeout: seconds; ``None`` for ever
        """
        deadline = math.inf if timeout is None else self._clock.monotonic() + timeout
        while not self._gone:
            self._gone = has_ended(self._processes, self._pid, self._start_id)
            left = deadline - self._clock.monotonic()
            if self._gone or left <= 0:
                break
            if not self._watched:
                self._clock.wait(min(left, self._poll), partial(self._processes.linger, self._pid))
            elif self._clock.wait(min(left, _SAFETY), self._watch):
                self._gone = has_ended(self._processes, self._pid, self._start_id)
                if not self._gone:  # woken for nothing: not again
                    self._watch.forget_process()
                    self._watched = False
        return self._gone

    def close(self) -> None:
        """Wait no more."""
        self._watch.close()
