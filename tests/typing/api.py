"""Only type-checked, under ``mypy --strict``: the public names as a user's program uses them."""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, assert_type

import leases
import ownership
from leases import aio
from ownership import testing


def acquire(path: Path | str | bytes | os.PathLike[str]) -> None:
    with ownership.acquire(path, timeout=5.0, labels={"app": "1.2"}) as claim:
        assert_type(claim, ownership.Claim)
        assert_type(claim.token, int)
        assert_type(claim.tokens, Mapping[Path, int])
        assert_type(claim.record, ownership.OwnerRecord)
        assert_type(claim.ref, ownership.OwnerRef)
        assert_type(claim.path, Path)
        assert_type(claim.lost, threading.Event)
        assert_type(claim.held, bool)
        claim.verify()
        claim.announce("serving", endpoint="tcp:127.0.0.1:8123", data={"version": "1.2", "list": [1, None]})
        claim.announce(labels={"a": "b"})
        claim.keep_across_exec("the next program")
        claim.release("done")


def acquire_with_everything(told: list[ownership.AlreadyOwnedError]) -> ownership.Claim:
    clock, table = testing.FakeClock(), testing.FakeProcessTable()
    return ownership.acquire(
        ownership.named("nightly"),
        timeout=None,
        also=["/srv/data", Path("/srv/more"), b"/srv/bytes"],
        registry=Path("/srv/registry"),
        on_wait=told.append,
        clock=clock,
        processes=table,
    )


def lease(path: Path, told: list[leases.LeaseLostError]) -> None:
    gate = leases.Gate(path.with_name("gate"), ttl=5.0, registry=None)
    with leases.acquire(path, ttl=30.0, auto_renew=True, timeout=5.0, labels={"a": "b"}, gate=gate) as lease:
        assert_type(lease, leases.Lease)
        assert_type(lease.claim, ownership.Claim)
        assert_type(lease.token, int)
        assert_type(lease.ttl, float | None)
        assert_type(lease.expires_in, float | None)
        assert_type(lease.lapses, int)
        assert_type(lease.renew(), bool)
        lease.on_loss(told.append)
        with lease.critical(timeout=0.5):
            lease.verify()
            lease.announce("serving")
        lease.release("done")
    with ownership.acquire(path, ttl=30.0, auto_renew=False, gate=gate) as claim:
        assert_type(claim.expires_in, float | None)
        assert_type(claim.renew(), bool)
        assert_type(ownership.renew(claim.ref), bool)
        with claim.critical():
            pass


async def roster(path: Path, ended: list[leases.Task]) -> None:
    roster = leases.Roster(path, registry=None, timeout=5.0, clock=testing.FakeClock())
    found = roster.restore()
    assert_type(found, leases.Restored)
    assert_type(found.lost, tuple[leases.Task, ...])
    for task in found.lost:
        assert_type(task.state, Literal["running", "lost", "finished"])
        assert_type(task.owner, ownership.OwnerIdentity | None)
        assert_type(task.verdict, ownership.Verdict | None)
        assert_type(task.since, dt.datetime)
        assert_type(task.failed, bool)
        with roster.claim_lost(task) as job:
            assert_type(job, leases.TaskClaim)
            assert_type(job.before, leases.Task | None)
            job.update("half way", data={"step": 1})
            job.verify()
            job.finish("done")
    job = roster.start("name", "status", data=[1])
    assert_type(job.token, int)
    job.give_up("no time")
    assert_type(roster.driven("name"), leases.TaskClaim)
    following = roster.follow("name", ended.append)
    assert_type(following, leases.Following)
    assert_type(await following, leases.Task)
    assert_type(following.wait(1.0), leases.Task)
    assert_type(roster.wait("name"), leases.Task)
    assert_type(roster.task("name"), leases.Task)
    following.cancel()
    roster.compact()
    assert_type(roster.path, Path)


def judged(owner: ownership.OwnerIdentity, path: Path) -> None:
    judgement = ownership.judge_owner(owner, beside=path, registry=None)
    assert_type(judgement, ownership.Judgement)
    assert_type(judgement.verdict, ownership.Verdict)
    watch = ownership.OwnerWatch()
    assert_type(watch.add(owner), bool)
    assert_type(watch.wait(1.0), frozenset[str])
    watch.wake()
    watch.discard(owner)
    watch.close()


def session_file(path: Path, lease: leases.Lease, claim: ownership.Claim) -> list[bytes]:
    leases.append_line(lease, "text", path=path, fsync=True, mode=0o640, timeout=None)
    leases.append_line(claim, b"bytes")
    assert_type(leases.read_lines(path, 5), Iterator[bytes])
    return list(leases.read_lines("/srv/session.jsonl"))


async def asynchronous(path: Path, claim: ownership.Claim, told: list[leases.LeaseLostError]) -> None:
    async with aio.acquire(path, ttl=30.0, timeout=5.0, labels={"a": "b"}, on_wait=print) as lease:
        assert_type(lease, aio.Lease)
        assert_type(lease.lease, leases.Lease)
        assert_type((lease.path, lease.token, lease.ttl, lease.lapses), tuple[Path, int, float | None, int])
        assert_type(lease.expires_in, float | None)
        assert_type(lease.lost, threading.Event)
        assert_type((lease.ref, lease.record), tuple[ownership.OwnerRef, ownership.OwnerRecord])
        assert_type(await lease.renew(), bool)
        lease.on_loss(told.append)
        async with lease.critical(timeout=0.5):
            await lease.verify()
            await lease.announce("serving", data={"a": 1})
            await aio.append_line(lease, "line", fsync=True)
        await lease.release("done")
    assert_type(await aio.acquire(path), aio.Lease)
    async with aio.Lease(claim), aio.replace(path, reason="upgrade", grace=5.0) as lease:
        assert_type(lease, aio.Lease)
    async with aio.listen(path, data={"version": 1}) as owned:
        assert_type(owned, aio.Listener)
        assert_type(owned.listener, ownership.Listener)
        assert_type((owned.claim, owned.endpoint, owned.path_lost), tuple[ownership.Claim, str, bool])
        assert_type(await owned.rebind(), socket.socket)
        await owned.close("done")
    assert_type(await aio.connect(path, timeout=1.0), socket.socket)
    await aio.ensure(path, ["server"], match={"version": 1})


def shut(path: Path) -> None:
    gate = leases.Gate(path, clock=testing.FakeClock())
    with gate.close(reason="upgrade", timeout=None) as closed:
        assert_type(closed, leases.Gate)
        closed.verify()
        assert_type(closed.ref, ownership.OwnerRef)
    assert_type(gate.is_closed, bool)
    assert_type(gate.inspect(), ownership.Inspection)
    assert_type(gate.path, Path)
    gate.check()
    gate.open()
    assert_type(ownership.pass_guards(path, timeout=1.0), int)
    assert_type(ownership.inspect(path).expires_in, float | None)


def be_told(claim: ownership.Claim, told: list[ownership.OwnershipLostError]) -> None:
    claim.on_loss(told.append)
    ownership.acquire("/run/x", timeout=60, on_stopped="resume").release()


def fence(server: socket.socket) -> None:
    ref = ownership.OwnerRef.from_env()
    with ownership.Fence(ref, poll_interval=0.5, confirm_interval=10.0, on_trip=server.close) as fence:
        assert_type(fence, ownership.Fence)
        assert_type(fence.tripped, threading.Event)
        assert_type(fence.reason, str | None)
        assert_type(fence.last_error, Exception | None)
        assert_type(fence.ref, ownership.OwnerRef)
        assert_type(fence.wait(1.0), bool)
        fence.check()


async def fence_async(ref: ownership.OwnerRef) -> None:
    async with ownership.Fence(ref) as fence:
        assert_type(fence, ownership.Fence)


def wait_for_peer(peer: ownership.OwnerRef | ownership.OwnerIdentity | int) -> None:
    def release(wait: ownership.FrozenWait) -> None:
        assert_type(wait.peer, ownership.OwnerIdentity)

    with leases.release_if_frozen(peer, release, interval=1.0, confirmations=5) as wait:
        assert_type(wait, ownership.FrozenWait)
        assert_type(wait.resumed, bool)
        assert_type(wait.released, threading.Event)
    assert_type(ownership.waiters("/run"), dict[Path, int])


def hand_over(claim: ownership.Claim) -> None:
    with claim.handover(timeout=3.0) as heir:
        assert_type(heir, ownership.Heir[ownership.Claim])
        assert_type(heir.adopt(), ownership.Claim)
        assert_type(heir.to_env(), dict[str, str])
    assert_type(ownership.adopt(), ownership.Claim)
    assert_type(ownership.adopt({"LEASES_HEIR": ""}), ownership.Claim)


def look(path: Path) -> ownership.Verdict:
    found = ownership.inspect(path, registry="/srv/registry")
    assert_type(found, ownership.Inspection)
    assert_type(found.verdict, ownership.Verdict)
    assert_type(found.reason, str)
    assert_type(found.record, ownership.OwnerRecord | None)
    assert_type(found.running, ownership.Running | None)
    assert_type(found.ref, ownership.OwnerRef | None)
    assert_type(found.previous, ownership.Previous | None)
    assert_type(found.verdict.may_be_evicted, bool)
    running = ownership.find(path)
    if running is not None:
        assert_type(running.endpoint, str | None)
        assert_type(running.data, dict[str, Any])
        assert_type(running.phase, str)
    assert_type(ownership.running("/srv"), list[ownership.Running])
    for one in ownership.inspect_all("/srv"):
        assert_type(one, ownership.Inspection)
    assert_type(ownership.wait(path, timeout=1.0), ownership.Inspection)
    assert_type(ownership.waiters("/srv", registry=True), dict[Path, int])
    return found.verdict


def survey(path: Path) -> list[ownership.Inspection]:
    clock, table = testing.FakeClock(), testing.FakeProcessTable()
    of_all = ownership.Survey(path, registry=True, confirm_interval=1.0, clock=clock, processes=table)
    assert_type(of_all, ownership.Survey)
    assert_type(of_all.look(), list[ownership.Inspection])
    return ownership.Survey("/srv").look()


def diagnose(path: Path) -> list[str]:
    clock, table = testing.FakeClock(), testing.FakeProcessTable()
    table.surround(1000, parent=1, tracer=2, frozen_by=("/sys/fs/cgroup/a/cgroup.freeze",))
    for one in ownership.diagnose(path, registry=True, clock=clock, processes=table):
        assert_type(one, ownership.Finding)
        assert_type(one.code, ownership.FindingCode)
        assert_type(one.severity, ownership.Severity)
        assert_type(one.resource, Path)
        assert_type(one.evidence, Mapping[str, str | int | float | list[str]])
        assert_type(one.unusable, bool)
    return [one.remedy for one in ownership.diagnose("/srv") if one.severity is ownership.Severity.PROBLEM]


def evict(path: Path) -> None:
    assert_type(ownership.reclaim(path), ownership.Inspection)
    assert_type(ownership.break_claim(path, token=5), ownership.Inspection)
    for found, removed in ownership.reclaim_all("/srv", dry_run=True):
        assert_type(found, ownership.Inspection)
        assert_type(removed, bool)


def values(ref: ownership.OwnerRef, record: ownership.OwnerRecord) -> None:
    assert_type(ownership.OwnerRef.from_env(), ownership.OwnerRef)
    assert_type(ownership.OwnerRef.from_env({}), ownership.OwnerRef)
    assert_type(ref.to_env(), dict[str, str])
    assert_type(ref.path, Path)
    assert_type(ref.owner, ownership.OwnerIdentity)
    assert_type(record.pid, int)
    assert_type(record.lease, ownership.LeaseTerms | None)
    assert_type(record.labels, dict[str, str])
    assert_type(ownership.schema(), dict[str, Any])


def processes(pid: int) -> None:
    assert_type(ownership.exists(pid), bool)
    assert_type(ownership.is_alive(pid), bool)
    assert_type(ownership.is_zombie(pid), bool)
    assert_type(ownership.is_stopped(pid), bool)
    assert_type(ownership.start_id(pid), str | None)
    assert_type(ownership.group_has_live_member(pid), bool)
    assert_type(ownership.signal_group_if_held(pid, signal.SIGTERM), bool)


def stop(ref: ownership.OwnerRef, record: ownership.OwnerRecord, owner: ownership.OwnerIdentity) -> None:
    report = ownership.stop(ref)
    assert_type(report, ownership.StopReport)
    assert_type(report.scope, Literal["group", "process"])
    assert_type(report.signalled, tuple[ownership.SentSignal, ...])
    assert_type(report.survivors, tuple[ownership.Survivor, ...])
    assert_type(report.gone, bool)
    for one in report.signalled:
        assert_type((one.when, one.signal, one.number), tuple[dt.datetime, str, int])
    clock, table = testing.FakeClock(), testing.FakeProcessTable()
    try:
        ownership.stop(record, 5.0, clock=clock, processes=table)
        ownership.stop(owner, grace=5.0)
    except ownership.StopTimeoutError as error:
        assert_type(error.survivors, tuple[ownership.Survivor, ...])
        assert_type(error.report, ownership.StopReport)


def replace(path: Path) -> None:
    with ownership.replace(
        path, reason="upgrade", grace=5.0, timeout=None, registry=path, labels={"a": "b"}, gate=None, on_wait=print
    ) as claim:
        assert_type(claim, ownership.Claim)
        request = claim.stop_request
        assert_type(request, ownership.StopRequest | None)
        if request is not None:
            assert_type(request.identity, ownership.OwnerIdentity)
            assert_type((request.pid, request.command, request.host, request.reason), tuple[int, str, str, str])
            assert_type(request.labels, Mapping[str, str])
            assert_type(request.since, dt.datetime | None)
            assert_type((request.token, request.verdict, request.stands), tuple[int, ownership.Verdict, bool])
        claim.on_stop_request(lambda request: print(request.pid))
        claim.retire("shutting down")
        assert_type(claim.record.is_closed, bool)
        assert_type(claim.record.reason, str | None)
    assert_type(ownership.inspect(path).request, ownership.StopRequest | None)


def serve(path: Path, connection: socket.socket, ref: ownership.OwnerRef) -> None:
    with ownership.listen(
        path, timeout=None, also=[path], registry=path, data={"a": 1}, mode=0o660, gid=1, release="close", gate=None
    ) as owned:
        assert_type(owned, ownership.Listener)
        assert_type(owned.claim, ownership.Claim)
        assert_type(owned.socket, socket.socket)
        assert_type((owned.endpoint, owned.path_lost, owned.fileno()), tuple[str, bool, int])
        owned.on_path_lost(ownership.Listener.rebind)
        assert_type(owned.rebind(), socket.socket)
        owned.handover(connection, timeout=5.0)
        owned.close("done")
    ownership.listen(("127.0.0.1", 0), resource=path)
    ownership.listen(sock=3)
    assert_type(ownership.adopt_listener(connection, release="exit"), ownership.Listener)
    assert_type(ownership.connect(path, timeout=1.0), socket.socket)
    ownership.ensure(path, ["server", path], 10.0, match={"version": 1}, on_mismatch="replace", env={"A": "b"}, grace=1)
    ownership.ensure(path, None, connect=lambda running: running.endpoint)
    assert_type(ownership.verify_peer(connection, ref), ownership.Running)
    peer = ownership.verify_worker(connection)
    assert_type((peer.pid, peer.uid, peer.gid, peer.start_id), tuple[int, int, int, str])


def serving_errors(path: Path) -> None:
    try:
        ownership.ensure(path, ["server"])
    except ownership.StartTimeoutError as error:
        assert_type(error.returncode, int | None)
    except ownership.StartError as error:
        assert_type((error.returncode, error.stderr), tuple[int | None, str])
    except ownership.CrashLoopError as error:
        assert_type(error.deaths, tuple[float, ...])
    except ownership.UnreachableError as error:
        assert_type(error.record, ownership.OwnerRecord | None)
    except ownership.PeerError as error:
        assert_type(error.pid, int)


def errors(path: Path) -> int:
    try:
        ownership.acquire(path)
    except ownership.AcquireTimeoutError as error:
        assert_type(error.verdict, ownership.Verdict)
    except ownership.AlreadyOwnedError as error:
        assert_type(error.record, ownership.OwnerRecord | None)
        assert_type(error.reason, str)
        assert_type(error.hint, str)
    except ownership.GateClosedError as error:
        assert_type(error.record, ownership.OwnerRecord | None)
        assert_type(error.reason, str)
    except ownership.GuardTimeoutError as error:
        assert_type(error.holder, int | None)
    except ownership.InvalidRecordError as error:
        assert_type(error.head, str)
    except ownership.LossError as error:
        assert_type(error.reason, str)
    except ownership.OwnershipError as error:
        return error.exit_code
    return 0
