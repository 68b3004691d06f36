"""Why the system wrote less than it was given."""

from __future__ import annotations

import errno
import os
import resource


def short_write(size: int) -> OSError:
    """The error that writing the rest would have been; as far as that is known, the disk is full.

    :param size: that the file would have had
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    number = errno.EFBIG if limit != resource.RLIM_INFINITY and size > limit else errno.ENOSPC
    return OSError(number, os.strerror(number))
