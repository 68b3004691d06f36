"""A table of owners, a line each, as wide as the terminal. Imports rich, which is heavy."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_RIGHT = ("pid", "age", "token", "waiters")
_STYLES = {"live": "green", "stopped": "yellow", "expired": "magenta", "unknown": "yellow", "unusable": "red"}
_STYLES |= dict.fromkeys(("gone", "zombie", "reused"), "magenta")
_GAP, _NARROW = 2, 12  # between columns; what names and owners keep


class Layout(NamedTuple):
    """Which columns there are, ``resource`` and ``phase`` among them.

    :ivar state: the one that is coloured
    :ivar owner: the one that is cut first
    :ivar most: what it gets at most, however wide the terminal is
    """

    columns: tuple[str, ...]
    state: str
    owner: str
    most: int | None = None


def table(layout: Layout, rows: list[dict[str, str]], width: int) -> Table:
    """*rows*, printable cells by column, cut so that no line is longer than *width*."""
    widths = _widths(layout, rows, width)
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, wide in widths.items():
        justify, overflow = ("right" if name in _RIGHT else "left"), "ellipsis"
        drawn.add_column(name.upper(), width=wide, justify=justify, overflow=overflow, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        shown = {**row, "resource": _tail(row["resource"], widths["resource"])}
        style = _STYLES.get(row[layout.state], "")
        drawn.add_row(*(Text(shown[name], style if name == layout.state else "") for name in widths))
    return drawn


def _widths(layout: Layout, rows: list[dict[str, str]], width: int) -> dict[str, int]:
    """How wide each column is that there is room for: the phase goes first, then owners are cut, then names."""
    widths = {name: max(len(name), *(cell_len(row[name]) for row in rows)) for name in layout.columns}
    if layout.most is not None:
        widths[layout.owner] = min(widths[layout.owner], layout.most)
    if _excess(widths, width) > 0:
        del widths["phase"]
    for name in (layout.owner, "resource"):
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
