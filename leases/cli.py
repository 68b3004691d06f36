"""``leasectl``: the commands, and the one place where their errors end.

Exit status: 0 done · 1 failed · 2 usage · 65 record or directory unusable · 70 bug · 75 held by another · 76 lost while
holding · 130 Ctrl-C. ``run`` returns what its CMD returned, ``show`` the verdict.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from leases.commands._failure import REGISTRY, report
from leases.commands._output import OutputError, flush, say

_COMMANDS = {
    "run": "run",
    "show": "show",
    "list": "list",
    "wait": "wait",
    "reclaim": "reclaim",
    "break": "break_",
    "stop": "stop",
    "replace": "replace",
    "renew": "renew",
    "ensure": "ensure",
    "gate": "gate",
    "roster": "roster",
    "doctor": "doctor",
    "watch": "watch",
    "schema": "schema",
}


class _Commands(click.Group):
    """Commands whose modules are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = import_module(f"leases.commands.{module}").command
        return command


@click.group(cls=_Commands, context_settings={"max_content_width": 120, "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="leases", prog_name="leasectl")
def leasectl() -> None:
    """Who owns this, right now, on this machine: owner records beside the resources they are about.

    \b
    Exit status:
       0  done                       70  a bug in leasectl
       1  failed                     75  held by another
       2  usage                      76  lost while holding
      65  record or directory       130  interrupted
          unusable
    run returns what its CMD returned, show has one code for each verdict.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``leasectl`` with *argv*; the exit code. Never a traceback, unless ``LEASES_TRACEBACK`` is set."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _run(arguments)
        flush()
    except OutputError as error:
        _give_up_stdout()
        if not isinstance(error.__cause__, BrokenPipeError):
            say(f"cannot write to stdout: {error}")
        return error.exit_code
    return code


def _run(arguments: list[str]) -> int:
    context = None
    try:
        context = leasectl.make_context("leasectl", list(arguments))
        with context:
            code: int | None = leasectl.invoke(context)
            return code or 0
    except click.exceptions.Exit as done:  # --help
        return done.exit_code
    except OutputError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, OSError) and error.filename is None:
            flush()  # click's own output, --help for instance: then it is stdout that fails, and that is all there is
        registry = context.meta.get(REGISTRY) if context is not None else None
        return report(error, as_json=_wants_json(arguments), registry=registry)


def _wants_json(arguments: list[str]) -> bool:
    """Asked of the bare arguments, so that it is known whatever is wrong with them."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def _prepare_streams() -> None:
    """No lock file may become descriptor 0, 1 or 2, which any library may read and write; no name is unprintable."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno == errno.EBADF:
                os.open(os.devnull, os.O_RDWR)  # the lowest free number; not inherited, CMD finds it as we did
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is not None and isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # python -u: of a write that is cut short the rest would be lost without an error
        buffered = io.BufferedWriter(io.FileIO(sys.stdout.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(buffered, encoding=sys.stdout.encoding, errors="backslashreplace")


def _give_up_stdout() -> None:
    """Nothing is left for the interpreter to flush at exit."""
    if sys.stdout is None:
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(null)


if __name__ == "__main__":
    sys.exit(main())
