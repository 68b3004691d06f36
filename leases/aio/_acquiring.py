"""Becoming an owner, and reaching one, from asynchronous code."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from typing import Any, Literal, TypeVar

import leases._lease as synchronous
import ownership
from leases._lease import StrPath
from leases.aio._call import run
from leases.aio._clock import BreakableClock
from leases.aio._held import Held, Opening
from leases.aio._lease import Lease
from leases.aio._listener import Listener
from ownership import AlreadyOwnedError, Running

OnWait = Callable[[AlreadyOwnedError], object]
_Handle = TypeVar("_Handle")
_Held = TypeVar("_Held", bound=Held)


def acquire(
    resource: StrPath,
    *,
    ttl: float | None = None,
    auto_renew: bool = True,
    timeout: float | None = 0.0,
    also: Iterable[StrPath] = (),
    registry: StrPath | None = None,
    labels: Mapping[str, str] | None = None,
    gate: Any = None,
    on_wait: OnWait | None = None,
    on_stopped: Literal["wait", "resume", "evict"] = "wait",
    clock: Any = None,
    processes: Any = None,
) -> Opening[Lease]:
    """Own *resource* for *ttl* seconds after each renewal: :func:`leases.acquire` for asynchronous code.

    ``async with aio.acquire(...) as lease:`` cancels its body once the lease is lost, and releases it at the end (see
    :class:`Lease`); ``lease = await aio.acquire(...)`` gives it without a body.

    Guaranteed: what :func:`leases.acquire` guarantees; the loop is not kept from running; a call that is cancelled,
    wherever, ends within 50 ms, however long it would have waited, and leaves nothing behind.

    Parameters and errors are those of :func:`leases.acquire`; *on_wait* is called by the loop, ``gate.check()`` in a
    thread.
    """
    keywords: dict[str, Any] = {"ttl": ttl, "auto_renew": auto_renew, "timeout": timeout, "also": also}
    keywords |= {"registry": registry, "labels": labels, "gate": gate, "on_stopped": on_stopped, "processes": processes}
    make = partial(synchronous.acquire, resource, **keywords)
    return Opening(partial(_opened, make, Lease, _release, on_wait, clock), f"acquire({resource!r})")


def replace(
    resource: StrPath,
    *,
    reason: str = "",
    grace: float = 0.5,
    timeout: float | None = None,
    registry: StrPath | None = None,
    labels: Mapping[str, str] | None = None,
    gate: Any = None,
    on_wait: OnWait | None = None,
    clock: Any = None,
    processes: Any = None,
) -> Opening[Lease]:
    """Own *resource* in place of whoever owns it: :func:`ownership.replace` for asynchronous code.

    As :func:`acquire`; what it yields is a :class:`Lease` without a ttl. A call that is cancelled asks no longer.
    Whoever was signalled already stays so. ``gate.check()`` is called in a thread.
    """
    keywords: dict[str, Any] = {"reason": reason, "grace": grace, "timeout": timeout, "registry": registry}
    make = partial(ownership.replace, resource, labels=labels, gate=gate, processes=processes, **keywords)
    return Opening(partial(_opened, make, Lease, _release, on_wait, clock), f"replace({resource!r})")


def listen(
    address: StrPath | tuple[str, int] | None = None,
    *,
    sock: socket.socket | int | None = None,
    resource: StrPath | None = None,
    timeout: float | None = 0.0,
    also: Iterable[StrPath] = (),
    registry: StrPath | None = None,
    labels: Mapping[str, str] | None = None,
    data: Mapping[str, Any] | None = None,
    mode: int = 0o600,
    uid: int = -1,
    gid: int = -1,
    backlog: int = 128,
    release: Literal["exit", "close"] = "exit",
    gate: Any = None,
    on_wait: OnWait | None = None,
    on_stopped: Literal["wait", "resume", "evict"] = "wait",
    clock: Any = None,
    processes: Any = None,
) -> Opening[Listener]:
    """Own the socket at *address*, and listen on it: :func:`ownership.listen` for asynchronous code.

    As :func:`acquire`: ``async with aio.listen(...) as owned:`` cancels its body once the claim is lost, with one
    :class:`ownership.OwnershipLostError`, and closes it at the end. Give ``owned.socket`` to
    ``asyncio.start_unix_server(sock=...)``. Parameters and errors are those of :func:`ownership.listen`.
    """
    keywords: dict[str, Any] = {"sock": sock, "resource": resource, "timeout": timeout, "also": also, "data": data}
    keywords |= {"registry": registry, "labels": labels, "mode": mode, "uid": uid, "gid": gid, "backlog": backlog}
    keywords |= {"release": release, "gate": gate, "on_stopped": on_stopped, "processes": processes}
    make = partial(ownership.listen, address, **keywords)
    return Opening(partial(_opened, make, Listener, _close, on_wait, clock), f"listen({address!r})")


async def ensure(
    address: StrPath,
    command: Sequence[str | PathLike[str]] | None = None,
    timeout: float | None = 10.0,
    *,
    match: Mapping[str, Any] | None = None,
    on_mismatch: Literal["raise", "use", "replace"] = "raise",
    connect: Callable[[Running], Any] | None = None,
    registry: StrPath | None = None,
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    grace: float = 1.0,
    gate: Any = None,
    clock: Any = None,
    processes: Any = None,
) -> Any:
    """Connect to whoever serves at *address*, started if nobody does: :func:`ownership.ensure` for asynchronous code.

    Guaranteed: a call that is cancelled ends within 50 ms, and closes a connection that it has made meanwhile. Whom it
    has started goes on, as when a client is killed.

    Parameters and errors are those of :func:`ownership.ensure`; *connect* is called in a thread. Of the socket make
    streams by ``asyncio.open_unix_connection(sock=...)``.
    """
    breakable = BreakableClock(clock)
    keywords: dict[str, Any] = {"match": match, "on_mismatch": on_mismatch, "connect": connect, "registry": registry}
    keywords |= {"env": env, "cwd": cwd, "grace": grace, "gate": gate, "processes": processes, "clock": breakable}
    reach = partial(ownership.ensure, address, command, timeout, **keywords)
    return await run(reach, undo=_hang_up, clock=breakable)


async def connect(
    address: StrPath, timeout: float | None = 0.0, *, registry: StrPath | None = None, clock: Any = None
) -> socket.socket:
    """Connect to whoever serves at *address*; never start anybody: :func:`ownership.connect`, as :func:`ensure`."""
    reached = await ensure(address, None, timeout, registry=registry, clock=clock)
    assert isinstance(reached, socket.socket)
    return reached


async def _opened(
    make: Callable[..., _Handle],
    held: Callable[[_Handle], _Held],
    undo: Callable[[_Held], object],
    on_wait: OnWait | None,
    clock: Any,
) -> _Held:
    if on_wait is not None and not callable(on_wait):
        raise ValueError(f"on_wait must be callable, got {on_wait!r:.80}")
    breakable = BreakableClock(clock)
    told = None if on_wait is None else _by(asyncio.get_running_loop(), on_wait)
    made = partial(_made, partial(make, on_wait=told, clock=breakable), held, undo)
    return await run(made, undo=undo, clock=breakable)


def _made(make: Callable[[], _Handle], held: Callable[[_Handle], _Held], undo: Callable[[_Held], object]) -> _Held:
    found = held(make())
    try:
        found._listen()
    except BaseException:
        undo(found)
        raise
    return found


def _by(loop: asyncio.AbstractEventLoop, on_wait: OnWait) -> OnWait:
    def tell(error: AlreadyOwnedError) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is to be told
            loop.call_soon_threadsafe(on_wait, error)

    return tell


def _release(lease: Lease) -> None:
    lease.lease.release("acquire was cancelled")


def _close(listener: Listener) -> None:
    listener.listener.close("listen was cancelled")
    listener.claim.release("listen was cancelled")  # not only when the process ends


def _hang_up(reached: Any) -> None:
    if hasattr(reached, "close"):
        reached.close()
