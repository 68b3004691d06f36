"""What went wrong, told to people or programs, and the exit code for it."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from leases.commands._output import flush, say, shown, tell, write_json
from ownership import Inspection

FAILED, USAGE, UNUSABLE, BUG, INTERRUPTED = 1, 2, 65, 70, 130
REGISTRY = "leases.registry"  # key in the context's meta: the registry that was named
TRACEBACK = "LEASES_TRACEBACK"

_LOCK_FILES = (".json", ".guard", ".alive", ".request", ".new")
_UNUSABLE = frozenset({errno.EACCES, errno.EPERM, errno.EIO, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
_HINTS = {
    errno.ENOENT: "check the spelling, or make the directory first",
    errno.ENOTDIR: "the path leads through something that is no directory",
    errno.EROFS: "pass --registry DIR with a directory that can be written",
    errno.ENOSPC: "make room on that filesystem",
    errno.EDQUOT: "make room in this account's quota",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_FACTS = ("verdict", "reason", "holder", "head", "returncode", "stderr", "deaths")
_IDENTITY = ("pid", "start_id", "instance_id", "token")


class CommandError(Exception):
    """CMD could not be started, or the command itself has failed: with an exit code of its own."""

    def __init__(self, message: str, exit_code: int, hint: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.hint = hint


def require_directory(one: Inspection) -> None:
    """A path whose directory is not there is more likely misspelled than free.

    :raises FileNotFoundError: it is not there
    """
    if one.missing is not None:
        raise FileNotFoundError(errno.ENOENT, f"directory {shown(one.missing)} does not exist", str(one.resource))


def report(error: BaseException, *, as_json: bool, registry: str | None = None, code: int | None = None) -> int:
    """Tell what happened: JSON on stdout, or a message on stderr. Returns the exit code."""
    code = exit_code(error, registry) if code is None else code
    if isinstance(error, click.ClickException) and not as_json:
        return _report_usage(error, code)
    if code == BUG and os.environ.get(TRACEBACK):
        sys.excepthook(type(error), error, error.__traceback__)
    message, hint = described(error)
    if as_json:
        write_json(facts(error, code))
        flush()
    else:
        say(message, hint)
        for line in (getattr(error, "stderr", "") or "").splitlines():
            say(f"  | {line}")
    return code


def _report_usage(error: click.ClickException, code: int) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    usage = getattr(error, "hint", "") or (f"try: {context.command_path} --help" if context is not None else "")
    message = error.format_message()
    if "\n" in message:  # the help, for want of a command
        tell(message)
    else:
        say(message, usage)
    return code


def exit_code(error: BaseException, registry: str | None = None) -> int:
    """The exit code that stands for *error*: its own, or that of its kind."""
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, OSError):
        return UNUSABLE if error.errno in _UNUSABLE and _concerns_lock_files(error, registry) else FAILED
    return BUG


def _concerns_lock_files(error: OSError, registry: str | None) -> bool:
    """Whether it is about a lock directory or registry that is there, or a file in it; not one still to be made."""
    if error.filename is None:
        return False
    path = os.path.abspath(os.fsdecode(error.filename))
    directory, name = os.path.split(path)
    if name.endswith(_LOCK_FILES) or os.path.basename(directory).startswith(".leases"):
        return True
    return path == registry or (name.startswith(".leases") and os.path.lexists(path))


def described(error: BaseException) -> tuple[str, str]:
    """Message and remedy."""
    hint = getattr(error, "hint", "").replace("(timeout=,", "(--timeout,")  # of the library: its keyword
    if isinstance(error, click.ClickException):
        return error.format_message(), hint
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted", ""
    if hasattr(error, "exit_code"):
        return str(error), hint
    if isinstance(error, OSError):
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}", hint or _HINTS.get(error.errno or 0, "")
    return f"bug: {type(error).__name__}: {error}", f"{TRACEBACK}=1 in the environment shows where; please report it"


def located(source: str, error: BaseException) -> str:
    """The message about *source*, a path as it was given, spelled like that."""
    message, named = described(error)[0], getattr(error, "filename", None)
    if named is not None and os.path.realpath(os.fsdecode(named)) == os.path.realpath(source):
        message = message.removeprefix(f"{shown(os.fsdecode(named))}: ")
    return message if source in message else f"{source}: {message}"


def facts(error: BaseException, code: int) -> dict[str, Any]:
    """*error* as JSON: its type, message and remedy, and every fact it carries."""
    message, hint = described(error)
    told: dict[str, Any] = {"error": type(error).__name__, "message": message, "hint": hint, "exit_code": code}
    path = getattr(error, "resource", None) or getattr(error, "filename", None)
    if path is not None:
        told["resource"] = shown(os.fsdecode(path))
    if isinstance(error, OSError) and error.errno is not None:
        told["errno"] = errno.errorcode.get(error.errno, error.errno)
    told |= {name: value for name in _FACTS if (value := getattr(error, name, None)) is not None}
    record, owner = getattr(error, "record", None), getattr(error, "owner", None)
    if owner is not None:
        told |= {name: getattr(owner, name) for name in _IDENTITY if hasattr(owner, name)}
    if record is not None:
        told["record"] = record.model_dump(mode="json")
    return told
