"""Looking for what is wrong in a directory, and with whom. Reading only: the directory is byte-identical afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

from ownership import _keeper
from ownership._ailing_change import ailments_of_change
from ownership._ailing_files import (
    Held,
    foreign_files,
    guards_held,
    held_for_long,
    leftovers,
    locked_out,
    still_held,
    unreadable,
    unusable_file,
)
from ownership._ailing_owner import Case, ailments_of_owner
from ownership._ailing_socket import ailments_of_socket
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import OwnershipError
from ownership._examine import Examined, Examiner
from ownership._finding import Finding, FindingCode, Subject
from ownership._inspect import examiner_of, resource_of
from ownership._locking import peek
from ownership._models import NO_GUARD_STATE, GuardState, OwnerIdentity
from ownership._once_seen import OnceSeen
from ownership._paths import Resource, StrPath, pinned_resource
from ownership._pinned import Signature
from ownership._place import opened
from ownership._premises import survey
from ownership._process import ProcessTable, lock_holders
from ownership._request import Asker, asker_of
from ownership._station import Place
from ownership._verdict import Verdict, WitnessState, same_namespace
from ownership._witness import SUFFIX, ask

_PAUSE, _PAUSES = 0.2, 3  # seconds between two looks at what may pass by itself; together more than two keeper ticks
_PASSING = frozenset(
    {
        FindingCode.RECORD_LOST,
        FindingCode.MALFORMED,
        FindingCode.WITNESS_MISSING,
        FindingCode.WITNESS_FREE,
        FindingCode.SOCKET_MISSING,
        FindingCode.SOCKET_MUTE,
        FindingCode.STALE_SOCKET,
    }
)


def diagnose(
    directory: StrPath,
    *,
    registry: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Iterator[Finding]:
    """Everything in *directory* that is not as it should be, with evidence and remedy; nothing if all is well.

    Looked at are the records, guards, witnesses and lock directories of every resource directly in it, without taking
    a guard and without changing anything; a socket is connected to, and the connection closed at once. What a keeper or
    a call under way may put right by itself is found only if it is still so after 0.6 s. Findings of a directory come
    before those of the resources in it, which come by name.

    Not guaranteed: that it is still so when you act on it; that what this account may not read, or processes that this
    pid namespace does not show, are judged as well as others would; and, off Linux, who holds a guard.

    :param directory: where the resources are, or a lock directory itself
    :param registry: *directory* is a shared registry itself
    :raises OSError: *directory* itself is missing, or no directory
    :raises ValueError: it is empty, or holds NUL
    """
    examiner = examiner_of(clock, processes)
    try:
        for premises in survey(directory, registry=registry):
            yield from premises.findings
            if premises.usable:
                yield from _diagnose_place(premises.path, registry, examiner)
    finally:
        _keeper.KEEPER.tidy()


def _diagnose_place(path: str, registry: bool, examiner: Examiner) -> Iterator[Finding]:
    try:
        place = opened(path, registry=registry)
        names = os.listdir(place.directory.path)
    except FileNotFoundError:  # it went while we were looking
        return
    except OSError as error:
        yield unreadable(Path(path), path, error)
        return
    if not registry:
        yield from foreign_files(place.directory, names)
    yield from _Round(place, path if registry else None, examiner, names).findings()


class _Look(NamedTuple):
    """One look at one resource."""

    subject: Subject
    findings: tuple[Finding, ...]
    named: frozenset[str]
    readable: bool


class _Round:
    """One round through a lock directory."""

    def __init__(self, place: Place, registry: str | None, examiner: Examiner, names: list[str]) -> None:
        self._place, self._registry, self._examiner = place, registry, examiner
        self._names = names
        self._forget()
        self._in_use: set[str] = set()
        self._all_read = True

    def _forget(self) -> None:
        """What was seen once is looked at anew."""
        self._quick = self._examiner._replace(processes=cast(ProcessTable, OnceSeen(self._examiner.processes)))
        self._witnesses: dict[str, WitnessState] = {}

    def findings(self) -> Iterator[Finding]:
        stems = sorted({stem for stem, dot, kind in (name.rpartition(".") for name in self._names) if kind in _KINDS})
        looks = {}
        held = self._held(stems)
        for stem in stems:
            look = self._look(stem)
            self._in_use |= look.named
            self._all_read &= look.readable
            if look.findings or stem in held:
                looks[stem] = look
        witnesses, temporaries = self._leftovers(self._names)
        doubtful = [stem for stem, look in looks.items() if any(one.code in _PASSING for one in look.findings)]
        if held or doubtful or temporaries:
            begun = self._examiner.clock.monotonic()
            held = self._still_held(held)
            seconds = self._examiner.clock.monotonic() - begun
            self._forget()
            looks |= {stem: self._confirmed(stem, looks[stem]) for stem in doubtful}
            temporaries = {name for name in temporaries if self._signature(name) and self._is_abandoned(name)}
        for stem, look in looks.items():
            yield from look.findings
            if stem in held:
                yield held_for_long(look.subject, held[stem].pid, seconds, self._examiner.processes)
        path = self._place.directory.path
        yield from leftovers(path, self._registry, witnesses, temporaries)

    # -- one resource

    def _look(self, stem: str) -> _Look:
        place = self._place
        found: list[Finding] = []
        subject, remembered, readable = self._subject(stem), NO_GUARD_STATE, True
        try:
            remembered = peek(place.directory, subject.resource)
        except (OSError, OwnershipError) as error:
            found.append(unusable_file(subject, "guard", error))
            readable = False
        else:
            if self._registry is None and (shut := locked_out(subject)):
                found.append(shut)
        try:
            examined = self._examine(subject.resource, remembered)
            asker = self._asker(subject, found) if remembered.requested else None
            case = Case(subject, examined, remembered, self._examiner.processes, self._witness(examined), asker)
            found += [*ailments_of_owner(case), *ailments_of_change(case), *ailments_of_socket(case)]
        except (OSError, OwnershipError) as error:
            found.append(unusable_file(subject, "json", error))
            return _Look(subject, tuple(found), _instances(remembered.owner), False)
        return _Look(subject, tuple(found), _instances(remembered.owner, examined.owner), readable)

    def _asker(self, subject: Subject, found: list[Finding]) -> Asker | None:
        try:
            return asker_of(self._quick, self._place, subject.resource)
        except (OSError, OwnershipError) as error:
            found.append(unusable_file(subject, "request", error))
            return None

    def _examine(self, resource: Resource, remembered: GuardState) -> Examined:
        """The verdict; a process that was seen alive in this round is taken to live, anything else is looked at now."""
        examined = self._quick.examine(self._place, resource, remembered)
        if examined.verdict is Verdict.LIVE and examined.record is not None:
            return examined
        if examined.owner is None and remembered.owner is None:
            return examined
        return self._examiner.examine(self._place, resource, remembered)

    def _subject(self, stem: str) -> Subject:
        directory, resource = self._place.directory, resource_of(self._place, stem)
        named = pinned_resource(resource.path, whole=directory.location.whole).name  # not for names we never give
        return Subject(resource, directory.path, self._registry, known=named == stem and "\0" not in resource.path)

    def _witness(self, examined: Examined) -> WitnessState | None:
        """What the witness says, where that tells more than the verdict."""
        owner = examined.owner
        if owner is None or examined.record is None or examined.verdict not in _ASKED:
            return None
        here = same_namespace(owner, self._examiner.processes.current())
        if here != (examined.verdict is not Verdict.UNKNOWN):
            return None
        if owner.instance_id not in self._witnesses:
            self._witnesses[owner.instance_id] = ask(self._place.directory, owner.instance_id).state
        return self._witnesses[owner.instance_id]

    # -- what may pass

    def _confirmed(self, stem: str, before: _Look) -> _Look:
        """A later look, with what passes by itself only if it was seen before."""
        later = self._look(stem)
        seen = {one.code for one in before.findings}
        return later._replace(
            findings=tuple(one for one in later.findings if one.code in seen or one.code not in _PASSING)
        )

    def _held(self, stems: Iterable[str]) -> dict[str, Held]:
        """The guards that somebody holds at this moment. They are not touched."""
        holders = lock_holders()
        if not holders:
            return {}
        return guards_held({stem: self._signature(f"{stem}.guard") for stem in stems}, holders)

    def _signature(self, filename: str) -> Signature | None:
        try:
            return self._place.directory.signature(filename)
        except OSError:
            return None

    def _still_held(self, before: dict[str, Held]) -> dict[str, Held]:
        for _ in range(_PAUSES):
            self._examiner.clock.wait(_PAUSE)
            before = still_held(before, self._held(before))
        return before

    # -- what dead processes left

    def _leftovers(self, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """Witnesses and temporary files of dead processes. With a record that cannot be read nothing is known."""
        if not self._all_read:
            return set(), set()
        witnesses = {
            name
            for name in names
            if name.endswith(SUFFIX)
            and name.removesuffix(SUFFIX) not in self._in_use
            and ask(self._place.directory, name.removesuffix(SUFFIX)).state is WitnessState.FREE
        }
        temporaries = {name for name in names if name.endswith(".new") and self._is_abandoned(name)}
        return witnesses, temporaries

    def _is_abandoned(self, name: str) -> bool:
        instance_id = name.removesuffix(".new").rpartition(".")[2]
        return ask(self._place.directory, instance_id).state in (WitnessState.FREE, WitnessState.MISSING)


_KINDS = frozenset({"json", "guard"})
_ASKED = frozenset({Verdict.LIVE, Verdict.STOPPED, Verdict.UNKNOWN})


def _instances(*owners: OwnerIdentity | None) -> frozenset[str]:
    return frozenset(owner.instance_id for owner in owners if owner is not None)
