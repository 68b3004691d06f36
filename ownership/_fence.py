"""The fence: a worker's watch over its owner."""

from __future__ import annotations

import math
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

from ownership import _keeper
from ownership._callbacks import call, prepared
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._confirmations import Confirmations
from ownership._process import ProcessTable, system_processes
from ownership._ref import OwnerRef
from ownership._sentry import Sentry

_shared: dict[ProcessTable, Confirmations] = {}  # of the system's processes: fences of one owner share a look


class Fence:
    """Tells a worker when the owner it works for does not own any more.

    Guaranteed: it trips once, and only on proof: the owner has exited (reaped or not) or its number is another
    process's, somebody owned after it, it was broken, or it gave the resource up. With a pidfd (Linux) or a held
    descriptor of ``/proc`` that takes *poll_interval* at most, usually milliseconds; with bare signal 0 an unreaped
    owner is noticed within *confirm_interval*. For an owner in another pid namespace its witness is asked. Errors that
    may pass never trip it, see :attr:`last_error`. All fences of a process share one thread.
    Record and guard that are deleted trip it if an owner that runs does not put them back within 2 s.

    Not guaranteed: that a worker which is paused stops before it wakes: call :meth:`check` before what must not be
    done for an owner that was replaced. An owner that hands its claim over counts as replaced. A worker of another
    account that may not read the lock directory sees only that the owner ends; :attr:`last_error` says so.

    It begins with its construction and ends with :meth:`close`, at the end of its ``with`` block, or when it trips;
    without *on_trip* also when it is garbage-collected, with a ResourceWarning, since nobody would be told.
    ``async with`` cancels its body when it trips, and one :class:`FenceTrippedError` leaves; a cancellation from
    outside stays one. In a forked child only :meth:`check` works.

    :param ref: who owns, from :attr:`Claim.ref` or :meth:`OwnerRef.from_env`
    :param poll_interval: seconds between two looks
    :param confirm_interval: seconds for which a full look at a process (not a zombie, the same start id) is believed
    :param on_trip: called once, without arguments, on the thread for callbacks, which all of a process share
    :param clock: where time comes from, for tests
    :param processes: where process facts come from, for tests
    :raises OSError: the thread that looks cannot be started
    :raises ValueError: an argument that cannot be right
    :raises RuntimeError: one that was closed is entered, or one is entered twice
    """

    _process = 0  # until its construction got that far

    def __init__(
        self,
        ref: OwnerRef,
        *,
        poll_interval: float = 0.25,
        confirm_interval: float = 5.0,
        on_trip: Callable[[], object] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        processes: ProcessTable | None = None,
    ) -> None:
        if not isinstance(ref, OwnerRef):
            raise ValueError(f"ref must be an OwnerRef (claim.ref, OwnerRef.from_env()), got {ref!r}")
        _check_intervals(poll_interval, confirm_interval)
        if on_trip is not None and not callable(on_trip):
            raise ValueError(f"on_trip must be callable, got {on_trip!r}")
        table = processes or system_processes()
        shared = _shared.setdefault(table, Confirmations(table)) if processes is None else Confirmations(table)
        self._sentry = Sentry(ref, confirm_interval, clock, table, shared)
        self._process = os.getpid()
        self._scope: Any = None
        self._entered = False
        try:
            if on_trip is not None:
                told = prepared(on_trip)
                self._sentry.listeners.append(lambda: call(told))
            self._sentry.look()
            if self._sentry.loss is None:
                _keeper.KEEPER.attend(self._sentry, float(poll_interval), ref.resource)
        except BaseException:
            self._sentry.close()
            _keeper.KEEPER.dismiss(self._sentry)
            raise

    # -- facts

    @property
    def ref(self) -> OwnerRef:
        """The owner it watches."""
        return self._sentry.ref

    @property
    def tripped(self) -> threading.Event:
        """Set when it trips; never cleared."""
        return self._sentry.event

    @property
    def reason(self) -> str | None:
        """Why it tripped: ``owner-gone``, ``owner-replaced``, ``broken`` or ``record-missing``; ``None`` before.

        ``record-missing`` says that no record stands for that ownership any more: it was released or, while its process
        still ends, retired; or it vanished and was not put back.
        """
        return self._sentry.loss[0] if self._sentry.loss else None

    @property
    def last_error(self) -> Exception | None:
        """What keeps it from seeing everything at the moment, ``None`` when nothing does."""
        return self._sentry.last_error

    # -- acts

    def check(self) -> None:
        """Make sure, by looking, that the owner has not been replaced and has not exited.

        :raises FenceTrippedError: it has, with the reason; from then on always
        """
        self._sentry.look(full=True)
        if self._sentry.loss is not None:
            raise self._sentry.error()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it trips; whether it did.

        :param timeout: seconds; ``None`` for ever
        """
        return self._sentry.event.wait(timeout)

    def close(self) -> None:
        """Watch no more. What it had found stays; it never trips afterwards."""
        self._sentry.close()
        if self._process == os.getpid():
            _keeper.KEEPER.dismiss(self._sentry)
        else:
            self._sentry.look()

    def _begin(self) -> None:
        if self._sentry.closed or self._entered:
            raise RuntimeError("a fence is entered once, and not after it was closed: make another one")
        self._entered = True

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._begin()
        from ownership._scope import Scope  # asyncio is heavy, and only its users come here

        self._scope = Scope(self._sentry.error)
        self._sentry.listeners.append(self._scope.end)
        if self._sentry.loss is not None:
            self._scope.abandon()
            self.close()
            raise self._sentry.error()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        scope, self._scope = self._scope, None
        await scope.leave(error)

    def __del__(self) -> None:
        sentry = getattr(self, "_sentry", None)
        if sentry is None or sentry.over or sentry.listeners or self._process != os.getpid() or sys.is_finalizing():
            return
        sentry.closed = True  # whoever walks the rounds does the rest: no lock may be taken here
        told = f"{self!r} was garbage-collected, and nobody would have been told"
        warnings.warn(told, ResourceWarning, source=self, stacklevel=2)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a fence cannot be copied or pickled: pass fence.ref, and make one there")

    def __repr__(self) -> str:
        state = self.reason or ("closed" if self._sentry.closed else "whole")
        return f"<Fence {self._sentry.resource.shown} pid {self.ref.owner.pid} {state}>"


def _check_intervals(poll_interval: float, confirm_interval: float) -> None:
    for name, value in (("poll_interval", poll_interval), ("confirm_interval", confirm_interval)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < 0.01:
            raise ValueError(f"{name} must be a number of seconds >= 0.01, got {value!r}")
    if confirm_interval < poll_interval:
        raise ValueError(f"confirm_interval must be >= poll_interval, got {confirm_interval!r} and {poll_interval!r}")
