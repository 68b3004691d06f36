"""The shutdown gate: while it is closed, nobody new owns anything beside it."""

from __future__ import annotations

from os import fspath
from os.path import abspath
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ownership
from leases._arguments import checked_path
from leases._lease import Lease, LeaseLostError, StrPath, acquire
from leases._quoting import argument
from ownership import GateClosedError, GuardTimeoutError, Inspection, OwnerRecord, OwnerRef, StopRequest, Verdict

_OPEN = (Verdict.FREE, Verdict.GONE, Verdict.ZOMBIE, Verdict.REUSED, Verdict.EXPIRED)


class Gate:
    """While it is closed, ``ownership.acquire(..., gate=gate)`` raises GateClosedError for everything in its directory.

    Guaranteed: when ``close()`` has returned, a listing of the directory shows every owner that got in before, and
    nobody gets in until the gate is opened, or whoever closed it ends or is paused for longer than *ttl*. A gate that
    cannot be closed in time is open. A dead closer's gate is open at once.

    Not guaranteed: anything about owners that acquire without ``gate=``; that those inside leave. After a pause longer
    than *ttl* somebody may have got in, and the gate is closed again: ``verify()`` tells the closer.

    As a context manager it is closed inside the block.

    :param path: of the gate itself; it rules the lock directory of that path, whose resources are those beside it (or
        those of *registry*), and needs no file
    :param ttl: seconds that a closer may be paused before its gate opens
    :param registry: the shared registry that it rules
    :param seams: ``clock=`` and ``processes=``, for tests
    :raises ValueError: *path* can be none, or *ttl* is no number of seconds, 1.0 or more
    """

    def __init__(
        self,
        path: StrPath,
        ttl: float = 5.0,
        *,
        registry: StrPath | None = None,
        **seams: Any,
    ) -> None:
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 1.0 <= ttl < 1e9:
            raise ValueError(f"ttl must be a finite number of seconds >= 1.0, got {ttl!r}")
        self.path = Path(abspath(checked_path(path, "path")))
        self.ttl = float(ttl)
        self.registry = registry
        self._seams = seams
        self._lease: Lease | None = None
        self._lapses = 0

    # -- whoever asks

    @property
    def is_closed(self) -> bool:
        """Whether it is closed at this moment, by whomever. Doubt is yes."""
        return is_closing(self.inspect())

    def inspect(self) -> Inspection:
        """Who has closed it, since when, and how that is known. Writes nothing.

        :raises RecordError: what is there cannot be read
        """
        return ownership.inspect(self.path, registry=self.registry, **self._seams)

    def check(self) -> None:
        """Pass if it is open.

        :raises GateClosedError: it is closed, by us or by another
        :raises RecordError: what is there cannot be read
        :raises OSError: it cannot be looked at; that is not open
        """
        found = self.inspect()
        if is_closing(found):
            raise _closed(found, self.registry)

    # -- whoever closes it

    def close(self, reason: str = "", *, timeout: float | None = 1.0) -> Self:
        """Close it, then wait for whoever is about to own something beside it.

        Once closed by this object, closing it again only waits again.

        :param reason: what is told to those who are refused
        :param timeout: seconds to wait for each guard in the directory, ``None`` for ever
        :raises GateClosedError: another one has closed it
        :raises GuardTimeoutError: somebody sat in a guard all the time: it is open
        :raises LeaseLostError: it opened meanwhile, since it was broken or we were paused: it is open
        """
        lease = self._lease
        if lease is None or not lease.held:
            lease = self._acquired(reason)
        try:
            self._lease, self._lapses = lease, lease.lapses
            ownership.pass_guards(self.path, timeout=timeout, registry=self.registry)
            self.verify()
        except BaseException as error:
            self._lease = None
            lease.release("the gate could not be closed")
            if isinstance(error, GuardTimeoutError):
                raise _busy(self.path, error) from error
            raise
        return self

    def _acquired(self, reason: str) -> Lease:
        labels = {"gate": "closed", **({"reason": reason} if reason else {})}
        try:
            return acquire(self.path, ttl=self.ttl, registry=self.registry, labels=labels, **self._seams)
        except ownership.AlreadyOwnedError as error:
            raise _closed_by(self.path, self.registry, error.record, error.verdict, error.reason) from None

    @property
    def ref(self) -> OwnerRef:
        """Its closer, as a value that can be handed to workers.

        :raises LeaseLostError: this object has not closed it
        """
        return self._closed_here().ref

    @property
    def stop_request(self) -> StopRequest | None:
        """Who asks its closer to go (see ``ownership.replace``); ``None`` if nobody does, or we have not closed it."""
        return None if self._lease is None else self._lease.claim.stop_request

    def verify(self) -> None:
        """Make sure that it was closed by us all the time since ``close()``.

        :raises LeaseLostError: it was not, and somebody may have got in: close it again
        """
        lease = self._closed_here()
        lease.verify()
        if lease.lapses != self._lapses:
            raise LeaseLostError(
                f"gate {self.path} was open for a while: its closer was paused for more than {self.ttl:g} s",
                reason="expired",
                resource=self.path,
                hint="close it again, and look again who got in",
            )

    def _closed_here(self) -> Lease:
        if self._lease is None:
            what = f"gate {self.path} is not closed by us"
            raise LeaseLostError(what, reason="released", resource=self.path, hint="close it")
        return self._lease

    def open(self) -> None:
        """Open it, if this object has closed it; nothing if nobody has.

        :raises GateClosedError: another one has closed it: ``leasectl gate open`` breaks it by your decision
        """
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        else:
            self.check()

    def __enter__(self) -> Self:
        if self._lease is None or not self._lease.held:
            self.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"Gate({fspath(self.path)!r})"


def is_closing(found: Inspection) -> bool:
    """Whether whoever was *found* keeps the gate closed."""
    return found.verdict not in _OPEN


def _closed(found: Inspection, registry: StrPath | None) -> GateClosedError:
    return _closed_by(found.resource, registry, found.record, found.verdict, found.reason)


def _closed_by(
    path: Path | str, registry: StrPath | None, record: OwnerRecord | None, verdict: Verdict | None, fact: str
) -> GateClosedError:
    why, who = "", "an unknown process"
    if record is not None:
        why = record.labels.get("reason", "")
        who = f"pid {record.pid} ({record.command}) on {record.host}"
        if record.acquired_at is not None:
            who += f" since {record.acquired_at:%Y-%m-%dT%H:%M:%S.%fZ}"
    text = f"gate {path} is closed by {who}{f': {why}' if why else ''} ({verdict}, {fact})"
    return GateClosedError(
        _printable(text),
        resource=path,
        record=record,
        reason=why,
        hint=f"wait until it is opened; if that is a mistake: leasectl gate open {argument(path, registry)}",
    )


def _printable(text: str) -> str:
    """Records are written by others."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _busy(path: Path, error: GuardTimeoutError) -> GuardTimeoutError:
    return GuardTimeoutError(
        f"gate {path} is open, it could not be closed: {error.message}",
        resource=error.resource or path,
        holder=error.holder,
        hint=error.hint,
    )
