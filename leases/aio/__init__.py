"""Leases for asyncio: nothing blocks the loop, a loss cancels the body, a cancellation leaves nothing behind."""

from __future__ import annotations

from leases.aio._acquiring import acquire, connect, ensure, listen, replace
from leases.aio._lease import Lease, append_line
from leases.aio._listener import Listener

__all__ = [
    "Lease",
    "Listener",
    "acquire",
    "append_line",
    "connect",
    "ensure",
    "listen",
    "replace",
]
