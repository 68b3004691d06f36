"""The instance id: one random number for each process image, shared by everything in it."""

from __future__ import annotations

import functools
import os
import secrets

_ids: dict[int, str] = {}


def instance_id(pid: int) -> str:
    """The instance id of this process image, whose pid is *pid*.

    New after a fork: an at-fork hook forgets the parent's, and the pid is the key, because a fork made in C runs no
    hook. New after an exec, because nothing survives one. Not guaranteed: a C-level fork within a C-level fork that
    gets its grandparent's number.
    """
    known = _ids.get(pid)
    if known is not None:
        return known
    _forget_after_fork()
    return _ids.setdefault(pid, secrets.token_hex(16))


@functools.cache
def _forget_after_fork() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_ids.clear)
