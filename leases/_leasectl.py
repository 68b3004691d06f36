"""``leasectl`` as it is installed: a module of its own, so that an interrupt is understood before anything is imported.

Importing takes most of the time of a short command, and an exception in the middle of it would be told in all kinds of
ways. Nothing has begun by then, so that there is nothing to put in order.
"""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def main() -> int:
    """Run ``leasectl`` with the arguments of this process; the exit code."""
    try:
        import signal

        known = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us ignores it
        if known:
            signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
        from leases.cli import main as run

        if known:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is done: nothing is left to interrupt but Python's own end
        return code
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
