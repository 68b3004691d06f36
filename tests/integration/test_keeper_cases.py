"""The keeper of real owners: what is swept comes back, what is lost is told, whatever happens to the process."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import Claim, OwnershipLostError, Verdict
from ownership._holding import UNSETTLED
from ownership._keeper import KEEPER
from ownership._rounds import Rounds
from tests.support.processes import Contender, running
from tests.support.records import file_of
from tests.support.waiting import eventually

MANY = 150  # claims of one directory that are not looked at one by one

# losses


def test_a_loss_is_told_once_with_its_reason(tmp_path: Path) -> None:
    told: list[OwnershipLostError] = []
    claim = ownership.acquire(tmp_path / "x")
    claim.on_loss(told.append)
    claim.on_loss(told.append)
    ownership.break_claim(tmp_path / "x", token=claim.token)
    with ownership.acquire(tmp_path / "x"):
        assert claim.lost.wait(10)
        eventually(lambda: len(told) == 2)
        assert {one.reason for one in told} == {"owner-replaced"} or {one.reason for one in told} == {"broken"}
        with pytest.raises(OwnershipLostError):
            claim.verify()
    claim.release()
    assert len(told) == 2


def test_a_claim_that_is_lost_already_calls_back_too(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    ownership.break_claim(tmp_path / "x", token=claim.token)
    assert claim.lost.wait(10)
    told: list[OwnershipLostError] = []
    claim.on_loss(told.append)
    eventually(lambda: told)
    assert told[0].reason == "broken"
    claim.release()


def test_callbacks_are_not_called_for_a_release_or_a_hand_over(tmp_path: Path) -> None:
    body = """
    told = []
    claim = ownership.acquire(sys.argv[1])
    claim.on_loss(told.append)
    with claim.handover() as heir:
        child = os.fork()
        if child == 0:
            adopted = heir.adopt()
            adopted.on_loss(told.append)
            adopted.release()
            os._exit(len(told))
    said = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    other = ownership.acquire(sys.argv[1])
    other.on_loss(told.append)
    other.release()
    time.sleep(0.6)
    say([said, len(told)])
    """
    with running(body, tmp_path / "x") as child:
        assert child.hear() == [0, 0]


def test_a_callback_that_fails_or_hangs_keeps_nobody_from_being_told(tmp_path: Path) -> None:
    """K55."""
    claims = [ownership.acquire(tmp_path / str(number)) for number in range(3)]

    def fail(error: OwnershipLostError) -> None:
        raise error

    told: list[Any] = []
    hanging = ownership.acquire(tmp_path / "released-at-the-end")
    claims[0].on_loss(fail)
    claims[1].on_loss(lambda error: hanging.lost.wait(20))
    claims[2].on_loss(told.append)
    for claim in claims:
        ownership.break_claim(claim.path, token=claim.token)
        assert claim.lost.wait(10)
    eventually(lambda: told)
    file_of(hanging.path).unlink()
    eventually(lambda: file_of(hanging.path).exists())
    hanging.lost.set()
    for claim in (*claims, hanging):
        claim.release()


def test_what_is_no_callback_is_refused(tmp_path: Path) -> None:
    with (
        ownership.acquire(tmp_path / "x") as claim,
        pytest.raises(ValueError, match="callback must be callable, got 5"),
    ):
        claim.on_loss(5)  # type: ignore[arg-type]


def test_a_pause_that_nobody_used_is_no_loss(tmp_path: Path) -> None:
    """K52, K54: stopped for longer than three ticks, its record a year old."""
    body = """
    claim = ownership.acquire(sys.argv[1])
    lost = []
    claim.on_loss(lambda error: lost.append(str(error)))
    say(True)
    hear()
    say([attempt(claim.verify), lost])
    """
    with running(body, tmp_path / "x") as owner, Contender() as contender:
        owner.hear()
        os.utime(file_of(tmp_path / "x"), (time.time() - 3e7,) * 2)
        owner.signal(signal.SIGSTOP)
        refused = contender.do("acquire", tmp_path / "x", timeout=1.2)
        assert refused["error"] == "AcquireTimeoutError"
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.STOPPED
        owner.signal(signal.SIGCONT)
        assert owner.ask("go on") == [None, []]


# records that are swept


def test_exactly_one_owner_is_left_when_a_record_is_swept(tmp_path: Path) -> None:
    """K57, short."""
    _sweep(tmp_path, rounds=12)


@pytest.mark.slow
def test_exactly_one_owner_is_left_when_a_record_is_swept_two_hundred_times(tmp_path: Path) -> None:
    _sweep(tmp_path, rounds=200)


def _sweep(directory: Path, rounds: int) -> None:
    """Delete the record, or the whole lock directory, while a contender tries without a pause."""
    body = """
    say(True)
    while True:
        until = time.monotonic() + hear()
        token = None
        while token is None and time.monotonic() < until:
            try:
                with ownership.acquire(sys.argv[1]) as claim:
                    token = claim.token
                    time.sleep(0.3)  # past a tick of the owner's keeper
            except (ownership.ContentionError, OSError):
                pass
        say(token)
    """
    path = directory / "x"
    with running(body, path) as contender:
        contender.hear()
        for number in range(rounds):
            claim = ownership.acquire(path, timeout=5)
            contender.say(0.6)
            time.sleep(random.uniform(0.3, 0.4))  # contending by now
            whole = number % 4 == 3
            shutil.rmtree(directory / ".leases", ignore_errors=True) if whole else file_of(path).unlink()
            taken = contender.hear()
            if taken is None:
                claim.verify()
                assert not claim.lost.is_set()
                assert file_of(path).exists()
            else:  # only what nobody promises against: the directory itself was deleted
                assert whole
                assert claim.lost.wait(10)
                assert taken > claim.token
            claim.release()


def test_a_foreign_record_with_a_greater_token_is_a_loss(tmp_path: Path) -> None:
    """K57 (c)."""
    claim = ownership.acquire(tmp_path / "x")
    record = file_of(tmp_path / "x")
    text = record.read_text().replace(f'"token":{claim.token}', f'"token":{claim.token + 5}')
    record.unlink()
    record.write_text(text)
    assert claim.lost.wait(10)
    with pytest.raises(OwnershipLostError):
        claim.verify()
    claim.release()


def test_an_error_of_one_look_does_not_end_the_looking(tmp_path: Path) -> None:
    """K55: no descriptors are left for two ticks."""
    body = """
    import resource
    claim = ownership.acquire(sys.argv[1])
    time.sleep(0.3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    os.unlink(sys.argv[2])
    time.sleep(0.6)
    gone = not os.path.exists(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until = time.monotonic() + 10
    while not os.path.exists(sys.argv[2]) and time.monotonic() < until:
        time.sleep(0.01)
    say([gone, os.path.exists(sys.argv[2]), attempt(claim.verify), claim.lost.is_set()])
    """
    with running(body, tmp_path / "x", file_of(tmp_path / "x")) as child:
        assert child.hear() == [True, True, None, False]


def test_a_record_comes_back_although_contenders_keep_the_guard_busy(tmp_path: Path) -> None:
    body = """
    say(True)
    while True:
        attempt(ownership.acquire, sys.argv[1])
    """
    path = tmp_path / "x"
    with ownership.acquire(path) as claim, running(body, path) as one, running(body, path) as two:
        one.hear()
        two.hear()
        for _ in range(5):
            file_of(path).unlink()
            eventually(lambda: file_of(path).exists())
        claim.verify()


# many claims of one directory


@pytest.fixture(params=[True, False], ids=["inotify", "without"])
def many(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """More claims than are looked at one by one, and whether the kernel tells what changed."""
    before = KEEPER._rounds
    KEEPER._rounds = Rounds(notify=request.param)
    claims = [ownership.acquire(tmp_path / f"{number:03}") for number in range(MANY)]
    eventually(lambda: not UNSETTLED)
    yield claims
    for claim in claims:
        claim.release()
    KEEPER._rounds = before


def test_of_many_records_any_that_is_deleted_comes_back(many: list[Claim]) -> None:
    for claim in random.sample(many, 20):
        file_of(claim.path).unlink()
    for claim in many:
        eventually(lambda claim=claim: file_of(claim.path).exists(), 3)
    for claim in many:
        claim.verify()


def test_of_many_claims_the_one_that_is_broken_is_lost_and_no_other(many: list[Claim]) -> None:
    broken = random.choice(many)
    ownership.break_claim(broken.path, token=broken.token)
    assert broken.lost.wait(3)
    assert [claim for claim in many if claim.lost.is_set()] == [broken]


def content_of(claim: Claim) -> bytes:
    """What its record says; nothing in the moment between the removal of a damaged one and the new one."""
    try:
        return file_of(claim.path).read_bytes()
    except FileNotFoundError:
        return b""


def test_of_many_records_one_that_is_damaged_in_place_is_mended(many: list[Claim]) -> None:
    damaged = random.choice(many)
    content = content_of(damaged)
    with open(file_of(damaged.path), "r+b") as file:
        file.write(b"\0" * 20)
    eventually(lambda: content_of(damaged) == content, 15)  # by turns where the kernel does not tell


def test_many_records_whose_directory_is_deleted_all_come_back(many: list[Claim], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
    for claim in many:
        eventually(lambda claim=claim: file_of(claim.path).exists(), 20)
    for claim in many:
        claim.verify()


def test_many_records_whose_directory_is_moved_come_back_where_they_belong(many: list[Claim], tmp_path: Path) -> None:
    (tmp_path / ".leases").rename(tmp_path / "moved")
    for claim in many:
        eventually(lambda claim=claim: file_of(claim.path).exists(), 20)
    assert not any(claim.lost.is_set() for claim in many)


def test_claims_come_and_go_among_many(many: list[Claim], tmp_path: Path) -> None:
    for _ in range(3):
        late = [ownership.acquire(tmp_path / f"late-{number}") for number in range(30)]
        for claim in random.sample(late, 5):
            file_of(claim.path).unlink()
            eventually(lambda claim=claim: file_of(claim.path).exists(), 3)
        for claim in late:
            claim.release()
    assert sorted(path.stem for path in (tmp_path / ".leases").glob("*.json")) == [claim.path.name for claim in many]


def test_thousands_of_claims_do_not_cost_a_system_call_each(tmp_path: Path) -> None:
    body = """
    claims = [ownership.acquire(f"{sys.argv[1]}/{number}") for number in range(1000)]
    from ownership._holding import UNSETTLED
    while UNSETTLED:
        time.sleep(0.05)
    time.sleep(0.6)
    os.stat("/begin")
    """.replace('os.stat("/begin")', 'attempt(os.stat, "/begin"); time.sleep(2.1); attempt(os.stat, "/end")')
    trace = tmp_path / "trace"
    calls = ("strace", "-f", "-qq", "-e", "trace=file,desc", "-o", str(trace))
    with running(body, tmp_path, prefix=calls) as child, pytest.raises(EOFError):
        child.hear()
    lines = trace.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if '"/begin"' in line)
    end = next(number for number, line in enumerate(lines) if '"/end"' in line)
    assert 8 <= end - begin <= 9 * 60  # eight ticks: a sixty-fourth of the claims in each, and a few calls besides


def test_an_inotify_instance_of_the_program_with_our_number_is_not_read(tmp_path: Path) -> None:
    """K74: everything is closed under the keeper, and the program watches files of its own with the same numbers."""
    body = """
    import ctypes
    libc = ctypes.CDLL(None)
    claims = [ownership.acquire(f"{sys.argv[1]}/{number}") for number in range(150)]
    time.sleep(0.8)
    os.closerange(3, 400)
    mine = [libc.inotify_init1(os.O_NONBLOCK) for _ in range(20)]
    os.mkdir(sys.argv[1] + "/own")
    for number in mine:
        assert libc.inotify_add_watch(number, (sys.argv[1] + "/own").encode(), 0x100) > 0
    files = [os.open(f"{sys.argv[1]}/own/{n}", os.O_CREAT | os.O_RDWR) for n in range(300)]
    for number in files:
        os.write(number, b"mine")
    os.unlink(f"{sys.argv[1]}/.leases/7.json")
    until = time.monotonic() + 10
    while not os.path.exists(f"{sys.argv[1]}/.leases/7.json") and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.6)
    events = [os.read(number, 1 << 20).count(b"\\0" * 12) > 100 for number in mine]
    say([os.path.exists(f"{sys.argv[1]}/.leases/7.json"), all(events),
         [os.pread(number, 100, 0).decode() for number in files] == ["mine"] * 300,
         [attempt(claim.verify) for claim in claims] == [None] * 150])
    for claim in claims:
        claim.release()
    for number in (*mine, *files):
        os.fstat(number)
    say(sorted(os.listdir(f"{sys.argv[1]}/.leases"))[:1])
    """
    with running(body, tmp_path) as child:
        assert child.hear() == [True, True, True, True]
        child.hear()


def test_every_repair_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "ownership"), ownership.acquire(tmp_path / "x") as claim:
        file_of(claim.path).unlink()
        eventually(lambda: "its record was gone; put back" in caplog.text)
        file_of(claim.path).write_bytes(b"{")
        eventually(lambda: "its record was not ours; put back" in caplog.text)
        (tmp_path / ".leases" / f"{claim.record.instance_id}.alive").unlink()
        eventually(lambda: "our witness was gone; put back" in caplog.text)
    assert str(tmp_path / "x") in caplog.text
