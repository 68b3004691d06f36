"""Command lines as text for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

MAX_COMMAND = 200


def command_text(arguments: Iterable[str]) -> str:
    """The command line of *arguments*: at most 200 printable characters, valid UTF-8 whatever the arguments were.

    Line breaks, control and formatting characters and undecodable bytes (surrogates) are shown escaped.
    """
    return printable(shlex.join(arguments))


def printable(text: str) -> str:
    """*text* with everything unprintable escaped, cut to 200 characters."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escape(ord(c)) for c in text[: MAX_COMMAND + 1])
    return text if len(text) <= MAX_COMMAND else text[: MAX_COMMAND - 1] + "…"


def _escape(code: int) -> str:
    """By hand: the codec would be imported at first use, when descriptors or privileges may be gone."""
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
