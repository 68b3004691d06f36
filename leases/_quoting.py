"""Paths in commands that are to be pasted: each names the very file, whatever is in its name."""

from __future__ import annotations

import os
import shlex

from leases._lease import StrPath


def quoted(path: StrPath) -> str:
    """*path* as a shell takes it, printable: as it is, in quotes, or byte by byte."""
    text = os.fsdecode(path)
    if text.startswith("-"):
        text = f"./{text}"  # no option
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_escaped(byte) for byte in os.fsencode(text)) + "'"


def argument(path: StrPath, registry: StrPath | None) -> str:
    """How ``leasectl`` is told of *path*, wherever that is pasted."""
    if registry is None:
        return quoted(path)
    return f"--registry {quoted(os.path.abspath(os.fsdecode(registry)))} {quoted(path)}"


def _escaped(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}"
