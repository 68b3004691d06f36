"""What a forked child inherits: nothing that owns, nothing that locks; and how a claim is passed on to one."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

import ownership
from tests.support.processes import (
    Contender,
    eventually,
    files,
    is_locked,
    lock_directory,
    open_descriptors,
    residue,
    run,
    running,
    state_of,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, forks")

LEAVING = """
import atexit, multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
resource, way = sys.argv[1:]

def leave(claim):
    "What a child does with the claim it was not given."
    if way == "exit":
        sys.exit(0)
    elif way == "release":
        claim.release()
    elif way == "raise":
        raise RuntimeError("a crash of the worker")
    elif way == "drop":
        pass
    elif way == "verify":
        assert attempt(claim.verify) == "OwnershipLostError"
        assert attempt(claim.announce, "mine") == "OwnershipLostError"
        assert attempt(claim.__enter__) == "OwnershipLostError"
        assert not claim.held and claim.lost.is_set()
        assert threading.active_count() == 1

def in_child():
    global claim
    leave(claim)
    claim = None

claim = ownership.acquire(resource)
if way == "multiprocessing":
    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join()
    code = child.exitcode
elif way == "with":
    with claim:
        child = os.fork()
        if child:
            code = os.waitpid(child, 0)[1]
            claim.verify()
            say(code)
            hear()
    os._exit(0)
else:
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        in_child()
        sys.exit(0)
    code = os.waitpid(child, 0)[1]
claim.verify()
say(code)
hear()
claim.verify()
claim.release()
say("released")
hear()
"""


@pytest.mark.parametrize("way", ["exit", "with", "release", "raise", "drop", "verify", "multiprocessing"])
def test_a_child_that_ends_in_any_way_leaves_its_parent_the_owner(tmp_path: Path, way: str) -> None:
    resource = tmp_path / "resource"
    record = lock_directory(resource) / "resource.json"
    with Contender() as contender, running(LEAVING, resource, way) as owner:
        code = owner.hear()
        assert code == (256 if way == "raise" else 0)
        there = record.read_bytes(), record.stat().st_ino
        refused = contender.do("acquire", resource)
        assert refused["error"] == "AlreadyOwnedError"
        assert f"pid {owner.pid}" in refused["text"]
        assert (record.read_bytes(), record.stat().st_ino) == there
        instance = ownership.inspect(resource).record.instance_id
        assert is_locked(lock_directory(resource) / f"{instance}.alive")
        if way != "with":
            assert owner.ask("go on") == "released"
            assert contender.passes(resource)


LINGERING = """
import ctypes, subprocess
resource, way = sys.argv[1:]
claim = ownership.acquire(resource, also=[resource + "-2"])
claim.announce("serving")
if way == "popen":
    child = subprocess.Popen(["sleep", "600"], close_fds=False).pid
elif way == "fork":
    child = os.fork()
elif way == "fork-in-c":
    child = ctypes.CDLL(None).fork()
if child == 0:
    signal.pause()
say(child)
signal.pause()
"""


@pytest.mark.parametrize("way", ["popen", "fork", "fork-in-c"])
def test_an_owner_that_dies_is_followed_at_once_though_its_child_lives_on(tmp_path: Path, way: str) -> None:
    """Whatever the child has inherited vetoes nothing, not even where C code forked and no hook of ours ran."""
    resource = tmp_path / "resource"
    with Contender() as contender, running(LINGERING, resource, way) as owner:
        child = owner.hear()
        try:
            if way != "fork-in-c":  # a hook of ours runs in the child before anything else of it does
                locked = (".guard", ".alive")  # what the keeper was reading just then may stay open
                eventually(lambda: not [path for path in open_descriptors(child) if path.endswith(locked)])
            owner.kill()
            assert state_of(child) in "SR"
            taken = contender.do("acquire", resource)
            assert "value" in taken, taken
            assert taken["took"] < 1.0
            contender.do("release", resource)
        finally:
            os.kill(child, 9)


def test_a_guard_that_a_child_of_a_killed_owner_keeps_is_told_as_that(tmp_path: Path) -> None:
    """C code forked in the middle of a critical section, and no hook of ours ran."""
    inside = """
import ctypes
with ownership.acquire(sys.argv[1]) as claim, claim.critical():
    child = ctypes.CDLL(None).fork()
    if child == 0:
        signal.pause()
    say(child)
    signal.pause()
"""
    with running(inside, tmp_path / "x") as owner:
        child = owner.hear()
        try:
            with pytest.raises(ownership.GuardTimeoutError, match=f"held by pid {owner.pid};") as busy:
                ownership.acquire(tmp_path / "x")
            owner.kill()
            with pytest.raises(ownership.GuardTimeoutError, match="which has ended; a process that it forked") as busy:
                ownership.acquire(tmp_path / "x")
            assert busy.value.holder == owner.pid
            assert "fuser -v" in busy.value.hint
        finally:
            os.kill(child, 9)
        ownership.acquire(tmp_path / "x", timeout=30).release()


FORKING = """
resource, other = sys.argv[1:3]
forks = int(sys.argv[3])
stopping = False
problems = []

def work():
    while not stopping:
        try:
            with ownership.acquire(resource, timeout=30) as claim:
                claim.announce("serving")
                claim.verify()
        except Exception as error:
            problems.append(repr(error))

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(forks):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        outcome = attempt(lambda: ownership.acquire(other).release())
        if outcome is None:
            outcome = attempt(lambda: ownership.acquire(resource, timeout=30).release())
        os._exit(0 if outcome is None else 5)
    lingering = os.fork() if number % 5 == 0 else 0
    if lingering == 0 and number % 5 == 0:
        signal.pause()
    status = os.waitpid(child, 0)[1]
    if status:
        problems.append(f"child {number}: {status}")
    if lingering:
        outcome = attempt(lambda: ownership.acquire(resource, timeout=30).release())
        if outcome is not None:
            problems.append(f"with a child that lives on: {outcome}")
        os.kill(lingering, signal.SIGKILL)
        os.waitpid(lingering, 0)
stopping = True
for thread in threads:
    thread.join(30)
say(problems)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("forks", [20, pytest.param(3000, marks=pytest.mark.slow)])
def test_forking_while_other_threads_are_inside_the_guard_locks_nobody_out(tmp_path: Path, forks: int) -> None:
    """The child can acquire the very same resource and others; a child that lives on keeps no guard locked."""
    assert run(FORKING, tmp_path / "resource", tmp_path / "other", forks, patience=900) == []
    assert not residue(tmp_path / "resource")


INDEPENDENT = """
resource, own = sys.argv[1:]
claim = ownership.acquire(resource)
child = os.fork()
if child == 0:
    mine = ownership.acquire(own)
    refused = attempt(ownership.acquire, resource)
    mine.verify()
    say([os.getpid(), mine.record.pid, mine.record.instance_id, refused])
    hear()
    mine.release()
    sys.exit(0)  # exit hooks run
os.waitpid(child, 0)
claim.verify()
say(claim.record.instance_id)
hear()
"""


def test_a_child_owns_what_it_acquires_itself_and_its_exit_takes_nothing_of_its_parent(tmp_path: Path) -> None:
    resource, own = tmp_path / "resource", tmp_path / "own"
    with Contender() as contender, running(INDEPENDENT, resource, own) as owner:
        pid, recorded, instance, refused = owner.hear()
        assert pid == recorded != owner.pid
        assert refused == "AlreadyOwnedError"
        assert contender.do("acquire", own)["error"] == "AlreadyOwnedError"
        parents_instance = owner.ask("go on")
        assert instance != parents_instance
        assert contender.passes(own)
        assert contender.do("acquire", resource)["error"] == "AlreadyOwnedError"
        there = files(resource)
        assert f"{parents_instance}.alive" in there
        assert f"{instance}.alive" not in there
        assert is_locked(lock_directory(resource) / f"{parents_instance}.alive")


DAEMON = """
resource = sys.argv[1]
claim = ownership.acquire(resource)
say(claim.token)
hear()
with claim.handover(timeout=30) as heir:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            mine = heir.adopt()
            mine.verify()
            say([os.getpid(), mine.token, mine.record.pid])
            hear()
            mine.release()
            say("released")
            os._exit(0)
        os._exit(0)
    os.wait()
outcome = attempt(claim.verify)
os._exit(0 if outcome == "OwnershipLostError" and not claim.lost.is_set() and not claim.held else 9)
"""


def test_a_claim_handed_over_across_a_double_fork_has_an_owner_at_every_moment(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    with Contender() as contender, running(DAEMON, resource) as first:
        token = first.hear()
        first.say("go on")
        pid, adopted, recorded = first.hear()
        refusals = [contender.do("acquire", resource).get("error") for _ in range(20)]
        assert set(refusals) <= {"AlreadyOwnedError"}
        assert first.process.wait(60) == 0
        assert pid == recorded != first.pid
        assert adopted > token
        assert contender.do("acquire", resource)["error"] == "AlreadyOwnedError"
        assert first.ask("go on") == "released"
        assert contender.passes(resource)
    assert not residue(resource)


def test_a_contender_that_never_stops_trying_finds_no_gap_in_a_chain_of_handovers(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    chain = """
    resource, generations = sys.argv[1], int(sys.argv[2])
    claim = ownership.acquire(resource)
    say("owning")
    hear()
    for generation in range(generations):
        with claim.handover(timeout=60) as heir:
            child = os.fork()
            if child == 0:
                claim = heir.adopt()
                continue
        os.waitpid(child, 0)
        os._exit(0)
    say(claim.token)
    hear()
    """
    greedy = """
    tries = 0
    say("trying")
    while not os.path.exists(sys.argv[2]):
        try:
            claim = ownership.acquire(sys.argv[1])
            say("nobody owned it")
            hear()
        except ownership.ContentionError:
            tries += 1
    say(tries)
    """
    end = tmp_path / "end"
    with running(chain, resource, 30) as owner:
        assert owner.hear() == "owning"
        with running(greedy, resource, end) as contender:
            assert contender.hear() == "trying"
            owner.say("go on")
            assert isinstance(owner.hear(), int)
            end.touch()
            tries = contender.hear()
            assert isinstance(tries, int), tries
            assert tries > 0


def test_without_a_handover_the_first_verify_of_a_daemon_says_that_it_owns_nothing(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    body = """
    claim = ownership.acquire(sys.argv[1])
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            try:
                claim.verify()
            except ownership.OwnershipLostError as error:
                say([str(error), error.hint])
            os._exit(0)
        os._exit(0)
    os.wait()
    hear()
    """
    with running(body, resource) as first:
        text, hint = first.hear()
        assert "fork" in text
        assert "handover" in hint


def test_a_handover_that_nobody_takes_leaves_the_owner_where_it_was(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    body = """
    claim = ownership.acquire(sys.argv[1])
    try:
        with claim.handover(timeout=0.2) as heir:
            if (child := os.fork()) == 0:
                os._exit(0)  # dies before it adopts
        say("adopted")
    except ownership.HandoverError:
        claim.verify()
        say("still ours")
    os.waitpid(child, 0)
    say(attempt(heir.adopt))
    claim.release()
    say("released")
    hear()
    """
    with Contender() as contender, running(body, resource) as owner:
        assert owner.hear() == "still ours"
        assert owner.hear() == "HandoverError"
        assert owner.hear() == "released"
        assert contender.passes(resource)


def test_an_heir_whose_predecessor_died_finds_the_offer_gone_once_somebody_else_owns(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    body = """
    claim = ownership.acquire(sys.argv[1])
    offer = claim.handover(timeout=60)
    heir = offer.__enter__()
    child = os.fork()
    if child == 0:
        say(os.getpid())
        hear()
        say(attempt(heir.adopt))
        os._exit(0)
    signal.pause()
    """
    with Contender() as contender, running(body, resource) as predecessor:
        predecessor.hear()
        predecessor.process.kill()
        predecessor.process.wait(60)
        assert "value" in contender.do("acquire", resource)
        assert predecessor.ask("go on") == "HandoverError"
        contender.do("verify", resource)
        assert ownership.inspect(resource).record.pid == contender.pid


def test_a_second_object_of_the_same_process_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    record = lock_directory(resource) / "resource.json"
    claim = ownership.acquire(resource)
    there = record.read_bytes(), record.stat().st_ino
    refusals: list[ownership.AlreadyOwnedError] = []

    def contend() -> None:
        try:
            ownership.acquire(resource)
        except ownership.AlreadyOwnedError as error:
            refusals.append(error)

    contend()
    thread = threading.Thread(target=contend)
    thread.start()
    thread.join(60)
    assert len(refusals) == 2
    for error in refusals:
        assert error.record is not None
        assert error.record.instance_id == claim.record.instance_id
        assert "this process" in str(error)
    assert (record.read_bytes(), record.stat().st_ino) == there
    claim.verify()
    claim.release()
    assert not residue(resource)


def test_a_record_with_our_pid_and_another_start_id_is_a_predecessors(tmp_path: Path) -> None:
    """In a new container a process often gets the very pid of the one before it."""
    resource = tmp_path / "resource"
    record = lock_directory(resource) / "resource.json"
    with running("claim = ownership.acquire(sys.argv[1])\nsay(1)\nsignal.pause()", resource) as owner:
        owner.hear()
        left = record.read_text()
        owner.kill()
    record.write_text(left.replace(f'"pid":{owner.pid},', f'"pid":{os.getpid()},'))
    assert f'"pid":{os.getpid()},' in record.read_text()
    assert ownership.inspect(resource).verdict == ownership.Verdict.REUSED
    with ownership.acquire(resource) as claim:
        claim.verify()
    eventually(lambda: not residue(resource))
