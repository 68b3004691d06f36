"""Waking a thread that polls descriptors, from any other thread, without ever writing a byte."""

from __future__ import annotations

import os

from ownership._fork import Descriptor


class Bell:
    """A pipe whose writing end is closed to ring.

    Nothing is written, so that nothing can end up in a file of the program that got one of its numbers meanwhile.
    """

    def __init__(self) -> None:
        self._reader = Descriptor()
        self._writer = Descriptor()

    @property
    def number(self) -> int:
        """What becomes ready when it rings; -1 without one."""
        return self._reader.number

    def hang(self) -> None:
        """Have one that can ring; best effort. For the thread that polls."""
        if self._writer.intact() and self._reader.intact():
            return
        self.take_down()
        ends = Descriptor(), Descriptor()  # new ones: whoever rings meanwhile may still be closing the old one
        try:
            reader, writer = os.pipe()
            try:
                ends[0].take(reader)
            finally:
                ends[1].take(writer)
        except OSError:  # out of descriptors: whoever rings is heard at the next tick
            for end in ends:
                end.close()
            return
        self._reader, self._writer = ends

    def ring(self) -> None:
        """Wake whoever polls."""
        self._writer.close()

    def take_down(self) -> None:
        """Keep nothing open."""
        self._writer.close()
        self._reader.close()
