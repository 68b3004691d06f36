"""What has to outlive a loss of power."""

from __future__ import annotations

import errno
import os

_NO_SYNC = frozenset({errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP})  # fsync(2): nothing there to be written back
_FLAGS: int = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def sync(number: int) -> None:
    """Whatever was written to the open file by now outlives a loss of power.

    :raises OSError: it may not
    """
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def sync_directory(path: str) -> None:
    """The names in the directory lead to the same files after a loss of power.

    :raises OSError: they may not
    """
    numbers: list[int] = []
    closing = map(os.close, numbers)  # one step then: no signal handler leaves it open
    try:
        numbers.extend(map(os.open, (path,), (_FLAGS,)))
        sync(numbers[0])
    finally:
        list(closing)
