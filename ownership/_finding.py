"""What a diagnosis finds: values for programs and for people."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ownership._paths import Resource, quoted

Fact: TypeAlias = "str | int | float | list[str]"


class Severity(enum.StrEnum):
    """``PROBLEM`` blocks or will mislead somebody. ``NOTE`` harms nobody: the next acquire or ``reclaim`` clears it."""

    PROBLEM = "problem"
    NOTE = "note"


class FindingCode(enum.StrEnum):
    """What is wrong, for programs: the values are stable.

    Of an owner: ``GONE``, ``ZOMBIE``, ``REUSED``, ``EXPIRED`` · ``CLOSED``, but not ended · ``REQUESTED`` to go ·
    ``STOPPED`` by a signal, ``TRACED``, ``FROZEN`` by its cgroup · ``UNKNOWN``, of which ``FOREIGN_NAMESPACE`` and
    ``FOREIGN_BOOT`` · ``RECORD_LOST``: it lives, its record is not there · ``WITNESS_MISSING`` or ``WITNESS_FREE``
    although it lives: other pid namespaces take it for unknown or gone.

    Of a file: ``MALFORMED`` record · ``NEWER_RECORD`` · ``INVALID_RECORD``, ``INVALID_GUARD``: never removed by us ·
    ``UNREADABLE`` · ``GUARD_HELD`` for long · ``LEFTOVER_REQUEST``, ``LEFTOVER_WITNESS``, ``LEFTOVER_TEMPORARY`` of
    dead processes.

    Of a socket: ``SOCKET_MISSING`` or ``SOCKET_MUTE``: its owner lives, its path leads nowhere or nobody answers there
    · ``HIDDEN_LISTENER``: somebody answers whom no record names · ``STALE_SOCKET`` of a dead owner.

    Of a directory: ``UNSAFE_DIRECTORY`` · ``FOREIGN_ACCOUNT_DIRECTORY``, ``FOREIGN_ACCOUNT_FILES``: they belong to an
    account that keeps others out · ``UNWRITABLE_DIRECTORY``: nothing can be acquired there, by this account at least.
    """

    GONE = "gone"
    ZOMBIE = "zombie"
    REUSED = "reused"
    EXPIRED = "expired"
    CLOSED = "closed"
    REQUESTED = "requested"
    LEFTOVER_REQUEST = "leftover-request"
    STOPPED = "stopped"
    TRACED = "traced"
    FROZEN = "frozen"
    UNKNOWN = "unknown"
    FOREIGN_NAMESPACE = "foreign-namespace"
    FOREIGN_BOOT = "foreign-boot"
    RECORD_LOST = "record-lost"
    WITNESS_MISSING = "witness-missing"
    WITNESS_FREE = "witness-free"
    MALFORMED = "malformed"
    NEWER_RECORD = "newer-record"
    INVALID_RECORD = "invalid-record"
    INVALID_GUARD = "invalid-guard"
    UNREADABLE = "unreadable"
    GUARD_HELD = "guard-held"
    LEFTOVER_WITNESS = "leftover-witness"
    LEFTOVER_TEMPORARY = "leftover-temporary"
    SOCKET_MISSING = "socket-missing"
    SOCKET_MUTE = "socket-mute"
    HIDDEN_LISTENER = "hidden-listener"
    STALE_SOCKET = "stale-socket"
    UNSAFE_DIRECTORY = "unsafe-directory"
    FOREIGN_ACCOUNT_DIRECTORY = "foreign-account-directory"
    FOREIGN_ACCOUNT_FILES = "foreign-account-files"
    UNWRITABLE_DIRECTORY = "unwritable-directory"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: a fact about a moment that is over.

    :ivar code: what is wrong, for programs
    :ivar severity: whether it harms anybody
    :ivar resource: the resource, or the directory or file that it is about
    :ivar what: the same in a sentence
    :ivar evidence: the facts behind it, by name; plain JSON values, printable text
    :ivar advice: what to do about it, in words
    :ivar remedy: what to do about it, as a shell takes it where a command does it, else in words. By decision of
        whoever runs it: read the advice first
    :ivar unusable: a record or directory cannot be used at all until something is done (exit status 65)
    """

    code: FindingCode
    severity: Severity
    resource: Path
    what: str
    evidence: Mapping[str, Fact] = field(default_factory=dict)
    advice: str = ""
    remedy: str = ""
    unusable: bool = False


class Subject(NamedTuple):
    """The resource that is looked at, and how commands name it.

    :ivar directory: where its files are
    :ivar registry: the registry that they are in, if it is one
    :ivar known: its path is known: it is not for a hashed name whose record cannot be read
    """

    resource: Resource
    directory: str
    registry: str | None = None
    known: bool = True

    @property
    def path(self) -> Path:
        return Path(self.resource.path)

    def file(self, suffix: str) -> str:
        return f"{self.directory}/{self.resource.name}.{suffix}"

    def command(self, verb: str, *options: str) -> str:
        """``leasectl`` *verb* for this resource; a resource that cannot be named is looked up by its file."""
        if not self.known:
            return f"ls -l {quoted(self.directory)}/{quoted(self.resource.name)}.*"
        where = () if self.registry is None else ("--registry", quoted(self.registry))
        return " ".join(("leasectl", verb, *where, quoted(self.resource.path), *options))

    @property
    def reclaim(self) -> str:
        """The command that removes what is provably over."""
        if not self.known:
            return reclaim_all(self.directory, self.registry)
        itself = self.registry is None and os.path.isdir(self.resource.path)  # else everything in it would be meant
        return self.command("reclaim", *(("--resource",) if itself else ()))


def reclaim_all(directory: str, registry: str | None) -> str:
    """The command that clears a whole lock directory."""
    return f"leasectl reclaim {'' if registry is None else '--registry '}{quoted(directory)}"
