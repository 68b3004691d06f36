"""Records and guard states as bytes: strict when written, tolerant when read, bounded both ways."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from pydantic import ValidationError

from ownership._errors import InvalidRecordError, UnsupportedRecordError
from ownership._models import (
    MAX_TOKEN,
    NO_GUARD_STATE,
    VERSION,
    GuardFile,
    GuardState,
    Malformed,
    OwnerIdentity,
    OwnerRecord,
    Previous,
    moment,
)

MAX_RECORD_BYTES = 64 * 1024
MAX_GUARD_BYTES = 512
GUARD_TEXT_BYTES = 511  # what is written at once; the byte after it is there while somebody may ask the owner to go
REQUESTED = b"?"
HEAD_BYTES = 200


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

    :param record: a valid record; its token and times are not looked at, nor is when its lease was renewed
    """

    def __init__(self, record: OwnerRecord) -> None:
        stand_in: dict[str, Any] = {"token": 1, "acquired_at": _EPOCH, "updated_at": _EPOCH}
        if record.lease is not None:
            stand_in["lease"] = record.lease.model_copy(update={"renewed_at": 0.0})
        text = encode(record.model_copy(update=stand_in))
        variable = b'"token":1,"acquired_at":"1970-01-01T00:00:00Z","updated_at":"1970-01-01T00:00:00Z"'
        self._head, found, self._tail = text.partition(variable)
        assert found

    def fill(self, token: int, wall_ns: int, renewed_at: float | None = None) -> bytes:
        at, tail = moment(wall_ns), self._tail
        if renewed_at is not None:  # its lease comes before everything that others named
            tail = tail.replace(b',"renewed_at":0.0}', b',"renewed_at":%a}' % renewed_at, 1)
        return b'%b"token":%d,"acquired_at":"%b","updated_at":"%b"%b' % (self._head, token, at, at, tail)


_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def changed(record: OwnerRecord, changes: dict[str, Any]) -> OwnerRecord:
    """*record* with *changes*, sure to be read back as it is.

    :raises ValueError: naming what cannot be recorded
    """
    given = ", ".join(sorted(changes.keys() - {"updated_at"}))  # that one is ours
    try:
        new = OwnerRecord.model_validate({**record.model_dump(), **changes})
        raw = encode(new)
    except ValidationError as error:
        faulty = {str(fault["loc"][0]) for fault in error.errors() if fault["loc"]} & changes.keys()
        raise ValueError(f"{', '.join(sorted(faulty)) or given} cannot be recorded: {faults_of(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{given} cannot be recorded: {error}") from None
    if decode(raw, new.resource) != new:
        raise ValueError(f"{given} cannot be recorded: JSON would not give back what was given")
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
        return Malformed(head(raw), faults_of(error))


def _newer(fields: dict[str, Any], version: int, raw: bytes, resource: str) -> OwnerRecord:
    known = {name: fields[name] for name in (*OwnerIdentity.model_fields, "token") if name in fields}
    try:
        return OwnerRecord.model_validate({**known, "version": version})
    except ValidationError as error:
        raise UnsupportedRecordError(
            f"{resource}: a record of version {version} (this library knows {VERSION}) whose owner cannot be "
            f"identified: {faults_of(error)}; it begins '{head(raw)}'",
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


def faults_of(error: ValidationError, whole: str = "record") -> str:
    """What is wrong, without the names of our models.

    :param whole: what that is in which they are found
    """
    found = [
        f"{'.'.join(map(str, fault['loc'])) or whole}: {fault['msg'].lower()}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(found[:3])


def head(raw: bytes) -> str:
    """The first 200 bytes as text that is safe to print."""
    text = raw[:HEAD_BYTES].decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def encode_guard(state: GuardState) -> bytes:
    """*state*, but for its mark, as exactly 511 bytes, so that one write replaces whatever was there."""
    token, owner, previous, deaths, adopted, _ = state
    text = b'{"token":%d' % token  # by hand around the models' own text: written twice in every acquire and release
    if owner is not None:
        text += b',"owner":' + owner.text
    if previous is not None:
        text += b',"previous":' + previous.text
    if deaths:
        text += b',"deaths":[' + b",".join([death.text for death in deaths]) + b"]"
    if adopted is not None:
        text += b',"adopted":"%b"' % adopted.encode()
    text += b"}"
    if len(text) > GUARD_TEXT_BYTES and (previous is not None or deaths):
        return encode_guard(_shortened(state))
    return text.ljust(GUARD_TEXT_BYTES)


def _shortened(state: GuardState) -> GuardState:
    """*state* with less of what is only for people."""
    if state.previous is not None and state.previous.reason:
        previous = state.previous.shown
        return state._replace(previous=Previous(how=previous.how, at=previous.at))
    if state.deaths:
        return state._replace(deaths=state.deaths[1:])
    return state._replace(previous=None)


def decode_guard(raw: bytes, resource: str) -> GuardState:
    """The guard's state; unreadable content counts as none at all.

    :raises InvalidRecordError: a token beyond 2^53, after which no greater one could be issued
    """
    mark = raw[GUARD_TEXT_BYTES:]
    requested = mark == REQUESTED
    nothing = GuardState(requested=True) if requested else NO_GUARD_STATE
    text = (raw[:GUARD_TEXT_BYTES] if requested else raw).rstrip(b" \0\n")
    if not text:
        return nothing
    try:
        read = GuardFile.model_validate_json(text, strict=True)
    except ValidationError:
        return nothing
    state = GuardState(read.token, read.owner, read.previous, read.deaths, read.adopted, requested)
    if state.token >= MAX_TOKEN:
        raise InvalidRecordError(
            f"{resource}: the guard's token {str(state.token)[:20]} leaves no greater one below 2^53",
            resource=resource,
            head=head(raw),
            hint="remove the guard file by hand once nobody uses the resource",
        )
    return state
