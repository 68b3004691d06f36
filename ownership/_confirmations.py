"""Full-strength looks at processes, shared by everybody in this process who needs one that is recent enough."""

from __future__ import annotations

from ownership._process import ProcessObservation, ProcessTable

_MOST = 1024
_STALE = 60.0  # seconds


class Confirmations:
    """What a full look at each process showed, for as long as it may be believed.

    :param processes: who is asked
    :param most: answers that are kept; the oldest go first
    """

    def __init__(self, processes: ProcessTable, *, most: int = _MOST) -> None:
        self._processes = processes
        self._most = most
        self._kept: dict[tuple[int, str], tuple[float, ProcessObservation]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def observe(self, pid: int, start_id: str, now: float, *, age: float) -> ProcessObservation:
        """A look at *pid* that is less than *age* seconds old.

        :param start_id: whom the number was given to when the question arose
        :param now: seconds of the monotonic clock
        """
        key = (pid, start_id)
        known = self._kept.get(key)
        if known is not None and 0 <= now - known[0] < age:
            return known[1]
        observation = self._processes.observe(pid)
        self._insert(key, now, observation, age)
        return observation

    def _insert(self, key: tuple[int, str], now: float, observation: ProcessObservation, age: float) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (now, observation)  # the last one: they are in the order of their times
        for oldest, (at, _) in list(self._kept.items()):
            if len(self._kept) <= self._most and now - at <= max(age, _STALE):
                break
            self._kept.pop(oldest, None)  # another thread may be at it too
