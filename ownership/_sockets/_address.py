"""Where something listens, and how long a path the system takes for that."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TypeAlias

from ownership._paths import Resource, StrPath, resolve, shown
from ownership._system import CLOSE_ON_EXEC, PATH_ONLY, SOCKET_PATH_LIMIT

HostPort: TypeAlias = tuple[str, int]
Socket: TypeAlias = socket.socket
UNIX = "unix:"


def socket_resource(path: StrPath, *, whole: bool) -> Resource:
    """The resource of the socket at *path*: its canonical path, if a socket can be there.

    :raises ValueError: too long for a socket, or no path at all; nothing was made by then
    """
    resource = resolve(path, whole=whole, parameter="address")
    size = len(os.fsencode(resource.path))
    if size > SOCKET_PATH_LIMIT:
        raise ValueError(
            f"address must be a path of at most {SOCKET_PATH_LIMIT} bytes, the longest a socket can have (unix(7)); "
            f"{shown(resource.path)} has {size}"
        )
    return resource


def checked_host(address: object) -> HostPort:
    """*address* as host and port."""
    if (
        not isinstance(address, tuple)
        or len(address) != 2
        or not isinstance(address[0], str)
        or type(address[1]) is not int
        or not 0 <= address[1] <= 65535
        or not _is_host(address[0])
    ):
        raise ValueError(f"address must be a path, or a tuple of host and port, got {address!r}")
    return address[0], address[1]


def checked_connection(connection: Socket) -> Socket:
    """*connection*, if it is a socket."""
    if not isinstance(connection, socket.socket):
        raise ValueError(f"connection must be a socket, got {connection!r:.80}")
    return connection


def _is_host(host: str) -> bool:
    """Whether the system can be asked for it."""
    try:
        return "\0" not in host and (host.isascii() or bool(host.encode("idna")))
    except UnicodeError:
        return False


@contextlib.contextmanager
def reachable(path: str) -> Iterator[str]:
    """*path* as bind(2) and connect(2) take it, however long the directory's part of it is."""
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
        yield path
        return
    parent, base = os.path.split(path)
    number = os.open(parent, PATH_ONLY | getattr(os, "O_DIRECTORY", 0) | CLOSE_ON_EXEC)
    try:
        yield f"/proc/self/fd/{number}/{base}"
    finally:
        os.close(number)


def unix_endpoint(path: str) -> str:
    """The endpoint of a record whose owner listens at *path*."""
    return UNIX + shown(path)


def tcp_endpoint(address: tuple[object, ...]) -> str:
    """The endpoint of a record whose owner listens at *address*, as getsockname(2) gives it."""
    host, port = str(address[0]), address[1]
    return f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}"
