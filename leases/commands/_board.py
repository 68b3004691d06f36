"""What is watched as a table that stays on the screen. The only module that needs rich to be there at all times."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from leases.commands._facts import age
from leases.commands._failure import described
from leases.commands._output import OutputError, printable
from leases.commands._watched import Picture, Row

_COLUMNS = ("resource", "owner", "state", "age", "token", "waiters", "phase")
_RIGHT = ("age", "token", "waiters")
_STYLES = {"live": "green", "stopped": "yellow", "expired": "magenta", "unknown": "yellow", "unusable": "red"}
_STYLES |= dict.fromkeys(("gone", "zombie", "reused"), "magenta")
_GAP, _NARROW, _WIDE = 2, 12, 48  # between columns; what names and owners keep; what an owner gets at most
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
    parts = [_table(rows[:room], width)] if rows else []
    return Group(*parts, *(_line(one, "red") for one in failures), _line(caption, "dim"))


def _failure(source: str, error: OSError) -> str:
    message = described(error)[0]
    return printable(message if source in message else f"{source}: {message}")


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _table(rows: list[Row], width: int) -> Table:
    cells = [_cells(row) for row in rows]
    widths = _widths(cells, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, wide in widths.items():
        justify, overflow = ("right" if name in _RIGHT else "left"), "ellipsis"
        table.add_column(name.upper(), width=wide, justify=justify, overflow=overflow, no_wrap=True)  # type: ignore[arg-type]
    for row in cells:
        resource = _tail(row["resource"], widths["resource"])
        shown = {**row, "resource": resource}
        table.add_row(*(Text(shown[name], _STYLES.get(shown[name], "") if name == "state" else "") for name in widths))
    return table


def _cells(row: Row) -> dict[str, str]:
    one, record = row.one, row.one.record
    who = [str(one.owner.pid)] if one.owner else []
    owner = " ".join([*who, record.command if record else one.malformed or ""]).strip() or "-"
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
        record.phase if record else "-",
    )
    return {name: printable(text) for name, text in zip(_COLUMNS, told, strict=True)}


def _widths(cells: list[dict[str, str]], width: int) -> dict[str, int]:
    """How wide each column is that there is room for: the phase goes first, then owners are cut, then names."""
    widths = {name: max(len(name), *(cell_len(row[name]) for row in cells)) for name in _COLUMNS}
    widths["owner"] = min(widths["owner"], _WIDE)
    if _excess(widths, width) > 0:
        del widths["phase"]
    for name in ("owner", "resource"):
        widths[name] = max(min(widths[name], _NARROW), widths[name] - max(0, _excess(widths, width)))
    return widths


def _excess(widths: dict[str, int], width: int) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1) - width


def _tail(text: str, width: int) -> str:
    """The end of *text*, which tells paths apart."""
    if cell_len(text) <= width:
        return text
    text = text[-width:]
    while cell_len(text) >= width:
        text = text[1:]
    return f"…{text}"
