"""Waiting for a peer that may be frozen, without waiting for ever and without a blanket timeout."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ownership import _keeper
from ownership._arguments import checked_seconds
from ownership._callbacks import call, prepared
from ownership._flag import Flag
from ownership._frozen import CONFIRMATIONS, INTERVAL, Freeze, Step, look_at, resume
from ownership._models import OwnerIdentity
from ownership._process import ProcessTable, system_processes, validate_pid
from ownership._ref import OwnerRef


class FrozenWait:
    """One wait for a peer; made by :func:`release_if_frozen`.

    :ivar peer: whom is waited for
    """

    def __init__(
        self,
        peer: OwnerIdentity,
        release: Callable[[FrozenWait], object],
        interval: float,
        confirmations: int,
        processes: ProcessTable,
    ) -> None:
        self.peer = peer
        self.last_error: Exception | None = None
        self._release = release
        self._interval = interval
        self._freeze = Freeze(confirmations, resumes=True)
        self._processes = processes
        self._process = os.getpid()
        self._mutex: Any = threading.RLock()
        self._begun = self._left = False
        self._released = Flag()
        self._hand_on: Callable[[], object] = self._run  # until it begins

    handle = -1

    @property
    def over(self) -> bool:
        return self._left or self._released.is_set()

    @property
    def resumed(self) -> bool:
        """The peer was found stopped, and SIGCONT was tried, once."""
        return self._freeze.resumed

    @property
    def released(self) -> threading.Event:
        """Set when the peer was given up, just before *release* is called. The wait itself may still end well."""
        return self._released

    def look(self, *, hinted: bool = False) -> None:
        """One look at the peer."""
        if self.over:
            return
        stopped, activity = look_at(self._processes, self.peer)
        step = self._freeze.found(stopped=stopped, activity=activity)
        if step is Step.RESUME:
            resume(self._processes, self.peer)
        elif step is Step.GIVE_UP:
            with self._mutex:
                if self._left:
                    return
                self._released.set()
            self._hand_on()

    def _run(self) -> None:
        """Call *release*, unless the wait is over by now: then somebody else may be waiting by the same name."""
        if not self._left:
            self._release(self)

    def _begin(self) -> None:
        if self._begun:
            raise RuntimeError("this wait has begun already: call release_if_frozen for each")
        self._begun = True
        try:
            _keeper.KEEPER.attend(self, self._interval, f"pid {self.peer.pid}")
        except BaseException:
            self._left = True
            raise

    def _end(self) -> None:
        with self._mutex:
            self._left = True
        if self._process == os.getpid():
            _keeper.KEEPER.dismiss(self)

    def __enter__(self) -> Self:
        told = prepared(self._run)
        self._hand_on = lambda: call(told)
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def __aenter__(self) -> Self:
        loop = _running_loop()

        def hand_on() -> None:
            try:
                loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

        self._hand_on = hand_on
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def __repr__(self) -> str:
        return f"<FrozenWait for pid {self.peer.pid}>"


def _running_loop() -> Any:
    import asyncio  # heavy, and only its users come here

    return asyncio.get_running_loop()


def release_if_frozen(
    peer: OwnerRef | OwnerIdentity | int,
    release: Callable[[FrozenWait], object],
    *,
    interval: float = INTERVAL,
    confirmations: int = CONFIRMATIONS,
    processes: ProcessTable | None = None,
) -> FrozenWait:
    """Wait for *peer* in a ``with`` or ``async with`` block, and release what waits if the peer is frozen.

    Guaranteed: every *interval* seconds the peer is looked at. When it is found stopped (by a signal, or its cgroup is
    frozen) it gets one SIGCONT, never a second one. When it is found stopped *confirmations* times after that, one
    after the other and without having run in between, *release* is called, once, with the wait that the ``with``
    statement gave. It is not called once the block has been left. The block itself goes on: if the peer answers after
    all, the answer is there. A peer that is merely slow is left alone for ever; so is one that a tracer holds, one in
    another pid namespace, and one that cannot be looked at.

    Not guaranteed: that *release*, when it runs at the very moment at which the block is left, is over before a later
    wait begins: compare by identity, as in ``if waits.get(name) is wait: del waits[name]``.

    In ``with`` *release* is called on the thread for callbacks, in ``async with`` by the event loop.

    :param peer: a reference, a record or identity, or the pid of a process that exists now
    :param release: called with the :class:`FrozenWait`
    :param interval: seconds between two looks, at least 0.01
    :param confirmations: looks after the SIGCONT, at least 1
    :param processes: where process facts come from, for tests
    :raises ProcessLookupError: there is no process with that pid
    :raises ValueError: an argument that cannot be right
    :raises OSError: a thread cannot be started (when the block is entered)
    """
    table = processes or system_processes()
    if not callable(release):
        raise ValueError(f"release must be callable, got {release!r}")
    if inspect.iscoroutinefunction(release):
        raise ValueError(f"release must not be a coroutine function, nobody would await it, got {release!r}")
    if isinstance(confirmations, bool) or not isinstance(confirmations, int) or confirmations < 1:
        raise ValueError(f"confirmations must be a whole number >= 1, got {confirmations!r}")
    seconds = checked_seconds(interval, "interval")
    if seconds < 0.01:
        raise ValueError(f"interval must be a number of seconds >= 0.01, got {interval!r}")
    return FrozenWait(_identity(peer, table), release, seconds, confirmations, table)


def _identity(peer: OwnerRef | OwnerIdentity | int, processes: ProcessTable) -> OwnerIdentity:
    if isinstance(peer, OwnerRef):
        return peer.owner
    if isinstance(peer, OwnerIdentity):
        return peer
    pid = validate_pid(peer, "peer")
    seen, me = processes.observe(pid), processes.current()
    if seen.exists is False:
        raise ProcessLookupError(3, f"there is no process {pid}")
    return OwnerIdentity(
        pid=pid,
        start_id=seen.start_id or "unknown",
        instance_id="0" * 32,
        boot_id=me.boot_id,
        pid_namespace=me.pid_namespace,  # type: ignore[arg-type]
    )
