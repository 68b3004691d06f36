"""What can go wrong about those who serve; the tree stands in :mod:`ownership._errors`."""

from __future__ import annotations

import errno as errnos
import os
from typing import TYPE_CHECKING

from ownership._errors import OwnershipError

if TYPE_CHECKING:
    from ownership._models import OwnerRecord


class UnreachableError(OwnershipError, ConnectionError):
    """Nobody answers where *resource* says, and nobody was to be started.

    :ivar record: of whoever owns it, if anybody does
    """

    _errno = errnos.ECONNREFUSED

    def __init__(
        self,
        message: str,
        *,
        resource: os.PathLike[str] | str,
        record: OwnerRecord | None = None,
        errno: int = errnos.ECONNREFUSED,
        hint: str = "",
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.record = record
        self.errno = errno


class PeerError(OwnershipError, PermissionError):
    """The process at the other end of a connection is not the one that it should be, or that cannot be told.

    :ivar pid: its number; 0 if it is not to be seen from here
    """

    _errno = errnos.EACCES

    def __init__(
        self, message: str, *, pid: int, resource: os.PathLike[str] | str | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.pid = pid


class StartError(OwnershipError, ChildProcessError):
    """What was started to answer has ended without.

    :ivar returncode: as of :class:`subprocess.Popen`: negative for a signal; ``None`` if it had not ended, or
        nobody was told how
    :ivar stderr: the last lines of what it wrote there
    """

    _errno = errnos.ECHILD

    def __init__(
        self,
        message: str,
        *,
        resource: os.PathLike[str] | str,
        returncode: int | None,
        stderr: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.returncode = returncode
        self.stderr = stderr


class StartTimeoutError(StartError, TimeoutError):
    """Whoever was to answer lives, but did not answer in time. It is left alone."""

    _errno = errnos.ETIMEDOUT


class CrashLoopError(OwnershipError, RuntimeError):
    """Its owners have died again and again: it was not started once more.

    :ivar deaths: how many seconds ago its owners were found dead, the latest last
    """

    def __init__(
        self, message: str, *, resource: os.PathLike[str] | str, deaths: tuple[float, ...], hint: str = ""
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.deaths = deaths
