"""What is watched as a table that stays on the screen. The only module that needs rich to be there at all times."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from leases.commands._command import brief
from leases.commands._facts import age
from leases.commands._failure import described, located
from leases.commands._output import OutputError, printable
from leases.commands._table import Layout, table
from leases.commands._watched import Picture, Row

_LAYOUT = Layout(("resource", "owner", "state", "age", "token", "waiters", "phase"), "state", "owner", most=48)
_LEASED = _LAYOUT._replace(columns=(*_LAYOUT.columns[:-1], "lease", "phase"))  # where there are any
_FAILURES = 3  # lines


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Never hidden: a signal may end us at any time, and nobody would bring it back."""
        return False


class Board:
    """Draws the table anew in its place. The last one stays when it is closed."""

    def __init__(self) -> None:
        self._console = _Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._size = self._console.size
        self._live: Live | None = None

    def show(self, now: Picture) -> None:
        """Draw *now*, as far as the terminal has room for it.

        :raises OutputError: the terminal is gone
        """
        with _writing():
            if self._size != self._console.size and self._live is not None:
                # the lines drawn before have been wrapped anew: how many they are now, only the terminal knows
                self._live.stop()
                self._live = None
                self._console.clear()
            self._size = self._console.size
            drawn = draw(now, self._size.width, self._size.height)
            if self._live is not None:
                self._live.update(drawn, refresh=True)
                return
            self._live = Live(drawn, console=self._console, auto_refresh=False, redirect_stdout=False)
            self._live.start(refresh=True)

    def close(self) -> None:
        """Leave the table where it is."""
        if self._live is not None:
            with _writing():
                self._live.stop()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(error.strerror) from error


def draw(now: Picture, width: int, height: int) -> Group:
    """*now* in at most *width* columns and *height* lines less one."""
    failures = [_failure(source, error) for source, error in now.failures.items()][:_FAILURES]
    room = max(1, height - 3 - len(failures))
    rows = list(now.rows.values())
    more = len(rows) - room if len(rows) > room else 0
    count = f"{len(rows)} resource{'' if len(rows) == 1 else 's'}" if rows else "nobody owns anything here"
    caption = f"{now.at:%Y-%m-%dT%H:%M:%SZ}  {count}" + (f", {more} more than fit here" if more else "")
    layout = _LEASED if any(row.lease for row in rows[:room]) else _LAYOUT
    parts = [table(layout, [_cells(row) for row in rows[:room]], width)] if rows else []
    return Group(*parts, *(_line(one, "red") for one in failures), _line(caption, "dim"))


def _failure(source: str, error: OSError) -> str:
    return printable(located(source, error))


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _cells(row: Row) -> dict[str, str]:
    one, record = row.one, row.one.record
    who = [str(one.owner.pid)] if one.owner else []
    owner = " ".join([*who, brief(record.command) if record else one.malformed or ""]).strip() or "-"
    if one.error is not None:
        message = described(one.error)[0]
        owner = message.partition(": ")[2] or message  # the path is beside it
    told = (
        row.resource,
        owner,
        row.state,
        age(record) if record else "-",
        str(one.token or "-"),
        str(row.waiters or "-"),
        row.lease or "-",
        record.phase if record else "-",
    )
    return {name: printable(text) for name, text in zip(_LEASED.columns, told, strict=True)}
