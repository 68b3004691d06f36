"""Reaching whoever serves, and starting exactly one if nobody does."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from ownership._arguments import checked_mapping, checked_seconds, checked_timeout
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._gating import Gate, checked_gate
from ownership._location import pin_registry
from ownership._paths import StrPath, resolve, spelled_path
from ownership._process import ProcessTable, system_processes
from ownership._sockets._address import socket_resource
from ownership._sockets._ensuring import Ensuring
from ownership._sockets._order import Connect, OnMismatch, Order
from ownership._sockets._start import checked_command


def ensure(
    address: StrPath,
    command: Sequence[str | os.PathLike[str]] | None = None,
    timeout: float | None = 10.0,
    *,
    match: Mapping[str, Any] | None = None,
    on_mismatch: OnMismatch = "raise",
    connect: Connect | None = None,
    registry: StrPath | None = None,
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    grace: float = 1.0,
    gate: Gate | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Any:
    """Connect to whoever serves at *address*; if nobody does, start *command*, once for all who ask, and wait for it.

    Guaranteed: of all clients that ask at once, one starts, and the others wait for that; if it dies meanwhile, another
    one goes on. Nobody is started while an owner of the resource lives, answering or not. What is started has to own
    *address* (:func:`ownership.listen`); it goes on when the client has ended, in a session of its own, without input
    or output but for its standard error, which goes to ``NAME.start.TOKEN.stderr`` in the lock directory: those
    of the last few starts are kept.

    Not guaranteed: that whoever answers is the recorded owner, unless *match* is given; see :func:`verify_peer`.

    :param address: the path of its socket; with *connect* any resource
    :param command: the program and its arguments, executed without a shell; ``None``: start nobody, only wait
    :param timeout: seconds, for everything together; ``None`` for ever
    :param match: what has to stand in the owner's ``data``, a version for instance
    :param on_mismatch: what to do about an owner that it does not stand in: ``"raise"``, ``"use"`` it all the same, or
        ``"replace"`` it: have it go (see :func:`ownership.replace`), and start *command*
    :param connect: called with the live owner (its ``endpoint``, its ``data``) to connect in another way; what it
        returns is returned. A ConnectionError, FileNotFoundError, TimeoutError or BlockingIOError means: not yet
    :param registry: the shared registry of the records
    :param env: environment of *command*, ours by default
    :param cwd: working directory of *command*, ours by default
    :param grace: seconds for an owner that is replaced to go by itself, and again between TERM and KILL
    :param gate: anything with a method ``check()`` that raises while nobody is to be started, as ``leases.Gate``; asked
        before anybody is. Whoever runs already is reached all the same
    :returns: a connected socket, or what *connect* returned
    :raises StartError: what was started has ended, whoever started it; :class:`StartTimeoutError`: it has not answered
        in time, and is left alone
    :raises GateClosedError: nobody serves, and *gate* is closed
    :raises CrashLoopError: three owners in a row died within the last 60 s
    :raises UnreachableError: an owner lives but does not answer; or nobody serves, and nobody was to be started
    :raises AlreadyOwnedError: the owner does not match; :class:`AcquireTimeoutError`: it was to be replaced,
        and had not gone in time
    :raises PeerError: *match* was given, and whoever answers is not the recorded owner
    :raises OSError: it cannot be told whether anybody answers
    :raises ValueError: an argument that cannot be right
    """
    if on_mismatch not in ("raise", "use", "replace"):
        raise ValueError(f"on_mismatch must be 'raise', 'use' or 'replace', got {on_mismatch!r}")
    if on_mismatch == "replace" and command is None:
        raise ValueError("command must be given where an owner that does not match is to be replaced")
    shared = None if registry is None else pin_registry(registry)
    whole = shared is not None
    found = socket_resource(address, whole=whole) if connect is None else resolve(address, whole=whole)
    variables = checked_mapping(env, "env")
    order = Order(
        checked_command(command),
        checked_mapping(match, "match") or {},
        on_mismatch,
        connect,
        None if variables is None else {str(key): str(value) for key, value in variables.items()},
        None if cwd is None else spelled_path(cwd, "cwd"),
        checked_seconds(grace, "grace"),
        None if gate is None else checked_gate(gate, [found], shared),
    )
    return Ensuring(found, shared, order, checked_timeout(timeout), clock, processes or system_processes()).run()


def connect(
    address: StrPath,
    timeout: float | None = 0.0,
    *,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> socket.socket:
    """Connect to whoever serves at *address*; never start anybody.

    :param timeout: seconds to wait for somebody who answers: 0 one attempt, ``None`` for ever
    :returns: a connected socket
    :raises UnreachableError: nobody answers; it says who owns the resource, if anybody does
    :raises OSError: it cannot be told whether anybody answers
    """
    reached = ensure(address, None, timeout, registry=registry, clock=clock, processes=processes)
    assert isinstance(reached, socket.socket)
    return reached
