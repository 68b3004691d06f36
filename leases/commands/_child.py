"""CMD: started so that it cannot outlive us, attended until it is reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from leases.commands._failure import CommandError
from leases.commands._output import printable, say
from leases.commands._signals import Inbox
from ownership import LossError, OwnerRef, OwnershipError, StopRequest

TICK = 0.25  # seconds between two looks at the claim
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_SET_DEATH_SIGNAL, _GET_DEATH_SIGNAL = 1, 2  # PR_SET_PDEATHSIG, PR_GET_PDEATHSIG: prctl(2)


class Held(Protocol):
    """What is held while CMD runs: a claim, or a gate."""

    @property
    def ref(self) -> OwnerRef:
        """Whom CMD works for."""

    @property
    def stop_request(self) -> StopRequest | None:
        """Who asks us to go."""

    def verify(self) -> None:
        """Raise a LossError if it is held no more."""


def attend(command: Sequence[str], claim: Held, signals: Inbox, grace: float) -> tuple[int, LossError | None]:
    """Run *command* until it has ended and was reaped, passing signals on; its exit code, and whether we lost *claim*.

    It finds in ``LEASES_OWNER`` whom it works for. Once *claim* is lost it gets TERM and, *grace* seconds later, KILL.
    When somebody asks us to go it gets TERM, once: to go on is its own decision, and to stop us that of whoever asks.

    :raises CommandError: it cannot be started
    """
    with started(command, signals, {**os.environ, **claim.ref.to_env()}) as child:
        loss, patience, asked = None, float("inf"), False
        while child.poll() is None:
            received = signals.next(min(TICK, max(0.0, patience - time.monotonic())))
            if received is not None and not (received.typed and _shares_our_group(child)):
                child.send_signal(received.number)
            if loss is None and (loss := loss_of(claim)) is not None:
                say(f"{loss}; ending pid {child.pid} ({printable(command[0])})")
                child.terminate()
                patience = time.monotonic() + grace
            elif time.monotonic() >= patience:
                child.kill()
                patience = float("inf")
            elif not asked and loss is None and (request := claim.stop_request) is not None:
                asked = True
                why = f": {printable(request.reason)}" if request.reason else ""
                say(f"pid {request.pid} asks us to go{why}; ending pid {child.pid} ({printable(command[0])})")
                child.terminate()
    if loss is None and (loss := loss_of(claim)) is not None:
        say(str(loss))
    code = child.returncode
    return (128 - code if code < 0 else code), loss


def loss_of(claim: Held) -> LossError | None:
    """Why *claim* is lost, by looking. What cannot be told is no loss."""
    try:
        claim.verify()
    except LossError as loss:
        return loss
    except (OSError, OwnershipError):
        pass
    return None


def _shares_our_group(child: subprocess.Popen[bytes]) -> bool:
    try:
        return os.getpgid(child.pid) == os.getpgrp()
    except ProcessLookupError:
        return True  # it has ended


@contextlib.contextmanager
def started(command: Sequence[str], signals: Inbox, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """CMD with our streams, directory and inherited descriptors; killed and reaped if it is left running.

    :raises CommandError: it cannot be started
    """
    tie = death_tie()
    if tie is None:
        say("this system cannot tie CMD to leasectl: if leasectl is killed, CMD goes on without owning")

    def prepare() -> None:  # in the child, before exec
        if tie is not None:
            tie()
        signals.leave()

    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of fork with threads: ours hold no lock then, and the child only makes system calls
            warnings.simplefilter("ignore", DeprecationWarning)
            # descriptors that were inherited are CMD's (jobserver, activation); ours are all close-on-exec
            child = subprocess.Popen(command, preexec_fn=prepare, close_fds=False, env=env)
    except OSError as error:
        raise cannot_run(command, error) from error
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def cannot_run(command: Sequence[str], error: OSError) -> Exception:
    """What exec's *error* means, in the exit codes of shells; other errors stay what they are."""
    if error.filename is None:  # fork failed
        return error
    name = printable(command[0])
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return CommandError(f"{name}: not found", NOT_FOUND, "give its path, or check PATH; nothing is owned now")
    return CommandError(f"{name}: {error.strerror}", NOT_EXECUTABLE, "nothing is owned now")


def death_tie() -> Callable[[], None] | None:
    """What a forked child calls so that it is killed when this thread of ours ends; ``None`` where nothing does that.

    Not guaranteed: for a child that changes its account, set-user-ID programs included, since the kernel unties it
    then; for descendants of the child.
    """
    import ctypes  # only here, and before fork: nothing is looked up in the child

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError, TypeError):
        return None
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
    present = ctypes.c_int()
    if prctl(_GET_DEATH_SIGNAL, ctypes.addressof(present), 0, 0, 0) != 0:
        return None
    parent = os.getpid()

    def tie() -> None:
        prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel was told
            os.kill(os.getpid(), signal.SIGKILL)

    return tie
