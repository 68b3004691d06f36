"""A lock directory pinned by its descriptor, and how its files are read: bounded, without following links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from functools import partial
from typing import TypeAlias

from ownership._errors import InvalidRecordError, explained
from ownership._fork import Descriptor
from ownership._location import Location
from ownership._making import give_if_empty, repair_mode
from ownership._paths import Facts, facts_of, quoted, shown, unescape
from ownership._record import MAX_RECORD_BYTES
from ownership._remedy import remedy_of
from ownership._system import DIRECTORY_ONLY, NO_FOLLOW, euid, lock_shared, unlock

Signature: TypeAlias = tuple[int, int, int, int, int]

_READING = (os.O_RDONLY | NO_FOLLOW,)
# A signature is trusted once a read has confirmed it this long after its ctime: inodes are reused at once, and coarse
# timestamps hide a change within a tick. Filesystems without nanoseconds need their whole second, twice.
_FINE_NS, _COARSE_NS = 20_000_000, 2_100_000_000


class DirectoryChanged(Exception):
    """The path does not lead to the pinned directory or the locked guard any more: start again."""


class PinnedDirectory:
    """One lock directory of this process, whatever its path leads to later."""

    def __init__(self, location: Location) -> None:
        self.path = location.path
        self.location = location
        self.descriptor = Descriptor()

    def __del__(self) -> None:
        if "descriptor" in self.__dict__:  # else its construction was interrupted
            self.descriptor.close()

    # -- the directory itself

    def open(self) -> None:
        """Pin the directory that was located.

        :raises FileNotFoundError: the path leads elsewhere by now
        """
        assert self.location.facts is not None
        try:
            self.descriptor.open(self.path, DIRECTORY_ONLY | NO_FOLLOW)
        except PermissionError as error:
            if not repair_mode(self.path, euid()):
                raise explained(error, self.path, self.remedy(".", error)) from None
            self.descriptor.open(self.path, DIRECTORY_ONLY | NO_FOLLOW)
        if (self.descriptor.device, self.descriptor.inode) != self.location.facts[:2]:
            self.descriptor.close()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)

    def is_deleted(self) -> bool:
        """Whether nothing leads to it any more: then it answers with all kinds of errors."""
        try:
            return os.fstat(self.fd).st_nlink == 0
        except OSError:
            return False

    def ensure_open(self) -> None:
        """Open it again if the program around us closed our descriptor.

        :raises DirectoryChanged: the path leads to another directory by now
        """
        if not self.descriptor.intact():
            self.descriptor.close()
            try:
                self.open()
            except (FileNotFoundError, NotADirectoryError):
                raise DirectoryChanged from None

    def give_away(self, account: tuple[int, int]) -> bool:
        """Root made it in another account's directory and ended before giving it away; true if it was given now."""
        return give_if_empty(self.fd, account)

    def stat(self) -> os.stat_result:
        """What the directory itself says, wherever it is."""
        return os.fstat(self.fd)

    def is_at(self, facts: Facts) -> bool:
        """Whether the directory found with *facts* is this one."""
        return self.location.facts is not None and self.location.facts[:2] == facts[:2]

    def is_at_path(self) -> bool:
        """Whether the path still leads here."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return self.is_at(facts_of(found))

    @property
    def fd(self) -> int:
        return self.descriptor.number

    def hold(self) -> None:
        """Keep cleaners that honour locks out of the whole directory while we own something in it; best effort."""
        if self.descriptor.intact():
            try:
                lock_shared(self.fd)
            except (OSError, ValueError):  # it was closed by the program around us just now
                pass

    def let_go(self) -> None:
        if self.descriptor.intact():  # not a file of the program that has its number by now
            try:
                unlock(self.fd)
            except (OSError, ValueError):
                pass

    def file(self, filename: str) -> str:
        return f"{self.path}/{filename}"

    # -- reading

    def read(self, filename: str, limit: int = MAX_RECORD_BYTES) -> tuple[bytes, Signature] | None:
        """The whole of a regular file of at most *limit* bytes, ``None`` if there is none.

        :raises InvalidRecordError: a symlink, a special file, or too large: not read at all
        :raises OSError: with path and hint; only ENOENT means absent
        """
        numbers: list[int] = []
        try:
            numbers.extend(map(partial(os.open, dir_fd=self.descriptor.number), (filename,), _READING))
            found = os.fstat(numbers[0])
            if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
                self._refuse(filename, found, limit)
            raw = os.read(numbers[0], found.st_size + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse_special(filename, error)
            raise explained(error, self.file(filename), self.remedy(filename, error)) from None
        finally:
            if numbers:
                os.close(numbers[0])
        return raw, signature_of(found)

    def _refuse(self, filename: str, found: os.stat_result, limit: int) -> None:
        large = stat.S_ISREG(found.st_mode)
        what = f"too large ({found.st_size} bytes, the limit is {limit})" if large else "not a regular file"
        raise self.invalid(filename, what)

    def _refuse_special(self, filename: str, error: OSError) -> None:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EMLINK):  # a symlink, a socket
            raise self.invalid(filename, "not a regular file") from None

    def invalid(self, filename: str, what: str) -> InvalidRecordError:
        path = self.file(filename)
        return InvalidRecordError(
            f"{shown(path)}: {what}; not read and not removed",
            resource=self.resource_path(filename.rpartition(".")[0]) or path,
            hint=f"find out who made it, then remove {quoted(path)}",
        )

    def resource_path(self, name: str) -> str | None:
        """The path of the resource whose files are called *name*; ``None`` for a hashed one."""
        base = unescape(name)
        if base is None or self.location.whole:
            return base
        return os.path.join(os.path.dirname(self.path), base)

    def remedy(self, filename: str, error: OSError) -> str:
        """What to do about *error* on a file of ours."""
        return remedy_of(error, self.fd, self.path, filename, shared=self.location.whole)

    def signature(self, filename: str) -> Signature | None:
        """Device, inode, mtime, ctime and size of what the *path* leads to now, ``None`` if nothing is there."""
        try:
            found = os.lstat(f"{self.path}/{filename}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explained(error, self.file(filename), self.remedy(filename, error)) from None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def holds(self, filename: str, inode: int) -> bool:
        """Whether *filename* here, wherever the path leads, is the file with this inode."""
        try:
            return os.stat(filename, dir_fd=self.fd, follow_symlinks=False).st_ino == inode
        except (OSError, ValueError):
            return False

    def names(self, suffix: str) -> Iterator[str]:
        """Stems of the files here that end in *suffix*."""
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(suffix):
                    yield entry.name[: -len(suffix)]


def signature_of(found: os.stat_result) -> Signature:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def is_settled(signature: Signature, wall_ns: int) -> bool:
    """Whether a file read with *signature* cannot have changed since without showing it.

    :param wall_ns: the wall clock, read before the file was
    """
    changed = signature[3]
    return wall_ns - changed >= (_COARSE_NS if changed % 1_000_000_000 == 0 else _FINE_NS)
