"""What is held while no child may be forked: it would have a copy of something half done, which nobody there ends."""

from __future__ import annotations

import threading

gate = threading.RLock()  # another one in every child: to be looked up where it is used


def renew() -> None:
    """In a forked child: whoever held it is not there."""
    global gate
    gate = threading.RLock()
