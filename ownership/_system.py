"""What the protocol needs of the operating system, chosen once: locks, links relative to a directory, accounts.

Everything else in this package may ask whether it is there, never which system it is on.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from types import ModuleType

from ownership._errors import UnsupportedFilesystemError

fcntl: ModuleType | None
grp: ModuleType | None
pwd: ModuleType | None
try:
    import fcntl
    import grp
    import pwd
except ImportError:  # Windows: import works, acquire says that it does not
    fcntl = grp = pwd = None

_LOCK, _UNLOCK = (fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN) if fcntl is not None else (0, 0)

SUPPORTED = fcntl is not None and os.link in os.supports_dir_fd
CLOSE_ON_EXEC: int = getattr(os, "O_CLOEXEC", 0)
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | CLOSE_ON_EXEC
DIRECTORY_ONLY: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | CLOSE_ON_EXEC
HAS_FILE_USER = sys.platform.startswith("linux")
PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)
SOCKET_PATH_LIMIT = 107 if HAS_FILE_USER else 103  # sun_path (unix(7), unix(4)) without its NUL
UNNAMED: int | None = getattr(os, "O_TMPFILE", None)

# flock(2), link(2): what they answer where the filesystem cannot do it (ESTALE: a network filesystem lost the file)
UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ESTALE})

# statfs(2) f_type of filesystems known to live on this machine alone; FUSE, 9p, virtiofs and the network ones are not
_LOCAL_TYPES = frozenset(
    {0xEF53, 0x58465342, 0x9123683E, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E, 0x01021994, 0x794C7630}
)  # ext*, xfs, btrfs, zfs, f2fs, bcachefs, tmpfs, overlay
_LOCAL_NAMES = frozenset({"apfs", "hfs", "ufs", "zfs"})


def require_supported(path: str) -> None:
    """Refuse to acquire where the protocol cannot work (Windows, for now)."""
    if not SUPPORTED:
        raise UnsupportedFilesystemError(
            f"{path}: this system has no flock(2) or no link(2) relative to a directory",
            resource=path,
            hint="run it on Linux, macOS or a BSD",
        )


euid: Callable[[], int] = getattr(os, "geteuid", int)  # zero where there are no accounts by number


def may(path: str, mode: int) -> bool:
    """Whether this effective account may do that (``os.R_OK | ...``) with what *path* leads to."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def account(uid: int) -> tuple[str, str] | None:
    """Name and home directory of *uid* from the account database, ``None`` if it knows none."""
    if pwd is None:
        return None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return entry.pw_name, entry.pw_dir


def group(gid: int) -> str | None:
    """Name of *gid* from the group database, ``None`` if it knows none."""
    try:
        return None if grp is None else str(grp.getgrgid(gid).gr_name)
    except KeyError:
        return None


def in_group(gid: int) -> bool:
    """Whether this process is a member of *gid*; not only its account, whose groups may be newer than its login."""
    return gid == os.getegid() or gid in os.getgroups()


def lock_shared(descriptor: int) -> bool:
    """``flock(LOCK_SH | LOCK_NB)``; false when it is locked exclusively. (filelock has no shared form.)"""
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_again(descriptor: int) -> bool:
    """``flock(LOCK_EX | LOCK_NB)``: what filelock's ``lock_descriptor`` comes to, for a file that it locked before."""
    try:
        fcntl.flock(descriptor, _LOCK)  # type: ignore[union-attr]
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(descriptor: int) -> None:
    """``flock(LOCK_UN)``."""
    fcntl.flock(descriptor, _UNLOCK)  # type: ignore[union-attr]


def is_local(descriptor: int, path: str) -> bool:
    """Whether the filesystem of the open *descriptor* is known to be local. Doubt is no."""
    try:
        return _statfs_type(descriptor) in _LOCAL_TYPES if UNNAMED is not None else _mounted_type(path) in _LOCAL_NAMES
    except (OSError, AttributeError, ImportError):
        return False


def _statfs_type(descriptor: int) -> int:
    import ctypes  # there already, where it is at all: see _inotify

    buffer = ctypes.create_string_buffer(512)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fstatfs(descriptor, buffer) != 0:
        raise OSError(ctypes.get_errno(), "fstatfs")
    return ctypes.c_ulong.from_buffer(buffer).value & 0xFFFFFFFF  # f_type is the first word on every Linux


def _mounted_type(path: str) -> str:
    import psutil  # heavy, and only needed where statfs(2) has no type number

    mounts = [mount for mount in psutil.disk_partitions(all=True) if _below(path, mount.mountpoint)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype.lower() if mounts else ""


def _below(path: str, mountpoint: str) -> bool:
    return path == mountpoint or path.startswith(mountpoint.rstrip("/") + "/")
