"""What can go wrong, and what it means for the caller.

OwnershipError
├── ContentionError          somebody else has it, for now                                        exit 75
│   ├── AlreadyOwnedError (BlockingIOError)
│   │   └── AcquireTimeoutError (TimeoutError)
│   ├── GateClosedError
│   └── GuardTimeoutError (TimeoutError)
├── LossError (RuntimeError)  we had it and do not have it any more                               exit 76
│   └── OwnershipLostError
├── RecordError              a record or directory that cannot be used                            exit 65
│   ├── InvalidRecordError (ValueError)
│   ├── UnsupportedRecordError
│   ├── UnsafeDirectoryError (PermissionError)
│   └── UnsupportedFilesystemError (OSError)
├── HandoverError            the claim stayed where it was                                         exit 1
├── UnreachableError (ConnectionError)  nobody answers                                             exit 1
├── PeerError (PermissionError)  another process than it should be is at the other end             exit 1
├── StartError (ChildProcessError)  what was started has ended, or does not answer                 exit 1
│   └── StartTimeoutError (TimeoutError)
├── CrashLoopError (RuntimeError)  it has died too often lately to be started again                exit 1
└── StopTimeoutError (TimeoutError)  somebody is left of what was to be stopped                    exit 1

The message names the resource, the fact, who and since when; the remedy is in ``hint``. Every error pickles.
An error of the system (ENOSPC, EACCES, EIO, ...) stays the OSError it is, with the path and, if there is one, a hint.
"""

from __future__ import annotations

import errno as errnos
import os
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ownership._models import OwnerIdentity, OwnerRecord
    from ownership._report import StopReport, Survivor
    from ownership._verdict import Verdict

_OS_FIELDS = ("errno", "strerror", "filename")


class OwnershipError(Exception):
    """Base of everything this library raises on its own account.

    :ivar hint: what to do about it, in one sentence; empty when there is nothing to do
    :cvar exit_code: what the command line exits with
    """

    exit_code: ClassVar[int] = 1
    _errno: ClassVar[int | None] = None

    def __init__(self, message: str, *, resource: os.PathLike[str] | str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.resource = None if resource is None else os.fspath(resource)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")
        if isinstance(self, OSError):
            for name, value in zip(_OS_FIELDS, (self._errno, message, self.resource), strict=False):
                setattr(self, name, value)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        names = _OS_FIELDS if isinstance(self, OSError) else ()
        fields = {name: getattr(self, name) for name in names}
        return _restore, (type(self), self.args, self.__dict__, fields)


def _restore(
    kind: type[OwnershipError], args: tuple[Any, ...], state: dict[str, Any], fields: dict[str, Any]
) -> OwnershipError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    for name, value in fields.items():
        setattr(error, name, value)
    return error


class ContentionError(OwnershipError):
    """Somebody else is using it at this moment; trying again later may succeed."""

    exit_code = 75


class AlreadyOwnedError(ContentionError, BlockingIOError):
    """The resource has an owner that may not be evicted: it is live, stopped, or nobody can tell.

    :ivar resource: the canonical path
    :ivar record: the owner's record, or ``None`` when it cannot be read as one
    :ivar owner: the owner's identity: the record, or for one that cannot be read whoever its guard names
    :ivar verdict: ``live``, ``stopped`` or ``unknown``
    :ivar reason: the fact behind the verdict, in words
    """

    _errno = errnos.EAGAIN

    def __init__(
        self,
        message: str,
        *,
        resource: os.PathLike[str] | str,
        record: OwnerRecord | None,
        verdict: Verdict,
        reason: str,
        owner: OwnerIdentity | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.record = record
        self.owner = record if owner is None else owner
        self.verdict = verdict
        self.reason = reason


class AcquireTimeoutError(AlreadyOwnedError, TimeoutError):
    """The owner was still there when the timeout ended; the facts are those of the last look."""

    _errno = errnos.ETIMEDOUT


class GateClosedError(ContentionError):
    """Nobody new may own anything that the gate rules, until it is opened or whoever closed it ends.

    :ivar resource: the path of the gate
    :ivar record: the record of whoever closed it, or ``None`` when it cannot be read as one
    :ivar reason: why it was closed, as that one said
    """

    def __init__(
        self,
        message: str,
        *,
        resource: os.PathLike[str] | str,
        record: OwnerRecord | None = None,
        reason: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.record = record
        self.reason = reason


class GuardTimeoutError(ContentionError, TimeoutError):
    """The short mutex around reading, deciding and writing was busy for the whole wait: nothing was decided.

    This does not say that anybody owns the resource.

    :ivar holder: the pid that holds the guard where the system can tell, else ``None``
    """

    _errno = errnos.ETIMEDOUT

    def __init__(
        self, message: str, *, resource: os.PathLike[str] | str, holder: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.holder = holder


class LossError(OwnershipError, RuntimeError):
    """What this handle stood for is over.

    :ivar reason: ``record-missing``, ``owner-replaced``, ``expired``, ``broken`` or ``owner-gone``; of a handle that
        was given up, or never was one in this process: ``released``, ``retired``, ``handed-over`` or ``forked``
    """

    exit_code = 76

    def __init__(
        self, message: str, *, reason: str, resource: os.PathLike[str] | str | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.reason = reason


class OwnershipLostError(LossError):
    """This claim does not own its resource any more, and never will again."""


class FenceTrippedError(LossError):
    """The owner that this worker belongs to does not own any more, or is gone: stop working for it."""


class RecordError(OwnershipError):
    """A record, lock directory or filesystem that cannot be used as it is."""

    exit_code = 65


class InvalidRecordError(RecordError, ValueError):
    """There is something at the record's or guard's path that is no record and is never removed by us.

    :ivar head: its first bytes, as text; empty when it was not read
    """

    def __init__(self, message: str, *, resource: os.PathLike[str] | str, head: str = "", hint: str = "") -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.head = head


class UnsupportedRecordError(RecordError):
    """A record of a newer format whose owner cannot be identified: it counts as held."""


class UnsafeDirectoryError(RecordError, PermissionError):
    """A lock directory, registry or parent that other accounts could tamper with."""

    _errno = errnos.EACCES


class UnsupportedFilesystemError(RecordError, OSError):
    """The filesystem or system lacks what exclusion needs: working locks and hard links."""

    _errno = errnos.EOPNOTSUPP


class HandoverError(OwnershipError):
    """Nobody adopted the claim; unless ``__cause__`` says otherwise it is still ours."""


class StopTimeoutError(OwnershipError, TimeoutError):
    """Somebody is left of what was to be stopped: they survived KILL for a while, or could not be signalled.

    :ivar survivors: who is known to be left; empty when that cannot be told, which counts as somebody
    :ivar report: what was signalled when
    """

    _errno = errnos.ETIMEDOUT

    def __init__(
        self, message: str, *, report: StopReport, resource: os.PathLike[str] | str | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.report = report

    @property
    def survivors(self) -> tuple[Survivor, ...]:
        return self.report.survivors


def with_path(error: BaseException, path: str) -> BaseException:
    """*error*, or if it is one of the system that names no file, the same with *path*."""
    ours = isinstance(error, OwnershipError)
    return explained(error, path) if isinstance(error, OSError) and not ours and error.filename is None else error


def explained(error: OSError, path: str, hint: str = "") -> OSError:
    """The same system error with *path* in it, if there is one, and *hint* as attribute and note."""
    told = type(error)(error.errno, error.strerror or str(error), *([path] if path else []))
    told.hint = hint  # type: ignore[attr-defined]
    if hint:
        told.add_note(f"hint: {hint}")
    return told
