"""Listening as the one owner of a socket, in asynchronous code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from socket import socket as _socket  # one of our properties has its name

import ownership
from leases.aio._call import run
from leases.aio._held import Held
from ownership import Claim


class Listener(Held):
    """A socket that this process alone listens on: :class:`ownership.Listener` for asynchronous code.

    ``async with`` it: once its claim is lost the body is cancelled, and one :class:`ownership.OwnershipLostError`
    leaves. That only its path is lost is told by :attr:`path_lost` and ``on_path_lost``, and cancels nothing.

    :ivar listener: the same for synchronous code
    """

    def __init__(self, listener: ownership.Listener) -> None:
        self.listener = listener
        super().__init__(listener, listener.claim)

    @property
    def claim(self) -> Claim:
        """What is owned. Its methods are synchronous."""
        return self.listener.claim

    @property
    def socket(self) -> _socket:
        """Listening; for ``asyncio.start_unix_server(sock=...)`` and the like."""
        return self.listener.socket

    @property
    def endpoint(self) -> str:
        """Where it is found, as its record says it."""
        return self.listener.endpoint

    @property
    def path_lost(self) -> bool:
        """Whether the socket's path is known to be gone, or to lead elsewhere; the keeper looks every 250 ms."""
        return self.listener.path_lost

    def fileno(self) -> int:
        return self.listener.fileno()

    def on_path_lost(self, callback: Callable[[ownership.Listener], object]) -> None:
        """See :meth:`ownership.Listener.on_path_lost`: *callback* is called in a thread, with :attr:`listener`."""
        self.listener.on_path_lost(callback)

    async def rebind(self) -> _socket:
        """Put the path back: see :meth:`ownership.Listener.rebind`."""
        return await run(self.listener.rebind)

    async def close(self, reason: str = "") -> None:
        """Stop listening, and give up the claim: see :meth:`ownership.Listener.close`."""
        await run(partial(self.listener.close, reason), last=True)

    def __repr__(self) -> str:
        return f"<asynchronous {self.listener!r}>"
