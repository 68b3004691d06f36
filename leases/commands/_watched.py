"""What is watched: everything in some directories at one moment, and what became of it since the moment before."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from leases.commands._command import brief
from leases.commands._failure import described
from leases.commands._options import sources
from leases.commands._output import json_text, shown
from ownership import Inspection, Survey, waiters

Key: TypeAlias = tuple[str, int]  # a resource, and which of several records (of as many accounts) it is


class Row(NamedTuple):
    """A resource that has a record, and how many processes wait for it."""

    one: Inspection
    waiters: int

    @property
    def resource(self) -> str:
        return shown(self.one.resource)

    @property
    def state(self) -> str:
        return "unusable" if self.one.error is not None else self.one.verdict.value

    @property
    def owner(self) -> str:
        """Pid and command, where they are known; the command in short."""
        return self._owner(brief(self.one.record.command) if self.one.record else "")

    def _owner(self, command: str) -> str:
        if self.one.owner is None:
            return ""
        return f"pid {self.one.owner.pid} ({command})" if command else f"pid {self.one.owner.pid}"

    @property
    def lease(self) -> str:
        """For how long it holds after each renewal; empty if it is none."""
        lease = self.one.record.lease if self.one.record is not None else None
        return "" if lease is None else f"{lease.ttl:g} s"

    def facts(self) -> dict[str, str]:
        """What makes a difference when it changes, by name; how long it has been so does not."""
        record = self.one.record
        told = {
            "state": self.state,
            "owner": self._owner(record.command if record else ""),
            "token": str(self.one.token or ""),
            "waiters": str(self.waiters),
            "error": described(self.one.error)[0] if self.one.error is not None else self.one.malformed or "",
        }
        if record is not None:
            told |= {"phase": record.phase, "endpoint": record.endpoint or "", "lease": self.lease}
            told |= {"labels": json_text(record.labels), "data": json_text(record.data)}
        return told


class Picture(NamedTuple):
    """Everything at one moment, by resource.

    :ivar failures: directories that could not be looked at, and why; their rows are the last that were seen, unless
        the directory is missing
    """

    at: dt.datetime
    rows: dict[Key, Row]
    failures: dict[str, OSError]

    @property
    def moment(self) -> str:
        return f"{self.at:%Y-%m-%dT%H:%M:%S}.{self.at.microsecond // 1000:03}Z"


class Change(NamedTuple):
    """What became of a resource: it came (no ``before``), it went (no ``now``), or it is not as it was."""

    before: Row | None
    now: Row | None

    @property
    def row(self) -> Row:
        """As it is, or was at last."""
        row = self.now or self.before
        assert row is not None
        return row

    def facts(self) -> dict[str, tuple[str, str]]:
        """What changed, by name: before and now."""
        if self.before is None or self.now is None:
            return {}
        before, now = self.before.facts(), self.now.facts()
        names = dict.fromkeys([*now, *before])
        pairs = {name: (before.get(name, ""), now.get(name, "")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def changes(before: Picture, now: Picture) -> Iterator[Change]:
    """What is different in *now*, by resource."""
    for key in sorted({*before.rows, *now.rows}):
        change = Change(before.rows.get(key), now.rows.get(key))
        if None in change or (change.before != change.now and change.facts()):
            yield change


class Watched:
    """The directories that are watched.

    :param confirm_interval: seconds after which what was seen of an owner is not believed any more
    :raises ValueError: one of them cannot be a path
    """

    def __init__(self, directories: tuple[str, ...], registry: str | None, *, confirm_interval: float = 5.0) -> None:
        shared = registry is not None
        self._surveys = [
            (source, Survey(source, registry=shared, confirm_interval=confirm_interval), wanted)
            for source, wanted in sources(directories, registry)
        ]
        self._registry = shared
        self._last: dict[str, dict[Key, Row]] = {}

    def spelled(self, source: str) -> str:
        """The directory that :attr:`Picture.failures` shows as *source*."""
        return next(one for one, _, _ in self._surveys if shown(one) == source)

    def look(self) -> Picture:
        """Everything now."""
        at, rows = dt.datetime.now(dt.UTC), dict[Key, Row]()
        failures: dict[str, OSError] = {}
        for source, survey, wanted in self._surveys:
            try:
                self._last[source] = self._rows(source, survey, wanted)
            except OSError as error:
                failures[shown(source)] = error
                if isinstance(error, FileNotFoundError):
                    self._last.pop(source, None)
            rows |= self._last.get(source, {})
        return Picture(at, dict(sorted(rows.items())), failures)

    def _rows(self, source: str, survey: Survey, wanted: set[Path] | None) -> dict[Key, Row]:
        found, itself = survey.look(), os.path.realpath(source)
        for one in found:
            if isinstance(one.error, OSError) and str(one.resource) == itself:
                raise one.error  # a registry, or a lock directory that was named itself
        waiting = waiters(source, registry=self._registry)
        count: Counter[str] = Counter()
        rows: dict[Key, Row] = {}
        for one in found:
            if wanted is None or one.resource.parent in wanted:
                path = str(one.resource)
                rows[path, count[path]] = Row(one, waiting.get(one.resource, 0))
                count[path] += 1
        return rows
