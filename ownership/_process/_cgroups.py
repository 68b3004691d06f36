"""Whether the cgroup of a process is frozen, by the freezers of v1 and v2 (freezer-subsystem.rst, cgroup-v2.rst)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ownership._process._kernel import Kernel, read_file

_OCTAL = re.compile(rb"\\([0-7]{3})")
_SWITCHES = {2: (b"/cgroup.freeze", b"/cgroup.freeze"), 1: (b"/freezer.self_freezing", b"/freezer.state")}


class CgroupFreezer:
    """Looks up the freezer state of a process's cgroup. Whatever cannot be looked up counts as not frozen.

    The mount points are read once, from the ``mountinfo`` of a thread that lives: an exited leader shows none.
    """

    def __init__(self, kernel: Kernel, proc: str) -> None:
        self._kernel = kernel
        self._proc = proc
        self._mounts: dict[int, tuple[bytes, bytes]] | None = None

    def is_frozen(self, process: int, thread: int | None = None) -> bool:
        """Whether the process whose ``/proc`` directory is open as *process* is in a frozen cgroup.

        :param thread: the thread to ask about, when the leader has exited and left its cgroup
        """
        try:
            return self._look(process, "cgroup" if thread is None else f"task/{thread}/cgroup")
        except (OSError, ValueError):
            return False

    def frozen_by(self, process: int) -> tuple[str, ...]:
        """The control files that keep its cgroup frozen: its own, or those of cgroups above it. For messages.

        :returns: paths of ``cgroup.freeze`` (v2, wants 0) and ``freezer.state`` (v1, wants THAWED), the nearest first;
            empty when it is not frozen, or that cannot be read
        """
        try:
            return tuple(self._switches(process))
        except (OSError, ValueError):
            return ()

    def _switches(self, process: int) -> Iterator[str]:
        for version, path in self._freezable(read_file(self._kernel, "cgroup", process)):
            mounted = self._mounted(version, path)
            if mounted is None or not self._is_frozen_path(version, path):
                continue
            mount_point, below = mounted
            asked, switch = _SWITCHES[version]
            while below:
                if self._content(mount_point + below + asked).strip() == b"1":
                    yield os.fsdecode(mount_point + below + switch)
                below = below.rpartition(b"/")[0]

    def _look(self, process: int, name: str) -> bool:
        content = read_file(self._kernel, name, process)
        return any(self._is_frozen_path(version, path) for version, path in self._freezable(content))

    def _freezable(self, cgroups: bytes) -> Iterator[tuple[int, bytes]]:
        """Version and path of each cgroup that has a freezer."""
        for line in cgroups.splitlines():
            hierarchy, controllers, path = line.split(b":", 2)
            version = 2 if hierarchy == b"0" else 1
            if path == b"/" or (version == 1 and b"freezer" not in controllers.split(b",")):
                continue  # a process in our root cgroup is frozen only together with us
            yield version, path

    def _mounted(self, version: int, path: bytes) -> tuple[bytes, bytes] | None:
        """Mount point and path below it of a cgroup; ``None`` if it is not to be seen here."""
        if self._mounts is None:
            self._mounts = find_freezers(
                read_file(self._kernel, f"{self._proc}/thread-self/mountinfo", limit=1 << 24, many_records=True)
            )
        if version not in self._mounts or b".." in path.split(b"/"):
            return None
        mount_point, root = self._mounts[version]
        if root != b"/":
            if path != root and not path.startswith(root + b"/"):
                return None
            path = path[len(root) :]
        return mount_point, path

    def _is_frozen_path(self, version: int, path: bytes) -> bool:
        mounted = self._mounted(version, path)
        if mounted is None:
            return False
        content = self._content(b"".join(mounted) + (b"/cgroup.events" if version == 2 else b"/freezer.state"))
        return b"frozen 1" in content.splitlines() if version == 2 else content.strip() == b"FROZEN"

    def _content(self, path: bytes) -> bytes:
        """What is in it; nothing if it cannot be read."""
        try:
            return read_file(self._kernel, path.decode("utf-8", "surrogateescape"))
        except OSError:
            return b""


def find_freezers(mountinfo: bytes) -> dict[int, tuple[bytes, bytes]]:
    """Where the freezers are mounted: cgroup version to mount point and the part of the hierarchy that it shows."""
    mounts: dict[int, tuple[bytes, bytes]] = {}
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(b" - ")
        fields, filesystem = before.split(b" "), after.split(b" ")
        if not separator or len(fields) < 5 or len(filesystem) < 3:
            continue
        if filesystem[0] == b"cgroup2":
            version = 2
        elif filesystem[0] == b"cgroup" and b"freezer" in filesystem[-1].split(b","):
            version = 1
        else:
            continue
        mounts.setdefault(version, (_unescape(fields[4]), _unescape(fields[3])))
    return mounts


def _unescape(field: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), field)
