"""A lock directory, pinned by its descriptor: every change of a file in it is made here, relative to that."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from functools import partial
from typing import TypeAlias

from ownership._errors import InvalidRecordError, UnsupportedFilesystemError, explained
from ownership._fork import Descriptor
from ownership._location import Facts, Location, facts_of
from ownership._making import give_if_empty, repair_mode
from ownership._paths import shown, unescape
from ownership._record import MAX_RECORD_BYTES
from ownership._remedy import remedy_of
from ownership._system import DIRECTORY_ONLY, NO_FOLLOW, UNNAMED, UNSUPPORTED, euid, lock_shared, unlock

Signature: TypeAlias = tuple[int, int, int, int, int]

_READING = (os.O_RDONLY | NO_FOLLOW,)
_NO_UNNAMED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS, errno.EPERM})


class DirectoryChanged(Exception):
    """The path does not lead to the pinned directory or the locked guard any more: start again."""


class LockDirectory:
    """One lock directory of this process.

    :ivar unnamed: publish through an unnamed temporary file (leaves nothing if we die); off where the system cannot
    """

    unnamed_by_default = UNNAMED is not None

    def __init__(self, location: Location) -> None:
        self.path = location.path
        self.location = location
        self.descriptor = Descriptor()
        self.unnamed = self.unnamed_by_default

    def __del__(self) -> None:
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
        try:
            lock_shared(self.fd)
        except OSError:
            pass

    def let_go(self) -> None:
        try:
            unlock(self.fd)
        except OSError:
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
            hint=f"find out who made it, then remove {shown(path)}",
        )

    def resource_path(self, name: str) -> str | None:
        """The path of the resource whose files are called *name*; ``None`` for a hashed one."""
        base = unescape(name)
        if base is None or self.location.whole:
            return base
        return os.path.join(os.path.dirname(self.path), base)

    def remedy(self, filename: str, error: OSError) -> str:
        """What to do about *error* on a file of ours."""
        return remedy_of(error, self.fd, self.path, filename)

    def signature(self, filename: str) -> Signature | None:
        """Device, inode, mtime, ctime and size of what the *path* leads to now, ``None`` if nothing is there."""
        try:
            return signature_of(os.lstat(self.file(filename)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, suffix: str) -> Iterator[str]:
        """Stems of the files here that end in *suffix*."""
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(suffix):
                    yield entry.name[: -len(suffix)]

    # -- changing

    def publish(self, filename: str, content: bytes, temporary: str) -> tuple[int, int]:
        """Give *filename* a complete file, never replacing one; device and inode of it.

        :param temporary: name of the temporary file where there are no unnamed ones
        :raises FileExistsError: something has that name
        """
        if self.unnamed:
            try:
                return self._publish_unnamed(filename, content)
            except OSError as error:
                if error.errno not in _NO_UNNAMED or not self.is_at_path():
                    raise self.told(error, filename) from None
                self.unnamed = error.errno == errno.EPERM  # that one has other causes too; the named form will say
        return self._publish_named(filename, content, temporary)

    def _publish_unnamed(self, filename: str, content: bytes) -> tuple[int, int]:
        assert UNNAMED is not None
        numbers: list[int] = []
        try:
            fd, mode = self.descriptor.number, self.location.file_mode
            flags = UNNAMED | os.O_RDWR | NO_FOLLOW
            numbers.extend(map(partial(os.open, dir_fd=fd), (".",), (flags,), (mode,)))
            found = self.fill(numbers[0], content)
            os.link(f"/proc/self/fd/{numbers[0]}", filename, dst_dir_fd=fd, follow_symlinks=True)
        finally:
            if numbers:
                os.close(numbers[0])
        return found.st_dev, found.st_ino

    def _publish_named(self, filename: str, content: bytes, temporary: str) -> tuple[int, int]:
        try:
            found = self._write_temporary(temporary, content)
            try:
                os.link(temporary, filename, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
            except OSError as error:
                raise self.told(error, filename, linking=True) from None
        finally:
            self.unlink(temporary)
        return found.st_dev, found.st_ino

    def replace(self, filename: str, content: bytes, temporary: str) -> tuple[int, int]:
        """Put a complete file over *filename*: readers see the old one or the new one."""
        try:
            found = self._write_temporary(temporary, content)
            os.rename(temporary, filename, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException as error:
            self.unlink(temporary)
            if isinstance(error, OSError):
                raise self.told(error, filename) from None
            raise
        return found.st_dev, found.st_ino

    def _write_temporary(self, temporary: str, content: bytes) -> os.stat_result:
        numbers: list[int] = []
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | NO_FOLLOW
        opening = partial(os.open, dir_fd=self.fd)
        try:
            try:
                numbers.extend(map(opening, (temporary,), (flags,), (self.location.file_mode,)))
            except FileExistsError:  # it carries our own instance id: we were interrupted here before
                self.discard(temporary)
                numbers.extend(map(opening, (temporary,), (flags,), (self.location.file_mode,)))
            return self.fill(numbers[0], content)
        except FileExistsError:
            raise self.invalid(temporary, "in the way of a temporary file") from None
        except OSError as error:
            raise self.told(error, temporary) from None
        finally:
            if numbers:
                os.close(numbers[0])

    def fill(self, number: int, content: bytes) -> os.stat_result:
        """Write *content* whole, with the documented mode and owner whatever the umask."""
        if content and os.write(number, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.own(number)

    def own(self, number: int) -> os.stat_result:
        """Mode and owner of a file just made, as documented, whatever the umask."""
        found = os.fstat(number)
        if found.st_mode & 0o7777 != self.location.file_mode:
            os.fchmod(number, self.location.file_mode)
        if self.location.account and (found.st_uid, found.st_gid) != self.location.account:
            uid, gid = self.location.account
            try:
                os.fchown(number, uid, gid)
            except PermissionError:
                if uid >= 0:  # a group we are not in: the mode decides who can use it
                    raise
        return found

    def remove(self, filename: str, signature: Signature) -> None:
        """Unlink *filename* if it still is the file with *signature*.

        :raises DirectoryChanged: it is another file now
        """
        try:
            found = os.stat(filename, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if (found.st_dev, found.st_ino) != signature[:2]:
            raise DirectoryChanged
        self.discard(filename)

    def discard(self, filename: str) -> None:
        """Unlink what was looked at just now, under its guard."""
        try:
            os.unlink(filename, dir_fd=self.fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise explained(error, self.file(filename), self.remedy(filename, error)) from None

    def unlink(self, filename: str) -> None:
        """Unlink a file that can only be ours; quiet if it is gone."""
        try:
            os.unlink(filename, dir_fd=self.fd)
        except OSError:
            pass

    def unlink_temporary(self, name: str, instance_id: str) -> None:
        """Remove what a dead writer of *name* left, in the form without unnamed files."""
        self.unlink(f"{name}.{instance_id}.new")

    def told(self, error: OSError, filename: str, *, linking: bool = False) -> OSError:
        """*error* with path and remedy; missing abilities of the filesystem as their own type.

        :param linking: it came from link(2), which says EPERM where there are no hard links
        """
        if isinstance(error, FileExistsError | UnsupportedFilesystemError) or hasattr(error, "hint"):
            return error
        if error.errno in UNSUPPORTED or (linking and error.errno in (errno.EPERM, errno.EMLINK)):
            return UnsupportedFilesystemError(
                f"{shown(self.file(filename))}: this filesystem has no hard links ({error.strerror})",
                resource=self.file(filename),
                hint="use registry=DIR on a local filesystem, for instance below /run",
            )
        return explained(error, self.file(filename), self.remedy(filename, error))


def signature_of(found: os.stat_result) -> Signature:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
