"""What is watched as a log: only what changed, in lines for people or documents for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from leases.commands._facts import as_data
from leases.commands._failure import exit_code, facts, located
from leases.commands._output import flush, printable, short, shown, write, write_json
from leases.commands._watched import Change, Picture, Row, changes

_TOLD = ("phase", "endpoint", "lease")  # of a record that is new, besides its owner


class TextLog:
    """A line a change: moment, sign, resource, and what is so or was so.

    ``+`` it has a record now, ``-`` it has none any more, ``~`` something is not as it was, ``!`` a directory.
    """

    def __init__(self) -> None:
        self._before: Picture | None = None

    def show(self, now: Picture) -> None:
        """Say what changed since the last time; at first, what there is."""
        before = self._before or Picture(now.at, {}, {})
        self._before = now
        lines = [*_failures(before, now), *map(_line, changes(before, now))]
        for line in lines:
            write(f"{now.moment} {line}")
        if lines:
            flush()

    def close(self) -> None:
        """Everything was said."""


def _failures(before: Picture, now: Picture) -> Iterator[str]:
    for source, error in now.failures.items():
        message = located(source, error)
        if source not in before.failures or located(source, before.failures[source]) != message:
            yield f"! {printable(message)}"
    for source in before.failures.keys() - now.failures.keys():
        yield f"! {printable(source)}: can be looked at again"


def _line(change: Change) -> str:
    resource = printable(change.row.resource)
    if change.before is None:
        return f"+ {resource}: {_summary(change.row)}"
    if change.now is None:
        return f"- {resource}: was {_summary(change.row)}"
    facts = change.facts()
    if "owner" in facts and change.before.owner != change.now.owner:  # else they differ in what is not shown
        facts["owner"] = change.before.owner, change.now.owner
    told = [f"{name} {_value(before)} -> {_value(now)}" for name, (before, now) in facts.items()]
    known = [short(change.now.owner)] if change.now.owner and "owner" not in facts else []
    return f"~ {resource}: {', '.join([*told, *known])}"


def _value(text: str) -> str:
    return short(text) if text else "-"


def _summary(row: Row) -> str:
    told = row.facts()
    parts = [told["state"], row.owner, f"token {told['token']}" if told["token"] else "", told["error"]]
    parts += [f"{name} {told[name]}" for name in _TOLD if told.get(name)]
    parts += [f"waiters {row.waiters}"] if row.waiters else []
    return ", ".join(short(part) for part in parts if part)


class JsonLog:
    """A document a change, each on a line of its own; the first is the whole state."""

    def __init__(self, registry: str | None) -> None:
        self._before: Picture | None = None
        self._registry = registry

    def show(self, now: Picture) -> None:
        """Say what changed since the last time; at first, what there is."""
        before, self._before = self._before, now
        if before is None:
            write_json({"change": "state", "at": now.moment, "resources": [*map(self._data, now.rows.values())]})
            flush()
            return
        told = [*self._failures(before, now), *map(self._change, changes(before, now))]
        for one in told:
            write_json({"change": one.pop("change"), "at": now.moment, **one})
        if told:
            flush()

    def close(self) -> None:
        """Everything was said."""

    def _failures(self, before: Picture, now: Picture) -> Iterator[dict[str, Any]]:
        for source, error in now.failures.items():
            told = self._error(error)
            if source not in before.failures or self._error(before.failures[source]) != told:
                yield {"change": "failed", "directory": source, **told}
        for source in before.failures.keys() - now.failures.keys():
            yield {"change": "recovered", "directory": source}

    def _change(self, change: Change) -> dict[str, Any]:
        data = self._data(change.row)
        if change.before is None:
            return {"change": "added", **data}
        if change.now is None:
            return {"change": "removed", **data}
        return {"change": "changed", **data, "changed": [*change.facts()], "before": self._data(change.before)}

    def _data(self, row: Row) -> dict[str, Any]:
        error = row.one.error
        if error is None:
            return {**as_data(row.one, self._registry), "waiters": row.waiters}
        return {**self._error(error), "resource": shown(row.one.resource), "verdict": None, "waiters": row.waiters}

    def _error(self, error: Exception) -> dict[str, Any]:
        where = None if self._registry is None else os.path.abspath(self._registry)
        return facts(error, exit_code(error, where))
