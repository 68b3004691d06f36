"""Several guards at once, and a look at one from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from ownership._clock import Clock
from ownership._directory import LockDirectory
from ownership._guard import Guard, Interrupting
from ownership._hold import Hold
from ownership._models import NO_GUARD_STATE, GuardState
from ownership._paths import Resource
from ownership._record import MAX_GUARD_BYTES, decode_guard

_Result = TypeVar("_Result")


def locked(
    guards: Sequence[Guard],
    deadline: float,
    clock: Clock,
    action: Callable[..., _Result],
    *,
    patient: bool = True,
    anywhere: bool = False,
) -> _Result:
    """*action*, called with a :class:`Hold` of each, while all *guards* are held: nobody else decides meanwhile.

    An exception that a signal handler raises at any point leaves the guards free: every step out may be repeated.

    :param guards: in the order of the canonical paths, in which everybody locks them
    :param deadline: on *clock*; in the past: one attempt
    :param patient: wait at all; else :class:`ownership._guard.Busy` at once, also if others of this process wait
    :param anywhere: take the guard of a directory that is not at its path any more too
    :raises GuardTimeoutError: busy until then
    :raises DirectoryChanged: directory or guard were replaced meanwhile; pin the directory again
    :raises Interrupting: this thread is inside one of them already
    """
    thread = threading.get_ident()
    if len(guards) == 1:
        if thread in guards[0].inside:
            raise Interrupting(guards[0])
        return _locked_one(Hold(guards[0], thread), deadline, clock, action, patient, anywhere)
    for guard in guards:
        if thread in guard.inside:
            raise Interrupting(guard)
    holds = [Hold(guard, thread) for guard in guards]
    try:
        try:
            for hold in holds:
                hold.enter(deadline, clock, patient, anywhere)
            result = action(*holds)
        finally:
            for hold in holds:
                hold.leave()
    except BaseException:
        for hold in holds:
            hold.leave()  # again: the signal may have come on the way out
        for guard in guards:
            guard.catch_up()
        raise
    for guard in guards:
        guard.catch_up()
    return result


def _locked_one(
    hold: Hold, deadline: float, clock: Clock, action: Callable[..., _Result], patient: bool, anywhere: bool
) -> _Result:
    """The same without loops: what nearly every call needs."""
    try:
        try:
            hold.enter(deadline, clock, patient, anywhere)
            result = action(hold)
        finally:
            hold.leave()
    except BaseException:
        hold.leave()
        hold.guard.catch_up()
        raise
    if hold.guard.afterwards:
        hold.guard.catch_up()
    return result


def ranked(guards: Sequence[Guard], primary: str) -> list[int]:
    """Which of *guards* are to be locked, in which order: everybody's, by whatever paths.

    That is the order of their directories' inodes and their names. Two paths may lead to one resource, where a
    directory is mounted twice: that one counts once.

    :param primary: the path that stands for a resource that has several
    """
    found: dict[tuple[int, int, str], int] = {}
    for number, guard in enumerate(guards):
        directory = guard.directory.descriptor
        key = (directory.device, directory.inode, guard.resource.name)
        if key not in found or guard.resource.path == primary:
            found[key] = number
    return [found[key] for key in sorted(found)]


def peek(directory: LockDirectory, resource: Resource) -> GuardState:
    """What the guard remembers, read without it: for reports.

    :raises OSError: it cannot be read; that is not a guard which remembers nobody
    """
    found = directory.read(f"{resource.name}.guard", MAX_GUARD_BYTES)
    return NO_GUARD_STATE if found is None else decode_guard(found[0], resource.path)
