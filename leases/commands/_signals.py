"""Signals for a program that stands in front of another one: received one by one, to be passed on."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_KEYS = (signal.SIGINT, getattr(signal, "SIGQUIT", None))
_FROM_KERNEL = 0x80  # SI_KERNEL, sigaction(2): nobody called kill(2)


@dataclass(frozen=True, slots=True)
class Received:
    """One signal.

    :ivar typed: the terminal sent it, and to the whole foreground process group at once
    """

    number: int
    typed: bool = False


class Inbox(Protocol):
    def next(self, seconds: float) -> Received | None:
        """The next signal, waiting at most *seconds*; ``None`` also when a child may have ended."""

    def leave(self) -> None:
        """In a forked child: let signals through, to do what they did before, or what they do after exec."""


def inbox() -> contextlib.AbstractContextManager[Inbox]:
    """Receive signals instead of what they would do. For the main thread.

    Without ``sigtimedwait(2)`` (macOS) who sent a signal is not known: one that was typed is passed on although the
    terminal has sent it to the whole group.
    """
    return _blocked() if hasattr(signal, "sigtimedwait") else _handled()


@dataclass(frozen=True, slots=True)
class _Blocked:
    """Signals stay pending until they are asked for: none is lost, none interrupts.

    The time is up when our own SIGALRM arrives: ``signal.sigtimedwait`` of CPython 3.11 makes up a signal when it was
    interrupted, by SIGCONT for instance, after its time was up.
    """

    watched: frozenset[int]
    before: set[int | signal.Signals]
    ignored: tuple[int, ...]

    def next(self, seconds: float) -> Received | None:
        if seconds > 0:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            found = signal.sigwaitinfo(self.watched)
            signal.setitimer(signal.ITIMER_REAL, 0)
        elif (pending := signal.sigtimedwait(self.watched, 0)) is not None:
            found = pending
        else:
            return None
        if found.si_signo in (signal.SIGCHLD, signal.SIGALRM):
            return None
        return Received(found.si_signo, found.si_signo in _KEYS and found.si_code == _FROM_KERNEL)

    def leave(self) -> None:
        _drop_handlers()
        for number in self.ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


@contextlib.contextmanager
def _blocked() -> Iterator[Inbox]:
    own = (signal.SIGCHLD, signal.SIGALRM)  # were they ignored, they would not arrive, nor CMD's exit status
    watched = frozenset({*PASSED_ON, *own})
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in own}
    box = _Blocked(watched, mask, tuple(number for number in own if handlers[number] is signal.SIG_IGN))
    try:
        yield box
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        while signal.sigtimedwait(watched, 0) is not None:
            pass  # came too late: nobody is there to pass it on to
        for number, handler in handlers.items():
            signal.signal(number, _installed(handler))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@dataclass(frozen=True, slots=True)
class _Handled:
    """Signals are noted by handlers, which wake whoever waits."""

    reader: int
    noted: deque[int] = field(default_factory=deque)

    def next(self, seconds: float) -> Received | None:
        if not self.noted and select.select([self.reader], [], [], seconds)[0]:
            os.read(self.reader, 512)
        return Received(self.noted.popleft()) if self.noted else None

    def leave(self) -> None:
        _drop_handlers()


@contextlib.contextmanager
def _handled() -> Iterator[Inbox]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    box = _Handled(reader)
    heard = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda got, _: box.noted.append(got)) for number in heard}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield box
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, _installed(handler))
        os.close(reader)
        os.close(writer)


def is_ignored(number: int) -> bool:
    """Whether whoever started us has us ignore that signal, as ``nohup`` does, and a shell for jobs of a script."""
    return signal.getsignal(number) is signal.SIG_IGN


@contextlib.contextmanager
def ends_reported() -> Iterator[None]:
    """Be told how children end, although whoever started us may ignore SIGCHLD. For the main thread."""
    number = getattr(signal, "SIGCHLD", None)  # not on Windows
    before = None if number is None else signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        if number is not None:
            signal.signal(number, _installed(before))


def _drop_handlers() -> None:
    """What exec does by itself: no handler of ours raises in a child that is about to become another program."""
    for number in PASSED_ON:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _installed(handler: Any) -> Any:
    """*handler* as ``signal()`` takes it back; ``None`` stands for one that was not installed by Python."""
    return signal.SIG_DFL if handler is None else handler
