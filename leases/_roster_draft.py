"""The file beside a roster that is to become it: its name, and how to be rid of it."""

from __future__ import annotations

import hashlib
import os
from os.path import basename, dirname

_LONG = 200  # bytes of a name that leave room for what is appended


def temporary_name(path: str, token: int) -> str:
    """Of what whoever changes the roster by *token* prepares."""
    return f"{dirname(path)}/{stem(path)}.{token}.new"


def stem(path: str) -> str:
    """What the names of what belongs to it begin with: short enough for 255 bytes."""
    name = os.fsencode(basename(path))
    return basename(path) if len(name) <= _LONG else hashlib.sha256(name).hexdigest()


def discard_prepared(path: str, token: int) -> None:
    """What was prepared is not wanted any more; best effort."""
    try:
        os.unlink(temporary_name(path, token))
    except OSError:
        pass


def remove_leftovers(path: str) -> None:
    """What a crash left of earlier ones; best effort."""
    prefix = f"{stem(path)}."
    try:
        for name in os.listdir(dirname(path)):
            if name.startswith(prefix) and name.endswith(".new") and name[len(prefix) : -4].isdigit():
                os.unlink(f"{dirname(path)}/{name}")
    except OSError:  # another account's, for instance
        pass
