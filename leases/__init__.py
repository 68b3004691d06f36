"""For how long somebody owns something; and the command line, ``leasectl``."""

from __future__ import annotations

from ownership import FrozenWait, release_if_frozen

__all__ = [
    "FrozenWait",
    "release_if_frozen",
]
