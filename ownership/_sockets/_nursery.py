"""Children that were started to serve on their own: each reaped when it ends, by a thread that does nothing else."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ownership._log import log, tell

if TYPE_CHECKING:
    from subprocess import Popen

_POLL = 0.25  # seconds between two looks whether it is settled


def look_after(
    child: Popen[bytes], settled: Callable[[], bool] = lambda: True, done: Callable[[], object] = lambda: None
) -> None:
    """Have *child* reaped when it ends; and *done* called once, when *settled* says so or it has ended."""
    thread = threading.Thread(target=_attend, args=(child, settled, done), name="ownership-nurse", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # it stays a zombie until we end, which blocks nobody
        tell(log.warning, "pid %d will not be reaped: %s", child.pid, error)
        done()


def _attend(child: Popen[bytes], settled: Callable[[], bool], done: Callable[[], object]) -> None:
    if hasattr(signal, "pthread_sigmask"):  # signals are for the program's own threads
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        while child.poll() is None and not settled():
            time.sleep(_POLL)
        done()
    except Exception:
        tell(log.exception, "looking after pid %d", child.pid)
    child.wait()
