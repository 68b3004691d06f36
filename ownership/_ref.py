"""Who owns a resource, as a value: made by the owner, handed to workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ownership._models import MAX_TOKEN, OwnerIdentity, OwnerRecord
from ownership._record import faults_of

VARIABLE = "LEASES_OWNER"


class OwnerRef(BaseModel):
    """One ownership: a resource, the identity of its owner and the token it owns by.

    :ivar resource: the canonical path, file-system encoded bytes as surrogates
    :ivar registry: the shared registry, if its records are there
    :ivar directory: its lock directory, which a worker of another account would not find by itself; ``None`` if unknown
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    resource: str
    registry: str | None = None
    directory: str | None = None
    token: Annotated[int, Field(ge=1, le=MAX_TOKEN)]
    owner: OwnerIdentity

    @classmethod
    def of(cls, resource: str, record: OwnerRecord, registry: str | None, directory: str | None = None) -> Self:
        owner = OwnerIdentity(**{name: getattr(record, name) for name in OwnerIdentity.model_fields})
        return cls(resource=resource, registry=registry, directory=directory, token=record.token, owner=owner)

    @property
    def path(self) -> Path:
        return Path(self.resource)

    def to_env(self) -> dict[str, str]:
        """The environment variable by which a worker finds its owner: merge it into the worker's environment."""
        fields = self.model_dump(mode="python")
        fields["resource"] = os.fsencode(self.resource).hex()
        for name in ("registry", "directory"):
            fields[name] = None if fields[name] is None else os.fsencode(fields[name]).hex()
        return {VARIABLE: _Travelling(**fields).model_dump_json()}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The owner named in the environment.

        :raises LookupError: there is none
        :raises ValueError: there is one that cannot be read
        """
        text = (os.environ if environ is None else environ).get(VARIABLE)
        if text is None:
            raise LookupError(
                f"{VARIABLE} is not set: this process was not started as a worker of an owner; start it by leasectl "
                "run, or with env={**os.environ, **claim.ref.to_env()}"
            )
        try:
            travelled = _Travelling.model_validate_json(text)
            return cls(
                resource=absolute_path(travelled.resource),
                registry=None if travelled.registry is None else absolute_path(travelled.registry),
                directory=None if travelled.directory is None else absolute_path(travelled.directory),
                token=travelled.token,
                owner=travelled.owner,
            )
        except ValueError as error:
            raise unreadable(VARIABLE, text[:200], error) from None


def absolute_path(text: str) -> str:
    """The path that travels as hex; ``ValueError`` if it is none that a resource could have."""
    try:
        path = os.fsdecode(bytes.fromhex(text))
    except ValueError:
        raise ValueError(f"{text[:80]!r} is not a path in hexadecimal") from None
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path")
    return path


def unreadable(variable: str, text: str, error: ValueError) -> ValueError:
    """The error for an environment variable that holds *text*, and what is wrong with that."""
    fault = faults_of(error, "value") if isinstance(error, ValidationError) else str(error)
    return ValueError(f"{variable} cannot be read: {text!r} ({fault})")


class _Travelling(OwnerRef):
    """The paths as hex: an environment carries text, a path need not be any."""
