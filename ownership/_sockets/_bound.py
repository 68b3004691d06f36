"""A listening socket and where it is found: made by us at a path or port, or passed to us by whoever made it."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from ownership._directory import LockDirectory
from ownership._errors import explained
from ownership._paths import DIRECTORY, Resource, StrPath, quoted
from ownership._process import ProcessTable
from ownership._sockets._address import HostPort, Socket, tcp_endpoint, unix_endpoint
from ownership._sockets._file import FileId, Permissions, anchors, bind, clear, discard, file_at, file_id, remove, show

_WANTED = "sock must be a bound stream socket or its descriptor"


class Bound:
    """What a listener listens on.

    :ivar socket: listening; another one after it had to be made anew
    :ivar path: where it is found, ``None`` for a port
    :ivar made: the path is ours to put back and to remove
    """

    socket: Socket
    anchor: str | None = None
    which: FileId | None = None
    _stood_for: FileId | None = None

    def __init__(self, listening: Socket, path: str | None, backlog: int, *, made: bool) -> None:
        self.hold(listening)
        self.path: str | None = path
        self.backlog = backlog
        self.made = made
        self.endpoint = unix_endpoint(path) if path is not None else tcp_endpoint(listening.getsockname())
        if path is not None:
            self.which = file_at(path)

    def hold(self, listening: Socket) -> None:
        """*listening* is the socket from now on."""
        self.socket = listening
        self._stood_for = file_id(os.fstat(listening.fileno()))

    def is_intact(self) -> bool:
        """Whether our descriptor still is that of the socket: the program around us may have closed and reused it."""
        try:
            return file_id(os.fstat(self.socket.fileno())) == self._stood_for
        except OSError:
            return False

    def is_found(self) -> bool:
        """Whether the path leads to this socket, and nobody has closed it under us; true of one without a path.

        :raises OSError: it cannot be told
        """
        if self.socket.fileno() >= 0 and not self.is_intact():
            return False
        return self.path is None or (self.which is not None and file_at(self.path) == self.which)

    def withdraw(self) -> None:
        """Remove the path, if it leads to this socket, and the anchor."""
        if self.made and self.path is not None and self.which is not None:
            try:
                remove(self.path, self.which)
            finally:
                if self.anchor is not None and file_at(self.anchor) == self.which:
                    discard(self.anchor)

    def close(self) -> None:
        """Close our descriptor, if there is one by now, and it still is ours."""
        if "socket" in self.__dict__:
            if self.socket.fileno() >= 0 and not self.is_intact():
                self.socket.detach()
            self.socket.close()

    def shut(self) -> None:
        """Refuse whoever comes from now on, in every process that has this socket; accept(2) says EINVAL."""
        try:
            if self.is_intact():
                self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class UnixSocket(Bound):
    """A socket of ours at a path.

    :ivar permissions: who may connect
    """

    def __init__(
        self,
        resource: Resource,
        directory: LockDirectory,
        permissions: Permissions,
        backlog: int,
        processes: ProcessTable,
    ) -> None:
        self._resource = resource
        self._anchors = anchors(directory, resource)
        self._processes = processes
        self.permissions = permissions
        self.path, self.backlog, self.made = resource.path, backlog, True
        self.endpoint = unix_endpoint(resource.path)

    def open(self, published: Callable[[], object]) -> None:
        """Listen, then be found.

        :param published: called when everything but the path is there
        :raises AlreadyOwnedError: somebody who is in no record listens at the path
        :raises OSError: there is something else at the path, or the directory cannot be used
        """
        clear(self._resource.path, self._resource, self._anchors, self._processes)
        for last, anchor in enumerate(self._anchors):
            listening = bind(anchor, self.permissions, self.backlog)
            try:
                if not last:
                    published()
                self.take(listening, anchor, file_at(anchor))
                show(anchor, self._resource.path, self._resource, self._processes)
                return
            except BaseException as error:
                listening.close()
                self.withdraw()
                discard(anchor)
                if not (isinstance(error, OSError) and error.errno == errno.EXDEV and not last):
                    raise

    def take(self, listening: Socket, anchor: str | None, which: FileId | None) -> None:
        """Be the one that somebody else opened, and found to be *which*."""
        self.hold(listening)
        self.anchor, self.which = anchor, which

    def restore(self) -> None:
        """Be found again, as the same socket if it has its anchor still, else as a new one.

        :raises OSError: as in :meth:`open`
        """
        if self.is_found():
            return
        intact, before = self.is_intact(), self.socket
        if intact and self.anchor is not None and self.which is not None and file_at(self.anchor) == self.which:
            show(self.anchor, self._resource.path, self._resource, self._processes)
            return
        if not intact:
            before.detach()
        self.open(lambda: None)
        before.close()


def tcp_socket(address: HostPort, backlog: int) -> Bound:
    """A socket of ours at a port.

    :raises OSError: with host and port
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return Bound(socket.create_server(address, family=family, backlog=backlog), None, backlog, made=True)
    except OSError as error:
        if isinstance(error.__context__, socket.gaierror):  # whose numbers are none of errno
            told = OSError(errno.EADDRNOTAVAIL, f"its host has no address here: {error.__context__.strerror}")
            raise explained(
                told, f"{host}:{port}", f"see what the name stands for: getent hosts {quoted(host)}"
            ) from None
        hint = f"see who has it: ss -ltnp sport = :{port}" if error.errno == errno.EADDRINUSE else ""
        raise explained(OSError(error.errno, os.strerror(error.errno or 0)), f"{host}:{port}", hint) from None


def passed_socket(passed: socket.socket | int, path: StrPath | None, backlog: int) -> Bound:
    """A bound socket that somebody passed to us, whose path, if it has one, is not ours to remove.

    :param path: where it is found, if that is not the name it was bound to
    :raises ValueError: it is no stream socket that is bound, and to listen on; its descriptor stays open
    """
    try:
        listening = passed if isinstance(passed, socket.socket) else socket.socket(fileno=passed)
    except (OSError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{_WANTED}, got {passed!r:.80}: {error}") from None
    try:
        return _bound(listening, path, backlog)
    except BaseException:
        if listening is not passed:
            listening.detach()
        raise


def _bound(listening: Socket, path: StrPath | None, backlog: int) -> Bound:
    try:
        name = listening.getsockname()
    except OSError as error:
        raise ValueError(f"{_WANTED}, got {listening!r}: {error}") from None
    at_a_port = listening.family in (socket.AF_INET, socket.AF_INET6)
    if listening.type != socket.SOCK_STREAM or not name or (at_a_port and name[1] == 0):
        raise ValueError(f"{_WANTED}, got {listening!r}")
    if _is_connected(listening):
        raise ValueError(f"{_WANTED}, got a connection: {listening!r}")
    if listening.family != socket.AF_UNIX:
        if path is not None:
            raise ValueError(f"address must be left out, or host and port, for a socket that has no path: {path!r}")
        return Bound(listening, None, backlog, made=False)
    text = os.fsdecode(name)
    if path is None and (text.startswith("\0") or os.path.basename(os.path.dirname(text)).startswith(DIRECTORY)):
        raise ValueError(f"address must be given: the name that sock was bound to is not where it is found: {text!r}")
    return Bound(listening, os.path.realpath(text if path is None else os.fsdecode(path)), backlog, made=False)


def _is_connected(listening: Socket) -> bool:
    try:
        listening.getpeername()
    except OSError:
        return False
    return True
