"""Making a lock directory: with the documented mode whatever the umask, and given to whom it belongs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ownership._errors import explained
from ownership._fork import Descriptor
from ownership._location import Location
from ownership._paths import quoted, state_home
from ownership._system import DIRECTORY_ONLY, HAS_FILE_USER, NO_FOLLOW, PATH_ONLY, euid

IGNORE = ".gitignore"


def make_directory(location: Location) -> None:
    """Make it, mode 0700; quiet if somebody else was faster."""
    try:
        try:
            with as_account(location.heir):
                os.mkdir(location.path, 0o700)
        except PermissionError:
            if location.heir is None:
                raise
            os.mkdir(location.path, 0o700)  # below a directory that is closed to that account; given to it later
    except FileExistsError:
        return
    except OSError as error:
        denied = error.errno in (errno.EACCES, errno.EROFS, errno.EPERM)
        full = "free disk space or inodes" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "pass registry=DIR"
        hint = f"make {quoted(os.path.dirname(location.path))} writable for this account, or pass registry=DIR"
        raise explained(error, location.path, hint if denied else full) from None
    descriptor = Descriptor()
    try:
        repair_mode(location.path, location.heir[0] if location.heir and HAS_FILE_USER else euid())
        descriptor.open(location.path, DIRECTORY_ONLY | NO_FOLLOW)
        _ignore(descriptor.number, location)
        if location.heir:
            give_if_empty(descriptor.number, location.heir)
    except FileNotFoundError:
        return
    finally:
        descriptor.close()


@contextmanager
def as_account(account: tuple[int, int] | None) -> Iterator[None]:
    """Make files as *account*, in this thread alone: setfsuid(2). They are its own from the first moment on."""
    if account is None or not HAS_FILE_USER:
        yield
        return
    import ctypes  # there already, see _inotify; only root in another account's directory gets here

    libc = ctypes.CDLL(None)
    try:
        libc.setfsgid(account[1])
        libc.setfsuid(account[0])
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())


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
                continue
            repair_mode(str(path), euid())


def repair_mode(path: str, owner: int) -> bool:
    """Give *owner*'s own directory the mode that an umask kept from it; true if it had to be."""
    found = os.lstat(path)
    if found.st_uid != owner or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o700 == 0o700:
        return False
    descriptor = Descriptor()
    try:
        opened = descriptor.open(path, PATH_ONLY | NO_FOLLOW)
        if (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino):
            os.chmod(f"/proc/self/fd/{descriptor.number}", 0o700)
        return True
    finally:
        descriptor.close()


def give_if_empty(directory: int, account: tuple[int, int]) -> bool:
    """Give the open *directory* to *account* if there is nothing in it: never a directory that was put in our way."""
    if any(name != IGNORE for name in os.listdir(directory)):
        return False
    os.fchown(directory, *account)
    return True


def _ignore(directory: int, location: Location) -> None:
    """Keep version control away; not worth failing for."""
    numbers: list[int] = []
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_FOLLOW
    try:
        numbers.append(os.open(IGNORE, flags, 0o600, dir_fd=directory))
        os.fchmod(numbers[0], 0o600)  # whatever the umask
        os.write(numbers[0], b"*\n")
        if location.heir:
            os.fchown(numbers[0], *location.heir)
    except OSError:
        pass
    finally:
        if numbers:
            os.close(numbers[0])
