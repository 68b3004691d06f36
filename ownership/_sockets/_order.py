"""What a client asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ownership._gating import Gate
from ownership._inspection import Running

Connect = Callable[[Running], Any]
OnMismatch = Literal["raise", "use", "replace"]


class Order(NamedTuple):
    """What is wanted."""

    command: list[str] | None
    match: dict[str, Any]
    on_mismatch: OnMismatch
    connect: Connect | None
    environ: dict[str, str] | None
    folder: str | None
    grace: float
    gate: Gate | None
