"""Why the system wrote less than it was given."""

from __future__ import annotations

import errno
import os
from types import ModuleType

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None


def short_write(size: int) -> OSError:
    """The error that writing the rest would have been; as far as that is known, the disk is full.

    :param size: that the file would have had
    """
    number = errno.EFBIG if _is_limited(size) else errno.ENOSPC
    return OSError(number, os.strerror(number))


def _is_limited(size: int) -> bool:
    """Whether this process may make no file of *size* bytes."""
    if resource is None:
        return False
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return bool(limit != resource.RLIM_INFINITY and size > limit)
