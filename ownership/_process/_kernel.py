"""The system calls that a look at a process takes, on one small object, so that a test can make any of them fail."""

from __future__ import annotations

import errno
import os
import select
import signal
from typing import Any

READ_ONLY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
DIRECTORY = READ_ONLY | getattr(os, "O_DIRECTORY", 0)
DIRECTORY_NAME_ONLY = DIRECTORY | getattr(os, "O_PATH", 0)  # opens what may not be listed; one call, no read access

_CHUNK = 4096
MAX_FILE = 1 << 20  # of a /proc file; status lists up to 65,536 groups


class Kernel:
    """Thin, stateless forms of the calls. All raise ``OSError``."""

    getpid = staticmethod(os.getpid)

    def pidfd_open(self, pid: int) -> int:
        """pidfd_open(2); ENOSYS where Python was built without it."""
        opener = getattr(os, "pidfd_open", None)
        if opener is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return int(opener(pid))

    def eventfd(self) -> int:
        """A descriptor on the kernel's anonymous inode filesystem, to compare a pidfd with."""
        opener = getattr(os, "eventfd", None)
        if opener is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return int(opener(0, os.EFD_CLOEXEC))

    def ready(self, descriptor: int) -> bool:
        """Whether *descriptor* polls readable now. One that was closed does not (POLLNVAL, poll(2))."""
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return any(events & select.POLLIN for _, events in poller.poll(0))

    def fstat(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def signal_zero(self, pid: int) -> None:
        """kill(2) with signal 0. Accepts a thread id as well."""
        os.kill(pid, 0)

    def getpgid(self, pid: int) -> int:
        """getpgid(2). Accepts a thread id as well."""
        return int(_posix("getpgid")(pid))

    def getpgrp(self) -> int:
        return int(_posix("getpgrp")())

    def kill(self, pid: int, number: int) -> None:
        """kill(2) of one process. Signal 0 does nothing on Windows, where it would be Ctrl-C."""
        if number != 0 or hasattr(os, "getpgid"):
            os.kill(pid, number)

    def killpg(self, pgid: int, number: int) -> None:
        """kill(2) of a process group."""
        _posix("killpg")(pgid, number)

    def pidfd_send_signal(self, pidfd: int, number: int, flags: int) -> None:
        """pidfd_send_signal(2); ENOSYS where Python was built without it."""
        sender = getattr(signal, "pidfd_send_signal", None)
        if sender is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        sender(pidfd, number, None, flags)

    def open(self, path: str, flags: int, directory: int | None = None) -> int:
        return os.open(path, flags, dir_fd=directory)

    def read(self, descriptor: int, size: int) -> bytes:
        return os.read(descriptor, size)

    def pread(self, descriptor: int, size: int) -> bytes:
        return os.pread(descriptor, size, 0)

    def listdir(self, descriptor: int) -> list[str]:
        return os.listdir(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


def _posix(name: str) -> Any:
    """``os.<name>``; ENOSYS on a system without process groups."""
    function = getattr(os, name, None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return function


def read_file(
    kernel: Kernel, path: str, directory: int | None = None, *, limit: int = MAX_FILE, many_records: bool = False
) -> bytes:
    """The content of a small kernel file, at most *limit* bytes.

    Nearly every file of ``/proc`` is one record, handed out whole: there a short read is the end (seq_file.rst).

    :param many_records: read on after a short read
    :raises OSError: with the name of the file that could not be read
    """
    try:
        descriptor = kernel.open(path, READ_ONLY, directory)
        try:
            content = kernel.read(descriptor, min(limit, _CHUNK))
            while len(content) < limit and (many_records or len(content) % _CHUNK == 0):
                more = kernel.read(descriptor, min(limit - len(content), _CHUNK))
                if not more:
                    break
                content += more
            return content
        finally:
            kernel.close(descriptor)
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise
