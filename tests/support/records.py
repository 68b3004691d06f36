"""Records and guards as tests want to find them, written by hand, and directories compared byte by byte."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from ownership._models import GuardState, OwnerIdentity
from ownership._paths import escape
from ownership._process import Identity, system_processes
from ownership._record import encode_guard

OTHER_INSTANCE = "0123456789abcdef0123456789abcdef"


def me() -> Identity:
    return system_processes().current()


def identity(pid: int | None = None, **changes: Any) -> OwnerIdentity:
    """Another image of this process, or of *pid*, as it would name itself."""
    return OwnerIdentity(**fields_of(pid, **changes))


def fields_of(pid: int | None = None, **changes: Any) -> dict[str, Any]:
    """The identity fields of a record of another image of this process, or of *pid*."""
    ours = me()
    start_id = ours.start_id if pid is None else system_processes().observe(pid).start_id
    return {
        "pid": ours.pid if pid is None else pid,
        "start_id": start_id or other_start_id(ours.start_id),
        "instance_id": OTHER_INSTANCE,
        "boot_id": ours.boot_id,
        "pid_namespace": ours.pid_namespace,
    } | changes


def record(pid: int | None = None, **changes: Any) -> dict[str, Any]:
    """A whole record, as JSON fields."""
    return {"version": 1, "token": 1000, **fields_of(pid), **changes}


def other_start_id(start_id: str) -> str:
    """The start id of a process that is certainly another one: ticks and inode are off by one."""
    source, boot, ticks, namespace, inode = start_id.split(":")
    off = [str(int(field) + 1) if field else "" for field in (ticks, inode)]
    return ":".join((source, boot, off[0], namespace, off[1]))


def lock_directory(resource: Path | str, registry: Path | None = None) -> Path:
    return Path(resource).parent / ".leases" if registry is None else registry


def file_of(resource: Path | str, suffix: str = "json", registry: Path | None = None) -> Path:
    name = escape(os.fsencode(resource if registry is not None else Path(resource).name))
    return lock_directory(resource, registry) / f"{name}.{suffix}"


def plant(resource: Path | str, content: bytes | dict[str, Any], registry: Path | None = None) -> Path:
    """Put *content* where the record of *resource* is looked for."""
    path = file_of(resource, registry=registry)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def plant_guard(resource: Path | str, state: GuardState | bytes) -> Path:
    path = file_of(resource, "guard")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(state if isinstance(state, bytes) else encode_guard(state))
    return path


def guard_of(resource: Path | str, registry: Path | None = None) -> dict[str, Any]:
    """What the guard of *resource* remembers, as JSON."""
    found: dict[str, Any] = json.loads(file_of(resource, "guard", registry).read_bytes())
    return found


def snapshot(directory: Path) -> dict[str, tuple[Any, ...]]:
    """Everything about every file below *directory*, and itself, that a careless reader might change."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) and status.st_size <= 1 << 20 else None
        link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
        found[str(path)] = (
            status.st_mode,
            status.st_uid,
            status.st_gid,
            status.st_ino,
            status.st_nlink,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            content,
            link,
        )
    return found


def names(directory: Path) -> set[str]:
    """File names in *directory* but the one that keeps version control away."""
    return set(os.listdir(directory)) - {".gitignore"}
