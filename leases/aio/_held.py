"""What is owned by asynchronous code: let go in a thread, and cancelling the code that stands on it when it is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from threading import Event
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar
from warnings import warn

from leases.aio._block import Block
from leases.aio._call import run
from ownership import OwnershipError, OwnershipLostError


class Handle(Protocol):
    """A handle of synchronous code."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class Standing(Handle, Protocol):
    """One that stands for an ownership."""

    def on_loss(self, callback: Callable[[Any], object]) -> object: ...

    @property
    def lost(self) -> Event: ...

    @property
    def held(self) -> bool: ...

    def verify(self) -> object: ...


class Held:
    """A handle for asynchronous code, made in a thread or in a loop.

    :param handle: the synchronous one; leaving its ``with`` block lets it go
    :param standing: a lease or claim: entering it raises if it was lost, and looks at nothing
    """

    def __init__(self, handle: Handle, standing: Standing) -> None:
        self._handle = handle
        self._standing = standing
        self._block = Block()
        self._listens = False

    def _listen(self) -> None:
        """Be told of the loss; in a thread, since another one may have to be started for that."""
        if not self._listens:
            self._standing.on_loss(self._block.lose)
            self._listens = True

    def _loss(self) -> OwnershipLostError | None:
        if self._standing.lost.is_set():
            try:
                self._standing.__enter__()
            except OwnershipLostError as loss:
                return loss.with_traceback(None)
        return None

    async def _let_go(self, error: BaseException | None) -> OwnershipLostError | None:
        """As the synchronous one does at the end of a block that *error* leaves; whether it turns out to be lost."""
        return await run(partial(self._exit, error), last=True)

    def _exit(self, error: BaseException | None) -> OwnershipLostError | None:
        own = isinstance(error, Exception) and self._standing.held  # of the body, which knows of no loss
        loss = self._looked_at() if error is None or own else None
        self._handle.__exit__(None if error is None else type(error), error, None)
        return loss

    def _looked_at(self) -> OwnershipLostError | None:
        """Whether it is lost, which the keeper may not have noticed yet."""
        if self._standing.held:
            try:
                self._standing.verify()
            except (OSError, OwnershipError):  # it is; or it cannot be told, and is let go
                pass
        return self._loss()

    async def __aenter__(self) -> Self:
        self._standing.__enter__()
        if not self._listens:
            await run(self._listen)
        self._block.enter()
        if self._standing.lost.is_set():  # before there was a body to be cancelled
            self._block.lose()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is GeneratorExit:  # nothing can be awaited any more
            self._block.abandon()
            self._handle.__exit__(kind, error, trace)
            return
        instead = self._block.leave(error, self._loss())
        late = await self._let_go(instead or error)
        if instead is None and late is not None:
            if error is not None:
                error.add_note(f"meanwhile: {late}")
                return
            instead = late
        if instead is not None:
            raise instead from error


_Held = TypeVar("_Held", bound=Held)


class Opening(Generic[_Held]):
    """Something about to be owned: ``await`` it for the handle, or enter it with ``async with``."""

    def __init__(self, begin: Callable[[], Awaitable[_Held]], what: str) -> None:
        self._begin = begin
        self._what = what
        self._begun = False
        self._held: _Held | None = None

    async def _open(self) -> _Held:
        if self._begun:
            raise RuntimeError(f"{self._what} was begun already: call it again")
        self._begun = True
        return await self._begin()

    def __await__(self) -> Generator[Any, Any, _Held]:
        return self._open().__await__()

    async def __aenter__(self) -> _Held:
        held = self._held = await self._open()
        try:
            return await held.__aenter__()
        except BaseException as error:
            await held._let_go(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        assert held is not None
        await held.__aexit__(kind, error, trace)

    def __del__(self) -> None:
        if not getattr(self, "_begun", True):
            warn(f"{self._what} was never awaited: nothing was acquired", RuntimeWarning, stacklevel=2, source=self)
