"""An owner is killed and not even reaped; the next one takes over at once.

Two real processes want one resource. The first owns it, the second is refused and told by whom. Then the first is
killed and stays an unreaped zombie, which a pid file with ``kill(pid, 0)`` would take for alive; the second takes over.

    python examples/takeover.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ownership

STARTED = time.perf_counter()


def own(resource: Path) -> None:
    """The first process: own the resource, say so, and work until killed."""
    with ownership.acquire(resource, labels={"example": "takeover"}) as claim:
        print(claim.token, flush=True)
        sys.stdin.read()


def tell(who: str, what: str) -> None:
    print(f"{(time.perf_counter() - STARTED) * 1000:8.1f} ms  {who:<22} {what}", flush=True)


def take_over(resource: Path, owner: subprocess.Popen[str]) -> None:
    """The second process: be refused by a live owner, and take over from a dead one."""
    us = f"second (pid {os.getpid()})"
    assert owner.stdout is not None
    before = int(owner.stdout.readline())
    tell(f"first (pid {owner.pid})", f"owns {resource.name} with token {before}")

    try:
        ownership.acquire(resource)
    except ownership.AlreadyOwnedError as refused:
        tell(us, f"refused: {refused}")
        tell(us, f"hint: {refused.hint}")

    owner.kill()
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # it has ended; WNOWAIT leaves it a zombie
    seen = ownership.inspect(resource)
    tell(f"first (pid {owner.pid})", f"killed, not reaped; verdict {seen.verdict}: {seen.reason}")

    began = time.perf_counter()
    with ownership.acquire(resource) as claim:
        took = (time.perf_counter() - began) * 1000
        tell(us, f"took over in {took:.1f} ms; verdict {ownership.inspect(resource).verdict}")
        tell(us, f"token before {before}, after {claim.token}")
        assert claim.token > before, "a fencing token never goes back"
    tell(us, f"released; verdict {ownership.inspect(resource).verdict}")


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        resource = Path(directory, "app.sock")
        first = [sys.executable, __file__, str(resource)]
        with subprocess.Popen(first, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
            try:
                take_over(resource, owner)
            finally:
                owner.kill()
                owner.wait()
        tell(f"first (pid {owner.pid})", f"reaped at last, ended by {signal.Signals(-owner.returncode).name}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2:
        own(Path(sys.argv[1]))
    else:
        sys.exit(main())
