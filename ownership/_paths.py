"""From what a caller spells to a canonical path, and from a path to the names of its files."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import shlex
import stat
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ownership._errors import explained
from ownership._system import account, euid

StrPath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

DIRECTORY = ".leases"
_SAFE = "._-+=@,:~ "
_NAME_LIMIT = 180  # leaves room for ".<instance id>.new" within the 255 bytes of a file name
_HASHED = "%-"  # an escape never yields it: "%" is always followed by two hex digits
_SHORT = 64  # characters; what a socket is bound to has to be short (unix(7))
_ROOM = 80  # bytes that "/.leases-<uid>/" and the suffixes add
_COMPONENT_LIMIT, _PATH_LIMIT = 255, 4095


Facts: TypeAlias = tuple[int, int, int, int]


def facts_of(found: os.stat_result) -> Facts:
    """Device, inode, mode and uid."""
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid


class Resource(NamedTuple):
    """A canonical path, pinned when it was resolved.

    :ivar path: canonical path (undecodable bytes as surrogates, like everywhere in :mod:`os`)
    :ivar parent: the directory it is in
    :ivar name: the stem of its files in its lock directory
    :ivar above: device, inode, mode and uid of *parent* at that moment, where they were asked
    """

    path: str
    parent: str
    name: str
    above: Facts | None = None

    @property
    def shown(self) -> str:
        """The path as text for people and JSON: bytes that are not UTF-8 are percent-escaped."""
        return shown(self.path)


def pinned_resource(path: str, *, whole: bool = False) -> Resource:
    """A resource whose canonical path was pinned earlier, perhaps by another process: nothing is resolved again."""
    parent, base = os.path.split(path)
    return Resource(path, parent, escape(os.fsencode(path if whole else base or "/")))


def shown(path: str) -> str:
    """*path* as one line of text: percent-escaped if it is not UTF-8 or not printable."""
    return path if path.isprintable() else quote_from_bytes(os.fsencode(path), safe="/" + _SAFE)


def quoted(path: str) -> str:
    """*path* as a shell takes it, whatever is in it: hints are copied, often by root."""
    if path.isprintable():
        return shlex.quote(path)
    return "$'" + "".join(_shell_byte(byte) for byte in os.fsencode(path)) + "'"


def argument_of(path: str, registry: str | None) -> str:
    """How a command line of ``leasectl`` names the resource at *path*: to be pasted as it is."""
    return quoted(path) if registry is None else f"--registry {quoted(registry)} {quoted(path)}"


def _shell_byte(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}"


class _Known(NamedTuple):
    """A parent directory as it was last resolved: which directory that is, and its canonical path."""

    device: int
    inode: int
    path: str


_known: dict[str, _Known] = {}  # by spelling
_again: dict[str, Resource] = {}  # those resolved the short way, by their canonical path


def resolve(resource: StrPath, *, whole: bool = False, parameter: str = "resource") -> Resource:
    """Resolve symlinks in *resource*, the last component included, and name its files.

    :param parameter: what to call it in errors
    :param whole: name the files by the whole canonical path (a shared registry) instead of its last component
    :raises ValueError: empty, holding NUL, or longer than the system takes
    :raises OSError: a loop of symlinks, or a directory on the way that cannot be searched
    """
    spelled = spelled_path(resource, parameter)
    if not whole and (found := _resolve_known(spelled)):
        return found
    _check_length(spelled, spelled)
    path = os.path.realpath(spelled)
    _check_length(path, spelled)
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise path_error(error, path) from None
    parent, base = os.path.split(path)
    if whole:
        return Resource(path, parent, escape(os.fsencode(path)))
    name = escape(os.fsencode(base or "/"))
    if len(os.fsencode(parent)) + len(name) + _ROOM > _PATH_LIMIT:
        raise ValueError(f"{parameter} must be a path that leaves room for its lock files, got {path[:80]!r}…")
    _remember(spelled.rpartition("/")[0], parent)
    return Resource(path, parent, name)


def _resolve_known(spelled: str) -> Resource | None:
    """The short way for a parent that was resolved before: still the same directory, and the last part no symlink."""
    again = _again.get(spelled)
    if again is not None:
        return again if _is_unchanged(again) else None
    parent, _, base = spelled.rpartition("/")
    known = _known.get(parent)
    if known is None or base in ("", ".", "..") or len(base) > _COMPONENT_LIMIT // 4:
        return None
    try:
        above = os.stat(parent)
        if parent != known.path and above.st_ino == known.inode and above.st_dev == known.device:
            above = os.stat(known.path)
        if above.st_ino != known.inode or above.st_dev != known.device:
            return None
        if _is_symlink(spelled):
            return None
    except OSError:
        return None
    resource = Resource(f"{known.path}/{base}", known.path, escape(os.fsencode(base)), facts_of(above))
    if parent == known.path:
        if len(_again) >= 256:
            _again.clear()
        _again[spelled] = resource
    return resource


def _is_unchanged(resource: Resource) -> bool:
    try:
        found = os.stat(resource.parent)
        if resource.above == (found.st_dev, found.st_ino, found.st_mode, found.st_uid):
            return not _is_symlink(resource.path)
    except OSError:
        pass
    _again.pop(resource.path, None)
    return False


def _is_symlink(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _remember(spelled: str, canonical: str) -> None:
    if not spelled or canonical == "/":
        return
    try:
        found = os.stat(canonical)
        same = os.path.samestat(found, os.stat(spelled))
    except OSError:
        return
    if same:  # else the file itself was a symlink to somewhere else
        if len(_known) >= 256:
            _known.clear()
        _known[spelled] = _Known(found.st_dev, found.st_ino, canonical)


def spelled_path(path: StrPath, parameter: str) -> str:
    """*path* as text; ``ValueError`` naming *parameter* if it cannot be one."""
    if type(path) is str and path and "\0" not in path:
        return path
    try:
        spelled = os.fsdecode(path)
    except TypeError:
        raise ValueError(f"{parameter} must be a path, got {path!r}") from None
    if not spelled:
        raise ValueError(f"{parameter} must be a path, got an empty one")
    if "\0" in spelled:
        raise ValueError(f"{parameter} must be a path without NUL bytes, got {spelled!r}")
    return spelled


def _check_length(path: str, spelled: str) -> None:
    raw = os.fsencode(path)
    if len(raw) > _PATH_LIMIT:
        raise ValueError(f"resource must be a path of at most {_PATH_LIMIT} bytes, got {len(raw)}: {spelled[:80]!r}…")
    longest = max(raw.split(b"/"), key=len)
    if len(longest) > _COMPONENT_LIMIT:
        raise ValueError(
            f"resource must be a path whose components have at most {_COMPONENT_LIMIT} bytes, "
            f"got one of {len(longest)}: {spelled[:80]!r}…"
        )


def path_error(error: OSError, path: str) -> OSError:
    """*error* about a directory that has to be there, with path and remedy."""
    hints = {
        errno.ENOENT: f"make the directory first: mkdir -p {quoted(path)}",
        errno.ENOTDIR: "one of its components is a file",
        errno.ELOOP: "its symlinks lead in a circle: see readlink on each component",
        errno.EACCES: "a directory above may not be searched by this account: see namei -l",
    }
    return explained(error, path, hints.get(error.errno or 0, ""))


@functools.lru_cache(maxsize=1024)
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


def anchor_of(name: str) -> str:
    """What the socket of the resource whose files are called *name* is called in the lock directory."""
    short = name if len(name) <= _SHORT else f"{_HASHED}{hashlib.sha256(name.encode()).hexdigest()[:40]}"
    return f"{short}.socket"


def unescape(name: str) -> str | None:
    """What :func:`escape` was given, or ``None`` for a hashed name."""
    return None if _HASHED in name else os.fsdecode(unquote_to_bytes(os.fsencode(name)))


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
    :raises ValueError: an empty name, or none, or an account without a home directory
    """
    try:
        raw = os.fsencode(name)
    except TypeError:
        raise ValueError(f"name must be text or bytes, got {name!r:.80}") from None
    if not raw:
        raise ValueError("name must not be empty")
    return state_home() / escape(raw)
