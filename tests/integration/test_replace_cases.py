"""Owners that go when asked, on TERM, by KILL or not at all; who asks, who hammers meanwhile, who dies half-way."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AcquireTimeoutError, AlreadyOwnedError
from ownership._asking import Asking
from ownership._refusing import Refused
from tests.support.namespaces import NEW_PIDS, NOBODY, elsewhere, needs_linux_root, other_accounts_can_run_us
from tests.support.processes import (
    HERD,
    Child,
    Contender,
    eventually,
    lock_directory,
    residue,
    run,
    running,
    state_of,
    stopped,
)
from tests.support.timing import assert_at_best

pytestmark = needs_linux_root

OWNER = """
path, how = sys.argv[1:3]
claim = ownership.acquire(path, labels={"app": "old"})
def facts(request):
    return {"pid": request.pid, "reason": request.reason, "labels": request.labels, "since": request.since is not None}
def on_term(*_):
    request = claim.stop_request
    say({"term": request and facts(request)})
    if how == "exit":
        sys.exit(0)
    if how == "release":
        claim.release("told to")
if how in ("exit", "release"):
    signal.signal(signal.SIGTERM, on_term)
elif how == "request":
    claim.on_stop_request(lambda request: (say({"asked": facts(request)}), claim.release("asked to")))
elif how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
say(os.getpid())
while True:
    time.sleep(0.01)
"""

ASKER = """
path, grace = sys.argv[1], float(sys.argv[2])
try:
    claim = ownership.replace(path, reason="upgrade", grace=grace, on_wait=lambda _: say("asks"))
    say({"owns": claim.token, "pid": os.getpid()})
    hear()
    claim.release()
    say("released")
except Exception as error:
    say({"error": type(error).__name__, "text": str(error)})
hear()
"""


def owner(path: Path, how: str = "plain") -> Child:
    """A process that owns *path* already."""
    child = running(OWNER, path, how)
    try:
        child.hear()
    except BaseException:
        child.close()
        raise
    return child


def asker(path: Path, grace: float = 0.2) -> Child:
    return running(ASKER, path, grace)


def marked(path: Path) -> bool:
    return (lock_directory(path) / f"{path.name}.guard").stat().st_size > 511


def is_clean(path: Path) -> bool:
    """Only a record is there, at the most."""
    return residue(path) <= {f"{path.name}.json"} and not marked(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x"


# -- owners


@pytest.mark.parametrize(
    ("how", "lives", "previous"),
    [
        ("request", True, ("released", "asked to")),
        ("exit", False, ("died", "upgrade")),
        ("release", True, ("released", "told to")),
        ("plain", False, ("died", "upgrade")),
        ("stubborn", False, ("died", "upgrade")),
    ],
)
def test_an_owner_goes_as_it_can_and_the_asker_owns(
    path: Path, how: str, lives: bool, previous: tuple[str, str]
) -> None:
    with owner(path, how) as old:
        grace = 20.0 if how == "request" else 0.2
        with ownership.replace(path, reason="upgrade", grace=grace, labels={"by": "deploy"}) as claim:
            claim.verify()
            found = ownership.inspect(path).previous
            assert found is not None
            assert found.how == previous[0]
            assert found.reason.endswith(previous[1])
            assert (state_of(old.pid) not in "XZ") is lives
            assert is_clean(path)
        if how in ("request", "exit", "release"):
            (told,) = old.hear().values()
            assert told == {"pid": os.getpid(), "reason": "upgrade", "labels": {"by": "deploy"}, "since": True}
    assert not residue(path)


def test_an_owner_that_is_stopped_by_a_signal_is_replaced(path: Path) -> None:
    with owner(path) as old, stopped(old.pid), ownership.replace(path, grace=0.1) as claim:
        claim.verify()
        assert state_of(old.pid) in "XZ"


def test_an_owner_that_has_closed_but_not_ended_is_replaced(path: Path) -> None:
    with running("claim = ownership.acquire(sys.argv[1]); claim.retire(); say(1); time.sleep(60)", path) as old:
        old.hear()
        with ownership.replace(path, grace=0.1) as claim:
            claim.verify()
        assert state_of(old.pid) in "XZ"


def test_an_asker_for_which_no_thread_can_be_started_says_so(path: Path) -> None:
    body = """
    start = threading.Thread.start
    def no(thread):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = no
    try:
        ownership.replace(sys.argv[1], grace=60, timeout=0)
    except OSError as error:
        say([type(error).__name__, error.filename, error.hint])
    """
    with owner(path) as old:
        with running(body, path) as child:
            kind, filename, hint = child.hear()
        assert (kind, filename) == ("OSError", str(path))
        assert "threads" in hint
        assert state_of(old.pid) not in "XZ"
        assert is_clean(path)


def test_a_zombie_owner_is_followed_at_once(path: Path) -> None:
    with owner(path) as old:
        os.kill(old.pid, signal.SIGKILL)
        eventually(lambda: ownership.is_zombie(old.pid))
        begun = time.monotonic()
        ownership.replace(path, grace=60).release()
        assert time.monotonic() - begun < 10


def test_an_owner_that_dies_while_it_is_asked_is_followed_at_once(path: Path) -> None:
    def followed() -> float:
        with owner(path) as old, asker(path, 60) as new:
            assert new.hear() == "asks"
            old.kill()
            ended = time.monotonic()
            assert "owns" in new.hear()
            return time.monotonic() - ended

    assert_at_best(2.0, followed)


def test_an_owner_of_another_account_is_asked_and_then_an_error(open_directory: Path) -> None:
    if not other_accounts_can_run_us():
        pytest.skip("another account cannot run this interpreter")
    registry = open_directory / "registry"
    registry.mkdir()
    registry.chmod(0o775)
    os.chown(registry, 0, NOBODY)

    def replace() -> Any:
        return ownership.replace("/data/x", registry=registry, grace=0.1)

    with ownership.acquire("/data/x", registry=registry) as claim:
        error = elsewhere(replace, uid=NOBODY)
        assert isinstance(error, PermissionError), error
        claim.verify()
        assert claim.stop_request is None
    assert not [name for name in os.listdir(registry) if name.endswith((".request", ".json"))]


def test_an_owner_in_another_pid_namespace_is_asked_and_then_an_error(open_directory: Path) -> None:
    path = open_directory / "x"
    with Contender(NEW_PIDS) as inside:
        inside.do("acquire", path)
        with pytest.raises(AlreadyOwnedError, match="not signalled"):
            ownership.replace(path, grace=0.1)
        assert "value" in inside.do("verify", path)
        assert is_clean(path)


def test_an_asker_in_another_pid_namespace_keeps_others_out_until_its_witness_is_free(open_directory: Path) -> None:
    """And an owner there reads who asks it from here, which cannot be seen from there."""
    path = open_directory / "x"
    with owner(path) as old, running(ASKER, path, 60, prefix=NEW_PIDS) as new, Contender() as other:
        assert new.hear() == "asks"
        old.kill()
        assert other.do("acquire", path)["error"] == "AlreadyOwnedError"
        assert "owns" in new.hear()


def test_an_asker_that_died_in_another_pid_namespace_blocks_nobody(open_directory: Path) -> None:
    path = open_directory / "x"
    with owner(path) as old, running(ASKER, path, 60, prefix=NEW_PIDS) as new, Contender() as other:
        assert new.hear() == "asks"
        new.kill()  # and with it, its namespace
        old.kill()
        assert "value" in other.do("acquire", path, timeout=10)
        assert is_clean(path)


# -- askers


def test_of_several_that_replace_at_once_one_does_and_the_others_are_told_by_whom(path: Path) -> None:
    body = (
        HERD
        + """
def work(number):
    try:
        claim = ownership.replace(sys.argv[1], reason="upgrade", grace=0.5)
    except ownership.AlreadyOwnedError as error:
        return {"refused": error.owner.pid, "text": str(error)}
    claim.verify()
    time.sleep(0.1)
    claim.release()
    return {"owned": os.getpid()}
say(herd(8, work))
"""
    )
    with owner(path, "stubborn") as old:
        outcomes = run(body, path)
        winners = [one["owned"] for one in outcomes if "owned" in one]
        assert len(winners) == 1, outcomes
        assert {one["refused"] for one in outcomes if "refused" in one} == set(winners)
        assert sum("refused" in one for one in outcomes) == 7
        assert state_of(old.pid) in "XZ"
    assert not residue(path)


HAMMER = """
import select
path, wait = sys.argv[1], float(sys.argv[2])
refused = 0
say("ready")
while True:
    try:
        claim = ownership.acquire(path, timeout=wait)
    except (ownership.AlreadyOwnedError, ownership.GuardTimeoutError):
        refused += 1
        if select.select([0], [], [], 0)[0]:
            break
        continue
    say({"token": claim.token, "refused": refused})
    claim.release()
    break
if select.select([0], [], [], 60)[0]:
    say({"refused": refused})
"""


@pytest.mark.parametrize("how", ["request", "plain", "stubborn"])
def test_contenders_that_hammer_and_wait_meanwhile_come_after_the_asker(path: Path, how: str) -> None:
    with owner(path, how), running(HAMMER, path, 0) as one, running(HAMMER, path, 0) as two:
        one.hear(), two.hear()
        with running(HAMMER, path, 30) as three, running(HAMMER, path, 30) as four:
            three.hear(), four.hear()
            with ownership.replace(path, grace=0.3) as claim:
                claim.verify()
                token = claim.token
            for child in (one, two, three, four):
                assert child.hear()["token"] > token
            eventually(lambda: not residue(path))


def test_an_asker_that_is_killed_while_it_asks_blocks_nobody(path: Path) -> None:
    with owner(path) as old, asker(path, 60) as new, Contender() as other:
        assert new.hear() == "asks"
        assert marked(path)
        new.kill()
        assert other.do("acquire", path)["error"] == "AlreadyOwnedError"  # by the owner, that is left alone
        old.kill()
        assert "value" in other.do("acquire", path)
        assert is_clean(path)


def test_after_an_asker_that_was_killed_another_is_heard(path: Path) -> None:
    with owner(path), asker(path, 60) as first:
        first.hear()
        first.kill()
        with ownership.replace(path, grace=0.1) as claim:
            claim.verify()
            assert is_clean(path)


def test_who_waits_behind_an_asker_that_is_killed_owns_at_once(path: Path) -> None:
    """The owner has gone, and its asker was stopped before it could follow."""

    def followed() -> float:
        with owner(path) as old, asker(path, 60) as new, Contender() as waiter:
            assert new.hear() == "asks"
            with stopped(new.pid):
                old.kill()
                waiter.start("acquire", path, timeout=60, tells=True)
                assert waiter.hear() == "waiting"
                with pytest.raises(AlreadyOwnedError, match="stopped by a signal"):
                    ownership.acquire(path)
                os.kill(new.pid, signal.SIGKILL)
                killed = time.monotonic()
                assert "value" in waiter.hear()
                return time.monotonic() - killed

    assert_at_best(1.0, followed)


def test_an_asker_that_was_stopped_for_longer_than_it_may_take_finds_another_owner_and_leaves_it_alone(
    path: Path,
) -> None:
    """It asks nobody any more: whoever owns by now has been asked by nobody."""
    with owner(path) as old, asker(path, 0.1) as new, Contender() as other:
        assert new.hear() == "asks"
        with stopped(new.pid):
            request = lock_directory(path) / "x.request"
            text = request.read_text()
            changed = text.replace('"renewed_at":', '"renewed_at":-1e6,"was":')
            assert changed != text
            request.write_text(changed)  # as if it had been stopped for days
            old.kill()
            assert "value" in other.do("acquire", path)
        told = new.hear()
        assert told["error"] == "AlreadyOwnedError"
        assert "our request to its owner does not stand any more" in told["text"]
        assert f"pid {other.pid}" in told["text"]
        assert "value" in other.do("verify", path)
        assert is_clean(path)


def test_whoever_follows_between_a_look_and_the_request_is_asked_and_given_its_time_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner lets somebody in right after the asker has seen the owner that it has asked already."""
    has_asked, told = Asking.has_asked, list[int]()

    def after_a_cleaner(asking: Asking, refused: Refused) -> bool:
        if asking.token and not told[1:] and old.process.poll() is None:
            old.kill()
            for kind in ("request", "guard"):
                (lock_directory(path) / f"x.{kind}").unlink()
            assert "value" in other.do("acquire", path)
        return has_asked(asking, refused)

    def on_wait(error: AlreadyOwnedError) -> None:
        assert error.owner is not None
        told.append(error.owner.pid)
        if told[1:]:
            assert "value" in other.do("verify", path)
            assert "value" in other.do("release", path)

    with owner(path) as old, Contender() as other:
        monkeypatch.setattr(Asking, "has_asked", after_a_cleaner)
        with ownership.replace(path, grace=1, on_wait=on_wait) as claim:
            claim.verify()
        assert told == [old.pid, other.pid]
        assert "value" in other.do("acquire", path)  # nobody has stopped it


AFTER_A_BREAK = """
path, then = sys.argv[1:3]
assert ownership.break_claim(path, token=int(sys.argv[3])).withdrawn
if then == "asks":
    threading.Thread(target=lambda: ownership.replace(path, grace=60), daemon=True).start()
    while ownership.inspect(path).request is None:
        time.sleep(0.001)
elif then == "gives up":
    try:
        ownership.replace(path, grace=60, timeout=0)
    except ownership.AcquireTimeoutError:
        pass
elif then == "dies":
    ownership.replace(path, grace=60, on_wait=lambda _: os.kill(os.getpid(), 9))
say("done")
hear()
"""


@pytest.mark.parametrize("grace", [0.1, 60.0])
@pytest.mark.parametrize("then", ["asks", "gives up", "dies", "owns"])
def test_an_asker_that_was_withdrawn_asks_and_stops_nobody_whatever_came_before_it_looked(
    path: Path, then: str, grace: float
) -> None:
    how = "stubborn" if grace < 1 else "plain"
    with owner(path, how) as old, asker(path, grace) as new, Contender() as other:
        assert new.hear() == "asks"
        with stopped(new.pid):
            request = ownership.inspect(path).request
            assert request is not None
            with running(AFTER_A_BREAK, path, then, request.token) as decider:
                if then == "dies":
                    decider.process.wait(30)
                else:
                    assert decider.hear() == "done"
                if then == "owns":
                    old.kill()
                    assert "value" in other.do("acquire", path)
                os.kill(new.pid, signal.SIGCONT)
                told = new.hear()
        assert told["error"] == "AlreadyOwnedError", told
        if then == "owns":
            assert "value" in other.do("verify", path)
        else:
            assert old.process.poll() is None


def test_nobody_is_stopped_by_an_asker_that_cannot_look_whether_it_was_withdrawn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: Asking) -> bool:
        raise OSError(errno.EIO, "the disk is broken")

    with owner(path) as old:
        monkeypatch.setattr(Asking, "_stands", unreadable)
        with pytest.raises(AcquireTimeoutError):
            ownership.replace(path, grace=0.1, timeout=1)
        assert old.process.poll() is None
        monkeypatch.undo()
        ownership.replace(path, grace=0.1).release()


def test_a_gate_that_is_closed_between_term_and_kill_keeps_the_owner_from_being_killed(path: Path) -> None:
    class Shut(Exception):
        pass

    class Gate:
        is_closed = False

        def check(self) -> None:
            if self.is_closed:
                raise Shut

    body = """
signal.signal(signal.SIGTERM, lambda *_: say("termed"))
claim = ownership.acquire(sys.argv[1])
say("owns")
while True:
    time.sleep(0.01)
"""
    gate = Gate()
    with running(body, path) as old:
        assert old.hear() == "owns"

        def close() -> None:
            assert old.hear() == "termed"
            gate.is_closed = True

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises(Shut):
            ownership.replace(path, grace=2, gate=gate)
        closing.join()
        assert old.process.poll() is None
        assert is_clean(path)


def test_an_exit_without_a_release_withdraws_nothing_but_blocks_nobody(path: Path) -> None:
    """Somebody who asks in a thread and leaves by os._exit."""
    body = """
threading.Thread(target=lambda: ownership.replace(sys.argv[1], grace=60, on_wait=lambda _: say("asks"))).start()
hear()
os._exit(0)
"""
    with owner(path) as old, running(body, path) as new, Contender() as other:
        assert new.hear() == "asks"
        new.say("go")
        new.process.wait(30)
        old.kill()
        assert "value" in other.do("acquire", path)
        assert is_clean(path)


def test_the_successor_is_replaced_in_its_turn(path: Path) -> None:
    with owner(path), asker(path, 0.1) as first:
        assert first.hear() == "asks"
        token = first.hear()["owns"]
        with ownership.replace(path, grace=0.1) as claim:
            assert claim.token > token
            assert state_of(first.pid) in "XZ"


def test_the_timeout_of_a_replacement_is_kept_and_the_owner_left(path: Path) -> None:
    with owner(path, "stubborn") as old:
        begun = time.monotonic()
        with pytest.raises(AcquireTimeoutError):
            ownership.replace(path, grace=0.1, timeout=0.15)  # between TERM and KILL
        assert time.monotonic() - begun < 30
        assert state_of(old.pid) not in "XZ"
        assert is_clean(path)


# -- K69: a successor comes while the predecessor still ends

ENDING = """
claim = ownership.acquire(sys.argv[1])
until, how = float(sys.argv[2]), sys.argv[3]
def end(*_):
    if how == "retire":
        claim.retire("SIGTERM")
    time.sleep(until)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
say(claim.token)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("how", ["retire", "keep"])
def test_a_successor_waits_for_the_end_of_the_process_and_owns_within_300_ms(path: Path, how: str) -> None:
    def followed() -> float:
        with running(ENDING, path, 0.6, how) as old, Contender() as impatient, Contender() as patient:
            token = old.hear()
            old.signal(signal.SIGTERM)
            assert impatient.do("acquire", path)["error"] == "AlreadyOwnedError"
            patient.start("acquire", path, timeout=10, tells=True)
            assert patient.hear() == "waiting"
            old.process.wait(30)
            ended = time.monotonic()
            assert patient.hear()["value"] > token
            return time.monotonic() - ended

    assert_at_best(0.3, followed)


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2])
def test_a_predecessor_killed_at_any_point_of_its_end_leaves_the_resource_to_its_successor(
    path: Path, after: float
) -> None:
    def followed() -> float:
        with running(ENDING, path, 5, "retire") as old, Contender() as heir:
            token = old.hear()
            heir.start("acquire", path, timeout=30, tells=True)
            assert heir.hear() == "waiting"
            old.signal(signal.SIGTERM)
            time.sleep(after)
            old.kill()
            ended = time.monotonic()
            assert heir.hear()["value"] > token
            return time.monotonic() - ended

    assert_at_best(0.3, followed)
