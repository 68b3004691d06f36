"""Files of lines that one holder at a time appends to: session files, journals, logs of decisions."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from leases import _forks
from leases._arguments import checked_path
from leases._disk import sync_directory
from leases._lease import Lease, StrPath
from leases._short_write import short_write
from ownership import Claim

_NEWLINE = b"\n"
_BLOCK = 1 << 16  # bytes read at a time
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)  # a FIFO must not keep us
# without following a link: the path was resolved when the lease was acquired
_FLAGS: int = _NO_WAIT | os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READING: int = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)

_MANY = 1024
_named: set[tuple[int, int]] = set()  # files whose name is on the disk, as far as this process knows
_writes = 0  # of whole lines, by this process
log = logging.getLogger("leases")


def append_line(
    lease: Lease | Claim,
    line: str | bytes,
    *,
    path: StrPath | None = None,
    fsync: bool = False,
    mode: int = 0o600,
    timeout: float | None = 1.0,
) -> None:
    """Append *line* to the file that *lease* is about, whole or not at all, and only if the lease is ours.

    Guaranteed: it is written in ``lease.critical()``: once another has taken over, nothing of ours follows its lines,
    however long this process was paused. A line and its final newline are one write; if the system takes less of it,
    that is taken back and an error, never completed by a second write. What a writer that died has left behind the
    last newline is cut first. A call that raises has appended nothing, unless a handler raised or *fsync* failed.

    There is no limit on its length but what the system takes in one write (Linux: 2 GiB less 4 KiB), and memory.

    Not guaranteed: anything against writers that hold no lease. Without *fsync*, that the line outlives a power loss;
    with it, contenders wait for the disk too.

    :param line: text (as UTF-8) or bytes, without a newline
    :param path: another resource of the lease (``also=``); in whatever spelling
    :param fsync: have it on the disk, and the name of a new file too, before this returns
    :param mode: of the file if it is made here, whatever the umask; one that root makes in another account's directory
        is that account's
    :param timeout: seconds to wait for the guard, ``None`` for ever
    :raises LeaseLostError: the lease is not ours any more; :class:`ownership.OwnershipLostError` of a claim
    :raises GuardTimeoutError: somebody else was inside the guard for *timeout* seconds
    :raises NotSyncedError: the line was appended, and stays; it may not outlive a power loss
    :raises OSError: it cannot be written, the disk is full for instance
    :raises ValueError: an argument that cannot be right
    """
    forks = _forks.count
    if not isinstance(lease, Lease | Claim):
        raise ValueError(f"lease must be a lease or a claim, got {lease!r:.80}")
    raw = _encoded(line)
    if type(mode) is not int or not 0 <= mode <= 0o777:
        raise ValueError(f"mode must be an integer from 0 to 0o777, got {mode!r}")
    target = os.fspath(lease.path if path is None else _resource_of(lease, path))
    section: Any = lease.critical(timeout)
    given_up: list[object] = []
    section.put_off(given_up)  # a signal handler may release it
    with section:
        try:
            torn = _append(target, raw, fsync, mode, given_up, forks)
        except _GivenUp:
            lease.verify()  # which says so
            raise
        except OSError as error:
            if error.filename is None:
                error.filename = target
            raise
    if torn:
        log.warning("%s: the last %d bytes, a line that its writer did not finish, were cut", target, torn)


def read_lines(path: StrPath, offset: int = 0) -> Iterator[bytes]:
    """The lines of *path*, without their newlines; whatever its holder does meanwhile.

    Guaranteed: only lines that are whole, and that stay: those that were complete when the first one was asked for.
    What follows the last newline may be a line that is being written, or a torn one that the next append cuts.

    To follow the file, go on from *offset* plus the length of every line that was read and one for each newline.

    :param offset: where to begin, in bytes: 0, or where a line begins
    :raises OSError: it cannot be read, or is no regular file; when the first line is asked for
    :raises ValueError: an argument that cannot be right
    """
    if type(offset) is not int or offset < 0:
        raise ValueError(f"offset must be an integer >= 0, got {offset!r}")
    return _lines(checked_path(path, "path"), offset)


def _encoded(line: str | bytes) -> bytes:
    if not isinstance(line, str | bytes):
        raise ValueError(f"line must be text or bytes, got {line!r}")
    raw = line.encode("utf-8") if isinstance(line, str) else line  # a UnicodeEncodeError is a ValueError
    if _NEWLINE in raw:
        raise ValueError(f"line must not hold a newline, one is added at its end; got {line[:200]!r}")
    return raw + _NEWLINE


def _resource_of(lease: Lease | Claim, path: StrPath) -> Path:
    found = Path(os.path.realpath(checked_path(path, "path")))
    if found not in lease.tokens:
        held = ", ".join(map(str, lease.tokens))
        raise ValueError(f"path must be a resource of the lease ({held}), got {os.fspath(path)!r}")
    return found


class NotSyncedError(OSError):
    """The line was appended, and stays, since readers may have got it; but the disk did not say that it has it.

    Appending it again would make two of it. The next ``fsync`` that succeeds says nothing of this line (fsync(2)).
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note("hint: the line stands, do not append it again; see what is wrong with the disk: dmesg")


class _GivenUp(Exception):
    """A signal handler has given the lease up before the line was written, or forked: then it is its parent's."""


def _append(path: str, raw: bytes, fsync: bool, mode: int, given_up: Sequence[object], forks: int) -> int:
    """:returns: how many bytes of a torn line were cut"""
    numbers: list[int] = []
    closing = map(os.close, numbers)  # filled and emptied in single steps: no signal handler leaves one open
    try:
        try:
            numbers.extend(map(os.open, (path,), (_FLAGS,)))
        except FileNotFoundError:
            numbers.extend(map(os.open, (path,), (_FLAGS | os.O_CREAT | os.O_EXCL,), (mode,)))
            os.fchmod(numbers[0], mode)
            _give(numbers[0], path)
            made = os.fstat(numbers[0])
            _named.discard((made.st_dev, made.st_ino))  # of another file, which had that number
        torn = _append_to(numbers[0], path, raw, given_up, forks)
        if fsync:
            _sync(numbers[0], path)
        return torn
    finally:
        list(closing)


def _give(descriptor: int, path: str) -> None:
    """Give a file that root just made to the account whose directory it is in, as lock files are."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return
    above = os.stat(os.path.dirname(path))
    if above.st_uid == 0 or above.st_mode & stat.S_ISVTX:
        return
    try:
        os.fchown(descriptor, above.st_uid, above.st_gid)
    except OSError as error:  # root of a namespace that does not have that account
        log.warning("%s: it cannot be given to uid %d, whose directory it is in: %s", path, above.st_uid, error)


def _append_to(descriptor: int, path: str, raw: bytes, given_up: Sequence[object], forks: int) -> int:
    global _writes
    torn = _cut_torn(descriptor, path, forks)
    if given_up or _forks.count != forks:  # no signal handler runs between this and the write
        raise _GivenUp
    written = os.write(descriptor, raw)
    if written != len(raw):
        _cut_torn(descriptor, path, forks)
        told = f"only {written} of {len(raw)} bytes could be written, and were taken back"
        raise OSError(short_write(_size(descriptor, path) + len(raw)).errno, told)
    _writes += 1
    return torn


def _cut_torn(descriptor: int, path: str, forks: int) -> int:
    """Cut what stands behind the last whole line; how much that was. A signal handler may append one meanwhile."""
    while True:
        writes = _writes
        size = _size(descriptor, path)
        end = _end_of_lines(descriptor, size)
        if end == size:
            return 0
        if _forks.count != forks:
            raise _GivenUp
        if _writes == writes:  # no signal handler runs between this and the cut
            os.ftruncate(descriptor, end)
            return size - end


def _sync(descriptor: int, path: str) -> None:
    try:
        os.fsync(descriptor)
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) not in _named:
            sync_directory(os.path.dirname(path))
            if len(_named) >= _MANY:
                _named.clear()
            _named.add((found.st_dev, found.st_ino))
    except OSError as error:
        what = f"the line was appended, but is perhaps not on the disk: {error.strerror}"
        raise NotSyncedError(error.errno, what, path) from error


def _size(descriptor: int, path: StrPath) -> int:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file, so no file of lines", os.fspath(path))
    return found.st_size


def _end_of_lines(descriptor: int, size: int) -> int:
    """Where the last whole line ends; a newline that was seen stays, and so does everything before it."""
    end, length = size, 1  # nearly always the last byte says it
    while end > 0:
        begin = max(0, end - length)
        found = os.pread(descriptor, end - begin, begin).rfind(_NEWLINE)
        if found >= 0:
            return begin + found + 1
        end, length = begin, _BLOCK
    return 0


def _lines(path: StrPath, offset: int) -> Iterator[bytes]:
    numbers: list[int] = []
    closing = map(os.close, numbers)
    try:
        numbers.extend(map(os.open, (path,), (_READING | _NO_WAIT,)))
        descriptor, parts = numbers[0], [b""]  # of the line that is not whole yet: joined once
        end = _end_of_lines(descriptor, _size(descriptor, path))
        while offset < end:
            block = os.pread(descriptor, min(_BLOCK, end - offset), offset)
            if not block:  # somebody else has cut it
                return
            offset += len(block)
            first, *more = block.split(_NEWLINE)
            parts.append(first)
            if more:
                yield b"".join(parts)
                parts = [more.pop()]
                yield from more
    finally:
        list(closing)
