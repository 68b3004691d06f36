"""The file of a roster: read whole lines, append whole lines, be replaced as a whole; on the disk before it counts."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from os.path import dirname
from types import TracebackType
from typing import Any, Self, TypeVar

from leases import _forks
from leases._disk import sync, sync_directory
from leases._roster_draft import discard_prepared, remove_leftovers, temporary_name
from ownership import InvalidRecordError

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_MODE = 0o600
_T = TypeVar("_T")
BLOCK = 1 << 20  # bytes that are read at once
_HEAD = 256  # bytes within which the first line ends
_HINTS = {
    errno.ENOENT: "check the spelling, or make the directory first",
    errno.ENOSPC: "make room on that filesystem",
    errno.EDQUOT: "make room in this account's quota",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EACCES: "it belongs to another account: share it with registry=",
}


class TakenAway(Exception):
    """What was prepared is not there any more: somebody who was broken, and woke up, took it for a leftover.

    Or it is another process that has prepared it: this one was forked meanwhile.
    """


class OpenRoster:
    """The file, open. Where it leads later does not matter.

    Every error names it. The program around us may close every descriptor, and reuse their numbers: before every change
    the number is compared with what was opened. Who was forked meanwhile changes nothing: that is its parent's to do.
    """

    _identity: tuple[int, int] | None = None  # until it was looked at

    def __init__(self, path: str, flags: int, forks: int) -> None:
        self.path = path
        self.forks = forks
        self._numbers: list[int] = []  # filled and emptied in one step, so that no signal handler loses it
        self.__class__ = _Open
        self._numbers.extend(map(os.open, (path,), (flags | _FLAGS,)))
        self._identity = _identity(self._call(os.fstat, self._numbers[0]))

    @property
    def number(self) -> int:
        return self._numbers[0]

    def _call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return function(*arguments)
        except OSError as error:
            raise told(error, self.path) from None

    def stat(self) -> os.stat_result:
        """What it is.

        :raises InvalidRecordError: not a regular file
        """
        found = self._call(os.fstat, self.number)
        if _identity(found) != self._identity:
            raise told(OSError(errno.EBADF, os.strerror(errno.EBADF)), self.path)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidRecordError(f"{self.path}: not a regular file, so no roster", resource=self.path)
        return found

    def head(self) -> bytes:
        """Its first line, empty if there is none."""
        first, end, _ = self._call(os.pread, self.number, _HEAD, 0).partition(b"\n")
        return first + end if end else b""

    def block(self, offset: int, length: int) -> bytes:
        """What is there from *offset* on, at most *length* bytes."""
        return self._call(os.pread, self.number, length, offset)

    def append(self, lines: bytes) -> int:
        """Append *lines* in one write; how many bytes were written.

        :raises OSError: nothing was written
        :raises TakenAway: nothing either
        """
        return self._change(os.write, lines)

    def cut(self, size: int) -> None:
        """Take away what stands behind its last whole line.

        :raises TakenAway: that is not ours to do
        """
        self._change(os.ftruncate, size)

    def _change(self, function: Callable[..., _T], argument: Any) -> _T:
        self.stat()
        number = self.number
        try:
            if _forks.count != self.forks:
                raise TakenAway(self.path)
            return function(number, argument)
        except OSError as error:
            raise told(error, self.path) from None

    def sync(self) -> None:
        """Whatever was read or written by now outlives a loss of power.

        :raises OSError: it may not
        """
        self._call(sync, self.number)

    def room(self) -> int:
        """Bytes that are free on its filesystem, for this account."""
        found = self._call(os.fstatvfs, self.number)
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        """Close it, if the number still stands for it."""
        try:
            if self._numbers and self._identity in (None, _identity(os.fstat(self.number))):
                list(map(os.close, map(self._numbers.pop, (0,))))
        except (OSError, IndexError):
            pass
        self._numbers.clear()
        self.__class__ = OpenRoster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Open(OpenRoster):
    """Closed by its finaliser, if by nobody else. Of its own only meanwhile: what handlers raise in one is lost."""

    def __del__(self) -> None:
        self.close()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def opened(path: str, *, writing: bool = False, forks: int = -1) -> OpenRoster:
    """The file at *path*.

    :param forks: as counted when the change began that it is opened for
    :raises FileNotFoundError: there is none
    :raises InvalidRecordError: there is something else
    """
    try:
        flags = os.O_RDWR | os.O_APPEND if writing else os.O_RDONLY
        one = OpenRoster(path, flags, forks)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise InvalidRecordError(f"{path}: not a regular file, so no roster", resource=path) from None
        raise told(error, path) from None
    one.stat()
    return one


def created(path: str, content: bytes, registry: str | None, token: int) -> None:
    """Give *path* a file with *content*, unless it has one.

    :param token: of who makes it: whoever was broken meanwhile, and wakes, does not meddle with what others make
    :raises FileExistsError: it has
    :raises TakenAway: another one removed what was to become it
    """
    temporary = temporary_name(path, token)
    try:
        _write(temporary, content, _owner_of(path, registry))
        os.link(temporary, path, follow_symlinks=False)
    except OSError as error:
        raise _why(error, path, temporary) from None
    finally:
        discard_prepared(path, token)
    settled(path)


def prepared(path: str, content: bytes, token: int) -> str:
    """A file with *content* that may replace the one at *path*, by which name it does; on the disk.

    What a crash left of an earlier one is removed.
    """
    found = os.stat(path)
    remove_leftovers(path)
    try:
        _write(temporary_name(path, token), content, (found.st_mode & 0o777, found.st_uid, found.st_gid))
    except OSError as error:
        raise told(error, path) from None
    return temporary_name(path, token)


def put(path: str, temporary: str, forks: int) -> None:
    """Replace the file at *path* by what was prepared.

    :param forks: as counted when it was
    :raises TakenAway: another one removed it
    """
    try:
        if _forks.count != forks:
            raise TakenAway(temporary)
        os.rename(temporary, path)
    except OSError as error:
        raise _why(error, path, temporary) from None


def _why(error: OSError, path: str, temporary: str) -> Exception:
    gone = isinstance(error, FileNotFoundError) and os.path.isdir(dirname(path)) and not os.path.lexists(temporary)
    return TakenAway(temporary) if gone else told(error, path)


def settled(path: str) -> None:
    """The name leads to the same file after a loss of power."""
    try:
        sync_directory(dirname(path))
    except OSError as error:
        raise told(error, dirname(path)) from None


def _write(temporary: str, content: bytes, owner: tuple[int, int, int]) -> None:
    mode, uid, gid = owner
    numbers: list[int] = []
    closing = map(os.close, numbers)  # one step then: no signal handler leaves it open
    try:
        numbers.extend(map(os.open, (temporary,), (os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FLAGS,), (mode,)))
        found = os.fstat(numbers[0])
        if (uid, gid) != (found.st_uid, found.st_gid):
            _give(numbers[0], uid, gid)
        os.fchmod(numbers[0], mode)
        left = memoryview(content)
        while left:
            left = left[os.write(numbers[0], left) :]
        os.fsync(numbers[0])
    finally:
        list(closing)


def _give(number: int, uid: int, gid: int) -> None:
    try:
        os.fchown(number, uid, gid)
    except PermissionError:
        try:
            os.fchown(number, -1, gid)
        except PermissionError:
            pass


def _owner_of(path: str, registry: str | None) -> tuple[int, int, int]:
    """Mode, uid and gid of a new roster, as of lock files: the registry's; else ours, but root's is the directory's."""
    if registry is not None:
        shared = os.stat(registry)
        return shared.st_mode & 0o666, os.geteuid(), shared.st_gid
    above = os.stat(dirname(path))
    if os.geteuid() == 0 and not above.st_mode & stat.S_ISVTX:
        return _MODE, above.st_uid, above.st_gid
    return _MODE, os.geteuid(), os.getegid()


def told(error: OSError, path: str) -> OSError:
    """*error* with *path* and the remedy."""
    again = type(error)(error.errno, error.strerror or str(error), path)
    hint = _HINTS.get(error.errno or 0, "")
    again.hint = hint  # type: ignore[attr-defined]
    if hint:
        again.add_note(f"hint: {hint}")
    return again
