"""The values kept in files: owner record and guard state. Strict when written, tolerant when read, bounded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

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
    resource: _Text = ""
    token: Annotated[int, Field(ge=1, le=MAX_TOKEN)]
    phase: Annotated[str, Field(min_length=1, max_length=64)] = "owner"
    acquired_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None
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
    :ivar heir: the hash of the hand-over by which that owner had come in, if any
    """

    how: Literal["released", "closed", "died"]
    reason: str = ""
    at: AwareDatetime | None = None
    heir: str | None = None


class Death(_Value):
    """When an owner was found dead: CLOCK_BOOTTIME in seconds, and the boot it belongs to."""

    at: float
    boot_id: str = ""


class GuardState(_Value):
    """What ``NAME.guard`` remembers: the last token issued and who got it, ``None`` after a release."""

    token: Annotated[int, Field(ge=0)] = 0
    owner: OwnerIdentity | None = None
    previous: Previous | None = None
    deaths: tuple[Death, ...] = ()


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
            f"{resource}: the record's token {token:.6g} is beyond 2^53",
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
    text = state.__pydantic_serializer__.to_json(state, exclude_none=True)
    if len(text) > MAX_GUARD_BYTES:  # what is only for people goes first
        previous = state.previous and state.previous.model_copy(update={"reason": "", "heir": None})
        state = state.model_copy(update={"previous": previous, "deaths": state.deaths[-1:]})
        text = state.__pydantic_serializer__.to_json(state, exclude_none=True)
    if len(text) > MAX_GUARD_BYTES:
        state = state.model_copy(update={"previous": None, "deaths": ()})
        text = state.__pydantic_serializer__.to_json(state, exclude_none=True)
    return text.ljust(MAX_GUARD_BYTES)


def decode_guard(raw: bytes, resource: str) -> GuardState:
    """The guard's state; unreadable content counts as none at all.

    :raises InvalidRecordError: a token beyond 2^53, after which no greater one could be issued
    """
    text = raw.rstrip(b" \0\n")
    if not text:
        return NO_GUARD_STATE
    try:
        state = GuardState.model_validate_json(text, strict=True)
    except ValidationError:
        return NO_GUARD_STATE
    if state.token >= MAX_TOKEN:
        raise InvalidRecordError(
            f"{resource}: the guard's token {state.token:.6g} leaves no greater one below 2^53",
            resource=resource,
            head=head(raw),
            hint="remove the guard file by hand once nobody uses the resource",
        )
    return state
