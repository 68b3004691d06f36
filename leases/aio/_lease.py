"""Leases for asynchronous code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import leases._lease as synchronous
from leases._arguments import checked_timeout
from leases._lease import LeaseLostError, StrPath
from leases._lines import append_line as _append_line
from leases.aio._clock import BreakableClock
from leases.aio._held import Held
from leases.aio._section import Section, Turns, deadline_of, patiently
from ownership import Claim, OwnerRecord, OwnerRef


class Lease(Held):
    """The handle of whoever holds a resource for a while, in asynchronous code.

    ``async with`` it: once it is lost the body is cancelled, and exactly one :class:`LeaseLostError` leaves. A
    cancellation from outside stays one. What the body raises of its own stays, with a note that says that the lease was
    lost meanwhile. At the end it is released.

    Guaranteed: what is awaited is done in another thread; a cancellation takes effect once that is over, which it is at
    once, or within a second where another process sits in the guard.

    Not guaranteed: that the body notices a loss while it does not await anything; ``verify()`` or ``critical()`` before
    what must not be done by a holder that was replaced.

    :param lease: a lease, or a claim, that one has
    :ivar lease: the same for synchronous code
    """

    def __init__(self, lease: synchronous.Lease | Claim) -> None:
        if not isinstance(lease, synchronous.Lease | Claim):
            raise ValueError(f"lease must be a lease or a claim, got {lease!r:.80}")
        self.lease = synchronous.Lease(lease) if isinstance(lease, Claim) else lease
        super().__init__(self.lease, self.lease)
        self._turns = Turns(self.lease)

    @property
    def path(self) -> Path:
        """The canonical path, pinned when it was acquired."""
        return self.lease.path

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier holder."""
        return self.lease.token

    @property
    def tokens(self) -> Mapping[Path, int]:
        """The token of each resource, those of ``also=`` included."""
        return self.lease.tokens

    @property
    def record(self) -> OwnerRecord:
        """Our record as last published."""
        return self.lease.record

    @property
    def ref(self) -> OwnerRef:
        """Who holds it, as a value that can be handed to workers."""
        return self.lease.ref

    @property
    def ttl(self) -> float | None:
        """Seconds, ``None`` if it ends only with the process."""
        return self.lease.ttl

    @property
    def expires_in(self) -> float | None:
        """Seconds until a contender may get it unless it is renewed; 0.0 from then on. ``None`` without a ttl."""
        return self.lease.expires_in

    @property
    def lapses(self) -> int:
        """How often it had run out before it was renewed, without anybody having taken it over meanwhile."""
        return self.lease.lapses

    @property
    def lost(self) -> threading.Event:
        """Set once it is lost; never cleared. A release is no loss."""
        return self.lease.lost

    @property
    def held(self) -> bool:
        """Whether this handle still stands for an ownership, as far as it knows."""
        return self.lease.held

    async def verify(self) -> None:
        """Make sure, by looking, that it is still ours; if it has run out and nobody has taken over, renew it.

        :raises LeaseLostError: it is not, with the reason; from then on always
        :raises OSError: it cannot be told or renewed at the moment; nothing is lost by that
        """
        await self._turns.run(self.lease.verify)

    async def renew(self) -> bool:
        """Renew it now; whether it was still ours, which is not so for good once it is false.

        :raises OSError: it cannot be renewed at the moment; nothing is lost by that
        """
        return await self._turns.run(self.lease.renew)

    async def announce(
        self,
        phase: str | None = None,
        *,
        endpoint: str | None = None,
        data: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Publish facts about this holder: see :meth:`ownership.Claim.announce`. Renews nothing.

        :raises LeaseLostError: it is not ours any more
        """
        await self._turns.run(partial(self.lease.announce, phase, endpoint=endpoint, data=data, labels=labels))

    def critical(self, timeout: float | None = 1.0) -> AbstractAsyncContextManager[None]:
        """A block, for ``async with``, in which nobody can take over: see :meth:`ownership.Claim.critical`.

        Tasks that share this handle enter one after the other; those that are started inside it may enter it too, and
        the guard is held until the last one has left. Tasks of another event loop wait, wherever they were started.
        Keep it short: everybody waits, for whatever the body awaits too.

        :raises LeaseLostError: it was not ours any more
        :raises GuardTimeoutError: another process, or another task, was inside for *timeout* seconds
        """
        return Section(self._turns, checked_timeout(timeout))

    def on_loss(self, callback: Callable[[LeaseLostError], object]) -> None:
        """Have *callback* called once, on a thread of its own, when it is lost.

        :raises ValueError: *callback* cannot be called
        """
        self.lease.on_loss(callback)

    async def release(self, reason: str = "") -> None:
        """Give it up; a second release does nothing. See :meth:`ownership.Claim.release`."""
        await self._turns.run(partial(self.lease.release, reason), last=True)

    def __repr__(self) -> str:
        return f"<asynchronous {self.lease!r}>"


async def append_line(
    lease: Lease,
    line: str | bytes,
    *,
    path: StrPath | None = None,
    fsync: bool = False,
    mode: int = 0o600,
    timeout: float | None = 1.0,
) -> None:
    """Append *line* to the file that *lease* is about: :func:`leases.append_line`, awaited.

    Guaranteed: tasks append in the order in which they ask. A call that is cancelled has appended the line, or not; it
    ends within 50 ms, however long it would have waited for the guard.
    """
    if not isinstance(lease, Lease):
        raise ValueError(f"lease must be one of leases.aio, got {lease!r:.80}")
    append = partial(_append_line, lease.lease, line, path=path, fsync=fsync, mode=mode)
    turns, timeout = lease._turns, checked_timeout(timeout)
    if turns.section() is not None:
        await turns.run(append)
        return
    clock = BreakableClock()
    deadline = deadline_of(timeout, clock)
    turn = await turns.take(timeout)
    try:
        await turns.run(partial(patiently, lambda seconds: append(timeout=seconds), deadline, clock), clock)
    finally:
        turn.release()
