"""``leasectl doctor``."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import click

from leases.commands._failure import FAILED, UNUSABLE, described, exit_code, facts, located
from leases.commands._options import PATH, arguments, common, mistaken, sources
from leases.commands._output import is_terminal, printable, say, shown, write, write_json
from ownership import Finding, Severity, diagnose

_STYLES = {Severity.PROBLEM: "red", Severity.NOTE: "yellow"}


@click.command("doctor")
@click.argument("directories", type=PATH, nargs=-1, metavar="[DIR]...")
@common
def command(directories: tuple[str, ...], registry: str | None, as_json: bool) -> int:
    """Say what is wrong with anything directly in DIR, how that is known, and what to do.

    DIR is the current directory by default; several can be given. Changes nothing, takes no guard, and says nothing
    of what is well. A problem blocks or will mislead somebody; a note harms nobody: the next acquire or reclaim clears
    it. The remedy is a command to paste, once you have read what it does.

    With --registry: everything in the registry, or only what is directly in DIR.

    \b
    Exit status:
       0  all is well, or only notes
       1  a problem, or a directory cannot be looked at (missing, for instance)
       2  usage
      65  a record or a lock directory cannot be used
    """
    codes, counts, failures = {0}, Counter[Severity](), 0
    told: list[dict[str, Any]] = []
    where = None if registry is None else os.path.abspath(registry)
    for source, wanted in sources(directories, registry):
        try:
            with arguments():
                for one in diagnose(source, registry=registry is not None):
                    if not _is_wanted(one, wanted, registry):
                        continue
                    codes.add(_code(one))
                    counts[one.severity] += 1
                    if as_json:
                        told.append(_as_data(one))
                    else:
                        _write(one)
        except OSError as error:
            error = mistaken(error, source)
            codes.add(exit_code(error, where))
            failures += 1
            told.append({"directory": shown(source), **facts(error, exit_code(error, where))})
            if not as_json:
                _say_failure(shown(source), error)
    if as_json:
        write_json(told)
    else:
        say(_summary(counts, failed=failures > 0))
    return max(codes)


def _is_wanted(one: Finding, within: set[Path] | None, registry: str | None) -> bool:
    """Whether it is about something in the directories that were named, or about the registry and its files."""
    if within is None or registry is None or one.resource.parent in within:
        return True
    above, name = os.path.split(os.path.abspath(registry))
    home = Path(os.path.realpath(above), name)
    return home in (one.resource, one.resource.parent)


def _code(one: Finding) -> int:
    """The exit code that it stands for: what harms nobody is no failure."""
    return UNUSABLE if one.unusable else 0 if one.severity is Severity.NOTE else FAILED


def _as_data(one: Finding) -> dict[str, Any]:
    return {
        "resource": shown(one.resource),
        "finding": one.code.value,
        "severity": one.severity.value,
        "what": one.what,
        "evidence": dict(one.evidence),
        "advice": one.advice,
        "remedy": one.remedy,
        "exit_code": _code(one),
    }


def _write(one: Finding) -> None:
    """A block: what and where, then a line a fact, then what to do."""
    head = f"{printable(shown(one.resource))}: {one.code.value} ({one.severity.value})"
    write(click.style(head, fg=_STYLES[one.severity], bold=True) if is_terminal() else head)
    write(f"  {printable(one.what)}")
    for name, value in one.evidence.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        write(f"    {name.replace('_', ' '):<20} {printable(text)}")
    if one.advice:
        write(f"  advice: {printable(one.advice)}")
    write(f"  remedy: {printable(one.remedy)}\n")


def _say_failure(source: str, error: OSError) -> None:
    say(located(source, error), described(error)[1])


def _summary(counts: Counter[Severity], *, failed: bool) -> str:
    if not counts:
        return "nothing was found where it could be looked at" if failed else "all is well"
    if not counts[Severity.PROBLEM] and not failed:
        return f"{counts.total()} note{'' if counts.total() == 1 else 's'}, no problem"
    words = [f"{count} {one.value}{'' if count == 1 else 's'}" for one in Severity if (count := counts[one])]
    return f"found {' and '.join(words)}"
