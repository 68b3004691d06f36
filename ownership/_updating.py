"""Changing what our records say, under their guards."""

from __future__ import annotations

from functools import partial
from typing import Any

from ownership._guard import Interrupting
from ownership._hold import Hold
from ownership._holding import Holding
from ownership._part import Part


def update(holding: Holding, changes: dict[str, Any]) -> None:
    """Replace the records of *holding*."""
    for part in holding.parts:
        try:
            holding.under_guard(part, partial(update_one, holding, part, changes))
        except Interrupting as interrupting:
            raise interrupting.told() from None


def update_one(holding: Holding, part: Part, changes: dict[str, Any], hold: Hold) -> None:
    """Replace one of them; readers see the old one or the new one."""
    holding.repair(part, hold)
    part.change(changes, holding.clock.wall_ns(), hold)
