"""Leases: ownership that ends by itself unless it is renewed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from ownership import AlreadyOwnedError, Claim, OwnerRecord, OwnerRef, OwnershipError, OwnershipLostError
from ownership import acquire as _acquire

StrPath: TypeAlias = "str | bytes | PathLike[str]"


class LeaseLostError(OwnershipLostError):
    """This lease does not hold its resource any more, and never will again.

    :ivar reason: ``expired``: it ran out, and somebody took over; else as of any claim
    """


def acquire(
    resource: StrPath,
    *,
    ttl: float | None = None,
    auto_renew: bool = True,
    timeout: float | None = 0.0,
    also: Iterable[StrPath] = (),
    registry: StrPath | None = None,
    labels: Mapping[str, str] | None = None,
    gate: Any = None,
    on_wait: Callable[[AlreadyOwnedError], object] | None = None,
    on_stopped: Literal["wait", "resume", "evict"] = "wait",
    **seams: Any,
) -> Lease:
    """Own *resource* for *ttl* seconds after each renewal (without a *ttl* until the process ends), or say who does.

    Guaranteed: what :func:`ownership.acquire` guarantees; and after *ttl* seconds without a renewal a contender gets
    it, even if its holder lives. A holder that was paused for longer learns of a takeover by its next ``verify()``,
    and loses nothing if there was none. A holder that is dead is evicted at once. Deadlines are those of one monotonic
    clock, which stands still while the machine is suspended; neither wall clocks nor file times count.

    Not guaranteed: that a holder that is paused between ``verify()`` and its next write has stopped when the next one
    begins: pass the token along, or write inside ``lease.critical()``.

    :param ttl: seconds, 1.0 or more; ``None``: it ends only with the process
    :param auto_renew: a thread renews it, four times in a ttl and at least once a second, however many there are; else
        ``lease.renew()`` does
    :param seams: ``clock=`` and ``processes=``, for tests
    :raises AlreadyOwnedError: somebody holds it. Parameters and errors else are those of :func:`ownership.acquire`
    """
    claim = _acquire(
        resource,
        ttl=ttl,
        auto_renew=auto_renew,
        timeout=timeout,
        also=also,
        registry=registry,
        labels=labels,
        gate=gate,
        on_wait=on_wait,
        on_stopped=on_stopped,
        **seams,
    )
    try:
        return Lease(claim)
    except BaseException:  # a signal handler's: whoever keeps it keeps the claim with it
        with suppress(OSError, OwnershipError):  # the keeper goes on with what cannot be released now
            claim.release()
        raise


class Lease:
    """The handle of whoever holds a resource for a while. What it does when it is lost is a :class:`LeaseLostError`.

    As a context manager it is released at the end of the block. Keep it: one that is garbage-collected is released.

    :ivar claim: the same as a claim, for what is not about time: handing it over, for instance
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    @property
    def path(self) -> Path:
        """The canonical path, pinned when it was acquired."""
        return self.claim.path

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier holder."""
        return self.claim.token

    @property
    def tokens(self) -> Mapping[Path, int]:
        """The token of each resource, those of ``also=`` included."""
        return self.claim.tokens

    @property
    def record(self) -> OwnerRecord:
        """Our record as last published."""
        return self.claim.record

    @property
    def ref(self) -> OwnerRef:
        """Who holds it, as a value that can be handed to workers."""
        return self.claim.ref

    @property
    def ttl(self) -> float | None:
        """Seconds, ``None`` if it ends only with the process."""
        lease = self.claim.record.lease
        return None if lease is None else lease.ttl

    @property
    def expires_in(self) -> float | None:
        """Seconds until a contender may get it unless it is renewed; 0.0 from then on. ``None`` without a ttl."""
        return self.claim.expires_in

    @property
    def lapses(self) -> int:
        """How often it had run out before it was renewed, without anybody having taken it over meanwhile."""
        return self.claim.lapses

    @property
    def lost(self) -> threading.Event:
        """Set once it is lost; never cleared. A release is no loss."""
        return self.claim.lost

    @property
    def held(self) -> bool:
        """Whether this handle still stands for an ownership, as far as it knows."""
        return self.claim.held

    def verify(self) -> None:
        """Make sure, by looking, that it is still ours; if it has run out and nobody has taken over, renew it.

        :raises LeaseLostError: it is not, with the reason; from then on always
        :raises OSError: it cannot be told or renewed at the moment; nothing is lost by that
        """
        with _told():
            self.claim.verify()

    def renew(self) -> bool:
        """Renew it now; whether it was still ours, which is not so for good once it is false.

        :raises OSError: it cannot be renewed at the moment; nothing is lost by that
        """
        return self.claim.renew()

    def critical(self, timeout: float | None = 1.0) -> AbstractContextManager[None]:
        """A block in which nobody can take over, whatever the ttl: see :meth:`ownership.Claim.critical`.

        :raises LeaseLostError: it was not ours any more
        :raises GuardTimeoutError: somebody else was inside the guard for *timeout* seconds
        """
        section: Any = self.claim.critical(timeout)
        section.told = _lost
        return section  # type: ignore[no-any-return]

    def announce(
        self,
        phase: str | None = None,
        *,
        endpoint: str | None = None,
        data: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Publish facts about this holder: see :meth:`ownership.Claim.announce`. Renews nothing.

        :raises LeaseLostError: it is not ours any more
        """
        with _told():
            self.claim.announce(phase, endpoint=endpoint, data=data, labels=labels)

    def on_loss(self, callback: Callable[[LeaseLostError], object]) -> None:
        """Have *callback* called once, on a thread of its own, when it is lost.

        :raises ValueError: *callback* cannot be called
        """
        if not callable(callback):
            raise ValueError(f"callback must be callable, got {callback!r}")
        self.claim.on_loss(lambda error: callback(_lost(error)))

    def release(self, reason: str = "") -> None:
        """Give it up; a second release does nothing. See :meth:`ownership.Claim.release`."""
        self.claim.release(reason)

    def __enter__(self) -> Self:
        with _told():
            self.claim.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.claim.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<Lease of {self.claim!r}>"


@contextmanager
def _told() -> Iterator[None]:
    """The loss of a claim is that of a lease."""
    try:
        yield
    except OwnershipLostError as error:
        raise _lost(error) from None


def _lost(error: OwnershipLostError) -> LeaseLostError:
    return LeaseLostError(error.message, reason=error.reason, resource=error.resource, hint=error.hint)
