"""Pidfds: descriptors of a process itself, not of its number (pidfd_open(2))."""

from __future__ import annotations

import errno

from ownership._process._kernel import Kernel

# pidfd_open(2) of a number that is no thread group leader: EINVAL up to Linux 6.14, ENOENT since
NOT_A_LEADER = frozenset({errno.EINVAL, errno.ENOENT})
# no pidfds here at all: an old kernel, or a sandbox that refuses the call
UNSUPPORTED = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES, errno.ENODEV, errno.EOPNOTSUPP})


class Pidfds:
    """Opens pidfds and reads what they tell by themselves."""

    def __init__(self, kernel: Kernel, *, enabled: bool = True) -> None:
        self._kernel = kernel
        self._enabled = enabled
        self._with_inodes: bool | None = None

    def open(self, pid: int) -> int:
        """A pidfd of *pid*, close-on-exec.

        :raises OSError: ESRCH is proof that the number is free; see :data:`NOT_A_LEADER` and :data:`UNSUPPORTED`
        """
        if not self._enabled:
            raise OSError(errno.ENOSYS, "pidfds are switched off")
        return self._kernel.pidfd_open(pid)

    def work(self, own_pid: int) -> bool:
        """Whether a pidfd of ourselves opens; if it does, a refusal of another number is about that number."""
        try:
            self._kernel.close(self.open(own_pid))
        except OSError:
            return False
        return True

    def inode(self, pidfd: int) -> int | None:
        """The inode of the process behind *pidfd*, unique for this boot; ``None`` before pidfs (Linux 6.9).

        Before pidfs every pidfd has the one inode of the anonymous inode filesystem, where an eventfd lives too.

        :raises OSError: it cannot be told at the moment
        """
        status = self._kernel.fstat(pidfd)
        if self._with_inodes is None:
            try:
                eventfd = self._kernel.eventfd()
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                self._with_inodes = False
                return None
            try:
                self._with_inodes = self._kernel.fstat(eventfd).st_dev != status.st_dev
            finally:
                self._kernel.close(eventfd)
        return status.st_ino if self._with_inodes else None

    def has_ended(self, pidfd: int) -> bool:
        """Whether *pidfd* polls readable: every thread has exited, reaped or not. A hint, to be confirmed.

        :raises OSError: it cannot be told at the moment
        """
        return self._kernel.ready(pidfd)

    def is_still(self, pid: int, inode: int) -> bool:
        """Whether a fresh pidfd of *pid* leads to the process of *inode*. A failure is no."""
        return self._fresh(pid, inode) is not None

    def is_zombie(self, pid: int, inode: int | None) -> bool:
        """Whether a fresh pidfd of *pid* leads to that same process, and it has ended: not reaped, so a zombie."""
        return self._fresh(pid, inode) is True

    def _fresh(self, pid: int, inode: int | None) -> bool | None:
        """Whether the process of *inode* has ended, asked of a fresh pidfd; ``None`` when *pid* is not that one."""
        try:
            pidfd = self.open(pid)
        except OSError:
            return None
        try:
            return self.has_ended(pidfd) if inode is None or self.inode(pidfd) == inode else None
        except OSError:
            return None
        finally:
            self._kernel.close(pidfd)
