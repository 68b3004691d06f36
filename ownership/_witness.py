"""The witness: a file locked for as long as a process image lives, for readers who cannot see its pid.

Asked in one way only: ``flock(LOCK_SH | LOCK_NB)`` on a new descriptor. (Two exclusive testers would see each other;
F_OFD_GETLK answers *free* on a flocked file.) It is visible only once it is locked.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import struct
import time
from functools import partial

from filelock import lock_descriptor

from ownership import _fork
from ownership._directory import LockDirectory
from ownership._errors import UnsupportedFilesystemError
from ownership._fork import Descriptor
from ownership._log import log, tell
from ownership._paths import shown
from ownership._system import NO_FOLLOW, UNNAMED, UNSUPPORTED, lock_shared
from ownership._verdict import Testimony, WitnessState

SUFFIX = ".alive"
_SWEPT = 50  # times that a sweeper may be faster
_BEAT = struct.Struct("=q")  # eight aligned bytes: CLOCK_MONOTONIC of the last heartbeat, in nanoseconds


class Witness:
    """This process image's own witness in one lock directory."""

    def __init__(self, directory: LockDirectory) -> None:
        self._directory = directory
        self._descriptor = Descriptor()
        self.instance_id = ""

    @property
    def held(self) -> bool:
        return self._descriptor.number >= 0

    @property
    def descriptor(self) -> Descriptor:
        return self._descriptor

    def ensure(self, instance_id: str) -> bool:
        """Have it; true if it had to be made. Call under the place's mutex, before the record is published."""
        if self.instance_id == instance_id and self._descriptor.intact():
            return False
        self._descriptor.close()
        self.instance_id = instance_id
        try:
            self._make()
        except BaseException:
            self._descriptor.close()
            raise
        return True

    def restore(self) -> bool:
        """Put it back if it is not at its path any more, or our descriptor was closed; true if it had to be."""
        if not self.instance_id:
            return False
        found = self._directory.signature(self.instance_id + SUFFIX)
        ours = (self._descriptor.device, self._descriptor.inode)
        if found is not None and found[:2] == ours and self._descriptor.intact():
            return False
        self._descriptor.close()
        made = self.ensure(self.instance_id)
        tell(log.info, "%s: our witness was gone; put back", shown(self._directory.path))
        return made

    def remove(self) -> None:
        """Unlink it, then close it."""
        if self.held:
            if self._descriptor.intact() and self._directory.holds(self.instance_id + SUFFIX, self._descriptor.inode):
                self._directory.unlink(self.instance_id + SUFFIX)
            self._descriptor.close()
            self.instance_id = ""

    def beat(self, nanoseconds: int) -> bool:
        """Write CLOCK_MONOTONIC into it; false if our number stands for another file by now."""
        if not self._descriptor.intact():
            return False
        return os.pwrite(self._descriptor.number, _BEAT.pack(nanoseconds), 0) == _BEAT.size

    def keep_across_exec(self) -> int:
        """Make our descriptor inheritable and say which it is. To be called when it was just looked at."""
        os.set_inheritable(self._descriptor.number, True)
        return self._descriptor.number

    def _make(self) -> None:
        filename = self.instance_id + SUFFIX
        temporary = f"{filename}.{self.instance_id}.new"
        try:
            if self._directory.unnamed and UNNAMED is not None:
                try:
                    self._make_locked(".", UNNAMED | os.O_RDWR | NO_FOLLOW)
                    self._show(f"/proc/self/fd/{self._descriptor.number}", filename, None)
                    return
                except OSError as error:
                    if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS):
                        raise
                    self._descriptor.close()
                    self._directory.unnamed = False
            self._make_named(filename, temporary)
        except OSError as error:
            raise self._told(error, filename) from None

    def _make_named(self, filename: str, temporary: str) -> None:
        for attempt in range(_SWEPT):
            try:
                self._directory.discard(temporary)
                self._make_locked(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | NO_FOLLOW)
                self._show(temporary, filename, self._directory.fd)
                return
            except (FileNotFoundError, BlockingIOError):  # a sweeper came between making and locking
                self._descriptor.close()
                if attempt == _SWEPT - 1:
                    raise
                time.sleep(random.uniform(0, 0.002))
            finally:
                self._directory.unlink(temporary)

    def _make_locked(self, name: str, flags: int) -> None:
        with _fork.gate:
            mode = self._directory.location.file_mode
            self._descriptor.open(name, flags, mode, dir_fd=self._directory.fd)
            self._directory.fill(self._descriptor.number, _BEAT.pack(time.monotonic_ns()))
            if not lock_descriptor(self._descriptor.number, blocking=False):
                raise BlockingIOError(errno.EAGAIN, "a file just made is locked by somebody else")

    def _show(self, source: str, filename: str, source_fd: int | None) -> None:
        link = partial(os.link, src_dir_fd=source_fd, dst_dir_fd=self._directory.fd)
        follow = source_fd is None
        try:
            link(source, filename, follow_symlinks=follow)
        except FileExistsError:  # it carries our own instance id: one of ours that we lost hold of
            self._directory.discard(filename)
            try:
                link(source, filename, follow_symlinks=follow)
            except FileExistsError:
                raise self._directory.invalid(filename, "in the way of our witness") from None

    def _told(self, error: OSError, filename: str) -> Exception:
        if error.errno in UNSUPPORTED and not self._directory.is_deleted():
            return UnsupportedFilesystemError(
                f"{shown(self._directory.file(filename))}: this filesystem has no working locks or links "
                f"({error.strerror})",
                resource=self._directory.file(filename),
                hint="use registry=DIR on a local filesystem, for instance below /run",
            )
        return self._directory.told(error, filename, linking=True)


def ask(directory: LockDirectory, instance_id: str) -> Testimony:
    """What the witness of *instance_id* says, leaving nothing behind. A failed look says nothing about the owner."""
    numbers: list[int] = []
    try:
        opening = partial(os.open, dir_fd=directory.fd)
        numbers.extend(map(opening, (instance_id + SUFFIX,), (os.O_RDONLY | NO_FOLLOW,)))
        if not stat.S_ISREG(os.fstat(numbers[0]).st_mode):
            return Testimony(WitnessState.UNTESTABLE, "its witness is not a regular file")
        if not lock_shared(numbers[0]):
            beat, blind = _beat(numbers[0])
            return Testimony(WitnessState.HELD, beat=beat, blind=blind)
        if os.fstat(numbers[0]).st_nlink == 0:  # its owner put another one there, or left, while we were looking
            return Testimony(WitnessState.MISSING)
        beat, blind = _beat(numbers[0])
        return Testimony(WitnessState.FREE, beat=beat, blind=blind)
    except FileNotFoundError:
        return Testimony(WitnessState.MISSING)
    except OSError as error:
        return Testimony(WitnessState.UNTESTABLE, f"its witness cannot be tested: {error.strerror}", blind=True)
    finally:
        if numbers:
            os.close(numbers[0])


def _beat(number: int) -> tuple[float | None, bool]:
    """The heartbeat in seconds, ``None`` without one; and whether that is because we could not look."""
    try:
        raw = os.pread(number, _BEAT.size, 0)
    except OSError:
        return None, True
    return (_BEAT.unpack(raw)[0] / 1e9 if len(raw) == _BEAT.size else None), False
