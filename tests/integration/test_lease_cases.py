"""Leases of real processes: stopped past their deadline, seen from elsewhere, their files and numbers taken away."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ownership
from ownership import Verdict
from tests.support.cli import holding
from tests.support.namespaces import NEW_PIDS
from tests.support.processes import HERD, Child, Contender, eventually, run, running, stopped
from tests.support.records import file_of

OTHER_CLOCK = ("unshare", "-T", "--boottime", "1000000", "--monotonic", "1000000", "--fork", "--kill-child")
TTL = 1.0  # the shortest there is

OWNER = """
claim = ownership.acquire(sys.argv[1], ttl=float(sys.argv[2]), auto_renew=sys.argv[3] == "auto")
lost = []
claim.on_loss(lambda error: lost.append(error.reason))
say(claim.record.instance_id)
while True:
    request = hear()
    if request == "verify":
        try:
            claim.verify()
            say({"ours": True, "lapses": claim.lapses, "left": claim.expires_in, "told": lost})
        except ownership.OwnershipLostError as error:
            say({"ours": False, "reason": error.reason})
    elif request == "look":
        say({"lapses": claim.lapses, "left": claim.expires_in})
    elif request == "renew":
        say(claim.renew())
    elif request == "told":
        time.sleep(0.6)
        say(lost)
    else:
        exec(request)
        say(None)
"""


@contextlib.contextmanager
def owning(path: Path, ttl: float = TTL, *, auto: bool = True) -> Iterator[Child]:
    with running(OWNER, path, ttl, "auto" if auto else "by hand") as child:
        child.instance = child.hear()  # type: ignore[attr-defined]
        yield child


def witness_of(path: Path, owner: Child) -> Path:
    return path.parent / ".leases" / f"{owner.instance}.alive"  # type: ignore[attr-defined]


def test_a_stopped_owner_is_evicted_at_its_deadline_and_learns_of_it_first_thing(tmp_path: Path) -> None:
    """K52, K53."""
    path = tmp_path / "x"
    with owning(path) as owner, Contender() as contender:
        assert contender.do("acquire", path)["error"] == "AlreadyOwnedError"
        with stopped(owner.pid):
            said = contender.do("acquire", path, timeout=20)
            assert 0.5 < said["took"] < 5
            owner.say("verify")  # the first that it does when it goes on
        assert owner.hear() == {"ours": False, "reason": "expired"}
        assert owner.ask("told") == ["expired"]
        assert owner.ask("renew") is False
        assert contender.do("verify", path)["value"] is None
        with pytest.raises(ownership.AlreadyOwnedError):
            ownership.acquire(path)


def test_a_pause_without_a_contender_loses_nothing(tmp_path: Path) -> None:
    """K54. The keeper puts it right by itself."""
    path = tmp_path / "x"
    with owning(path) as owner:
        with stopped(owner.pid):
            eventually(lambda: ownership.inspect(path).verdict is Verdict.EXPIRED)
            assert ownership.find(path) is None
        eventually(lambda: owner.ask("look")["lapses"] == 1)
        assert owner.ask("look")["left"] > 0
        assert ownership.inspect(path).verdict is Verdict.LIVE
        said = owner.ask("verify")
        assert (said["ours"], said["lapses"], said["told"]) == (True, 1, [])


def test_a_live_owner_keeps_it_beyond_its_ttl_and_a_dead_one_does_not_even_until_then(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with owning(path, 1.0) as owner, Contender() as contender:
        assert contender.do("acquire", path, timeout=1.3)["error"] == "AcquireTimeoutError"
        assert owner.ask("verify")["ours"]
    with owning(path, 600.0) as owner, Contender() as contender:
        contender.start("acquire", path, timeout=30, tells=True)
        assert contender.hear() == "waiting"
        begun = time.monotonic()
        owner.signal(signal.SIGKILL)
        assert "value" in contender.hear()
        assert time.monotonic() - begun < 10


def test_renewed_by_hand_it_holds_as_long_as_that_is_done(tmp_path: Path) -> None:
    """Whatever the heartbeat says, which beats for another lease of the process."""
    path = tmp_path / "x"
    with owning(path, auto=False) as owner, Contender() as contender:
        owner.ask(f"other = ownership.acquire({str(tmp_path / 'other')!r}, ttl=1.0)")
        contender.start("acquire", path, timeout=30, tells=True)
        assert contender.hear() == "waiting"
        time.sleep(0.4)
        assert owner.ask("renew")
        assert contender.hear()["took"] > 1.3
        assert owner.ask("verify") == {"ours": False, "reason": "expired"}
        assert owner.ask("told") == ["expired"]


@pytest.mark.slow
def test_waiters_sleep_until_the_deadline(tmp_path: Path) -> None:
    """And do not look again and again before it."""
    body = """
    looks = []
    class Clock:
        from ownership._clock import SystemClock
        inner = SystemClock()
        monotonic, wall_ns = inner.monotonic, inner.wall_ns
        def wait(self, seconds, poller=None):
            looks.append(seconds)
            return self.inner.wait(seconds, poller)
    begun = time.monotonic()
    claim = ownership.acquire(sys.argv[1], timeout=60, clock=Clock())
    say([len(looks), time.monotonic() - begun])
    """
    with owning(tmp_path / "x", 1.5, auto=False):
        looks, took = run(body, tmp_path / "x")
        assert took < 5
        assert looks < 12


@pytest.mark.slow
def test_a_stopped_owner_is_evicted_from_another_pid_namespace_too(tmp_path: Path) -> None:
    """Its witness is held, so it lives; the clock is the same."""
    path = tmp_path / "x"
    with owning(path) as owner, Contender(NEW_PIDS) as contender, stopped(owner.pid):
        assert "value" in contender.do("acquire", path, timeout=20)
        owner.say("verify")
        owner.signal(signal.SIGCONT)
        assert owner.hear() == {"ours": False, "reason": "expired"}


def test_from_another_time_namespace_only_what_is_seen_counts(tmp_path: Path) -> None:
    """Its clock is a million seconds ahead; so one look is no proof, and a stopped owner is watched for a whole ttl."""
    path = tmp_path / "x"
    with owning(path) as owner, Contender(OTHER_CLOCK) as contender:
        with stopped(owner.pid):
            assert contender.do("acquire", path)["error"] == "AlreadyOwnedError"
            said = contender.do("acquire", path, timeout=20)
            assert said["took"] >= TTL
            owner.say("verify")
        assert owner.hear() == {"ours": False, "reason": "expired"}


@pytest.mark.slow
def test_from_another_time_namespace_a_live_owner_is_left_alone(tmp_path: Path) -> None:
    with owning(tmp_path / "x") as owner, Contender(OTHER_CLOCK) as contender:
        assert contender.do("acquire", tmp_path / "x", timeout=4)["error"] == "AcquireTimeoutError"
        assert owner.ask("verify")["lapses"] == 0


@pytest.mark.parametrize("damage", ["unlink", pytest.param("truncate", marks=pytest.mark.slow)])
def test_a_heartbeat_that_is_not_there_is_put_back_by_a_live_owner_only(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x"

    def spoil(witness: Path) -> None:
        witness.unlink() if damage == "unlink" else os.truncate(witness, 0)

    with owning(path) as owner, Contender() as contender:
        witness = witness_of(path, owner)
        contender.start("acquire", path, timeout=60, tells=True)
        assert contender.hear() == "waiting"
        spoil(witness)
        eventually(lambda: witness.exists() and witness.stat().st_size == 8)
        assert owner.ask("verify")["ours"]
        with stopped(owner.pid):
            spoil(witness)
            assert "value" in contender.hear()
            owner.say("verify")
        assert owner.hear() == {"ours": False, "reason": "expired"}


def test_not_a_byte_goes_into_a_file_that_got_one_of_our_numbers(tmp_path: Path) -> None:
    """K74: every descriptor is closed and reused again and again, while leases are renewed."""
    body = """
    folder, path = sys.argv[1:3]
    claim = ownership.acquire(path, ttl=1.0)
    mine = []
    for turn in range(25):
        os.closerange(3, 64)
        mine = [os.open(f"{folder}/{number}", os.O_RDWR | os.O_CREAT) for number in range(61)]
        time.sleep(0.02)
        if turn % 20 == 10:
            claim.verify()
    for number in mine:
        os.close(number)
    time.sleep(0.6)
    claim.verify()
    say([os.path.getsize(f"{folder}/{number}") for number in range(61)])
    hear()
    claim.release()
    say(True)
    """
    (tmp_path / "files").mkdir()
    with running(body, tmp_path / "files", tmp_path / "x") as owner:
        assert set(owner.hear()) == {0}
        with pytest.raises(ownership.AlreadyOwnedError):
            ownership.acquire(tmp_path / "x")
        assert owner.ask("go on")
    with ownership.acquire(tmp_path / "x"):
        pass


def fill(path: Path) -> None:
    """Take all the space that is left."""
    with open(path, "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))


def test_on_a_full_disk_leases_are_renewed_all_the_same(tmp_path: Path) -> None:
    """K26: the heartbeat is there already. What needs a new file fails, and nothing is lost by that."""
    (tmp_path / "small").mkdir()
    path = tmp_path / "small" / "x"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", path.parent], check=True)
    try:
        with owning(path) as owner, owning(path.with_name("y"), auto=False) as other:
            fill(path.parent / "filler")
            with stopped(owner.pid):
                eventually(lambda: ownership.inspect(path).verdict is Verdict.EXPIRED)
                owner.say("verify")
            assert owner.hear()["lapses"] == 1
            assert other.ask("attempted = attempt(claim.renew)") is None
            other.say("say(attempted)")
            assert other.hear() == "OSError"
            assert other.hear() is None
            (path.parent / "filler").unlink()
            assert other.ask("renew")
    finally:
        subprocess.run(["umount", "-l", path.parent], check=True)


@pytest.mark.slow
def test_a_directory_that_was_replaced_is_followed_and_renewed_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with owning(path) as owner:
        (tmp_path / ".leases").rename(tmp_path / "moved")
        eventually(lambda: file_of(path).exists())
        eventually(lambda: witness_of(path, owner).exists())
        time.sleep(1.3)
        assert ownership.inspect(path).verdict is Verdict.LIVE
        assert owner.ask("verify")["ours"]


def test_a_lease_is_handed_over_with_its_terms(tmp_path: Path) -> None:
    body = """
    claim = ownership.acquire(sys.argv[1], ttl=1.0)
    with claim.handover() as heir:
        child = os.fork()
        if child == 0:
            own = heir.adopt()
            time.sleep(1.1)
            say([own.record.lease.ttl, own.expires_in > 0.2, own.lapses, ownership.inspect(sys.argv[1]).verdict.value])
            os._exit(0)
    assert claim.expires_in == 0.0
    os.waitpid(child, 0)
    """
    assert run(body, tmp_path / "x") == [1.0, True, 0, "live"]


def test_a_forked_child_renews_nothing_of_its_parent(tmp_path: Path) -> None:
    """The parent is stopped: were its lease renewed by the child, it would never expire."""
    body = """
    claim = ownership.acquire(sys.argv[1], ttl=1.0)
    child = os.fork()
    if child == 0:
        other = ownership.acquire(sys.argv[1] + "-other", ttl=1.0)
        say([claim.renew(), claim.expires_in])
        hear()
    os.waitpid(child, 0)
    """
    with running(body, tmp_path / "x") as parent:
        assert parent.hear() == [False, 0.0]
        with stopped(parent.pid):
            eventually(lambda: ownership.inspect(tmp_path / "x").verdict is Verdict.EXPIRED)


def test_a_command_is_ended_when_leasectl_was_paused_for_longer_than_the_ttl_and_lost_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with holding(path, "--ttl", "1", "--grace", "1") as held:
        with stopped(held.pid):
            claim = ownership.acquire(path, timeout=20)
        code, said = held.ended()
        claim.verify()
        claim.release()
        assert code == 76
        assert "its lease ran out unrenewed, and it was evicted" in said


FENCED = """
folder, seconds = sys.argv[1], float(sys.argv[2])
path = folder + "/x"
def work(number):
    deadline, entered, doubles, tokens = time.monotonic() + seconds, 0, 0, []
    while time.monotonic() < deadline:
        try:
            claim = ownership.acquire(path, ttl=1.0, timeout=0.5)
        except ownership.ContentionError:
            continue
        with claim:
            for _ in range(20):
                try:
                    with claim.critical():
                        with Inside(folder + "/inside") as alone:
                            entered += 1
                            doubles += not alone
                    tokens.append(claim.token)
                    time.sleep(0.02)
                except (ownership.OwnershipLostError, ownership.GuardTimeoutError):
                    break
    return {"pid": os.getpid(), "entered": entered, "doubles": doubles}
pids = []
begin = os.fork
def fork():
    pid = begin()
    if pid:
        pids.append(pid)
    return pid
os.fork = fork
def torment():
    import random
    until = time.monotonic() + seconds - 1.5
    while time.monotonic() < until:
        victim = random.choice(pids)
        os.kill(victim, signal.SIGSTOP)
        time.sleep(random.uniform(0.9, 1.4))
        os.kill(victim, signal.SIGCONT)
        time.sleep(0.05)
say(herd(4, work, after=torment))
"""


def _no_double(tmp_path: Path, seconds: float) -> None:
    told = run(HERD + FENCED, tmp_path, seconds, patience=seconds + 60)
    assert all("error" not in one for one in told), told
    assert sum(one["doubles"] for one in told) == 0
    assert sum(one["entered"] for one in told) > 10


def test_no_two_are_ever_inside_although_owners_are_stopped_at_random(tmp_path: Path) -> None:
    _no_double(tmp_path, 2.2)


@pytest.mark.slow
def test_no_two_are_ever_inside_for_two_minutes(tmp_path: Path) -> None:
    _no_double(tmp_path, 120.0)
