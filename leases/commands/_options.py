"""What the commands have in common on their command lines."""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from click.types import UnprocessedParamType

from leases._quoting import quoted
from leases.commands._failure import REGISTRY
from leases.commands._output import shown
from ownership import OwnershipError, Verdict, inspect

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Path(UnprocessedParamType):
    """Undecodable bytes stay what they are; an empty path (a variable that is not set) is not the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("must be a path, got an empty one", param, ctx)
        return super().convert(value, param, ctx)


PATH = _Path()


def seconds(*, endless: bool, least: float = 0) -> Callable[[click.Context, click.Parameter, Any], float | None]:
    """Reads a number of seconds, *least* or more; if *endless*, also ``forever`` (``None``). Not given stays so."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        if value == "forever" and endless:
            return None
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < least:
            what = f"a number of seconds >= {least:g}" + (" or 'forever'" if endless else "")
            raise click.BadParameter(f"must be {what}, got {value!r}", ctx, param)
        return number

    return read


def _remember_registry(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        ctx.meta[REGISTRY] = os.path.abspath(value)
    return value


def common(function: _Function) -> _Function:
    """``--registry`` and ``--json``, which every command has."""
    registry = click.option(
        "--registry",
        type=PATH,
        metavar="DIR",
        callback=_remember_registry,
        help="An existing directory with the records, shared between accounts.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, errors included.")
    return registry(as_json(function))


@contextlib.contextmanager
def arguments() -> Iterator[None]:
    """What the library says about bad arguments is a usage error here."""
    try:
        yield
    except ValueError as error:
        if hasattr(error, "exit_code"):  # InvalidRecordError: about a file, not about an argument
            raise
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error


def mistaken(error: OSError, source: str, registry: str | None = None) -> OSError:
    """*error* about the directory *source*; if that is a resource with an owner, one that says so."""
    path = error.filename
    if path is None or not isinstance(error, FileNotFoundError | NotADirectoryError) or not _is_owned(path, registry):
        return error
    where = "" if registry is None else f"--registry {quoted(registry)} "
    show = f"leasectl show {where}{quoted(source)}"
    told = NotADirectoryError(errno.ENOTDIR, f"{shown(source)} is a resource, not a directory: {show}")
    told.hint = f"or name its directory: {quoted(os.path.dirname(source) or '.')}"  # type: ignore[attr-defined]
    told.resource = path  # type: ignore[attr-defined]
    return told


def _is_owned(path: str, registry: str | None) -> bool:
    try:
        return inspect(path, registry=registry).verdict is not Verdict.FREE
    except (OSError, OwnershipError, ValueError):
        return False


def sources(directories: tuple[str, ...], registry: str | None) -> Iterator[tuple[str, set[Path] | None]]:
    """Where to look, and of what is there only what is in which directories (``None``: everything).

    :raises NotADirectoryError: one of them is a resource with an owner in the registry
    """
    if registry is not None:
        for one in directories:
            if not os.path.isdir(one) and _is_owned(one, registry):
                raise mistaken(NotADirectoryError(errno.ENOTDIR, "", one), one, registry)
        yield registry, {Path(os.path.realpath(one)) for one in directories} or None
        return
    for directory in directories or (".",):
        yield directory, None
