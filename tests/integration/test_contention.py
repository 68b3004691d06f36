"""Many processes want the same: never two inside, tokens only grow, all are served, the dead are followed at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.injection import Server, can_trace, points
from tests.support.processes import HERD, Contender, eventually, lock_directory, residue, run, running, stopped

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX processes")

COUNTING = (
    HERD
    + """
resource, folder = sys.argv[1:3]
count, rounds, crowd = map(int, sys.argv[3:])
tickets, returned = os.pipe()
os.write(returned, b"." * crowd)
counter, inside = folder + "/counter", Inside(folder + "/inside")
with open(counter, "w") as file:
    file.write("0 0")

def work(number):
    problems, longest = [], 0
    for one in range(rounds):
        if one % 10 == 0:
            if one:
                os.write(returned, b".")
            os.read(tickets, 1)
        begun = time.monotonic()
        claim = ownership.acquire(resource, timeout=120)
        longest = max(longest, time.monotonic() - begun)
        with inside as alone:
            if not alone:
                problems.append("somebody else is inside")
            with open(counter) as file:
                counted, token = map(int, file.read().split())
            if claim.token <= token:
                problems.append(f"token {claim.token} after {token}")
            os.sched_yield()  # anybody who is let in between reading and writing loses a count
            with open(counter, "w") as file:
                file.write(f"{counted + 1} {claim.token}")
        claim.release()
    os.write(returned, b".")
    return {"problems": problems, "longest": longest}

outcomes = herd(count, work)
with open(counter) as file:
    say({"outcomes": outcomes, "counted": int(file.read().split()[0])})
"""
)


def count_together(folder: Path, processes: int, rounds: int, crowd: int) -> None:
    """Each process owns it *rounds* times; *crowd* of them try at any moment."""
    resource = folder / "resource"
    said = run(COUNTING, resource, folder, processes, rounds, crowd, patience=7200)
    assert all(not one.get("error") and not one["problems"] for one in said["outcomes"]), said
    assert said["counted"] == processes * rounds
    assert not residue(resource)


def test_sixteen_processes_at_once_never_lose_a_count(tmp_path: Path) -> None:
    count_together(tmp_path, 16, 30, crowd=16)


def test_sixteen_processes_count_to_twenty_thousand_without_losing_one(tmp_path: Path) -> None:
    """A waiter costs CPU at every hand-over, so two try at a time; which ones changes all the time."""
    count_together(tmp_path, 16, 1250, crowd=2)


@pytest.mark.slow
def test_sixteen_processes_at_once_count_to_a_hundred_thousand(tmp_path: Path) -> None:
    count_together(tmp_path, 16, 6250, crowd=16)


@pytest.mark.slow
def test_sixty_four_processes_count_to_a_quarter_of_a_million_without_losing_one(tmp_path: Path) -> None:
    count_together(tmp_path, 64, 4000, crowd=4)


RECLAIMING = (
    HERD
    + """
resource, folder, count, hold, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
inside = Inside(folder + "/inside")

def die():
    child = os.fork()
    if child == 0:
        claim = ownership.acquire(resource, timeout=30)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

def work(number):
    begun = time.monotonic()
    try:
        claim = ownership.acquire(resource)
    except (ownership.AlreadyOwnedError, ownership.GuardTimeoutError) as error:
        record = getattr(error, "record", None)
        return {"refused": type(error).__name__, "by": record and record.pid, "took": time.monotonic() - begun}
    with inside as alone:
        end = time.monotonic() + hold
        while time.monotonic() < end:
            os.sched_yield()
        claim.verify()
    claim.release()
    return {"won": os.getpid(), "alone": alone}

for _ in range(rounds):
    die()
    say(herd(count, work))
"""
)


def reclaim_together(folder: Path, rounds: int, hold: float) -> None:
    """The record of a dead owner, ten contenders at once: at most one inside, and at least one of them gets it."""
    with running(RECLAIMING, folder / "resource", folder, 10, hold, rounds) as contenders:
        for _ in range(rounds):
            outcomes = contenders.hear()
            winners = [one for one in outcomes if "won" in one]
            assert winners, outcomes
            assert all(one["alone"] for one in winners), outcomes
            assert all("won" in one or "refused" in one for one in outcomes), outcomes
    assert not residue(folder / "resource")


def test_only_one_of_ten_reclaimers_follows_a_dead_owner(tmp_path: Path) -> None:
    reclaim_together(tmp_path, 20, 0.02)


@pytest.mark.slow
def test_only_one_of_ten_reclaimers_follows_a_dead_owner_two_hundred_times(tmp_path: Path) -> None:
    reclaim_together(tmp_path, 200, 0.05)


def test_a_reclaimer_that_pauses_before_its_removal_removes_nothing_of_its_successor(tmp_path: Path) -> None:
    """It pauses inside the guard, so there is no successor yet: others report the busy guard, and who holds it."""
    if not can_trace():
        pytest.skip("needs strace(1) and the right to attach")
    resource = tmp_path / "work" / "resource"
    resource.parent.mkdir()
    with Server(tmp_path) as server, Contender() as early, Contender() as late:
        assert server.perform("die", resource).was_killed
        calm = points(server.traced("acquire", resource).trace)
        removal = next(point for point in calm if point.name.startswith("unlink") and "resource.json" in point.shown)
        assert server.perform("die", resource).was_killed
        pid = server.begin("acquire", resource, f"{removal.name}:delay_enter=2s:when={removal.when}")
        eventually(lambda: holds_guard(resource, pid))
        late.start("pass", resource, timeout=30)
        refused = early.do("acquire", resource)
        assert refused["error"] == "GuardTimeoutError"
        assert refused["holder"] == pid
        outcome = server.finish()
        assert outcome.status == 0, outcome.said
        answer = late.hear()
        assert "value" in answer, answer
    assert not residue(resource)


def holds_guard(resource: Path, pid: int) -> bool:
    try:
        guard = lock_directory(resource) / "resource.guard"
        inode = guard.stat().st_ino
    except FileNotFoundError:
        return False
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(line[1] == "FLOCK" and line[4] == str(pid) and line[5].endswith(f":{inode}") for line in lines)


SUCCESSION = (
    HERD
    + """
resource, folder, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
inside = Inside(folder + "/inside")

def work(number):
    crowded, won = 0, 0
    for _ in range(rounds):
        try:  # A and B wait for their turn, C comes at any moment and does not wait
            claim = ownership.acquire(resource, timeout=60 if number < 2 else 0)
        except ownership.ContentionError:
            continue
        with inside as alone:
            crowded += not alone
            won += 1
        claim.release()
    return {"crowded": crowded, "won": won}

say(herd(3, work))
"""
)


@pytest.mark.parametrize("rounds", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_waiter_and_a_newcomer_never_both_follow_one_release(tmp_path: Path, rounds: int) -> None:
    outcomes = run(SUCCESSION, tmp_path / "resource", tmp_path, rounds, patience=600)
    assert [one["crowded"] for one in outcomes] == [0, 0, 0]
    assert [one["won"] for one in outcomes[:2]] == [rounds, rounds]
    assert not residue(tmp_path / "resource")


RUSH = (
    HERD
    + """
resource, count, timeout, hold = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])

tells, told = os.pipe()

def own():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        claim = ownership.acquire(resource)
        os.write(writing, b".")
        signal.pause()
    os.read(reading, 1)
    return child

owner = own()

def work(number):
    begun = time.monotonic()
    try:
        claim = ownership.acquire(resource, timeout=timeout)
    except ownership.OwnershipError as error:
        record = getattr(error, "record", None)
        os.write(told, b".")
        return {"refused": type(error).__name__, "by": record and record.pid, "took": time.monotonic() - begun}
    took = time.monotonic() - begun
    if timeout:
        time.sleep(hold)  # what it does as the owner
    else:
        refused = 0
        while refused < count - 1:  # it owns for as long as others try
            refused += len(os.read(tells, count))
    claim.release()
    return {"won": os.getpid(), "took": took, "cpu": time.process_time()}

def kill():
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)

say(herd(count, work, **{"after" if timeout else "before": kill}))  # who does not wait comes when it is dead
"""
)


def test_of_thirty_that_come_at_once_after_a_death_one_wins_and_the_rest_are_told_who(tmp_path: Path) -> None:
    outcomes = run(RUSH, tmp_path / "resource", 30, 0, 0)
    winners = [one["won"] for one in outcomes if "won" in one]
    assert len(winners) == 1, outcomes
    for one in outcomes:
        assert "won" in one or one["refused"] in ("AlreadyOwnedError", "GuardTimeoutError")
        assert "won" in one or one["refused"] == "GuardTimeoutError" or one["by"] == winners[0]
    assert sum(one.get("refused") == "AlreadyOwnedError" for one in outcomes) > 15, outcomes


def rush(folder: Path, record_property: Any, bound: float) -> None:
    outcomes = run(RUSH, folder / "resource", 30, 60, 0.02)
    assert all("won" in one for one in outcomes), outcomes
    waits = [one["took"] for one in outcomes]
    ratio = max(waits) / (sum(waits) / len(waits))
    record_property("worst wait to mean", round(ratio, 2))
    record_property("CPU seconds of a waiter", round(sum(one["cpu"] for one in outcomes) / 30, 3))
    assert ratio <= bound
    assert not residue(folder / "resource")


def test_of_thirty_that_wait_all_are_served(tmp_path: Path, record_property: Any) -> None:
    rush(tmp_path, record_property, 4.0)


@pytest.mark.slow
def test_of_thirty_that_wait_none_waits_much_longer_than_the_mean(tmp_path: Path, record_property: Any) -> None:
    rush(tmp_path, record_property, 2.2)


KILLING = (
    HERD
    + """
import random, select
resource, rounds = sys.argv[1], int(sys.argv[2])
random.seed(11)
last, problems = 0, []
for number in range(rounds):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b".")
        while True:
            claim = ownership.acquire(resource, also=[resource + "-2"])
            claim.announce("serving", data={"number": number})
            claim.verify()
            claim.release()
    os.read(reading, 1)
    os.close(reading)
    os.close(writing)
    end = time.monotonic() + random.uniform(0, 0.008)
    while time.monotonic() < end:
        pass
    os.kill(child, signal.SIGKILL)
    if number % 2:
        os.waitpid(child, 0)
    successor = os.fork()
    if successor == 0:
        begun = time.monotonic()
        claim = ownership.acquire(resource, also=[resource + "-2"])
        took = time.monotonic() - begun
        claim.release()
        import atexit
        atexit._run_exitfuncs()
        os._exit(0 if took < 2 else 9)
    status = os.waitpid(successor, 0)[1]
    if not number % 2:
        os.waitpid(child, 0)
    left = [name for name in os.listdir(os.path.dirname(resource) + "/.leases")
            if name != ".gitignore" and not name.endswith(".guard")]
    if status or left:
        problems.append([number, status, left])
say(problems)
"""
)


@pytest.mark.parametrize("rounds", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_an_owner_killed_at_any_moment_reaped_or_not_is_followed_at_once_and_leaves_only_guards(
    tmp_path: Path, rounds: int
) -> None:
    assert run(KILLING, tmp_path / "resource", rounds, patience=600) == []


CHAOS = """
import fcntl, random, select
resource, folder, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
vandalism, record = sys.argv[5], os.path.dirname(resource) + "/.leases/resource.json"
chance = random.Random(seed)
reading, writing = os.pipe()
with open(folder + "/inside", "w") as file:
    file.write("0".zfill(20))

def work():
    random.seed()
    inside = os.open(folder + "/inside", os.O_RDWR)
    while True:
        try:
            claim = ownership.acquire(resource, timeout=60, also=[resource + "-2"] if random.random() < 0.3 else [])
        except ownership.GuardTimeoutError:
            continue  # somebody was stopped inside
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}\\n".encode())
            os._exit(1)
        try:  # the kernel lets go of it when we are killed, before we count as dead
            fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.write(writing, b"two inside\\n")
        last = int(os.pread(inside, 20, 0))
        if claim.token <= last:
            os.write(writing, f"token {claim.token} after {last}\\n".encode())
        os.pwrite(inside, str(claim.token).zfill(20).encode(), 0)
        try:
            if random.random() < 0.3:
                claim.announce("serving")
            claim.verify()
        except ownership.GuardTimeoutError:
            pass
        except ownership.OwnershipLostError as error:
            os.write(writing, f"lost: {error}\\n".encode())
        fcntl.flock(inside, fcntl.LOCK_UN)
        try:
            claim.release()
        except ownership.GuardTimeoutError:
            pass
        os.write(writing, b".\\n")

def start():
    child = os.fork()
    if child == 0:
        work()
    return child

workers = [start() for _ in range(6)]
said, end = b"", time.monotonic() + seconds
while time.monotonic() < end:
    if select.select([reading], [], [], chance.uniform(0, 0.01))[0]:
        said += os.read(reading, 65536)
        if chance.random() > 0.2:
            continue
    index = chance.randrange(len(workers))
    if vandalism == "record" and chance.random() < 0.7:
        try:
            if chance.random() < 0.5:
                os.unlink(record)
            else:
                os.truncate(record, chance.randrange(100))
        except FileNotFoundError:
            pass
    elif chance.random() < 0.3:
        os.kill(workers[index], signal.SIGSTOP)
        select.select([], [], [], chance.uniform(0, 0.02))
        os.kill(workers[index], signal.SIGCONT)
    else:
        os.kill(workers[index], signal.SIGKILL)
        unreaped, workers[index] = workers[index], start()
        os.waitpid(unreaped, 0)
for worker in workers:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
os.close(writing)
while chunk := os.read(reading, 65536):
    said += chunk
lines = said.decode().split()
begun = time.monotonic()
ownership.acquire(resource, also=[resource + "-2"]).release()
problems = sorted({line for line in said.decode().splitlines() if line != "."})
say({"problems": problems, "served": lines.count("."), "took": time.monotonic() - begun})
"""


@pytest.mark.parametrize("vandalism", ["none", "record"])
@pytest.mark.parametrize("seconds", [3, pytest.param(300, marks=pytest.mark.slow)])
def test_a_crowd_whose_members_are_killed_and_stopped_at_random_never_has_two_inside(
    tmp_path: Path, seconds: float, vandalism: str
) -> None:
    """And if somebody deletes or damages the record all the while: its owner puts it back, nobody else comes in."""
    said = run(CHAOS, tmp_path / "resource", tmp_path, seconds, 4, vandalism, patience=seconds + 120)
    assert said["problems"] == []
    assert said["served"] > 20
    assert said["took"] < 2.0
    assert not residue(tmp_path / "resource")


def test_a_waiter_that_is_stopped_holds_up_nobody(tmp_path: Path) -> None:
    """It waits outside the guard, so that others pass it."""
    resource = tmp_path / "resource"
    with Contender() as owner, Contender() as waiter, Contender() as other:
        owner.do("acquire", resource)
        waiter.start("acquire", resource, timeout=60, tells=True)
        assert waiter.hear() == "waiting"
        with stopped(waiter.pid):
            owner.do("release", resource)
            assert other.passes(resource)
        assert "value" in waiter.hear()
