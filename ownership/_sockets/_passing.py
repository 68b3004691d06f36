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
from ownership._sockets._bound import Bound, UnixSocket
from ownership._sockets._errors import PeerError
from ownership._sockets._file import Permissions
from ownership._system import euid

_LENGTH = struct.Struct(">I")
_LONGEST = 1 << 20


class Passed(NamedTuple):
    """What has arrived.

    :ivar right: the environment by which the claim is adopted
    :ivar facts: of the socket, as :func:`send` told them
    """

    listening: socket.socket
    right: dict[str, str]
    facts: dict[str, Any]


def send(connection: socket.socket, bound: Bound, right: Mapping[str, str], resource: str) -> None:
    """Pass *bound* and *right* on.

    :raises HandoverError: the program around us closed it
    :raises PeerError: another account is at the other end
    :raises OSError: it cannot be sent
    """
    if not bound.is_intact():
        raise HandoverError(
            f"{resource}: its descriptor was closed by this program, and may be another file by now",
            resource=resource,
            hint="rebind() makes it listen again",
        )
    facts = peer_facts(connection)
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
    """
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
        told = json.loads(text)
        listening = socket.socket(fileno=numbers.pop())
        listening.set_inheritable(False)
        return Passed(listening, told.pop("right"), told)
    except (ValueError, KeyError, AttributeError) as error:
        raise _nothing(f"what came cannot be read: {error}") from None
    except TimeoutError:
        raise _nothing("nothing came in time") from None
    finally:
        for number in numbers:
            os.close(number)


def _nothing(fault: str) -> HandoverError:
    return HandoverError(
        f"no socket was handed over: {fault}", hint="the other end has to call handover() of its listener"
    )


def path_in(facts: Mapping[str, Any], name: str) -> str | None:
    """A path as :func:`send` told it."""
    return None if facts[name] is None else os.fsdecode(bytes.fromhex(facts[name]))


def permissions_in(facts: Mapping[str, Any]) -> Permissions:
    return Permissions(*facts["permissions"])
