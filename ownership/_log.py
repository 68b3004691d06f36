"""What the threads of ours log: a handler of the program that raises must not end them."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("ownership")


def tell(method: Callable[..., None], message: str, *arguments: object) -> None:
    """``method(message, *arguments)``, whatever comes of it."""
    try:
        method(message, *arguments)
    except Exception:  # a full disk, a closed pipe: there is nobody to tell
        pass
