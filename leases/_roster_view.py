"""The file of a roster as far as it was read."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

from pydantic_core import from_json

from leases._roster_file import BLOCK, OpenRoster
from leases._roster_lines import MAX_TOKEN, VERSION, Lines
from ownership import InvalidRecordError, UnsupportedRecordError

_Result = TypeVar("_Result")


def uncollected(much: bool, act: Callable[[], _Result]) -> _Result:
    """*act*; while many objects are made that stay, the collector of cycles would look at all of them again and again.

    :param much: whether there are many
    """
    if not much or not gc.isenabled():
        return act()
    try:
        gc.disable()
        return act()
    finally:
        gc.enable()


class View(Lines):
    """The lines of one file, as far as they were read.

    :ivar offset: where the next whole line begins
    :ivar torn: there is something behind that is no whole line
    """

    def __init__(self, file: OpenRoster) -> None:
        super().__init__()
        found = file.stat()
        self.identity = found.st_dev, found.st_ino
        self.first = file.head()
        self.offset, self.torn = 0, False
        self.changed = (0, 0)
        self._check(file.path)

    def _check(self, path: str) -> None:
        first = repr(self.first[:80])
        try:
            line = from_json(self.first)
            version, top = line["roster"], line["token"]
            if type(version) is not int or version < 1 or type(top) is not int:
                raise ValueError("no head")
        except (ValueError, KeyError, TypeError):
            what = f"{path}: no roster; it begins {first}"
            raise InvalidRecordError(what, resource=path, head=first, hint="name another file") from None
        if version > VERSION:
            what = f"{path}: a roster of format {version}, this is format {VERSION}"
            raise UnsupportedRecordError(what, resource=path, hint="use the newer version of this program")
        self.top = max(0, min(top, MAX_TOKEN))

    def is_of(self, file: OpenRoster) -> bool:
        """Whether *file* is the one that was read, and as long at least."""
        found = file.stat()
        same = (found.st_dev, found.st_ino) == self.identity and found.st_size >= self.offset
        return same and file.head() == self.first

    def read(self, file: OpenRoster) -> None:
        """Read what has come.

        :raises ValueError: a line cannot be read
        """
        found = file.stat()
        self.torn = False
        uncollected(found.st_size - self.offset > BLOCK, lambda: self._read(file, found.st_size))
        self.changed = found.st_size, found.st_mtime_ns

    def _read(self, file: OpenRoster, size: int) -> None:
        length = BLOCK
        while self.offset < size:
            raw = file.block(self.offset, length)
            end = raw.rfind(b"\n") + 1
            if end:
                self.take(raw[:end])
                self.offset += end
                length = BLOCK
            elif len(raw) == length:  # what a loss of power left may be long
                length *= 2
            else:
                self.torn = bool(raw)
                break
