"""What stopping somebody came to, as values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

Scope = Literal["group", "process"]


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal that was sent and accepted by the kernel.

    :ivar when: by the wall clock, in UTC
    :ivar after: seconds since the call began, by the monotonic clock
    :ivar signal: its name, ``SIGTERM`` for instance
    :ivar target: whether it went to a process ``group`` or to a single ``process``
    :ivar number: of that group or process
    """

    when: dt.datetime
    after: float
    signal: str
    target: Scope
    number: int


@dataclass(frozen=True, slots=True)
class Survivor:
    """A process that is left.

    :ivar start_id: ``None`` when it cannot be read
    :ivar state: what it is doing: ``running``, ``stopped``, ``traced``, ``frozen``, ``dumping`` or ``unknown``
    :ivar command: its command line, ``None`` when it cannot be read
    """

    pid: int
    start_id: str | None
    state: str
    command: str | None


@dataclass(frozen=True, slots=True)
class StopReport:
    """What :func:`ownership.stop` did.

    :ivar scope: ``group``, the owner's process group, or ``process``, the owner's process alone
    :ivar signalled: every signal that was sent, in order; empty when nobody was left from the start
    :ivar survivors: who is known to be left
    :ivar gone: the owner's process is over and, if ``scope`` is ``group``, nobody of its group lives
    :ivar took: seconds from the call to this report
    """

    scope: Scope
    signalled: tuple[SentSignal, ...]
    survivors: tuple[Survivor, ...]
    gone: bool
    took: float
