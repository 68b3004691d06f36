"""Which files of a few directories were changed, as inotify(7) tells: nobody has to ask for each."""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from ownership import _inotify
from ownership._fork import Descriptor
from ownership._pinned import PinnedDirectory

_EVENT = struct.Struct("iIII")
_FILES = _inotify.MODIFY | _inotify.ATTRIB | _inotify.MOVED | _inotify.CREATE | _inotify.DELETE
_WATCHED = _FILES | _inotify.DELETE_SELF | _inotify.MOVE_SELF
_WHOLE = _inotify.DELETE_SELF | _inotify.MOVE_SELF | _inotify.UNMOUNT | _inotify.OVERFLOW | _inotify.IGNORED
_BATCH = 1 << 18


class Changes(NamedTuple):
    """What happened since the last look.

    :ivar names: files that were changed in any of the watched directories
    :ivar complete: nothing else was; otherwise every file has to be looked at
    """

    names: frozenset[str]
    complete: bool


class Notices:
    """One inotify instance, for one thread. Where it cannot be had, :meth:`watch` says so and the caller polls.

    The program around us may close our descriptor and reuse its number, even for an inotify instance of its own, whose
    events are not ours to read: before every read the kernel is asked what the number stands for.
    """

    def __init__(self) -> None:
        self._descriptor = Descriptor()
        self._watched: dict[tuple[int, int], int] = {}  # watch descriptors, by device and inode

    def knows(self, directory: PinnedDirectory) -> bool:
        """Whether *directory* is watched."""
        return (directory.descriptor.device, directory.descriptor.inode) in self._watched

    def watch(self, directory: PinnedDirectory) -> bool:
        """Whether changes in *directory* are going to be told from now on."""
        key = (directory.descriptor.device, directory.descriptor.inode)
        if key in self._watched:
            return True
        if not self._watched and not self._open():
            return False
        number = _inotify.add(self._descriptor.number, f"/proc/self/fd/{directory.fd}/.", _WATCHED)
        if number >= 0:
            self._watched[key] = number
            if self._is_ours():
                return True
            del self._watched[key]
        if not self._watched:
            self._descriptor.close(intact=True)
        return False

    def _open(self) -> bool:
        opener = _inotify.opener()
        number = -1 if opener is None else opener(_inotify.FLAGS)
        if number >= 0:
            self._descriptor.take(number)
        return number >= 0

    def read(self) -> Changes:
        """Everything since the last call."""
        names: set[bytes] = set()
        complete = bool(self._watched) and self._is_ours()
        if not complete:
            self.close()
            return Changes(frozenset(), False)
        try:
            while True:
                batch = os.read(self._descriptor.number, _BATCH)
                complete = _parse(batch, names) and complete
                if len(batch) < _BATCH // 2:
                    break
        except BlockingIOError:
            pass
        except OSError:
            complete = False
        if not complete:
            self.close()  # and begin anew
        return Changes(frozenset(map(os.fsdecode, names)), complete)

    def _is_ours(self) -> bool:
        """Whether the number stands for an instance that watches exactly what ours does."""
        ours = frozenset(b"wd:%x ino:%x" % (number, inode) for (_, inode), number in self._watched.items())
        return _inotify.marks(self._descriptor.number) == ours

    def close(self) -> None:
        """Stop watching."""
        if self._watched and self._is_ours():
            self._descriptor.close(intact=True)
        else:
            self._descriptor.forget()
        self._watched.clear()


def _parse(batch: bytes, names: set[bytes]) -> bool:
    """Add the names in *batch* to *names*; false when it does not tell everything."""
    position, complete = 0, True
    while position < len(batch):
        _, mask, _, length = _EVENT.unpack_from(batch, position)
        position += _EVENT.size + length
        if mask & _WHOLE:
            complete = False
        elif length:
            names.add(batch[position - length : position].rstrip(b"\0"))
    return complete
