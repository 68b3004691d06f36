"""A terminal whose screen can be read: as much of one as our output needs (console_codes(4))."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable
from typing import Self

PATIENCE = 60.0  # seconds until a silent program counts as hung
_PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b(.)|([\r\n])|([^\x1b\r\n]+)", re.DOTALL)


class Terminal:
    """Give ``slave`` to a program as its stdout, then :meth:`close_slave`.

    :ivar raw: everything that was written so far
    """

    def __init__(self, columns: int = 120, lines: int = 24) -> None:
        self._master, self.slave = pty.openpty()
        self.raw = ""
        self._left = b""
        self.resize(columns, lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_slave()
        self.hang_up()

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def close_slave(self) -> None:
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def hang_up(self) -> None:
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def wait_for(self, condition: Callable[[list[str]], object]) -> list[str]:
        """Read until *condition* holds of the screen, which is returned."""
        deadline = time.monotonic() + PATIENCE
        while not condition(screen := self.screen()):
            assert self._read(deadline), f"the program has ended, and the screen shows {screen}"
        return screen

    def read_to_the_end(self) -> list[str]:
        """Read until nobody has the terminal open any more; the screen."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.screen()

    def _read(self, deadline: float) -> bool:
        assert select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0], "waited in vain"
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # EIO: the other end is closed
            return False
        text = self._left + chunk
        end = text.rfind(b"\n") + 1 or len(text) if b"\n" in text else 0
        self.raw += text[:end].decode(errors="replace")
        self._left = text[end:]
        return bool(chunk)

    def screen(self) -> list[str]:
        """Its lines, without blanks at the end of a line and empty lines at the end."""
        rows: list[list[str]] = [[]]
        row = column = 0
        for match in _PIECE.finditer(self.raw + self._left.decode(errors="ignore")):
            argument, code, _, control, text = match.groups()
            if control == "\n":
                row += 1
            elif control == "\r":
                column = 0
            elif text:
                row, column = self._put(rows, row, column, text)
            elif code == "A":
                row = max(0, row - int(argument or 1))
            elif code == "K":
                self._line(rows, row)[:] = []
            elif code == "H":
                row = column = 0
            elif code == "J":
                rows[:] = [[]]
            while row >= self.lines:
                self._line(rows, row)
                del rows[0]
                row -= 1
        lines = ["".join(one).rstrip() for one in rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _put(self, rows: list[list[str]], row: int, column: int, text: str) -> tuple[int, int]:
        for character in text:
            if column >= self.columns:
                row, column = row + 1, 0
            line = self._line(rows, row)
            line.extend(" " * (column + 1 - len(line)))
            line[column] = character
            column += 1
        return row, column

    def _line(self, rows: list[list[str]], row: int) -> list[str]:
        while len(rows) <= row:
            rows.append([])
        return rows[row]
