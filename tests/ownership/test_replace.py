"""Replacing an owner, as seen by the owner, by the one who asks, and by everybody else."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import (
    AcquireTimeoutError,
    AlreadyOwnedError,
    FindingCode,
    GuardTimeoutError,
    Severity,
    StopRequest,
    Verdict,
)
from ownership._asked import listen
from ownership._models import GuardState
from ownership._paths import resolve
from ownership._place import pinned
from ownership.testing import FakeClock, FakeProcessTable, sleeping_process, stopped_process, zombie
from tests.support.namespaces import needs_linux_root
from tests.support.processes import Contender, residue
from tests.support.records import (
    fields_of,
    file_of,
    guard_of,
    identity,
    other_start_id,
    plant,
    plant_guard,
    record,
    snapshot,
)
from tests.support.waiting import eventually

pytestmark = needs_linux_root

MARK = b"?"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x"


def ask(path: Path, pid: int, **changes: Any) -> dict[str, Any]:
    """Have *pid* ask the owner of *path* to go, by hand: mark and request."""
    fields = {**record(pid), "token": 5000, "phase": "request", "reason": "upgrade", "command": "asker"}
    fields |= {"acquired_at": "2026-11-29T15:12:04.123456Z", **changes}
    file_of(path, "request").parent.mkdir(mode=0o700, exist_ok=True)
    file_of(path, "request").write_text(json.dumps(fields))
    guard = file_of(path, "guard")
    text = guard.read_bytes() if guard.exists() else b""
    guard.write_bytes(text[:511].ljust(511) + MARK)
    return fields


def is_marked(path: Path) -> bool:
    return file_of(path, "guard").read_bytes()[511:] == MARK


@pytest.fixture
def asker() -> Iterator[int]:
    with sleeping_process() as pid:
        yield pid


@pytest.fixture
def dead() -> Iterator[int]:
    with zombie() as pid:
        yield pid


# -- what it comes to when nobody owns


def test_without_an_owner_it_is_an_acquire(path: Path) -> None:
    with ownership.replace(path, reason="first", labels={"a": "b"}) as claim:
        claim.verify()
        assert claim.record.labels == {"a": "b"}
        assert claim.record.reason is None
        assert claim.stop_request is None
    assert not residue(path)
    assert file_of(path, "guard").stat().st_size == 511


def test_a_dead_owner_is_followed_without_being_asked(path: Path, dead: int) -> None:
    plant(path, record(dead))
    with ownership.replace(path) as claim:
        assert claim.token > 1000
        assert not file_of(path, "request").exists()
    assert not is_marked(path)


def test_nobody_replaces_himself(path: Path) -> None:
    with ownership.acquire(path) as claim:
        with pytest.raises(AlreadyOwnedError, match="this process"):
            ownership.replace(path)
        claim.verify()
        assert claim.stop_request is None
    assert not residue(path)


def test_what_this_process_has_closed_it_may_replace(path: Path) -> None:
    ownership.acquire(path).retire("upgrade")
    with ownership.replace(path) as claim:
        claim.verify()


@pytest.mark.parametrize(
    ("keywords", "name"),
    [({"grace": -1}, "grace"), ({"grace": float("inf")}, "grace"), ({"timeout": -1}, "timeout"),
     ({"reason": 5}, "reason"), ({"labels": {"a": 1}}, "labels")],
)  # fmt: skip
def test_arguments_are_checked_before_anything_is_done(path: Path, keywords: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ownership.replace(path, **keywords)
    assert not file_of(path, "guard").exists()


# -- whoever else wants it meanwhile


def test_while_somebody_asks_nobody_else_acquires_what_is_free(path: Path, asker: int) -> None:
    ownership.acquire(path).release()
    ask(path, asker)
    with pytest.raises(AlreadyOwnedError, match=r"asked the last owner to go \(upgrade\)") as refused:
        ownership.acquire(path)
    assert refused.value.owner is not None
    assert refused.value.owner.pid == asker
    assert refused.value.record is None
    assert refused.value.verdict is Verdict.LIVE
    assert refused.value.exit_code == 75
    assert "--token 5000" in refused.value.hint


def test_while_somebody_asks_nobody_else_follows_a_dead_owner(path: Path, asker: int, dead: int) -> None:
    plant(path, record(dead))
    plant_guard(path, GuardState(1000, identity(dead)))
    ask(path, asker)
    before = file_of(path).read_bytes()
    with pytest.raises(AlreadyOwnedError, match="asked"):
        ownership.acquire(path)
    with pytest.raises(AcquireTimeoutError, match="asked"):
        ownership.acquire(path, timeout=0.2)
    assert file_of(path).read_bytes() == before


def test_who_waits_is_told_whom_for_and_owns_as_soon_as_the_request_goes(path: Path, asker: int) -> None:
    ownership.acquire(path).release()
    ask(path, asker)
    told: list[AlreadyOwnedError] = []

    def withdraw(error: AlreadyOwnedError) -> None:
        told.append(error)
        ownership.break_claim(path, token=5000)

    with ownership.acquire(path, timeout=30, on_wait=withdraw) as claim:
        claim.verify()
    assert [error.owner.pid for error in told if error.owner] == [asker]


def test_a_dead_asker_is_ignored_and_its_request_removed_by_whoever_acquires(path: Path, dead: int) -> None:
    ownership.acquire(path).release()
    ask(path, dead)
    with ownership.acquire(path) as claim:
        assert not file_of(path, "request").exists()
        assert not is_marked(path)
        claim.verify()


def test_an_asker_whose_time_is_over_is_ignored_however_it_is_held(path: Path) -> None:
    with stopped_process() as pid:
        ownership.acquire(path).release()
        ask(path, pid)
        with pytest.raises(AlreadyOwnedError, match="stopped by a signal"):
            ownership.acquire(path)
        ask(path, pid, lease={"ttl": 1.0, "auto_renew": False, "renewed_at": 0.0})
        ownership.acquire(path).release()
        assert not file_of(path, "request").exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": 0}', b"\0" * 100])
def test_a_request_that_says_nothing_is_none(path: Path, asker: int, content: bytes) -> None:
    ownership.acquire(path).release()
    ask(path, asker)
    file_of(path, "request").write_bytes(content)
    ownership.acquire(path).release()
    assert not file_of(path, "request").exists()
    assert not is_marked(path)


def test_a_mark_without_a_request_is_cleared(path: Path, asker: int) -> None:
    ownership.acquire(path).release()
    ask(path, asker)
    file_of(path, "request").unlink()
    ownership.acquire(path).release()
    assert not is_marked(path)


@pytest.mark.parametrize("after", [b" ", b"\0"])
def test_what_follows_the_guard_and_is_no_mark_goes_with_the_next_change(path: Path, after: bytes) -> None:
    ownership.acquire(path).release("first")
    guard = file_of(path, "guard")
    guard.write_bytes(guard.read_bytes() + after)
    assert ownership.inspect(path).previous is not None
    ownership.acquire(path).release()
    assert guard.stat().st_size == 511


def test_without_a_mark_nobody_looks_for_a_request(path: Path, asker: int) -> None:
    """What keeps an acquire fast; a request without a mark is only left where the guard was deleted."""
    ask(path, asker)
    file_of(path, "guard").write_bytes(b" " * 511)
    ownership.acquire(path).release()
    assert file_of(path, "request").exists()


def test_a_release_and_a_broken_claim_leave_the_mark_as_it_is(path: Path, asker: int) -> None:
    claim = ownership.acquire(path)
    ask(path, asker)
    claim.release("done")
    assert is_marked(path)
    assert guard_before_the_mark(path)["previous"]["reason"] == "done"
    with pytest.raises(AlreadyOwnedError):
        ownership.acquire(path)
    ownership.break_claim(path, token=5000)
    claim = ownership.acquire(path)
    ask(path, asker)
    ownership.break_claim(path, token=claim.token)
    claim.release()
    assert is_marked(path)


def guard_before_the_mark(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_of(path, "guard").read_bytes()[:511])
    return found


def test_the_younger_of_two_is_refused_and_told_of_the_older(path: Path, asker: int) -> None:
    with sleeping_process() as owner:
        plant(path, record(owner))
        ask(path, asker)
        before = snapshot(path.parent)
        with pytest.raises(
            AlreadyOwnedError, match=rf"asked to go before us, by pid {asker} \(asker\) since 2026-11-29"
        ) as refused:
            ownership.replace(path, timeout=5)
        assert refused.value.owner is not None
        assert refused.value.owner.pid == asker
        assert refused.value.record is not None
        assert refused.value.record.pid == owner
        assert ownership.is_alive(owner)
        after = snapshot(path.parent)
        assert after[str(file_of(path, "request"))] == before[str(file_of(path, "request"))]


def test_the_younger_of_two_is_refused_where_nobody_owns(path: Path, asker: int) -> None:
    ownership.acquire(path).release()
    ask(path, asker)
    with pytest.raises(AlreadyOwnedError, match="asked"):
        ownership.replace(path)
    assert file_of(path, "request").exists()


def test_a_thread_of_ours_that_only_acquires_is_refused_while_another_asks(path: Path) -> None:
    with Contender() as owner:
        owner.do("acquire", path)
        outcomes: list[object] = []

        def replace() -> None:
            with ownership.replace(path, grace=20) as claim:
                outcomes.append(claim.token)

        thread = threading.Thread(target=replace)
        thread.start()
        eventually(lambda: file_of(path, "request").exists())
        owner.start("release", path)
        eventually(lambda: outcomes)
        owner.hear()
        thread.join()
        assert not residue(path)


# -- the owner


def test_the_owner_can_look_up_who_asks_why_and_since_when(path: Path, asker: int) -> None:
    with ownership.acquire(path) as claim:
        assert claim.stop_request is None
        ask(path, asker, labels={"by": "deploy"})
        request = claim.stop_request
        assert isinstance(request, StopRequest)
        assert (request.pid, request.command, request.reason) == (asker, "asker", "upgrade")
        assert request.labels == {"by": "deploy"}
        assert request.since is not None
        assert request.since.year == 2026
        assert request.verdict is Verdict.LIVE
        assert request.stands
    assert claim.stop_request is None


def test_a_dead_asker_asks_nobody(path: Path, dead: int) -> None:
    with ownership.acquire(path) as claim:
        ask(path, dead)
        assert claim.stop_request is None


def test_a_request_can_be_read_in_a_signal_handler_inside_the_guard(path: Path, asker: int) -> None:
    with ownership.acquire(path) as claim:
        ask(path, asker)
        guard = pinned(resolve(path)).guard(resolve(path))
        seen: list[object] = []
        before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(claim.stop_request))
        guard.inside.add(threading.get_ident())
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            eventually(lambda: seen)
        finally:
            guard.inside.clear()
            signal.signal(signal.SIGUSR1, before)
        assert seen[0] == claim.stop_request
        file_of(path, "request").unlink()


def test_the_owner_is_told_once_of_each_request(path: Path, asker: int) -> None:
    with ownership.acquire(path) as claim:
        told: list[StopRequest] = []
        other: list[StopRequest] = []
        claim.on_stop_request(told.append)
        ask(path, asker)
        eventually(lambda: told)
        claim.on_stop_request(other.append)
        eventually(lambda: other)
        assert [one.token for one in told] == [one.token for one in other] == [5000]
        ask(path, asker, token=5001)  # made again, after a cleaner has deleted it
        listen()
        ask(path, asker, token=5002, acquired_at="2026-11-29T15:12:05.123456Z")
        eventually(lambda: len(told) == 2)
        assert [one.token for one in told] == [5000, 5002]
        with pytest.raises(ValueError, match="callback"):
            claim.on_stop_request(5)  # type: ignore[arg-type]
    with pytest.raises(ownership.OwnershipLostError):
        claim.on_stop_request(told.append)


# -- reports


def test_inspect_says_who_asks_and_changes_nothing(path: Path, asker: int) -> None:
    with ownership.acquire(path):
        assert ownership.inspect(path).request is None
        ask(path, asker)
        before = snapshot(path.parent)
        found = ownership.inspect(path)
        assert found.request is not None
        assert (found.request.pid, found.request.verdict) == (asker, Verdict.LIVE)
        assert [one.request for one in ownership.inspect_all(path.parent)] == [found.request]
        assert ownership.Survey(path.parent).look()[0].request == found.request
        list(ownership.diagnose(path.parent))
        assert snapshot(path.parent) == before


def findings(path: Path) -> dict[FindingCode, ownership.Finding]:
    return {one.code: one for one in ownership.diagnose(path.parent)}


def test_doctor_tells_of_a_request_of_one_whose_asker_is_stopped_and_of_one_that_is_left(path: Path, dead: int) -> None:
    with ownership.acquire(path):
        with sleeping_process() as pid:
            ask(path, pid)
            found = findings(path)[FindingCode.REQUESTED]
            assert found.severity is Severity.NOTE
            assert found.evidence["asker_pid"] == pid
            assert found.evidence["request_reason"] == "upgrade"
        with stopped_process() as pid:
            ask(path, pid)
            found = findings(path)[FindingCode.REQUESTED]
            assert found.severity is Severity.PROBLEM
            assert f"kill -CONT {pid}" in found.remedy
        ask(path, dead)
        found = findings(path)[FindingCode.LEFTOVER_REQUEST]
        assert found.severity is Severity.NOTE
        assert found.remedy == f"leasectl break {path} --token 5000"


def test_a_break_by_its_token_withdraws_a_request_and_nothing_else(path: Path, asker: int) -> None:
    with ownership.acquire(path) as claim:
        ask(path, asker)
        done = ownership.break_claim(path, token=5000)
        assert done.withdrawn
        assert done.request is not None
        assert (done.request.pid, done.request.token) == (asker, 5000)
        assert done.owner is not None
        assert done.owner.pid == os.getpid()
        assert not ownership.break_claim(path.with_name("y"), token=1).withdrawn
        assert not file_of(path, "request").exists()
        assert not is_marked(path)
        claim.verify()
        assert claim.stop_request is None


def test_a_reclaim_removes_what_a_dead_asker_left_and_nothing_of_a_live_one(path: Path, asker: int, dead: int) -> None:
    for reclaim in (lambda: ownership.reclaim(path), lambda: list(ownership.reclaim_all(path.parent))):
        ownership.acquire(path).release()
        ask(path, asker)
        reclaim()
        assert file_of(path, "request").exists()
        ask(path, dead)
        reclaim()
        assert not file_of(path, "request").exists()
        assert not is_marked(path)


def test_names_that_end_like_a_request_are_names_like_any_other(tmp_path: Path, asker: int) -> None:
    with ownership.acquire(tmp_path / "x") as one, ownership.acquire(tmp_path / "x.request") as two:
        ask(tmp_path / "x", asker)
        two.verify()
        assert two.stop_request is None
        assert one.stop_request is not None
        file_of(tmp_path / "x", "request").unlink()


# -- failures


def test_what_is_no_file_of_ours_in_the_place_of_a_request_is_told_to_whoever_acquires(path: Path, asker: int) -> None:
    """And to nobody who only wants to know who owns."""
    claim = ownership.acquire(path)
    ask(path, asker)
    file_of(path, "request").unlink()
    os.mkfifo(file_of(path, "request"))
    assert ownership.inspect(path).verdict is Verdict.LIVE
    assert claim.stop_request is None
    found = findings(path)[FindingCode.INVALID_RECORD]
    assert found.what.startswith("its request is no file of ours")
    assert found.remedy == f"rm -i {file_of(path, 'request')}"
    claim.release()
    for call in (ownership.acquire, ownership.replace):
        with pytest.raises(ownership.InvalidRecordError, match="request"):
            call(path)
    file_of(path, "request").unlink()
    ownership.acquire(path).release()


def test_a_guard_that_is_busy_is_an_error_and_nothing_is_asked(path: Path) -> None:
    with sleeping_process() as owner:
        plant(path, record(owner))
        plant_guard(path, GuardState(1000, identity(owner)))
        with file_of(path, "guard").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises((GuardTimeoutError, AcquireTimeoutError)):
                ownership.replace(path, grace=0.1, timeout=0.2)
        assert ownership.is_alive(owner)
        assert not file_of(path, "request").exists()


def test_after_the_timeout_the_owner_is_left_alone_and_nobody_is_asked(path: Path) -> None:
    with sleeping_process() as owner:
        plant(path, record(owner))
        begun = time.monotonic()
        with pytest.raises(AcquireTimeoutError):
            ownership.replace(path, grace=60, timeout=0.2)
        assert time.monotonic() - begun < 30
        assert ownership.is_alive(owner)
        assert residue(path) == {"x.json"}
        assert not is_marked(path)


def test_an_owner_of_another_pid_namespace_is_asked_and_not_signalled(path: Path) -> None:
    with sleeping_process() as owner:
        plant(path, record(owner, pid_namespace=4026531000, instance_id="f" * 32))
        asked: list[AlreadyOwnedError] = []
        with pytest.raises(AlreadyOwnedError, match="not signalled"):
            ownership.replace(path, grace=0.1, on_wait=asked.append)
        assert len(asked) == 1
        assert ownership.is_alive(owner)
        assert residue(path) == {"x.json"}
        assert not is_marked(path)


def test_an_interrupt_withdraws_the_request(path: Path) -> None:
    class Enough(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Enough

    with sleeping_process() as owner:
        plant(path, record(owner))
        before = signal.signal(signal.SIGUSR1, interrupt)

        def send() -> None:
            eventually(lambda: file_of(path, "request").exists())
            os.kill(os.getpid(), signal.SIGUSR1)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            with pytest.raises(Enough):
                ownership.replace(path, grace=60)
        finally:
            signal.signal(signal.SIGUSR1, before)
            thread.join()
        eventually(lambda: residue(path) == {"x.json"})
        assert ownership.is_alive(owner)


def test_a_request_that_somebody_deletes_is_published_again(path: Path) -> None:
    with Contender() as owner:
        owner.do("acquire", path)
        outcomes: list[int] = []

        def replace() -> None:
            with ownership.replace(path, grace=30) as claim:
                outcomes.append(claim.token)

        thread = threading.Thread(target=replace)
        thread.start()
        eventually(lambda: file_of(path, "request").exists())
        file_of(path, "request").unlink()
        eventually(lambda: file_of(path, "request").exists())
        owner.do("release", path)
        thread.join()
        assert outcomes
        assert not residue(path)


@contextmanager
def deaf_process(told: Path) -> Iterator[int]:
    """One that makes the file *told* when it gets TERM, and goes on."""
    script = f"trap 'touch {told}' TERM; echo ready; while :; do sleep 0.05; done"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("grace", [60.0, 1.0])
def test_an_asker_whose_request_is_withdrawn_by_decision_gives_up(path: Path, grace: float) -> None:
    """Also while it ends the owner, which is not killed then."""
    termed = path.with_name("termed")
    with deaf_process(termed) as owner:
        plant(path, record(owner))
        told: list[AlreadyOwnedError] = []

        def replace() -> None:
            try:
                ownership.replace(path, grace=grace, timeout=60).release()
            except AlreadyOwnedError as error:
                told.append(error)

        thread = threading.Thread(target=replace)
        thread.start()
        eventually(lambda: file_of(path, "request").exists())
        if grace < 60:
            eventually(termed.exists)
        token = json.loads(file_of(path, "request").read_text())["token"]
        ownership.break_claim(path, token=token)
        thread.join(30)
        assert ownership.is_alive(owner)
    assert [(error.exit_code, type(error)) for error in told] == [(75, AlreadyOwnedError)]
    assert "does not stand any more, by decision" in str(told[0])
    assert told[0].owner is not None
    assert told[0].owner.pid == owner
    assert residue(path) == {"x.json"}
    assert file_of(path, "guard").stat().st_size == 511


def test_whoever_asks_after_a_withdrawal_asks_like_anybody_else(path: Path, asker: int) -> None:
    """The mark that a withdrawal leaves is about the one that had asked."""
    with sleeping_process() as owner:
        plant(path, record(owner))
        ask(path, asker)
        ownership.break_claim(path, token=5000)
        with pytest.raises(AcquireTimeoutError):
            ownership.replace(path, grace=60, timeout=0.1)
        assert residue(path) == {"x.json"}


def test_what_a_withdrawal_leaves_goes_with_the_next_change_of_the_guard(path: Path, asker: int) -> None:
    with ownership.acquire(path) as claim:
        ask(path, asker)
        ownership.break_claim(path, token=5000)
        assert ownership.inspect(path).token == claim.token
    with ownership.acquire(path) as after:
        assert after.token > claim.token
    assert guard_of(path)["previous"]["how"] == "released"
    assert file_of(path, "guard").stat().st_size == 511


def test_the_end_of_an_owner_that_was_replaced_is_no_death_of_its_own(path: Path) -> None:
    with Contender() as owner:
        owner.do("acquire", path)
        with ownership.replace(path, reason="upgrade", grace=0.05):
            previous = ownership.inspect(path).previous
        assert previous is not None
        assert (previous.how, previous.reason) == ("died", f"replaced by pid {os.getpid()}: upgrade")
        assert "deaths" not in guard_of(path)


def test_the_witness_of_an_asker_is_there_while_it_asks(path: Path) -> None:
    """For those who cannot see its process; and goes with it."""
    with sleeping_process() as owner:
        plant(path, record(owner))
        seen: list[bool] = []

        def look(_: object) -> None:
            instance = json.loads(file_of(path, "request").read_text())["instance_id"]
            seen.append(file_of(path, "json").with_name(f"{instance}.alive").exists())

        with pytest.raises(AcquireTimeoutError):
            ownership.replace(path, grace=60, timeout=0.1, on_wait=look)
        assert seen == [True]


def test_a_reused_pid_asks_nobody(path: Path, asker: int) -> None:
    ownership.acquire(path).release()
    ask(path, asker, start_id=other_start_id(fields_of(asker)["start_id"]))
    ownership.acquire(path).release()


# -- the order of things, with fakes for time and processes

OWNER = 2000


class Told(FakeProcessTable):
    """Notes at every signal when it comes, and whether the owner could have read who asks."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        super().__init__()
        self.path, self.clock = path, clock
        self.told: list[tuple[float, bool, int]] = []

    def tell(self, signal: int) -> None:
        if signal:
            self.told.append((self.clock.monotonic(), file_of(self.path, "request").exists(), signal))
        super().tell(signal)

    def own(self, **parts: Any) -> None:
        """Have process 2000 own the path."""
        me = self.current()
        identity = {"boot_id": me.boot_id, "pid_namespace": me.pid_namespace, "instance_id": "f" * 32}
        start_id = self.add(OWNER, **parts)
        plant(self.path, {"version": 1, "token": 7, "pid": OWNER, "start_id": start_id, **identity})


@pytest.fixture
def fakes(path: Path) -> Iterator[tuple[FakeClock, Told]]:
    clock = FakeClock()
    with Told(path, clock) as table:
        yield clock, table


def test_the_owner_is_asked_has_its_grace_gets_term_has_it_again_and_is_killed(
    path: Path, fakes: tuple[FakeClock, Told]
) -> None:
    clock, table = fakes
    table.own(ignores={signal.SIGTERM})
    begun = clock.monotonic()
    with ownership.replace(path, grace=7.0, clock=clock, processes=table) as claim:
        assert claim.token > 7
    (term, asked, first), (kill, still, second) = table.told
    assert (asked, still) == (True, True)
    assert (first, second) == (signal.SIGTERM, signal.SIGKILL)
    assert 7.0 <= term - begun < 8.0
    assert 7.0 <= kill - term < 8.0


def test_while_a_gate_is_closed_nobody_is_asked_or_stopped(path: Path, fakes: tuple[FakeClock, Told]) -> None:
    class Shut(Exception):
        pass

    class Gate:
        open_for = 0

        def check(self) -> None:
            self.open_for -= 1
            if self.open_for < 0:
                raise Shut

    clock, table = fakes
    table.own()
    gate, asked = Gate(), []
    for gate.open_for in (0, 1, 2):  # in the last round the owner was asked, and the request is withdrawn
        with pytest.raises(Shut):
            ownership.replace(path, gate=gate, on_wait=asked.append, clock=clock, processes=table)
        assert not file_of(path, "request").exists()
        assert not is_marked(path)
    assert len(asked) == 1
    assert table.told == []
    gate.open_for = 100
    ownership.replace(path, gate=gate, clock=clock, processes=table).release()


def test_an_owner_that_complies_is_not_killed(path: Path, fakes: tuple[FakeClock, Told]) -> None:
    clock, table = fakes
    table.own()
    ownership.replace(path, grace=7.0, clock=clock, processes=table).release()
    assert [number for _, _, number in table.told] == [signal.SIGTERM]


def test_an_owner_that_cannot_be_killed_is_an_error_after_which_nobody_asks(
    path: Path, fakes: tuple[FakeClock, Told]
) -> None:
    clock, table = fakes
    table.own(ignores={signal.SIGTERM, signal.SIGKILL})
    with pytest.raises(ownership.StopTimeoutError):
        ownership.replace(path, grace=1.0, clock=clock, processes=table)
    assert file_of(path).exists()
    assert not file_of(path, "request").exists()
    assert not is_marked(path)


def test_an_owner_of_another_account_is_an_error_after_which_nobody_asks(
    path: Path, fakes: tuple[FakeClock, Told]
) -> None:
    clock, table = fakes
    table.own(forbidden=True)
    with pytest.raises(PermissionError):
        ownership.replace(path, grace=1.0, clock=clock, processes=table)
    assert not file_of(path, "request").exists()
    assert not is_marked(path)


def test_whoever_the_owner_hands_over_to_is_asked_anew_and_has_its_own_grace(
    path: Path, fakes: tuple[FakeClock, Told]
) -> None:
    """Another owner than the one asked, by another token: nobody is stopped who was not asked to go."""
    clock, table = fakes
    table.own()
    heir = table.add(OWNER + 1)
    begun, moved, asked = clock.monotonic(), [], []

    def move(_: object) -> None:
        asked.append((clock.monotonic(), json.loads(file_of(path, "request").read_text())["token"]))
        if not moved:
            clock.advance(5.0)
            fields = json.loads(file_of(path).read_text())
            file_of(path).write_text(
                json.dumps(fields | {"pid": OWNER + 1, "start_id": heir, "token": 8, "instance_id": "e" * 32})
            )
            moved.append(True)

    ownership.replace(path, grace=7.0, clock=clock, processes=table, on_wait=move).release()
    assert len(asked) == 2
    assert asked[1][1] > asked[0][1]
    assert [number for _, _, number in table.told] == [signal.SIGTERM]
    assert table.told[0][0] - begun >= 12.0
    assert table.observe(OWNER).exists
