"""For how long somebody owns something; and the command line, ``leasectl``."""

from __future__ import annotations

__all__: list[str] = []
