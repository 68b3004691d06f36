"""Whether this is still the process in which a call began: a signal handler may fork in its middle, and return in both.

The count is compared right before what must be done once only, with no call in between: no signal handler runs there.
"""

from __future__ import annotations

import os

count = 0  # forks that lead to this process


def _forked() -> None:
    global count
    count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
