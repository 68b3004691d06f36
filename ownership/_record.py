"""The values kept in files: owner record and guard state. Strict when written, tolerant when read, bounded."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ownership._errors import InvalidRecordError, UnsupportedRecordError

VERSION = 1
MAX_RECORD_BYTES = 64 * 1024
MAX_GUARD_BYTES = 512
MAX_TOKEN = 2**53
HEAD_BYTES = 200

_Text = Annotated[str, Field(max_length=4096)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @cached_property
    def text(self) -> bytes:
        """Its JSON, made once."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class OwnerIdentity(_Value):
    """What tells one process image from every other: compared, never shown alone."""

    pid: Annotated[int, Field(ge=1, le=2**31 - 1)]
    start_id: Annotated[str, Field(min_length=1, max_length=512)]
    instance_id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{8,64}$")]
    boot_id: Annotated[str, Field(max_length=128)] | None = None
    pid_namespace: Annotated[int, Field(ge=0, lt=2**64)] | Literal["none"] | None = None
    device: Annotated[int, Field(ge=0, lt=2**64)] | None = None


class LeaseTerms(_Value):
    """How long a claim may go unrenewed before a contender may evict its live owner.

    :ivar ttl: seconds
    :ivar auto_renew: renewed by the heartbeat in the owner's witness, not in the record
    :ivar renewed_at: seconds of the owner's CLOCK_MONOTONIC
    """

    ttl: Annotated[float, Field(ge=1.0, allow_inf_nan=False)]
    auto_renew: bool = True
    renewed_at: Annotated[float, Field(allow_inf_nan=False)]


class OwnerRecord(OwnerIdentity):
    """Who owns a resource, as published in ``NAME.json``."""

    version: Annotated[int, Field(ge=1)] = VERSION
    token: Annotated[int, Field(ge=1, le=MAX_TOKEN)]
    acquired_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None
    phase: Annotated[str, Field(min_length=1, max_length=64)] = "owner"
    resource: Annotated[str, Field(max_length=16384)] = ""
    host: _Text = ""
    command: _Text = ""
    lease: LeaseTerms | None = None
    heir: Annotated[str, Field(max_length=256)] | None = None
    endpoint: _Text | None = None
    data: dict[str, JsonValue] = {}
    labels: dict[str, str] = {}


class Previous(_Value):
    """How the last ownership ended.

    :ivar how: ``released``, ``closed`` or ``died``
    """

    how: Literal["released", "closed", "died"]
    reason: str = ""
    at: AwareDatetime | None = None


class Death(_Value):
    """When an owner was found dead: CLOCK_BOOTTIME in seconds, and the boot it belongs to."""

    at: float
    boot_id: str = ""


class _GuardFile(_Value):
    token: Annotated[int, Field(ge=0)] = 0
    owner: OwnerIdentity | None = None
    previous: Previous | None = None
    deaths: tuple[Death, ...] = ()
    adopted: Annotated[str, Field(pattern="^[0-9a-f]{1,64}$")] | None = None


class GuardState(NamedTuple):
    """What ``NAME.guard`` remembers. Whoever writes it changes what has happened and keeps the rest.

    :ivar token: the last one issued
    :ivar owner: who got it, ``None`` once that ownership is over
    :ivar adopted: by which hand-over the last heir came in: its predecessor may look late
    """

    token: int = 0
    owner: OwnerIdentity | None = None
    previous: Previous | None = None
    deaths: tuple[Death, ...] = ()
    adopted: str | None = None


NO_GUARD_STATE = GuardState()


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something at a record's path that says nothing: whoever published last is asked of the guard."""

    head: str
    fault: str


def schema() -> dict[str, Any]:
    """The JSON schema of an owner record, as ``leasectl schema`` prints it."""
    described = OwnerRecord.model_json_schema()
    described["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return described


def encode(record: OwnerRecord) -> bytes:
    """The bytes of *record*; ``ValueError`` beyond 64 KiB (data and labels are for small facts)."""
    text = record.__pydantic_serializer__.to_json(record)
    if len(text) > MAX_RECORD_BYTES:
        raise ValueError(f"data and labels make a record of {len(text)} bytes; the limit is {MAX_RECORD_BYTES}")
    return text


class Template:
    """The bytes of a record but for token and time: encoded once, filled in at every acquire.

    :param record: a valid record; its token and times are not looked at
    """

    def __init__(self, record: OwnerRecord) -> None:
        stand_in = {"token": 1, "acquired_at": _EPOCH, "updated_at": _EPOCH}
        text = encode(record.model_copy(update=stand_in))
        variable = b'"token":1,"acquired_at":"1970-01-01T00:00:00Z","updated_at":"1970-01-01T00:00:00Z"'
        self._head, found, self._tail = text.partition(variable)
        assert found

    def fill(self, token: int, wall_ns: int) -> bytes:
        at = timestamp(wall_ns).isoformat(timespec="microseconds")[:-6].encode()
        return b'%b"token":%d,"acquired_at":"%bZ","updated_at":"%bZ"%b' % (self._head, token, at, at, self._tail)


_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def timestamp(wall_ns: int) -> dt.datetime:
    """A moment for people, to the microsecond."""
    return dt.datetime.fromtimestamp(wall_ns // 1000 / 1e6, dt.UTC)


def changed(record: OwnerRecord, changes: dict[str, Any]) -> OwnerRecord:
    """*record* with *changes*, sure to be read back as it is.

    :raises ValueError: naming what cannot be recorded
    """
    try:
        new = OwnerRecord.model_validate({**record.model_dump(), **changes})
        raw = encode(new)
    except ValidationError as error:
        given = ", ".join(sorted(changes))
        raise ValueError(f"{given} cannot be recorded: {_faults(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{', '.join(sorted(changes))} cannot be recorded: {error}") from None
    if decode(raw, new.resource) != new:
        raise ValueError(f"{', '.join(sorted(changes))} cannot be recorded: JSON would not give back what was given")
    return new


def decode(raw: bytes, resource: str) -> OwnerRecord | Malformed:
    """The record in *raw*, or why it is none.

    :raises InvalidRecordError: a token that no fencing check could compare
    :raises UnsupportedRecordError: a newer format without a valid identity
    """
    try:
        fields = _plain(raw)
    except (ValueError, RecursionError) as error:
        return Malformed(head(raw), f"not a JSON object: {error}"[:HEAD_BYTES])
    token = fields.get("token")
    if type(token) is int and token > MAX_TOKEN:
        raise InvalidRecordError(
            f"{resource}: the record's token {str(token)[:20]} ({len(str(token))} digits) is beyond 2^53",
            resource=resource,
            head=head(raw),
            hint="find out who wrote it; remove the record by hand once nobody uses the resource",
        )
    version = fields.get("version")
    if type(version) is int and version > VERSION:
        return _newer(fields, version, raw, resource)
    try:
        return OwnerRecord.model_validate_json(raw, strict=True)
    except ValidationError as error:
        return Malformed(head(raw), _faults(error))


def _newer(fields: dict[str, Any], version: int, raw: bytes, resource: str) -> OwnerRecord:
    known = {name: fields[name] for name in (*OwnerIdentity.model_fields, "token") if name in fields}
    try:
        return OwnerRecord.model_validate({**known, "version": version})
    except ValidationError as error:
        raise UnsupportedRecordError(
            f"{resource}: a record of version {version} (this library knows {VERSION}) whose owner cannot be "
            f"identified: {_faults(error)}; {head(raw)!r}",
            resource=resource,
            hint="upgrade this library, or stop the program that wrote the record",
        ) from None


def _plain(raw: bytes) -> dict[str, Any]:
    fields = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    if not isinstance(fields, dict):
        raise ValueError(f"a JSON {type(fields).__name__}")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice")
    return fields


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _faults(error: ValidationError) -> str:
    found = [
        f"{'.'.join(map(str, fault['loc'])) or 'record'}: {fault['msg'].lower()}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(found[:3])


def head(raw: bytes) -> str:
    """The first 200 bytes as text that is safe to print."""
    text = raw[:HEAD_BYTES].decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def encode_guard(state: GuardState) -> bytes:
    """*state* as exactly 512 bytes, so that one write replaces whatever was there."""
    text = _guard_text(state)
    if len(text) > MAX_GUARD_BYTES and state.previous is not None:  # what is only for people goes first
        state = state._replace(previous=Previous(how=state.previous.how, at=state.previous.at))
        text = _guard_text(state)
    for kept in (2, 1, 0):
        if len(text) > MAX_GUARD_BYTES:
            text = _guard_text(state._replace(deaths=state.deaths[3 - kept :] if kept else ()))
    if len(text) > MAX_GUARD_BYTES:
        text = _guard_text(GuardState(state.token, state.owner, adopted=state.adopted))
    return text.ljust(MAX_GUARD_BYTES)


def _guard_text(state: GuardState) -> bytes:
    """By hand around the models' own text: this is written twice in every acquire and release."""
    text = b'{"token":%d' % state.token
    if state.owner is not None:
        text += b',"owner":' + state.owner.text
    if state.previous is not None:
        text += b',"previous":' + state.previous.text
    if state.deaths:
        text += b',"deaths":[' + b",".join(death.text for death in state.deaths) + b"]"
    if state.adopted is not None:
        text += b',"adopted":"%b"' % state.adopted.encode()
    return text + b"}"


def decode_guard(raw: bytes, resource: str) -> GuardState:
    """The guard's state; unreadable content counts as none at all.

    :raises InvalidRecordError: a token beyond 2^53, after which no greater one could be issued
    """
    text = raw.rstrip(b" \0\n")
    if not text:
        return NO_GUARD_STATE
    try:
        read = _GuardFile.model_validate_json(text, strict=True)
    except ValidationError:
        return NO_GUARD_STATE
    state = GuardState(read.token, read.owner, read.previous, read.deaths, read.adopted)
    if state.token >= MAX_TOKEN:
        raise InvalidRecordError(
            f"{resource}: the guard's token {str(state.token)[:20]} leaves no greater one below 2^53",
            resource=resource,
            head=head(raw),
            hint="remove the guard file by hand once nobody uses the resource",
        )
    return state
