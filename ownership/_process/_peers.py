"""Who is at the other end of a local connection, as the kernel remembers it."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import NamedTuple

from ownership._process._kernel import Kernel
from ownership._process._pidfd import Pidfds

_CREDENTIALS: int | None = getattr(socket, "SO_PEERCRED", None)
_UCRED = struct.Struct("3i")  # pid, uid, gid (unix(7))
_PIDFD = 77  # SO_PEERPIDFD, Linux 6.5
_LOCAL, _LOCAL_PID, _LOCAL_CREDENTIALS = 0, 0x002, 0x001  # SOL_LOCAL, LOCAL_PEERPID, LOCAL_PEERCRED (xnu, unix(4))
_XUCRED = struct.Struct("IIh16I")


class PeerFacts(NamedTuple):
    """The process that connected, or for a client the one that last called listen(2) on the other end.

    :ivar pid: its number in our pid namespace; 0 if it is not to be seen from there
    :ivar inode: what tells it from every other of this boot, where the kernel says it; ``None`` also once it was reaped
    """

    pid: int
    uid: int
    gid: int
    inode: int | None


def peer_facts(connection: socket.socket, kernel: Kernel | None = None) -> PeerFacts:
    """What the kernel says about the other end of *connection*.

    :raises OSError: it is no connected unix socket, or this system cannot tell
    """
    if _CREDENTIALS is not None:
        pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, _CREDENTIALS, _UCRED.size))
        return PeerFacts(pid, uid, gid, _inode(connection, kernel or Kernel()))
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(errno.EOPNOTSUPP, "this system cannot tell who is at the other end of a connection")
    number = connection.getsockopt(_LOCAL, _LOCAL_PID, 4)
    _, uid, _, gid, *_ = _XUCRED.unpack(connection.getsockopt(_LOCAL, _LOCAL_CREDENTIALS, _XUCRED.size))
    return PeerFacts(struct.unpack("i", number)[0], uid, gid, None)


def _inode(connection: socket.socket, kernel: Kernel) -> int | None:
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, _PIDFD)
    except OSError:  # an older kernel, or the process was reaped
        return None
    try:
        return Pidfds(kernel).inode(pidfd)
    except OSError:
        return None
    finally:
        os.close(pidfd)


def listeners_at(path: str) -> tuple[int, ...]:
    """The processes that hold a socket which was bound to *path*, as far as this account may see. Never evidence."""
    import psutil  # heavy, and only needed to name somebody in an error

    try:
        found = psutil.net_connections(kind="unix")
    except (psutil.Error, OSError):
        return ()
    return tuple(sorted({one.pid for one in found if one.pid and str(one.laddr) == path}))
