"""The file by which a listening socket is found, and its anchor.

The socket is bound, given its mode and made to listen under a name of its own in the lock directory, the anchor; only
then is it linked to its path. So a client never meets a socket that refuses while its owner starts, and a path that
others removed is linked again to the very socket that was there, with whoever waits in its backlog.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable
from typing import NamedTuple

from ownership._directory import LockDirectory
from ownership._errors import AlreadyOwnedError, explained
from ownership._paths import Resource, anchor_of, quoted
from ownership._process import ProcessTable, listeners_at, peer_facts, printable
from ownership._sockets._address import reachable
from ownership._sockets._dial import Answer, dial
from ownership._system import may
from ownership._verdict import Verdict

_GIVING = "only root may give a socket to another account, or to a group that it is no member of"
_TRIES = 20  # times that something may come to the path while we clear it

FileId = tuple[int, int]


class Permissions(NamedTuple):
    """Who may connect: mode, and account and group if they are not our own."""

    mode: int
    uid: int = -1
    gid: int = -1


def bind(anchor: str, permissions: Permissions, backlog: int) -> socket.socket:
    """A new socket that listens at *anchor*, whatever a dead owner left in its place.

    :raises OSError: with path
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        discard(anchor)
        with reachable(anchor) as short:
            listening.bind(os.fsencode(short))
        if permissions.uid != -1 or permissions.gid != -1:
            os.chown(anchor, permissions.uid, permissions.gid, follow_symlinks=False)
        os.chmod(anchor, permissions.mode)  # bind(2) minds the umask
        listening.listen(backlog)
    except BaseException as error:
        listening.close()
        discard(anchor)
        if isinstance(error, OSError):
            gives = error.errno == errno.EPERM and (permissions.uid, permissions.gid) != (-1, -1)
            raise explained(error, anchor, _GIVING if gives else _advice(error, anchor)) from None
        raise
    return listening


def discard(anchor: str) -> None:
    """Unlink a name that can only be ours; quiet if it is gone."""
    try:
        os.unlink(anchor)
    except OSError:
        pass


def _advice(error: OSError, path: str) -> str:
    parent = os.path.dirname(path)
    if error.errno == errno.EPERM and may(parent, os.W_OK):
        return f"its filesystem may have no hard links, or keeps others from removing it: ls -ld {quoted(parent)}"
    if error.errno in (errno.EPERM, errno.EROFS):
        return f"check the attributes (lsattr -d) of {quoted(parent)}, and whether its mount is read-only"
    return "see who may write in that directory" if error.errno == errno.EACCES else ""


def anchors(directory: LockDirectory, resource: Resource) -> tuple[str, str]:
    """Where the anchor of *resource* belongs: in its lock directory; beside it, if that is on another filesystem."""
    name = anchor_of(resource.name)
    return directory.file(name), f"{resource.parent.rstrip('/')}/.{name}"


def file_id(found: os.stat_result) -> FileId:
    return found.st_dev, found.st_ino


def file_at(path: str) -> FileId | None:
    """Which file *path* leads to, ``None`` if nothing is there.

    :raises OSError: it cannot be told
    """
    try:
        return file_id(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def show(anchor: str, path: str, resource: Resource, processes: ProcessTable) -> None:
    """Link *anchor* to *path*. What lies there is removed as by :func:`clear`, nothing else.

    Call while *resource* is owned: nobody else, by our rules, puts a socket there meanwhile.

    :raises AlreadyOwnedError: somebody who is not in the records listens there
    :raises OSError: there is something else, or it cannot be told
    """
    for _ in range(_TRIES):
        try:
            os.link(anchor, path, follow_symlinks=False)
            return
        except FileExistsError:
            clear(path, resource, (), processes)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise
            raise explained(error, path, _advice(error, path)) from None
    raise explained(OSError(errno.EEXIST, "other sockets keep being put there"), path, "find out which program does it")


def clear(path: str, resource: Resource, anchored: Iterable[str], processes: ProcessTable) -> None:
    """Remove the socket at *path* that nobody listens on, or that an earlier owner made; anything else stays as it is.

    Whatever has its other name at one of *anchored* was made by an owner before us: that ownership is over, whoever has
    inherited its socket.

    :raises AlreadyOwnedError: somebody who is not in the records listens there
    :raises OSError: there is something else, or it cannot be told whether anybody listens
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explained(error, path) from None
    if not stat.S_ISSOCK(found.st_mode):
        hint = f"find out what it is; nothing but a socket is ever removed: ls -l {quoted(path)}"
        raise explained(FileExistsError(errno.EEXIST, "there is something that is no socket"), path, hint)
    if any(file_at(anchor) == file_id(found) for anchor in anchored):
        remove(path, file_id(found))
        return
    answer = dial(path)
    if answer.connection is not None or answer.is_full:
        try:
            raise _listened_on(path, resource, answer, processes)
        finally:
            if answer.connection is not None:
                answer.connection.close()
    if answer.error == errno.ENOENT:
        return
    if answer.error != errno.ECONNREFUSED:
        what = f"{os.strerror(answer.error)}, so whether anybody listens there cannot be told, and it was not removed"
        raise explained(OSError(answer.error, what), path, f"see who has it open: ss -xlp src {quoted(path)}")
    if file_at(path) == file_id(found):
        remove(path, file_id(found))


def remove(path: str, which: FileId) -> bool:
    """Unlink *path* if it leads to that very file; whether it did."""
    if file_at(path) != which:
        return False
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise explained(error, path, _advice(error, path)) from None
    return True


def _listened_on(path: str, resource: Resource, answer: Answer, processes: ProcessTable) -> AlreadyOwnedError:
    """What to say about somebody who listens at *path* and is in no record."""
    if answer.connection is None:
        who, reason = _named(listeners_at(path), processes), f"somebody listens there: {answer.words}"
    else:
        who, reason = _answering(answer.connection, processes)
    return AlreadyOwnedError(
        f"{resource.shown} is served by {who}, which no record names: {reason}; nothing was removed",
        resource=resource.path,
        record=None,
        verdict=Verdict.UNKNOWN,
        reason=f"{who} listens there, which no record names",
        hint=f"end that process, which does not use these records: ss -xlp src {quoted(path)}",
    )


def _answering(connection: socket.socket, processes: ProcessTable) -> tuple[str, str]:
    try:
        pid = peer_facts(connection).pid
    except OSError:
        pid = 0
    if pid <= 0:
        return "a process that is not to be seen from here", "it answers"
    if processes.observe(pid).exists is False:
        return f"somebody who inherited the socket of pid {pid}, which is gone", "it answers"
    return _named((pid,), processes), "it answers"


def _named(pids: tuple[int, ...], processes: ProcessTable) -> str:
    if not pids:
        return "a process that cannot be named"
    told = [f"pid {pid} ({printable(processes.command_of(pid) or 'unknown')})" for pid in pids[:3]]
    return ", ".join(told)
