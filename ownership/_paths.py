"""From what a caller spells to the one place where its records live: canonical paths, file names, lock directories."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ownership._errors import UnsafeDirectoryError, explained
from ownership._system import account, euid

StrPath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

DIRECTORY = ".leases"
_SAFE = "._-+=@,:~ "
_NAME_LIMIT = 180  # leaves room for ".<instance id>.new" within the 255 bytes of a file name
_HASHED = "%-"  # an escape never yields it: "%" is always followed by two hex digits
_COMPONENT_LIMIT, _PATH_LIMIT = 255, 4095


@dataclass(frozen=True, slots=True)
class Resource:
    """A canonical path, pinned when it was resolved.

    :ivar path: canonical path (undecodable bytes as surrogates, like everywhere in :mod:`os`)
    :ivar parent: the directory it is in
    :ivar name: the stem of its files in its lock directory
    """

    path: str
    parent: str
    name: str

    @property
    def shown(self) -> str:
        """The path as text for people and JSON: bytes that are not UTF-8 are percent-escaped."""
        return shown(self.path)


def pinned_resource(path: str, *, whole: bool = False) -> Resource:
    """A resource whose canonical path was pinned earlier, perhaps by another process: nothing is resolved again."""
    parent, base = os.path.split(path)
    return Resource(path, parent, escape(os.fsencode(path if whole else base or "/")))


def shown(path: str) -> str:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return quote_from_bytes(os.fsencode(path), safe="/" + _SAFE)
    return path


_known: dict[str, tuple[int, int, str]] = {}  # spelled parent -> device, inode, canonical parent


def resolve(resource: StrPath, *, whole: bool = False) -> Resource:
    """Resolve symlinks in *resource*, the last component included, and name its files.

    :param whole: name the files by the whole canonical path (a shared registry) instead of its last component
    :raises ValueError: empty, holding NUL, or longer than the system takes
    :raises OSError: a loop of symlinks, or a directory on the way that cannot be searched
    """
    spelled = _spelled(resource)
    parent, base = os.path.split(spelled)
    if not whole and base not in ("", ".", "..") and (known := _recall(parent)) and not os.path.islink(spelled):
        path = known + "/" + base if known != "/" else "/" + base
        return Resource(path, known, _checked_name(base, path))
    path = os.path.realpath(spelled)
    if os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    parent_path, base = os.path.split(path)
    name = _checked_name(base or "/", path)
    if whole:
        return Resource(path, parent_path, escape(os.fsencode(path)))
    if base == os.path.basename(spelled):
        _remember(parent, parent_path)
    return Resource(path, parent_path, name)


def _spelled(resource: StrPath) -> str:
    raw = os.fspath(resource)
    spelled = os.fsdecode(raw)
    if not spelled:
        raise ValueError("resource must be a path, got an empty one")
    if "\0" in spelled:
        raise ValueError(f"resource must be a path without NUL bytes, got {spelled!r}")
    return spelled


def _checked_name(base: str, path: str) -> str:
    raw = os.fsencode(base)
    if len(raw) > _COMPONENT_LIMIT:
        raise ValueError(
            f"resource must be a path whose last component has at most {_COMPONENT_LIMIT} bytes, "
            f"got {len(raw)}: {shown(path)!r}"
        )
    if len(path) > _PATH_LIMIT // 4 and len(os.fsencode(path)) > _PATH_LIMIT:
        raise ValueError(f"resource must be a path of at most {_PATH_LIMIT} bytes, got {len(os.fsencode(path))}")
    return escape(raw)


def _recall(parent: str) -> str | None:
    known = _known.get(parent)
    if known is None:
        return None
    try:
        for spelling in {parent or ".", known[2]}:
            found = os.stat(spelling)
            if (found.st_dev, found.st_ino) != known[:2]:
                return None
    except OSError:
        return None
    return known[2]


def _remember(parent: str, canonical: str) -> None:
    try:
        found = os.stat(canonical)
    except OSError:
        return
    if len(_known) >= 256:
        _known.clear()
    _known[parent] = (found.st_dev, found.st_ino, canonical)


def escape(raw: bytes) -> str:
    """A file name for *raw*: one-to-one, without ``/``, never hidden, never ``..``; long ones end in their SHA-256.

    Case and composition are kept as they are: ``A`` and ``a``, composed and decomposed accents are different names.
    """
    name = quote_from_bytes(raw, safe=_SAFE)
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _NAME_LIMIT:
        name = f"{name[:80]}{_HASHED}{hashlib.sha256(raw).hexdigest()}"
    return name


def unescape(name: str) -> str | None:
    """What :func:`escape` was given, or ``None`` for a hashed name."""
    return None if _HASHED in name else os.fsdecode(unquote_to_bytes(name))


def state_home() -> Path:
    """Where named resources live: in the home directory the account database gives, whatever the environment says."""
    entry = account(uid := euid())
    if entry is None:
        raise ValueError(f"named resources need a home directory; the account database knows no uid {uid}")
    home = entry[1]
    if not os.path.isabs(home) or not os.path.isdir(home):
        raise ValueError(f"named resources need a home directory; {home!r} of uid {uid} is none")
    return Path(home, ".local", "state", "leases")


def named(name: str | bytes) -> Path:
    """The path that stands for *name*, for what has a name but no file: ``named("nightly-import")``.

    The same name gives the same path in every process of the account: no environment variable moves it. Missing
    folders are made (mode 0700) when it is acquired, not before. Not shared between accounts.

    :param name: any non-empty text or bytes; escaped one-to-one into one path component
    :raises ValueError: an empty name, or an account without a home directory
    """
    raw = os.fsencode(name)
    if not raw:
        raise ValueError("name must not be empty")
    return state_home() / escape(raw)


def make_named_parent(parent: str) -> None:
    """Make the folder of named resources if *parent* is it; other parents are the caller's to make."""
    try:
        home = state_home()
    except ValueError:
        return
    if os.path.realpath(home) == parent:
        path = home.parents[2]
        for part in home.parts[len(path.parts) :]:
            path = path / part
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass


@dataclass(frozen=True, slots=True)
class Location:
    """A lock directory as found or to be made.

    :ivar missing: it is not there yet
    :ivar account: uid and gid that files made there are given to, ``None`` for whoever makes them
    :ivar file_mode: mode of files made there
    """

    path: str
    missing: bool
    device: int = 0
    inode: int = 0
    account: tuple[int, int] | None = None
    file_mode: int = 0o600


def locate(parent: str) -> Location:
    """Where the records of resources in *parent* are: the first lock directory there that is ours, or the one to make.

    :raises UnsafeDirectoryError: other accounts could tamper with it
    :raises PermissionError: it belongs to another account; the hint is the exact ``chown``
    :raises OSError: *parent* is missing, no directory, or cannot be searched
    """
    above = os.stat(parent)
    if not stat.S_ISDIR(above.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), parent)
    sticky = bool(above.st_mode & stat.S_ISVTX)
    if above.st_mode & stat.S_IWOTH and not sticky:
        raise UnsafeDirectoryError(
            f"{shown(parent)}: every account may replace files in it (mode {stat.S_IMODE(above.st_mode):04o})",
            resource=parent,
            hint=f"chmod o-w {shown(parent)}",
        )
    user = euid()
    for name in (DIRECTORY, f"{DIRECTORY}-{user}"):
        path = os.path.join(parent, name)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        ours = found.st_uid == user or (user == 0 and found.st_uid == above.st_uid)
        if not ours and sticky and name == DIRECTORY:
            continue
        return _usable(path, found, above, ours)
    made = f"{DIRECTORY}-{user}" if sticky else DIRECTORY
    adopt = user == 0 and above.st_uid != 0 and not sticky
    return Location(os.path.join(parent, made), True, account=(above.st_uid, above.st_gid) if adopt else None)


def _usable(path: str, found: os.stat_result, above: os.stat_result, ours: bool) -> Location:
    if not ours:
        owners = f"{account_name(found.st_uid)}, not to {account_name(euid())}"
        raise explained(
            PermissionError(errno.EACCES, f"the lock directory belongs to {owners}"),
            path,
            f"chown -R {euid()} {shown(path)}, or share a registry between the accounts",
        )
    _refuse_unsafe(path, found)
    given_to = None
    if euid() == 0:
        if found.st_uid != 0:
            given_to = (found.st_uid, found.st_gid)
        elif above.st_uid != 0 and not above.st_mode & stat.S_ISVTX:
            given_to = (above.st_uid, above.st_gid)  # made for it by root, who died before giving it away
    return Location(path, False, found.st_dev, found.st_ino, given_to)


def _refuse_unsafe(path: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        what = "a symlink" if stat.S_ISLNK(found.st_mode) else "not a directory"
        raise UnsafeDirectoryError(
            f"{shown(path)}: the lock directory is {what}",
            resource=path,
            hint=f"find out who made it, then remove {shown(path)}",
        )
    if found.st_mode & stat.S_IWOTH:
        raise UnsafeDirectoryError(
            f"{shown(path)}: every account may write in it (mode {stat.S_IMODE(found.st_mode):04o})",
            resource=path,
            hint=f"chmod o-w {shown(path)}",
        )


def locate_registry(registry: StrPath) -> Location:
    """The shared registry *registry*, which must exist; its files get its group and its mode without execute bits.

    :raises UnsafeDirectoryError: a symlink, writable by others, or sticky (nobody could replace another's files)
    :raises OSError: missing or not to be searched
    """
    spelled = os.path.abspath(_spelled(registry))
    path = os.path.join(os.path.realpath(os.path.dirname(spelled)), os.path.basename(spelled))
    found = os.lstat(path)
    _refuse_unsafe(path, found)
    if found.st_mode & stat.S_ISVTX:
        raise UnsafeDirectoryError(
            f"{shown(path)}: a registry must not be sticky, accounts could not replace each other's records",
            resource=path,
            hint=f"chmod -t {shown(path)}",
        )
    uid = found.st_uid if euid() == 0 else -1
    return Location(path, False, found.st_dev, found.st_ino, (uid, found.st_gid), found.st_mode & 0o666)


def account_name(uid: int) -> str:
    """*uid* for people: number and name where there is one."""
    entry = account(uid)
    return f"uid {uid} ({entry[0]})" if entry else f"uid {uid}"
