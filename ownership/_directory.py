"""A lock directory: every change of a file in it is made here, relative to its pinned descriptor."""

from __future__ import annotations

import errno
import os
from functools import partial

from ownership._errors import UnsupportedFilesystemError, explained
from ownership._fork import Descriptor
from ownership._location import Location
from ownership._paths import shown
from ownership._pinned import DirectoryChanged, PinnedDirectory, Signature
from ownership._system import NO_FOLLOW, UNNAMED, UNSUPPORTED, may

_WRITTEN = 5  # times, while a cleaner takes what is about to be renamed
_NO_UNNAMED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS, errno.EPERM})


class LockDirectory(PinnedDirectory):
    """A lock directory as it is changed.

    :ivar unnamed: publish through an unnamed temporary file (leaves nothing if we die); off where the system cannot
    """

    unnamed_by_default = UNNAMED is not None

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self.unnamed = self.unnamed_by_default

    def publish(self, filename: str, content: bytes, temporary: str, keep: Descriptor | None = None) -> tuple[int, int]:
        """Give *filename* a complete file, never replacing one; device and inode of it.

        :param keep: what is to hold the file open, which keeps its inode from being reused; may stay closed

        :param temporary: name of the temporary file where there are no unnamed ones
        :raises FileExistsError: something has that name
        """
        if self.unnamed:
            try:
                return self._publish_unnamed(filename, content, keep or Descriptor(), keep is not None)
            except OSError as error:
                if error.errno not in _NO_UNNAMED or self.is_deleted():
                    raise self.told(error, filename) from None
                self.unnamed = error.errno == errno.EPERM  # that one has other causes too; the named form will say
        return self._publish_named(filename, content, temporary)

    def _publish_unnamed(self, filename: str, content: bytes, into: Descriptor, keep: bool) -> tuple[int, int]:
        assert UNNAMED is not None
        fd, mode = self.descriptor.number, self.location.file_mode
        kept = False
        try:
            found = into.open(".", UNNAMED | os.O_RDWR | NO_FOLLOW, mode, fd)
            if os.write(into.number, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if found.st_mode & 0o7777 != mode or self.location.account:
                self._own(into.number, found)
            os.link(f"/proc/self/fd/{into.number}", filename, dst_dir_fd=fd, follow_symlinks=True)
            kept = keep
        finally:
            if not kept:
                into.close()
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
            for left in reversed(range(_WRITTEN)):
                found = self._write_temporary(temporary, content)
                try:
                    os.rename(temporary, filename, src_dir_fd=self.fd, dst_dir_fd=self.fd)
                    break
                except FileNotFoundError:  # somebody deletes files here
                    if not left or self.is_deleted():
                        raise
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
        found = os.fstat(number)
        self._own(number, found)
        return found

    def _own(self, number: int, found: os.stat_result) -> None:
        """Mode and owner of a file just made, as documented, whatever the umask."""
        if found.st_mode & 0o7777 != self.location.file_mode:
            os.fchmod(number, self.location.file_mode)
        if self.location.account and (found.st_uid, found.st_gid) != self.location.account:
            uid, gid = self.location.account
            try:
                os.fchown(number, uid, gid)
            except PermissionError:
                if uid >= 0:  # a group we are not in: the mode decides who can use it
                    raise

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
            os.unlink(filename, dir_fd=self.descriptor.number)
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

    def told(self, error: OSError, filename: str, *, linking: bool = False) -> Exception:
        """*error* with path and remedy; missing abilities of the filesystem as their own type.

        A deleted directory answers with all kinds of errors (ext4: EPERM), which say nothing but that.

        :param linking: it may have come from link(2), which says EPERM where there are no hard links
        """
        if self.is_deleted():
            return DirectoryChanged()
        if isinstance(error, FileExistsError | UnsupportedFilesystemError) or hasattr(error, "hint"):
            return error
        refused = error.errno == errno.EPERM and may(self.path, os.W_OK)  # else it is immutable
        if error.errno in UNSUPPORTED or (linking and (refused or error.errno == errno.EMLINK)):
            return UnsupportedFilesystemError(
                f"{shown(self.file(filename))}: this filesystem has no hard links ({error.strerror})",
                resource=self.file(filename),
                hint="use registry=DIR on a local filesystem, for instance below /run",
            )
        return explained(error, self.file(filename), self.remedy(filename, error))
