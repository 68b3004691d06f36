"""Arguments of a call, checked together before anything is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ownership._models import LeaseTerms
from ownership._paths import Resource, StrPath, resolve

_Callback = TypeVar("_Callback", bound=Callable[..., object] | None)

MIN_TTL = 1.0  # seconds: four ticks of the keeper
_MAX_SECONDS = 1e9  # a bounded time that every system call takes


def checked_timeout(timeout: float | None) -> float:
    """*timeout* in seconds, ``inf`` for ``None``."""
    if timeout is None:
        return math.inf
    if type(timeout) is float and timeout >= 0:
        return timeout
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        if timeout == -1:
            raise ValueError(f"timeout must be >= 0, got {timeout!r}: timeout=None waits for ever")
        raise ValueError(f"timeout must be None or a number of seconds >= 0, got {timeout!r:.80}")
    try:
        return float(timeout)
    except OverflowError:  # more than a float can say
        return math.inf


def checked_seconds(seconds: float, name: str) -> float:
    """*seconds*, a bounded time.

    :param name: the parameter to name in the message
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_SECONDS:
        raise ValueError(f"{name} must be a finite number of seconds >= 0, got {seconds!r}")
    return float(seconds)


def checked_terms(ttl: float | None, auto_renew: bool) -> LeaseTerms | None:
    """The terms of a lease, ``None`` without a *ttl*."""
    if not isinstance(auto_renew, bool):
        raise ValueError(f"auto_renew must be true or false, got {auto_renew!r}")
    if ttl is None:
        if not auto_renew:
            raise ValueError("auto_renew=False needs ttl=SECONDS: without one there is nothing to renew")
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not MIN_TTL <= ttl <= _MAX_SECONDS:
        raise ValueError(f"ttl must be None or a finite number of seconds >= {MIN_TTL}, got {ttl!r}")
    return LeaseTerms(ttl=float(ttl), auto_renew=auto_renew, renewed_at=0.0)


def checked_callback(callback: _Callback, name: str) -> _Callback:
    """*callback*, if it can be called, or is ``None``.

    :param name: the parameter to name in the message
    """
    if callback is not None and not callable(callback):
        raise ValueError(f"{name} must be callable, got {callback!r:.80}")
    return callback


def checked_mapping(mapping: Mapping[Any, Any] | None, name: str) -> dict[Any, Any] | None:
    """A copy of *mapping*.

    :param name: the parameter to name in the message
    """
    if mapping is not None and not isinstance(mapping, Mapping):
        raise ValueError(f"{name} must be a mapping, got {mapping!r:.80}")
    return None if mapping is None else dict(mapping)


def checked_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise ValueError(f"labels must map text to text, got {labels!r}")
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str) or not _is_text(key + value):
            raise ValueError(f"labels must map text to text, got {key!r}: {value!r}")
    return dict(labels)


def _is_text(text: str) -> bool:
    """Whether UTF-8 can say it: no lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def checked_resources(resource: StrPath, also: Iterable[StrPath], registry: str | None) -> list[Resource]:
    """The canonical resources, each once; the first is the claim's own."""
    if isinstance(also, str | bytes) or not isinstance(also, Iterable):
        raise ValueError(f"also must be a list of paths, got {also!r}")
    found: dict[str, Resource] = {}
    spellings = [(resource, "resource"), *((one, "also") for one in also)]
    for spelled, parameter in spellings:
        one = resolve(spelled, whole=registry is not None, parameter=parameter)
        found.setdefault(one.path, one)
    return list(found.values())
