"""Becoming an owner: by acquiring, or by adopting what was handed over."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping, MutableMapping
from functools import partial
from typing import Literal

from ownership import _keeper, _kept
from ownership._acquire import Acquisition, OnWait
from ownership._arguments import checked_callback, checked_labels, checked_resources, checked_terms, checked_timeout
from ownership._claim import Claim
from ownership._clock import SYSTEM_CLOCK, Clock
from ownership._errors import with_path
from ownership._gating import Gate, checked_gate
from ownership._handover import VARIABLE, heir_from
from ownership._holding import Holding
from ownership._inspect import examiner_of
from ownership._location import pin_registry
from ownership._paths import StrPath, resolve
from ownership._process import ProcessTable, system_processes
from ownership._reclaim import evict_stopped
from ownership._request import Contender
from ownership._stopped import Stopped, checked_way
from ownership._withdrawal import give_up


def acquire(
    resource: StrPath,
    *,
    timeout: float | None = 0.0,
    also: Iterable[StrPath] = (),
    registry: StrPath | None = None,
    labels: Mapping[str, str] | None = None,
    ttl: float | None = None,
    auto_renew: bool = True,
    gate: Gate | None = None,
    on_wait: OnWait | None = None,
    on_stopped: Literal["wait", "resume", "evict"] = "wait",
    clock: Clock = SYSTEM_CLOCK,
    processes: ProcessTable | None = None,
) -> Claim:
    """Become the one owner of *resource*, or say who is.

    Guaranteed: at most one live owner per resource among cooperating programs on this machine; an owner that has
    exited, reaped or not, or whose pid was reused, never blocks; tokens grow; a call that raises, for whatever reason
    and at whatever point, leaves no record of ours.

    Not guaranteed: exclusion between hosts, or between accounts without a shared *registry*; order among waiters.

    :param resource: a path; it need not exist, its directory must. Symlinks are resolved now and the result pinned
    :param timeout: seconds to wait for the present owner: 0 not at all, ``None`` for ever
    :param also: further resources, all or nothing; losing one is losing the claim
    :param registry: an existing directory for the records, to share them between accounts
    :param labels: short facts for people that are shown to whoever is refused
    :param ttl: make it a lease: seconds, 1.0 or more, after which a contender may evict an owner that lives but has not
        renewed it. A dead one is evicted at once, ttl or not
    :param auto_renew: the keeper renews it; else ``claim.renew()`` does, and nothing else; that needs a *ttl*
    :param gate: anything with a method ``check()`` that raises while nobody new may own, as ``leases.Gate``: asked once
        the guard is held. One that has a ``path`` must be of the same lock directory as every resource
    :param on_wait: called once per owner that is waited for, with the error that would be raised otherwise
    :param on_stopped: what to do about an owner that is waited for and is stopped (by a signal, or a frozen cgroup;
        never about one that is slow, or held by a tracer): ``"resume"`` sends it SIGCONT, once; ``"evict"`` breaks its
        claim, as an operator would, after it was found stopped three times 2 s apart
    :param clock: where time comes from, for tests
    :param processes: where process facts come from, for tests
    :returns: a handle; use it as a context manager
    :raises AlreadyOwnedError: somebody else owns it; :class:`AcquireTimeoutError` after waiting
    :raises GateClosedError: nobody new may own: *gate* is closed; other gates raise what they like
    :raises GuardTimeoutError: another process was inside the guard all the time: nothing was decided
    :raises RecordError: what is there cannot be used, see the subclass
    :raises OSError: the directory is missing, read-only, full, or another account's
    :raises ValueError: an argument that cannot be right
    """
    table = processes or system_processes()
    shared = None if registry is None else pin_registry(registry)
    found = checked_resources(resource, also, shared) if also else [resolve(resource, whole=shared is not None)]
    try:
        me = table.current()
    except OSError as error:
        raise with_path(error, found[0].path) from error
    acquisition = Acquisition(
        sorted(found, key=lambda one: one.path) if len(found) > 1 else found,
        shared,
        checked_timeout(timeout),
        checked_callback(on_wait, "on_wait"),
        Contender(table, clock, _kept.kept(), acquiring=True),
        me,
        {} if labels is None else checked_labels(labels),
        None if on_stopped == "wait" else _stopped(on_stopped, shared, clock, table),
        None if ttl is None and auto_renew is True else checked_terms(ttl, auto_renew),
        None if gate is None else checked_gate(gate, found, shared),
    )
    holding = Holding(me, clock, found[0], me.pid if processes is None else os.getpid())
    holding.handle = weakref.ref(acquisition)  # should even giving up be interrupted, the keeper does it
    try:
        acquisition.run(holding)
        return Claim(holding)
    except BaseException as error:
        give_up(holding)
        _keeper.KEEPER.tidy()
        raise with_path(error, found[0].path)  # noqa: B904 the same one, or one that says all that it says


def _stopped(way: str, registry: str | None, clock: Clock, processes: ProcessTable) -> Stopped:
    examiner = examiner_of(clock, processes)
    evict = partial(evict_stopped, registry=registry, examiner=examiner)
    return Stopped(checked_way(way), lambda resource, token: evict(resource, token=token), clock, processes)


def adopt(environ: MutableMapping[str, str] | None = None) -> Claim:
    """Own the claim handed to this process in ``LEASES_HEIR``; the variable is read and removed.

    :raises LookupError: nothing was handed over
    :raises HandoverError: too late: it was taken back, adopted by another, or acquired by somebody
    :raises ValueError: *environ* is no mapping that can be changed
    """
    variables = os.environ if environ is None else environ
    if not isinstance(variables, MutableMapping):
        raise ValueError(f"environ must be a mapping that can be changed, got {environ!r:.80}")
    return heir_from(variables.pop(VARIABLE, None), Claim).adopt()
