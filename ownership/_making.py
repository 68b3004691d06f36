"""Making a lock directory: with the documented mode whatever the umask, and given to whom it belongs."""

from __future__ import annotations

import errno
import os
import stat

from ownership._errors import explained
from ownership._fork import Descriptor
from ownership._location import Location
from ownership._paths import shown
from ownership._system import DIRECTORY_ONLY, NO_FOLLOW, PATH_ONLY, euid

IGNORE = ".gitignore"


def make_directory(location: Location) -> None:
    """Make it, mode 0700; quiet if somebody else was faster."""
    try:
        os.mkdir(location.path, 0o700)
    except FileExistsError:
        return
    except OSError as error:
        denied = error.errno in (errno.EACCES, errno.EROFS, errno.EPERM)
        hint = f"make {shown(os.path.dirname(location.path))} writable for this account, or pass registry=DIR"
        raise explained(error, location.path, hint if denied else "") from None
    descriptor = Descriptor()
    try:
        repair_mode(location.path)
        descriptor.open(location.path, DIRECTORY_ONLY | NO_FOLLOW)
        _ignore(descriptor.number, location)
        if location.heir:
            give_if_empty(descriptor.number, location.heir)
    except FileNotFoundError:
        return
    finally:
        descriptor.close()


def repair_mode(path: str) -> bool:
    """Give our own directory the mode that an umask kept from it; true if it had to be."""
    found = os.lstat(path)
    if found.st_uid != euid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o700 == 0o700:
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
        os.write(numbers[0], b"*\n")
        if location.heir:
            os.fchown(numbers[0], *location.heir)
    except OSError:
        pass
    finally:
        if numbers:
            os.close(numbers[0])
