"""Arguments of a call, checked before anything is done."""

from __future__ import annotations

import math
import os

from leases._lease import StrPath


def checked_path(path: StrPath, parameter: str) -> str:
    """*path* as text, if it can be one: no number of a descriptor, for instance.

    :param parameter: what to call it in errors
    """
    try:
        spelled = os.fsdecode(path)
    except TypeError:
        raise ValueError(f"{parameter} must be a path, got {path!r:.80}") from None
    if not spelled or "\0" in spelled:
        raise ValueError(f"{parameter} must be a path, got {path!r:.80}")
    return spelled


def checked_registry(registry: StrPath | None) -> str | None:
    """The path of a registry, as every call takes it: pinned, itself not followed if it is a symlink."""
    if registry is None:
        return None
    above, name = os.path.split(os.path.abspath(checked_path(registry, "registry")))
    return os.path.join(os.path.realpath(above), name)


def checked_timeout(timeout: float | None) -> float | None:
    """*timeout* if it is ``None`` or a number of seconds; what no float can say is for ever."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise ValueError(f"timeout must be None or a number of seconds >= 0, got {timeout!r:.80}")
    try:
        return float(timeout)
    except OverflowError:
        return math.inf
