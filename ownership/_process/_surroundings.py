"""Who decides about a process: its parent, its tracer, its freezer, as ``/proc`` tells it (proc_pid_status(5))."""

from __future__ import annotations

import os
import re

from ownership._process._cgroups import CgroupFreezer
from ownership._process._kernel import DIRECTORY, DIRECTORY_NAME_ONLY, Kernel, read_file
from ownership._process._text import printable
from ownership._process._types import Surroundings

_STATE = re.compile(rb"^State:[ \t]*(.*)$", re.MULTILINE)
_PARENT = re.compile(rb"^PPid:\s*(\d+)\s*$", re.MULTILINE)
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s*(\d+)\s*$", re.MULTILINE)
_TRACER = re.compile(rb"^TracerPid:\s*(\d+)\s*$", re.MULTILINE)


def read_surroundings(kernel: Kernel, proc: str, pid: int, freezer: CgroupFreezer) -> Surroundings:
    """What surrounds *pid*, all of it read through one descriptor of its directory, so of one process.

    :raises OSError: there is none, or it may not be looked at
    """
    directory = kernel.open(f"{proc}/{pid}", DIRECTORY_NAME_ONLY)
    try:
        status = read_file(kernel, "status", directory)
        state = _STATE.search(status)
        return Surroundings(
            source=f"{proc}/{pid}/status",
            state=printable(os.fsdecode(state[1])) if state else "",
            parent=number_in(_PARENT, status),
            tracer=number_in(_TRACER, status) or _tracer_of_threads(kernel, directory),
            frozen_by=freezer.frozen_by(directory),
        )
    finally:
        kernel.close(directory)


def _tracer_of_threads(kernel: Kernel, process: int) -> int | None:
    """Tracers attach to threads: one of the others may have one."""
    try:
        directory = kernel.open("task", DIRECTORY, process)
        try:
            names = [name for name in kernel.listdir(directory) if name.isdigit()]
        finally:
            kernel.close(directory)
        if len(names) == 1:
            return None
        found = (number_in(_TRACER, read_file(kernel, f"task/{name}/status", process)) for name in names)
        return next(filter(None, found), None)
    except OSError:
        return None


def read_activity(kernel: Kernel, proc: str, pid: int) -> int:
    """The context switches of all threads of *pid*, which a stopped process has none of.

    :raises OSError: there is none, or it may not be looked at
    """
    directory = kernel.open(f"{proc}/{pid}", DIRECTORY_NAME_ONLY)
    try:
        tasks = kernel.open("task", DIRECTORY, directory)
        try:
            names = [name for name in kernel.listdir(tasks) if name.isdigit()]
        finally:
            kernel.close(tasks)
        told = (read_file(kernel, f"task/{name}/status", directory) for name in names)
        return sum(int(count) for status in told for count in _SWITCHES.findall(status))
    finally:
        kernel.close(directory)


def number_in(pattern: re.Pattern[bytes], status: bytes) -> int | None:
    """The process number on that line; ``None`` for none, and for 0: nobody, or somebody in another pid namespace."""
    found = pattern.search(status)
    return int(found[1]) or None if found else None
