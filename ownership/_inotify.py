"""inotify(7) through the C library, which Python has no calls for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

ctypes: ModuleType | None
try:
    import ctypes  # now, since a child that is forked while another thread imports it would wait for ever
except ImportError:
    ctypes = None

MODIFY, ATTRIB, MOVED, CREATE, DELETE = 0x2, 0x4, 0xC0, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, OVERFLOW, IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
DONT_FOLLOW = 0x02000000

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    fcntl = None

FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

_SET_SIGNAL, _GET_SIGNAL, _OURS = 10, 11, 63  # F_SETSIG, F_GETSIG; a real-time signal

_MARK = re.compile(rb"^inotify (wd:[0-9a-f]+ ino:[0-9a-f]+) ", re.MULTILINE)

_library: Any = None


def opener() -> Callable[[int], int] | None:
    """What makes an instance, given :data:`FLAGS`: negative when there is none to be had. ``None`` where it is unknown.

    The bare function, so that its result can be kept in the same step.
    """
    libc = _libc()
    return None if libc is None else libc.inotify_init1


def add(instance: int, path: str, mask: int) -> int:
    """The watch descriptor of *path*; negative when it cannot be watched."""
    libc = _libc()
    return -1 if libc is None else int(libc.inotify_add_watch(instance, os.fsencode(path), mask))


def _libc() -> Any:
    global _library
    if ctypes is None:
        return None
    if _library is None:
        _library = ctypes.CDLL(None, use_errno=True)
    return _library if hasattr(_library, "inotify_init1") else None


def claim(instance: int) -> bool:
    """Mark *instance*, which was just opened, as ours; whether that can be had.

    By the signal that it would send if it were asked to, which it is not: a number that stays with the open file
    (F_SETSIG, fcntl(2)).
    """
    try:
        fcntl.fcntl(instance, _SET_SIGNAL, _OURS)  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return False
    return True


def is_claimed(instance: int) -> bool:
    """Whether that number stands for an instance that was marked."""
    try:
        return bool(fcntl.fcntl(instance, _GET_SIGNAL) == _OURS)  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return False


def is_instance(number: int) -> bool:
    """Whether *number* stands for any instance. Opens nothing."""
    try:
        return os.readlink(f"/proc/self/fd/{number}") == "anon_inode:inotify"
    except OSError:
        return False


def marks(instance: int) -> frozenset[bytes] | None:
    """What *instance* watches, as the kernel tells it; ``None`` if that number stands for anything else by now.

    The program around us may have closed it and given the number to a file of its own (proc_pid_fdinfo(5)).
    """
    try:
        if not is_instance(instance):
            return None
        with open(f"/proc/self/fdinfo/{instance}", "rb", buffering=0) as file:
            return frozenset(_MARK.findall(file.read(1 << 20)))
    except OSError:
        return None
