"""Data on stdout, talk on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any
from urllib.parse import quote_from_bytes

_SAFE = "/._-+=@,:~ "  # what records leave unescaped in paths
_SHORT = 200


class OutputError(Exception):
    """Stdout takes no more: closed by its reader (quiet), or full."""

    exit_code = 1


def write(text: str) -> None:
    """A line of data.

    :raises OutputError: it cannot be written
    """
    if sys.stdout is None:  # started with stdout closed: nobody wants it
        return
    try:
        sys.stdout.write(text + "\n")
    except OSError as error:
        raise OutputError(error.strerror) from error


def write_json(value: object) -> None:
    """*value* as one JSON document; ASCII, so that it is the same in every locale."""
    write(json_text(value))


def json_text(value: object, *, ascii_only: bool = True) -> str:
    """*value* as JSON. A number that no float can say (``1e999``, which others may write) is ``null``."""
    try:
        return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=ascii_only, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flush() -> None:
    """:raises OutputError: what was written does not get out"""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(error.strerror) from error


def say(text: str, hint: str = "") -> None:
    """Talk: a message for whoever watches."""
    tell(f"leasectl: {printable(text)}" + (f"\n  hint: {printable(hint)}" if hint else ""))


def tell(lines: str) -> None:
    """*lines* as they are, on stderr. A terminal that is gone, or a full disk, does not stop the work."""
    if sys.stderr is None:
        return
    try:
        print(lines, file=sys.stderr, flush=True)
    except OSError:
        pass


def is_terminal() -> bool:
    """Whether a person looks at stdout."""
    return sys.stdout is not None and sys.stdout.isatty()


def printable(text: str) -> str:
    """*text* with control characters and undecodable bytes escaped: records are written by others."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short(text: str) -> str:
    """*text*, printable and at most 200 characters."""
    cut = printable(text[: _SHORT + 1])
    return cut if len(cut) <= _SHORT else cut[: _SHORT - 1] + "…"


def shown(path: str | os.PathLike[Any]) -> str:
    """*path* as records spell it: percent-escaped if it is not UTF-8."""
    text = os.fsdecode(path)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return quote_from_bytes(os.fsencode(text), safe=_SAFE)
    return text
