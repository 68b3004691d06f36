"""A listening socket and the right to its claim, on their way to a successor over a connection (SCM_RIGHTS)."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from ownership._errors import HandoverError
from ownership._process import peer_facts
from ownership._sockets._address import checked_connection
from ownership._sockets._bound import Bound, UnixSocket
from ownership._sockets._errors import PeerError
from ownership._sockets._file import FileId, Permissions
from ownership._system import euid

_LENGTH = struct.Struct(">I")
_LONGEST = 1 << 20


class Passed(NamedTuple):
    """What has arrived.

    :ivar right: the environment by which the claim is adopted
    :ivar path: where it is found, ``None`` for a port
    :ivar permissions: ``None`` if it was passed to whoever hands it over, too
    """

    listening: socket.socket
    right: dict[str, str]
    backlog: int
    made: bool
    path: str | None
    anchor: str | None
    which: FileId | None
    permissions: Permissions | None


def send(connection: socket.socket, bound: Bound, right: Mapping[str, str], resource: str) -> None:
    """Pass *bound* and *right* on.

    :raises HandoverError: the program around us closed it
    :raises ValueError: *connection* is no socket
    :raises PeerError: another account is at the other end
    :raises OSError: it cannot be sent
    """
    if not bound.is_intact():
        raise HandoverError(
            f"{resource}: its descriptor was closed by this program, and may be another file by now",
            resource=resource,
            hint="rebind() makes it listen again",
        )
    facts = peer_facts(checked_connection(connection))
    if facts.uid not in (0, euid()):
        raise PeerError(
            f"{resource}: pid {facts.pid} of uid {facts.uid} asks for it, which is neither root nor our own account",
            pid=facts.pid,
            resource=resource,
            hint="hand over to a process of the same account",
        )
    told: dict[str, Any] = {"right": dict(right), "backlog": bound.backlog, "made": bound.made, "which": bound.which}
    for name, path in (("path", bound.path), ("anchor", bound.anchor)):
        told[name] = None if path is None else os.fsencode(path).hex()
    if isinstance(bound, UnixSocket):
        told["permissions"] = bound.permissions
    text = json.dumps(told).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(text))], [bound.socket.fileno()])
    connection.sendall(text)


def receive(connection: socket.socket) -> Passed:
    """What a predecessor sends.

    :raises HandoverError: it sends something else, or nothing
    :raises ValueError: *connection* is no socket
    """
    checked_connection(connection)
    numbers: list[int] = []
    try:
        head, found, _, _ = socket.recv_fds(connection, _LENGTH.size, 1)
        numbers.extend(found)
        if len(head) != _LENGTH.size or len(numbers) != 1:
            raise _nothing("what came is no socket")
        size = _LENGTH.unpack(head)[0]
        if size > _LONGEST:
            raise _nothing(f"what came is too long ({size} bytes)")
        text = b""
        while len(text) < size:
            if not (more := connection.recv(size - len(text))):
                raise _nothing("the connection ended early")
            text += more
        return _passed(numbers, json.loads(text))
    except (ValueError, KeyError, RecursionError) as error:
        raise _nothing(f"what came cannot be read: {error!r:.200}") from None
    except TimeoutError:
        raise _nothing("nothing came in time") from None
    finally:
        for number in numbers:
            os.close(number)


def _passed(numbers: list[int], told: object) -> Passed:
    """What *told* says of the socket whose descriptor is in *numbers*; taken out of it once it is a socket's.

    :raises ValueError, KeyError: it says something else
    """
    if not isinstance(told, dict):
        raise ValueError("no facts")
    path, anchor, which, permissions = (
        _path(told["path"]),
        _path(told["anchor"]),
        told["which"],
        told.get("permissions"),
    )
    if not _are_facts(told["right"], told["backlog"], told["made"], which, permissions) or (
        permissions is None and told["made"] and path is not None
    ):
        raise ValueError("facts of other kinds")
    try:
        listening = socket.socket(fileno=numbers[0])
    except OSError as error:
        raise ValueError(f"its descriptor is no socket's: {error}") from None
    del numbers[0]
    if listening.type != socket.SOCK_STREAM or (listening.family == getattr(socket, "AF_UNIX", None)) is (path is None):
        listening.close()
        raise ValueError("a socket of another kind")
    listening.set_inheritable(False)
    return Passed(
        listening,
        told["right"],
        told["backlog"],
        told["made"],
        path,
        anchor,
        None if which is None else (which[0], which[1]),
        None if permissions is None else Permissions(*permissions),
    )


def _are_facts(right: object, backlog: object, made: object, which: object, permissions: object) -> bool:
    return (
        isinstance(right, dict)
        and all(isinstance(value, str) for value in right.values())
        and type(backlog) is int
        and 0 <= backlog < 2**31
        and isinstance(made, bool)
        and (which is None or _are_numbers(which, 2))
        and (permissions is None or _are_numbers(permissions, 3))
    )


def _are_numbers(values: object, count: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(type(value) is int for value in values)


def _path(told: object) -> str | None:
    """A path as :func:`send` told it."""
    if told is None:
        return None
    path = os.fsdecode(bytes.fromhex(told)) if isinstance(told, str) else ""
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError("a path that is none")
    return path


def _nothing(fault: str) -> HandoverError:
    return HandoverError(
        f"no socket was handed over: {fault}", hint="the other end has to call handover() of its listener"
    )
