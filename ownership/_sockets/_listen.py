"""Becoming the one who listens."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ownership._acquire import OnWait
from ownership._arguments import checked_mapping
from ownership._claim import Claim
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import HandoverError
from ownership._gating import Gate
from ownership._handover import VARIABLE, heir_from
from ownership._location import pin_registry
from ownership._owning import acquire
from ownership._paths import Resource, StrPath, named
from ownership._process import ProcessTable, system_processes
from ownership._sockets._address import HostPort, checked_host, socket_resource
from ownership._sockets._bound import Bound, UnixSocket, passed_socket, tcp_socket
from ownership._sockets._file import Permissions
from ownership._sockets._listener import Listener
from ownership._sockets._passing import Passed, receive

_BACKLOG = 128
PHASE = "listening"


def listen(
    address: StrPath | HostPort | None = None,
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
    backlog: int = _BACKLOG,
    release: Literal["exit", "close"] = "exit",
    gate: Gate | None = None,
    on_wait: OnWait | None = None,
    on_stopped: Literal["wait", "resume", "evict"] = "wait",
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Listener:
    """Own the socket at *address*, and listen on it.

    Guaranteed: at most one process listens there among those that use this library, whatever the spelling of the path.
    A path that is in the way is removed only while we own the resource, and only if it is a socket that refuses to be
    connected to. A client finds no socket, or one that takes it: never one that refuses while we start. The record says
    where to connect (``endpoint``), and *data*, before the socket can be found. A call that raises leaves neither
    record nor socket.

    Not guaranteed: anything against a program that binds there without these records: if it listens, it is reported and
    left alone. The name that ``getsockname()`` tells of a socket made here is that of its other link, in the lock
    directory.

    :param address: a path, or host and port (0: any that is free)
    :param sock: a bound socket, or its descriptor, that was passed to us (by systemd, or before a re-exec): it is
        listened on again, once we own, and its path is never removed. *address* may then be left out
    :param resource: for a port: what to own, instead of ``named("tcp:HOST:PORT")``
    :param timeout: seconds to wait for the present owner: 0 not at all, ``None`` for ever
    :param also: further resources, a state directory for instance; all or nothing
    :param registry: an existing directory for the records, to share them between accounts
    :param labels: short facts for people that are shown to whoever is refused
    :param data: facts for clients, a version for instance (see ``ensure(match=...)``)
    :param mode: who may connect, whatever the umask
    :param uid: account that the socket is given to, -1: ours
    :param gid: group that the socket is given to, -1: ours
    :param backlog: how many may wait to be accepted
    :param release: when others may own it: once this process has ended (``"exit"``), or once it is closed
    :returns: a listener; use it as a context manager
    :raises AlreadyOwnedError: somebody else owns it, or listens there without a record
    :raises OSError: something else is at the path, or it cannot be bound
    :raises ValueError: an argument that cannot be right, a path too long for a socket for instance; nothing was made

    What :func:`ownership.acquire` raises is raised here too; *gate*, *on_wait*, *on_stopped*, *clock* and *processes*
    are its.
    """
    _check(mode, backlog, release)
    permissions, facts = Permissions(mode, _account(uid, "uid"), _account(gid, "gid")), checked_mapping(data, "data")
    host = checked_host(address) if isinstance(address, tuple) else None
    given = None if sock is None else passed_socket(sock, None if isinstance(address, tuple) else address, backlog)
    shared = None if registry is None else pin_registry(registry)
    target = _target(host, given, address, resource, whole=shared is not None)
    claim = acquire(
        target.path if isinstance(target, Resource) else target,
        timeout=timeout,
        also=also,
        registry=shared,
        labels=labels,
        gate=gate,
        on_wait=on_wait,
        on_stopped=on_stopped,
        clock=clock,
        processes=processes,
    )
    bound: Bound | None = None
    try:
        if given is not None:
            bound = _listened_on_again(given, claim, facts)
        elif host is not None:
            bound = tcp_socket(host, backlog)
            claim.announce(PHASE, endpoint=bound.endpoint, data=facts)
        else:
            assert isinstance(target, Resource)
            directory, table = claim._holding.part.place.directory, processes or system_processes()
            bound = made = UnixSocket(target, directory, permissions, backlog, table)
            made.open(lambda: claim.announce(PHASE, endpoint=made.endpoint, data=facts))
        return Listener(claim, bound, until_exit=release == "exit")
    except BaseException:
        _undo(claim, bound)
        raise


def adopt_listener(
    connection: socket.socket,
    *,
    release: Literal["exit", "close"] = "exit",
    processes: ProcessTable | None = None,
) -> Listener:
    """Listen on what a predecessor hands over on *connection* (:meth:`Listener.handover`), and own it from now on.

    :param connection: to the predecessor, of a unix socket; give it a timeout, or this waits for ever
    :param release: as in :func:`listen`
    :raises HandoverError: nothing came, or too late: the predecessor owns on, or has ended
    :raises OSError: the connection failed
    :raises ValueError: *connection* is no socket
    """
    passed = receive(connection)
    try:
        claim = heir_from(passed.right.get(VARIABLE), Claim).adopt(processes=processes)
    except BaseException as error:
        passed.listening.close()
        if isinstance(error, LookupError | ValueError):
            raise HandoverError(f"no claim was handed over: {error}") from None
        raise
    try:
        bound = _taken(passed, claim, processes or system_processes())
        return Listener(claim, bound, until_exit=release == "exit")
    except BaseException:
        passed.listening.close()
        claim.release("adopting the socket failed")
        raise


def _taken(passed: Passed, claim: Claim, processes: ProcessTable) -> Bound:
    listening, backlog = passed.listening, passed.backlog
    if passed.made and passed.permissions is not None:
        part = claim._holding.part
        bound: Bound
        bound = ours = UnixSocket(part.resource, part.place.directory, passed.permissions, backlog, processes)
        ours.take(listening, passed.anchor, passed.which)
    else:
        bound = Bound(listening, passed.path, backlog, made=passed.made)
    listening.listen(backlog)  # the kernel names whoever did so last
    return bound


def _check(mode: int, backlog: int, release: str) -> None:
    if type(mode) is not int or not 0 <= mode <= 0o777:
        raise ValueError(f"mode must be an integer from 0 to 0o777, got {mode!r}")
    if type(backlog) is not int or not 0 <= backlog <= 2**31 - 1:
        raise ValueError(f"backlog must be an integer >= 0, got {backlog!r}")
    if release not in ("exit", "close"):
        raise ValueError(f"release must be 'exit' or 'close', got {release!r}")


def _account(number: int, name: str) -> int:
    """*number* as chown(2) takes it."""
    if type(number) is not int or not -1 <= number <= 2**32 - 2:
        raise ValueError(f"{name} must be the number of an account or group, or -1, got {number!r:.80}")
    return number


def _target(
    host: HostPort | None, given: Bound | None, address: object, resource: StrPath | None, *, whole: bool
) -> Resource | StrPath:
    """What is to be owned: the socket's own path, or something that stands for a port."""
    path = given.path if given is not None else (None if host else address)
    if path is not None:
        if resource is not None:
            raise ValueError(f"resource must be left out: a socket with a path is owned by it, got {resource!r}")
        return socket_resource(path, whole=whole)  # type: ignore[arg-type]
    if resource is not None:
        return resource
    if given is not None:
        return named(given.endpoint)
    if host is None:
        raise ValueError("address must be given: a path, or a tuple of host and port")
    if host[1] == 0:
        raise ValueError("resource must be given where any free port will do: what is it that one process alone owns?")
    return named(f"tcp:{host[0]}:{host[1]}")


def _listened_on_again(given: Bound, claim: Claim, data: Mapping[str, Any] | None) -> Bound:
    """Once the record is there: the kernel names whoever last called listen(2) to those who connect (unix(7))."""
    claim.announce(PHASE, endpoint=given.endpoint, data=data)
    given.socket.listen(given.backlog)
    return given


def _undo(claim: Claim, bound: Bound | None) -> None:
    try:
        if bound is not None and bound.made:
            bound.withdraw()
            bound.close()
    finally:
        claim.release("listen failed")
