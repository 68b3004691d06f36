"""The values kept in files: who owns, and what the guard remembers. Frozen; strict when written."""

# Annotations are not postponed here: pydantic would compile each of them at every start.

import datetime as dt
import json
import time
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

VERSION = 1
MAX_TOKEN = 2**53
CLOSED = "closed"  # the phase of an owner that has given up what it owns until its process ends

How = Literal["released", "closed", "died", "broken", "expired"]

_Text = Annotated[str, Field(max_length=4096)]


def _aware(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        raise ValueError("input should have timezone info")
    return moment


_Moment = Annotated[dt.datetime, AfterValidator(_aware)]  # pydantic.AwareDatetime, which takes long to import


class Value(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @cached_property
    def text(self) -> bytes:
        """Its JSON, made once."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class OwnerIdentity(Value):
    """What tells one process image from every other: compared, never shown alone."""

    pid: Annotated[int, Field(ge=1, le=2**31 - 1)]
    start_id: Annotated[str, Field(min_length=1, max_length=512)]
    instance_id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{8,64}$")]
    boot_id: Annotated[str, Field(max_length=128)] | None = None
    pid_namespace: Annotated[int, Field(ge=0, lt=2**64)] | Literal["none"] | None = None
    device: Annotated[int, Field(ge=0, lt=2**64)] | None = None


class LeaseTerms(Value):
    """How long a claim may go unrenewed before a contender may evict its live owner.

    :ivar ttl: seconds
    :ivar auto_renew: renewed by the heartbeat in the owner's witness, not in the record
    :ivar renewed_at: seconds of the owner's CLOCK_MONOTONIC
    """

    ttl: Annotated[float, Field(ge=1.0, allow_inf_nan=False)]
    auto_renew: bool = True
    renewed_at: Annotated[float, Field(allow_inf_nan=False)]


class OwnerRecord(OwnerIdentity):
    """Who owns a resource, as published in ``NAME.json``.

    :ivar reason: why it was closed
    """

    version: Annotated[int, Field(ge=1)] = VERSION
    token: Annotated[int, Field(ge=1, le=MAX_TOKEN)]
    acquired_at: _Moment | None = None
    updated_at: _Moment | None = None
    phase: Annotated[str, Field(min_length=1, max_length=64)] = "owner"
    resource: Annotated[str, Field(max_length=16384)] = ""
    host: _Text = ""
    command: _Text = ""
    lease: LeaseTerms | None = None
    heir: Annotated[str, Field(max_length=256)] | None = None
    endpoint: _Text | None = None
    data: dict[str, Any] = {}
    labels: dict[str, str] = {}
    reason: _Text | None = None

    @property
    def is_closed(self) -> bool:
        """Its owner has given it up, and has not ended yet."""
        return self.phase == CLOSED


class Previous(Value):
    """How the last ownership ended.

    :ivar how: ``released``, ``closed`` (given up, the record kept until the process ended), ``died``, ``broken`` or
        ``expired``
    :ivar at: when that was; of one that ``died``, when it was found dead: nobody knows when it died
    """

    how: How
    reason: str = ""
    at: _Moment | None = None

    @property
    def shown(self) -> Self:
        return self


class Ending(NamedTuple):
    """A :class:`Previous` in the making: every release writes one, so it is put into words by hand (:func:`ending`).

    :ivar wall_ns: when
    """

    how: How
    reason: str
    wall_ns: int
    text: bytes

    @property
    def shown(self) -> Previous:
        return Previous(how=self.how, reason=self.reason, at=timestamp(self.wall_ns))


def ending(how: How, reason: str, wall_ns: int) -> Ending:
    """How an ownership ended, and its JSON: written now and again by whoever acquires next."""
    told = b'"reason":%b,' % json.dumps(reason, ensure_ascii=False).encode() if reason else b""
    return Ending(how, reason, wall_ns, b'{"how":"%b",%b"at":"%b"}' % (how.encode(), told, moment(wall_ns)))


class Death(Value):
    """When an owner was found dead: CLOCK_BOOTTIME in seconds, and the boot it belongs to."""

    at: float
    boot_id: str = ""


class GuardFile(Value):
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
    :ivar requested: somebody may ask the owner to go. Not part of what is written with the rest: a mark beside it,
        which an owner that lets go, and does not know of it, leaves as it is
    """

    token: int = 0
    owner: OwnerIdentity | None = None
    previous: Previous | Ending | None = None
    deaths: tuple[Death, ...] = ()
    adopted: str | None = None
    requested: bool = False


NO_GUARD_STATE = GuardState()


class Malformed(NamedTuple):
    """Something at a record's path that says nothing: whoever published last is asked of the guard."""

    head: str
    fault: str


_second = (-1, b"")


def moment(wall_ns: int) -> bytes:
    """:func:`timestamp` as text; only its fraction is made anew within a second."""
    global _second
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    known, text = _second
    if known != seconds:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode()
        _second = seconds, text
    return b"%b.%06dZ" % (text, rest // 1000)


def timestamp(wall_ns: int) -> dt.datetime:
    """A moment for people, to the microsecond."""
    return dt.datetime.fromtimestamp(wall_ns // 1000 / 1e6, dt.UTC)
