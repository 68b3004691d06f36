"""Listening as the one owner of a socket."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

from ownership import _keeper
from ownership._callbacks import call, prepared
from ownership._claim import Claim
from ownership._errors import OwnershipError
from ownership._guard import PATIENCE, Interrupting
from ownership._log import log, tell
from ownership._pinned import DirectoryChanged
from ownership._sockets._address import Socket
from ownership._sockets._bound import Bound, UnixSocket
from ownership._sockets._passing import send
from ownership._sockets._watcher import Watcher
from ownership._state import State

_TICK = 0.25  # seconds between two looks at the path


class Listener:
    """A socket that this process alone listens on, and the claim by which it does.

    Guaranteed: nobody else owns the resource, by the rules of this library, while :attr:`claim` does. The path of a
    socket that was made here leads to it from the moment it can be connected to; it is removed only by whoever owns it,
    and only if it still leads to this very socket. When the claim is lost, a socket made here refuses whoever connects
    from then on, within 250 ms, in every process that has inherited it. When only the path is lost, that is told apart
    (:attr:`path_lost`), and :meth:`rebind` puts it back.

    As a context manager it is closed at the end of the block. Close it, not its claim alone: a socket made here whose
    claim was released refuses whoever connects, within 250 ms, but its path stays. A forked child's copy closes its own
    descriptor only.
    """

    _reason = ""

    def __init__(self, claim: Claim, bound: Bound, *, until_exit: bool) -> None:
        self._closed = self._done = True  # until it is complete
        self._overdue = False
        self._rebinding = 0
        self._until_exit = until_exit
        self._claim = claim
        self._bound = bound
        self._process = os.getpid()
        self._mutex: Any = threading.RLock()
        self._path_lost = False
        self._on_path_lost: tuple[Callable[[Listener], object], ...] = ()
        self._watcher = Watcher(self)
        claim.on_loss(self._watcher.claim_lost)
        self._closed = self._done = False
        _keeper.KEEPER.attend(self._watcher, _TICK, bound.endpoint)

    # -- facts

    @property
    def claim(self) -> Claim:
        """What is owned: verify it, announce by it, hand its ``ref`` to workers."""
        return self._claim

    @property
    def socket(self) -> Socket:
        """Listening. Give it to ``accept()``, ``asyncio.start_unix_server(sock=...)``, a socketserver, uvicorn, ..."""
        return self._bound.socket

    @property
    def endpoint(self) -> str:
        """Where it is found, as its record says it: ``unix:/run/app.sock`` or ``tcp:127.0.0.1:8123``."""
        return self._bound.endpoint

    @property
    def path_lost(self) -> bool:
        """Whether the socket's path is known to be gone, or to lead elsewhere; the keeper looks every 250 ms."""
        return self._path_lost

    def fileno(self) -> int:
        return self.socket.fileno()

    # -- acts

    def on_path_lost(self, callback: Callable[[Listener], object]) -> None:
        """Have *callback* called with this listener each time its path is found gone, or leading elsewhere.

        Called on the second thread, like those of ``claim.on_loss()``. ``owned.on_path_lost(Listener.rebind)`` puts
        the path back by itself.

        :raises OSError: the thread for callbacks cannot be started
        """
        if not callable(callback):
            raise ValueError(f"callback must be callable, got {callback!r}")
        callback = prepared(callback)
        with self._mutex:
            self._on_path_lost += (callback,)
            if self._path_lost:
                call(callback, self)

    def rebind(self) -> Socket:
        """Put the path back, to the same socket wherever that can be done; whoever waits in its backlog is kept.

        :returns: :attr:`socket`; a new one if its other name in the lock directory was removed as well
        :raises OwnershipLostError: the resource is not ours any more
        :raises AlreadyOwnedError: somebody who is in no record listens at the path now
        :raises OSError: something else is there, or it cannot be put back
        :raises RuntimeError: the socket was passed to us: its path is not ours to make; or it is closed
        """
        with self._mutex:
            if self._closed:
                raise RuntimeError(f"{self.endpoint}: this listener is closed")
            if not isinstance(self._bound, UnixSocket):
                raise RuntimeError(f"{self.endpoint}: it was not bound here, so it cannot be bound again here")
            self._rebinding = threading.get_ident()
            try:
                self._claim.verify()
                self._bound.restore()
                self._path_lost = False
            finally:
                self._rebinding = 0
                if self._closed:  # a signal handler did that meanwhile
                    self._finish()
            return self.socket

    def close(self, reason: str = "") -> None:
        """Stop listening, remove the path if it is still ours, and give up the claim. A second call does nothing.

        By default nobody else owns the resource before this process has ended (see :meth:`Claim.retire`), since a
        program that has closed its socket may be busy for a while yet; but it may listen there again itself. With
        ``listen(release="close")`` anybody may from now on.

        :param reason: kept as the reason why this ownership ended, at most 120 characters
        :raises OSError: the path or the record cannot be removed; everything else was done
        """
        if self._process != os.getpid():
            self._closed = self._done = True
            self._bound.close()
            return
        if not self._closed:
            self._reason = reason
        self._closed = True
        if self._done or self._rebinding == threading.get_ident():  # that is interrupted by us, and finishes this
            return
        with self._mutex:
            self._finish()

    def _finish(self, wait: float = PATIENCE) -> None:
        """Everything that closing takes; may be done again from the start if it was interrupted anywhere."""
        failure: Exception | None = None
        try:
            self._withdraw(wait)
        except (OSError, OwnershipError) as error:  # nothing else: what a signal handler raises leaves it to be redone
            failure = error
        self._bound.close()
        try:
            self._end(self._reason)
        except (OSError, OwnershipError) as error:
            failure = failure or error
        self._settle()
        if failure is not None:
            raise failure

    def _settle(self) -> None:
        """Nothing is left to be done."""
        self._done = True
        _keeper.KEEPER.dismiss(self._watcher)

    def _end(self, reason: str) -> None:
        if self._until_exit:
            self._claim.retire(reason)
        else:
            self._claim.release(reason)

    def _withdraw(self, wait: float) -> None:
        """Under the guard, so that no successor can have put its own socket there in between."""
        holding = self._claim._holding
        if not self._claim.held or not self._bound.made or self._bound.path is None:
            return
        part = holding.part

        def act(_hold: object) -> None:
            if part.is_ours(part.read()[0]):
                self._bound.withdraw()

        try:
            holding.under_guard(part, act, wait=wait, follow=False)
        except (DirectoryChanged, Interrupting):
            pass  # it stays behind and refuses: whoever listens next removes it

    def handover(self, connection: Socket, timeout: float = 10.0) -> None:
        """Pass socket and claim on to a successor, without a moment in which nobody listens.

        The successor has connected, by whatever way the two have for that, and calls
        :func:`ownership.adopt_listener` with its end. Until it has adopted the claim, we own; then this listener is
        closed, and whoever waits in the backlog is served by the successor.

        :param connection: of a unix socket, to the successor; in blocking mode, or with a timeout
        :param timeout: seconds to wait for the adoption
        :raises HandoverError: nobody adopted it in time; we own and listen on
        :raises PeerError: neither root nor our own account is at the other end
        :raises OSError: it cannot be sent; we own and listen on
        """
        with self._claim.handover(timeout) as heir:
            send(connection, self._bound, heir.to_env(), self.endpoint)
        self._closed = True
        self._bound.close()
        self._settle()

    # -- looking after it: for the keeper

    @property
    def done(self) -> bool:
        """Whether nothing is left to be done."""
        return self._done

    def look(self) -> None:
        """Whether the path still leads to it; said once until it is put back."""
        if not self._mutex.acquire(blocking=False):  # it is being put back or closed: the keeper waits for nobody
            return
        try:
            if self._closed or not self._claim.held:
                self._look_at_end()
                return
            if self._path_lost or self._bound.is_found():
                return
            self._path_lost = True
            callbacks = self._on_path_lost
        finally:
            self._mutex.release()
        tell(log.warning, "%s: the path of the socket is gone or leads elsewhere", self.endpoint)
        for callback in callbacks:
            call(callback, self)

    def _look_at_end(self) -> None:
        """It is closed, but that was interrupted; or its claim was given up by itself, and nobody is to be served."""
        if not self._closed:
            if self._claim._holding.state in (State.RELEASED, State.CLOSED) and self._bound.made:
                self._bound.shut()
        elif self._overdue:  # else whoever closes it may be about to finish
            self._finish(wait=0.0)
        self._overdue = self._closed

    def claim_lost(self) -> None:
        """Nobody is to be served any more."""
        if self._bound.made and not self._closed:
            self._bound.shut()

    # -- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except (OSError, OwnershipError):
            if error is None:  # the body's own exception is not masked
                raise

    def __del__(self) -> None:
        if getattr(self, "_done", True) or sys.is_finalizing() or self._process != os.getpid():
            return
        if not self._closed and self._claim.held:  # else lost, or a call was interrupted
            warnings.warn(f"unclosed listener on {self.endpoint} was garbage-collected", ResourceWarning, stacklevel=2)
        try:
            self.close("the listener was garbage-collected")
        except (OSError, OwnershipError):
            pass

    def __reduce__(self) -> NoReturn:
        raise TypeError("a listener cannot be copied or pickled: pass listener.claim.ref to workers, or hand it over")

    def __repr__(self) -> str:
        return f"<Listener {self.endpoint} {'closed' if self._closed else self._claim._holding.state.value}>"
