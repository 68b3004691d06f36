"""Listening as the one owner of a socket."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

from ownership import _keeper
from ownership._callbacks import CALLBACKS, call
from ownership._claim import Claim
from ownership._errors import OwnershipError
from ownership._guard import Interrupting
from ownership._log import log, tell
from ownership._pinned import DirectoryChanged
from ownership._sockets._address import Socket
from ownership._sockets._bound import Bound, UnixSocket
from ownership._sockets._passing import send

_TICK = 0.25  # seconds between two looks at the path


class Listener:
    """A socket that this process alone listens on, and the claim by which it does.

    Guaranteed: nobody else owns the resource, by the rules of this library, while :attr:`claim` does. The path of a
    socket that was made here leads to it from the moment it can be connected to; it is removed only by whoever owns it,
    and only if it still leads to this very socket. When the claim is lost, a socket made here refuses whoever connects
    from then on, within 250 ms, in every process that has inherited it. When only the path is lost, that is told apart
    (:attr:`path_lost`), and :meth:`rebind` puts it back.

    As a context manager it is closed at the end of the block. A forked child's copy closes its own descriptor only.
    """

    def __init__(self, claim: Claim, bound: Bound, *, until_exit: bool) -> None:
        self._closed = True  # until it is complete
        self._until_exit = until_exit
        self._claim = claim
        self._bound = bound
        self._process = os.getpid()
        self._mutex: Any = threading.RLock()
        self._path_lost = False
        self._on_path_lost: tuple[Callable[[Listener], object], ...] = ()
        self._watcher = _Watcher(self)
        claim.on_loss(self._watcher.claim_lost)
        self._closed = False
        if bound.path is not None:
            _keeper.KEEPER.attend(self._watcher, _TICK, bound.path)

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
        CALLBACKS.prepare()
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
            self._claim.verify()
            self._bound.restore()
            self._path_lost = False
            return self.socket

    def close(self, reason: str = "") -> None:
        """Stop listening, remove the path if it is still ours, and give up the claim. A second call does nothing.

        By default nobody else owns the resource before this process has ended (see :meth:`Claim.retire`), since a
        program that has closed its socket may be busy for a while yet; but it may listen there again itself. With
        ``listen(release="close")`` anybody may from now on.

        :param reason: kept as the reason why this ownership ended, at most 120 characters
        :raises OSError: the path or the record cannot be removed; everything else was done
        """
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        if self._process != os.getpid():
            self._bound.close()
            return
        _keeper.KEEPER.dismiss(self._watcher)
        with contextlib.ExitStack() as last:  # each step, whatever comes of those before
            last.callback(self._end, reason)
            last.callback(self._bound.close)
            self._withdraw()

    def _end(self, reason: str) -> None:
        if self._until_exit:
            self._claim.retire(reason)
        else:
            self._claim.release(reason)

    def _withdraw(self) -> None:
        """Under the guard, so that no successor can have put its own socket there in between."""
        holding = self._claim._holding
        if not self._claim.held or not self._bound.made or self._bound.path is None:
            return
        part = holding.part

        def act(_hold: object) -> None:
            if part.is_ours(part.read()[0]):
                self._bound.withdraw()

        try:
            holding.under_guard(part, act, follow=False)
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
        with self._mutex:
            self._closed = True
        _keeper.KEEPER.dismiss(self._watcher)
        self._bound.close()

    # -- looking after it

    def _look(self) -> None:
        """Whether the path still leads to it; said once until it is put back."""
        if not self._mutex.acquire(blocking=False):  # it is being put back or closed: the keeper waits for nobody
            return
        try:
            if self._closed or self._path_lost or not self._claim.held or self._bound.is_found():
                return
            self._path_lost = True
            callbacks = self._on_path_lost
        finally:
            self._mutex.release()
        tell(log.warning, "%s: the path of the socket is gone or leads elsewhere", self.endpoint)
        for callback in callbacks:
            call(callback, self)

    def _claim_lost(self) -> None:
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
        if getattr(self, "_closed", True) or sys.is_finalizing() or self._process != os.getpid():
            return
        if not self._claim.held:  # lost, or the call that was to return this was interrupted
            self._closed = True
            self._bound.close()
            return
        warnings.warn(f"unclosed listener on {self.endpoint} was garbage-collected", ResourceWarning, stacklevel=2)
        try:
            self.close("the listener was garbage-collected")
        except (OSError, OwnershipError):
            pass

    def __reduce__(self) -> NoReturn:
        raise TypeError("a listener cannot be copied or pickled: pass listener.claim.ref to workers, or hand it over")

    def __repr__(self) -> str:
        return f"<Listener {self.endpoint} {'closed' if self._closed else self._claim._holding.state.value}>"


class _Watcher:
    """What the keeper sends round for a listener, which it must not keep from being garbage-collected."""

    handle = -1
    last_error: Exception | None = None

    def __init__(self, listener: Listener) -> None:
        self._listener = weakref.ref(listener)

    @property
    def over(self) -> bool:
        listener = self._listener()
        return listener is None or listener._closed

    def look(self, *, hinted: bool = False) -> None:
        listener = self._listener()
        if listener is not None:
            listener._look()

    def claim_lost(self, _error: object) -> None:
        listener = self._listener()
        if listener is not None:
            listener._claim_lost()
