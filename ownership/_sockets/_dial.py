"""One attempt to connect to a unix socket, and what each answer means. Nothing is read or written."""

from __future__ import annotations

import errno
import os
import socket
from typing import NamedTuple

from ownership._sockets._address import reachable

NOBODY = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR})


class Answer(NamedTuple):
    """What came of it.

    :ivar connection: connected, blocking
    :ivar error: else the error number; ``EAGAIN``: somebody listens, and more are waiting already than it lets wait
    """

    connection: socket.socket | None
    error: int = 0

    @property
    def is_nobody(self) -> bool:
        """Nobody listens there: nothing at the path, or a socket that everybody has closed."""
        return self.error in NOBODY

    @property
    def connected(self) -> bool:
        return self.error == 0

    @property
    def is_full(self) -> bool:
        return self.error in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINPROGRESS)

    @property
    def words(self) -> str:
        return "its backlog is full (EAGAIN)" if self.is_full else f"connect says {errno.errorcode.get(self.error)}"


def dial(path: str) -> Answer:
    """Try once, without waiting.

    :raises OSError: no socket can be had here (EMFILE, ENFILE, ENOMEM): that says nothing about *path*
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made = False
    try:
        connection.setblocking(False)
        with reachable(path) as short:
            error = connection.connect_ex(os.fsencode(short))
        made = error == 0
        if made:
            connection.setblocking(True)
        return Answer(connection if made else None, error)
    except FileNotFoundError:  # the directory of a long path
        return Answer(None, errno.ENOENT)
    finally:
        if not made:
            connection.close()
