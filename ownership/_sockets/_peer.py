"""Making sure who is at the other end of a connection."""

from __future__ import annotations

import errno
import os
import socket
from typing import NamedTuple

from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._inspect import inspect
from ownership._inspection import Inspection, Running
from ownership._location import pin_registry
from ownership._paths import StrPath, argument_of, shown
from ownership._process import (
    PeerFacts,
    ProcessState,
    ProcessTable,
    parse_linux_start_id,
    peer_facts,
    printable,
    system_processes,
)
from ownership._ref import OwnerRef
from ownership._sockets._address import checked_connection
from ownership._sockets._errors import PeerError

_GENERATIONS = 64  # between us and a worker


class Peer(NamedTuple):
    """The process at the other end of a connection.

    :ivar pid: its number in our pid namespace
    :ivar uid: its account, when it connected
    :ivar gid: its group
    :ivar start_id: which process that is
    """

    pid: int
    uid: int
    gid: int
    start_id: str


def verify_peer(
    connection: socket.socket,
    owner: StrPath | OwnerRef,
    *,
    registry: StrPath | None = None,
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Running:
    """Make sure that whoever answers *connection* is the recorded owner, by what the kernel says of both.

    Guaranteed: the process that last called listen(2) on the other end is the process that the record names, by number
    and start id, and it lives and owns. Given a reference, the record also is that very ownership: same instance id,
    same token.

    Not guaranteed: that no process to which the owner gave its listening socket has accepted the connection; that it
    still owns a moment later.

    :param connection: a connected unix socket
    :param owner: the resource, or a reference from the owner itself
    :param registry: the shared registry of the records, if *owner* is a path
    :raises PeerError: it is another process, or that cannot be told
    :raises OSError: *connection* is no connected unix socket, or the records cannot be read
    """
    table = processes or system_processes()
    path = owner.path if isinstance(owner, OwnerRef) else owner
    shared = owner.registry if isinstance(owner, OwnerRef) else registry
    facts = _facts(connection)
    seen = inspect(path, registry=shared, clock=clock, processes=table)
    pinned = pin_registry(shared)
    fault = _fault(facts, seen, owner if isinstance(owner, OwnerRef) else None)
    if fault or seen.running is None:
        who = _who(facts, table)
        raise PeerError(
            f"{shown(str(seen.resource))}: {who} answers, which is not its owner: {fault}",
            pid=facts.pid,
            resource=seen.resource,
            hint=f"do not talk to it; leasectl show {argument_of(str(seen.resource), pinned)} says who owns",
        )
    return seen.running


def _facts(connection: socket.socket) -> PeerFacts:
    """
    :raises OSError: it is no connected unix socket
    :raises ValueError: it is no socket at all
    """
    if checked_connection(connection).family != getattr(socket, "AF_UNIX", None):
        raise OSError(errno.EOPNOTSUPP, "connection must be of a unix socket: of others nobody knows who that is")
    connection.getpeername()  # ENOTCONN
    return peer_facts(connection)


def _fault(facts: PeerFacts, seen: Inspection, ref: OwnerRef | None) -> str:
    """Why the process of *facts* is not the owner; empty if it is."""
    if seen.running is None:
        return f"nobody is known to own it ({seen.verdict.value}: {seen.reason})"
    record = seen.running.record
    if facts.pid <= 0 or seen.elsewhere:
        return "one of them is in another pid namespace, so they cannot be compared"
    if facts.pid != record.pid:
        return f"that is pid {record.pid}"
    start = parse_linux_start_id(record.start_id)
    if facts.inode is not None and start is not None and start.inode not in (None, facts.inode):
        return f"it was another process with the number {record.pid} that listened"
    if ref is not None and (ref.owner.instance_id, ref.token) != (record.instance_id, record.token):
        return f"it owns by token {record.token}, not by {ref.token}: it was replaced"
    return ""


def verify_worker(connection: socket.socket, *, processes: ProcessTable | None = None) -> Peer:
    """Make sure that whoever has connected is one of our own: a descendant of this process that lives.

    Not guaranteed: that it is recognised once a process between it and us has ended, which gives it another parent.

    :param connection: an accepted connection of a unix socket
    :raises PeerError: it is not, or that cannot be told
    :raises OSError: *connection* is no connected unix socket
    """
    table = processes or system_processes()
    facts = _facts(connection)
    before = table.observe(facts.pid) if facts.pid > 0 else None
    if before is None or before.start_id is None or before.state is ProcessState.ZOMBIE:
        raise _not_ours(facts, table, "it is gone, or in another pid namespace")
    start = parse_linux_start_id(before.start_id)
    if facts.inode is not None and start is not None and start.inode not in (None, facts.inode):
        raise _not_ours(facts, table, "its number belongs to another process by now")
    if not _descends(facts.pid, table) or table.observe(facts.pid).start_id != before.start_id:
        raise _not_ours(facts, table, f"it does not descend from this process, pid {os.getpid()}")
    return Peer(facts.pid, facts.uid, facts.gid, before.start_id)


def _descends(pid: int, table: ProcessTable) -> bool:
    """Whether *pid* is ours by its parents; each of them is asked while its child still names it."""
    ours = os.getpid()
    for _ in range(_GENERATIONS):
        if pid == ours:
            return True
        around = table.surroundings_of(pid)
        if around is None or around.parent is None or around.parent <= 1:
            return False
        pid = around.parent
    return False


def _not_ours(facts: PeerFacts, table: ProcessTable, fault: str) -> PeerError:
    return PeerError(
        f"{_who(facts, table)} has connected, which is no worker of ours: {fault}",
        pid=facts.pid,
        hint="close the connection; have the worker connect by itself, not through another process",
    )


def _who(facts: PeerFacts, table: ProcessTable) -> str:
    if facts.pid <= 0:
        return "a process of another pid namespace"
    return f"pid {facts.pid} ({printable(table.command_of(facts.pid) or 'unknown')}) of uid {facts.uid}"
