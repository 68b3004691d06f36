"""The handle of an owner: what it can do, what it is told, and when it is inert."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, Claim, OwnershipLostError, Verdict, _keeper, _moved
from ownership._station import Place
from tests.support.namespaces import NEW_PIDS, elsewhere, needs_linux_root, run, taken
from tests.support.records import file_of, names, plant, record
from tests.support.waiting import eventually

pytestmark = needs_linux_root


@pytest.fixture
def claim(tmp_path: Path) -> Iterator[Claim]:
    with ownership.acquire(tmp_path / "x") as one:
        yield one


# release


def test_a_second_release_is_a_quiet_nothing(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    for _ in range(3):
        claim.release()
    assert not claim.held
    assert not claim.lost.is_set()
    other = ownership.acquire(tmp_path / "x")
    claim.release()
    other.verify()
    other.release()


def test_after_release_every_act_says_so(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    claim.release()
    for act in (claim.verify, lambda: claim.announce("x"), claim.handover, claim.keep_across_exec, claim.__enter__):
        with pytest.raises(OwnershipLostError, match="released"):
            act()
    assert claim.path == tmp_path / "x"
    assert claim.token > 0
    assert "released" in repr(claim)


def test_what_another_owns_now_is_not_released(tmp_path: Path, claim: Claim) -> None:
    """K40: a displaced owner's exit removes nothing of its successor."""
    ownership.break_claim(tmp_path / "x", token=claim.token)
    successor = ownership.acquire(tmp_path / "x")
    claim.release()
    successor.verify()
    assert not claim.held
    successor.release()


def test_an_error_of_the_body_is_not_masked_by_one_of_release(tmp_path: Path) -> None:

    def fail() -> None:
        with ownership.acquire(tmp_path / "x"):
            file_of(tmp_path / "x").unlink()
            file_of(tmp_path / "x").mkdir()
            raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()
    file_of(tmp_path / "x").rmdir()


def test_a_claim_can_be_released_by_another_thread(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    thread = threading.Thread(target=claim.release)
    thread.start()
    thread.join()
    assert isinstance(taken(tmp_path / "x"), int)


def test_release_in_a_signal_handler_works_at_any_point(tmp_path: Path) -> None:
    """The handler interrupts an update of the same thread, which is inside the guard."""
    claim = ownership.acquire(tmp_path / "x")
    before = signal.signal(signal.SIGALRM, lambda *_: claim.release())

    def work() -> None:
        for number in range(100_000):
            claim.announce(f"p{number}")

    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        with pytest.raises(OwnershipLostError):
            work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    eventually(lambda: not file_of(tmp_path / "x").exists())
    assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), int)


def test_the_signals_of_the_program_are_its_own(tmp_path: Path) -> None:
    """K50."""
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM]
    before = [signal.getsignal(number) for number in numbers]
    ownership.acquire(tmp_path / "x").release()
    assert [signal.getsignal(number) for number in numbers] == before


# announce


def test_what_is_announced_is_read_by_others(tmp_path: Path, claim: Claim) -> None:
    claim.announce("starting", labels={"app": "1"})
    claim.announce("serving", endpoint="unix:/run/x", data={"a": [1, None, {"b": "é"}]})
    claim.announce(data={"a": 2})
    found = elsewhere(lambda: ownership.find(tmp_path / "x"))
    assert (found.phase, found.endpoint, found.data) == ("serving", "unix:/run/x", {"a": 2})
    assert found.record.labels == {"app": "1"}
    assert found.record == claim.record
    assert found.record.updated_at > found.record.acquired_at
    assert found.record.token == claim.token


def deep(levels: int) -> Any:
    found: Any = []
    for _ in range(levels):
        found = [found]
    return found


UNSAYABLE: dict[str, dict[str, Any]] = {
    "phase empty": {"phase": ""},
    "phase too long": {"phase": "x" * 65},
    "phase as number": {"phase": 3},
    "phase no unicode": {"phase": "\udcff"},
    "endpoint too long": {"endpoint": "x" * 5000},
    "endpoint no unicode": {"endpoint": "\udcff"},
    "data an object": {"data": {"x": object()}},
    "data bytes": {"data": {"x": b"y"}},
    "data nan": {"data": {"x": math.nan}},
    "data infinite": {"data": {"x": [math.inf]}},
    "data no unicode": {"data": {"x": "\udcff"}},
    "data key no unicode": {"data": {"\udcff": 1}},
    "data key no text": {"data": {1: 1}},
    "data too large": {"data": {"x": "y" * 70_000}},
    "data too deep": {"data": {"x": deep(230)}},
    "data much too deep": {"data": {"x": deep(5000)}},
    "data number too long": {"data": {"x": 10**5000}},
    "labels no text": {"labels": {"a": 1}},
    "labels as list": {"labels": ["a"]},
    "labels no unicode": {"labels": {"a": "\udcff"}},
}


@pytest.mark.parametrize("facts", UNSAYABLE.values(), ids=UNSAYABLE)
def test_what_cannot_be_said_is_refused_and_the_old_record_stands(
    tmp_path: Path, claim: Claim, facts: dict[str, Any]
) -> None:
    """Nothing that is published could not be read again by everybody."""
    before = file_of(tmp_path / "x").read_bytes()
    [parameter] = facts
    with pytest.raises(ValueError, match=parameter) as caught:
        claim.announce(**facts)
    assert len(str(caught.value)) < 2000
    assert str(caught.value).startswith((f"{parameter} cannot be recorded: ", f"{parameter} must map text to text"))
    assert file_of(tmp_path / "x").read_bytes() == before
    claim.verify()
    claim.announce("fine")
    assert ownership.find(tmp_path / "x") is not None


@pytest.mark.parametrize("levels", [1, 20, 100, 150])
def test_whatever_is_accepted_can_be_read_again(tmp_path: Path, claim: Claim, levels: int) -> None:
    value = {"x": deep(levels), "big": 10**30, "text": "\0\x1b\u202e", "": ""}
    claim.announce(data=value)
    found = ownership.find(tmp_path / "x")
    assert found is not None
    assert found.data == value


def test_a_reader_never_sees_a_partial_record(tmp_path: Path, claim: Claim) -> None:
    """K42: during updates the record is the old one or the new one."""
    stop, seen, broken = threading.Event(), [0], []

    def read() -> None:
        while not stop.is_set():
            found = ownership.inspect(tmp_path / "x")
            if found.record is None or found.record.data["n"] != found.record.data["m"]:
                broken.append(found)
            seen[0] += 1

    claim.announce(data={"n": 0, "m": 0})
    thread = threading.Thread(target=read)
    thread.start()
    for number in range(300):
        claim.announce(data={"n": number, "m": number})
    stop.set()
    thread.join()
    assert broken == []
    assert seen[0] > 0


@pytest.mark.parametrize("end", ["release", "drop"])
@pytest.mark.parametrize("damage", ["guards deleted", "directory moved away and back", "directory deleted"])
def test_what_was_given_up_is_free_whatever_a_cleaner_took_before(tmp_path: Path, damage: str, end: str) -> None:
    """Else a process that lives would hold it without knowing anything of it."""
    folder, moved = tmp_path / ".leases", tmp_path / "moved"
    claim: Claim | None = ownership.acquire(tmp_path / "x", also=[tmp_path / "y"])
    assert claim is not None
    match damage:
        case "guards deleted":
            for name in ("x", "y"):
                file_of(tmp_path / name, "guard").unlink()
        case "directory moved away and back":
            folder.rename(moved)
        case "directory deleted":
            shutil.rmtree(folder, ignore_errors=True)
    holding = claim._holding
    if end == "release":
        claim.release()
    with pytest.warns(ResourceWarning) if end == "drop" else contextlib.nullcontext():
        claim = None
    eventually(lambda: holding not in _keeper.KEEPER.holdings)
    if moved.exists():
        if folder.exists():
            folder.rename(tmp_path / "other")
        moved.rename(folder)
    for name in ("x", "y"):
        assert isinstance(elsewhere(partial(taken, tmp_path / name)), int)
        assert not file_of(tmp_path / name).exists()


def test_two_threads_that_follow_a_moved_directory_take_nothing_out_of_the_new_one(
    tmp_path: Path, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper is slow, and finds that the other one was faster."""
    part, locked = claim._holding.part, _moved.locked
    (tmp_path / ".leases").rename(tmp_path / "moved")

    def slow(*args: Any, **keywords: Any) -> None:
        monkeypatch.undo()
        claim.verify()  # as another thread
        locked(*args, **keywords)

    monkeypatch.setattr(_moved, "locked", slow)
    part.follow()
    assert file_of(tmp_path / "x").exists()
    assert part in part.place.users
    assert part.place.witness.held
    claim.verify()
    assert not list((tmp_path / "moved").glob("*.json"))
    assert isinstance(elsewhere(partial(taken, tmp_path / "x")), AlreadyOwnedError)


def test_a_claim_that_is_released_while_it_is_followed_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, enter = ownership.acquire(tmp_path / "x"), Place.enter
    part = claim._holding.part
    (tmp_path / ".leases").rename(tmp_path / "moved")

    def slow(place: Place, user: object) -> None:
        monkeypatch.undo()
        claim.release()  # as another thread
        enter(place, user)

    monkeypatch.setattr(Place, "enter", slow)
    part.follow()
    assert part not in part.place.users
    assert "x" not in part.place.owned
    with ownership.acquire(tmp_path / "x") as other:
        other.verify()


# verify and loss


def test_verify_puts_back_what_was_deleted_or_damaged(tmp_path: Path, claim: Claim) -> None:
    for damage in (
        lambda: file_of(tmp_path / "x").unlink(),
        lambda: file_of(tmp_path / "x").write_bytes(b"{"),
        lambda: file_of(tmp_path / "x", "guard").unlink(),
        lambda: shutil.rmtree(tmp_path / ".leases", ignore_errors=True),
        lambda: (tmp_path / ".leases").rename(tmp_path / "moved"),
        lambda: plant(tmp_path / "x", record(1, token=5)),
    ):
        damage()
        claim.verify()
        assert ownership.inspect(tmp_path / "x").record == claim.record
        assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), AlreadyOwnedError)


@pytest.mark.parametrize("damage", ["removed", "moved away", "removed and made again"])
def test_many_records_deleted_at_once_are_all_put_back(tmp_path: Path, damage: str) -> None:
    """More claims than there are guards kept open between two uses."""
    with contextlib.ExitStack() as owned:
        claims = [owned.enter_context(ownership.acquire(tmp_path / f"x{number}")) for number in range(70)]
        match damage:
            case "removed":
                shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
            case "moved away":
                (tmp_path / ".leases").rename(tmp_path / "moved")
            case "removed and made again":
                shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
                (tmp_path / ".leases").mkdir(mode=0o700, exist_ok=True)
        for claim in claims:
            claim.verify()
            assert file_of(claim.path).exists()
    assert not list((tmp_path / ".leases").glob("*.json"))


def test_a_greater_token_is_a_loss_for_good(tmp_path: Path, claim: Claim) -> None:
    plant(tmp_path / "x", record(1, token=claim.token + 5, command="another daemon"))
    for _ in range(2):
        with pytest.raises(OwnershipLostError) as caught:
            claim.verify()
        assert caught.value.reason == "owner-replaced"
        assert caught.value.resource == str(tmp_path / "x")
        assert caught.value.hint
        file_of(tmp_path / "x").unlink(missing_ok=True)
    assert claim.lost.is_set()
    assert not claim.held
    assert not file_of(tmp_path / "x").exists()


@pytest.mark.parametrize("how", ["released", "retired", "handed-over", "forked"])
def test_a_handle_that_was_given_up_says_how(tmp_path: Path, how: str) -> None:
    """Nobody took it over."""
    claim = ownership.acquire(tmp_path / "given-up")
    match how:
        case "released":
            claim.release()
        case "retired":
            claim.retire()
        case "handed-over":
            with claim.handover() as heir:
                adopted = heir.adopt()
            adopted.release()
        case "forked":
            reading, writing = os.pipe()
            if (pid := os.fork()) == 0:
                try:
                    claim.verify()
                except OwnershipLostError as error:
                    os.write(writing, error.reason.encode())
                os._exit(0)
            os.waitpid(pid, 0)
            assert os.read(reading, 100) == b"forked"
            os.close(reading)
            os.close(writing)
            claim.release()
            return
    with pytest.raises(OwnershipLostError) as caught:
        claim.verify()
    assert caught.value.reason == how
    claim.release()


def test_what_cannot_be_looked_at_ends_nothing(tmp_path: Path, claim: Claim) -> None:
    path = file_of(tmp_path / "x")
    path.rename(path.with_name("aside"))
    path.mkdir()
    with pytest.raises((OSError, ownership.RecordError)):
        claim.verify()
    assert claim.held
    assert not claim.lost.is_set()
    path.rmdir()
    claim.verify()


def test_the_keeper_puts_back_what_was_deleted_by_itself(tmp_path: Path, claim: Claim) -> None:
    """K57."""
    shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
    eventually(lambda: file_of(tmp_path / "x").exists())
    eventually(lambda: f"{claim.record.instance_id}.alive" in names(tmp_path / ".leases"))
    claim.verify()


def test_losing_one_of_several_is_losing_the_claim(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "a", also=[tmp_path / "b"])
    ownership.break_claim(tmp_path / "b", token=claim.tokens[tmp_path / "b"])
    with pytest.raises(OwnershipLostError):
        claim.verify()
    claim.release()
    assert isinstance(elsewhere(lambda: taken(tmp_path / "a", timeout=5.0)), int)


# fork


def test_a_forked_childs_copy_is_inert(tmp_path: Path, claim: Claim) -> None:
    """K45: it releases nothing, however it ends."""

    def in_the_child() -> Any:
        held = claim.held
        claim.release()
        claim.__exit__(None, None, None)
        claim.__exit__(KeyError, KeyError(), None)
        try:
            claim.announce("mine now")
        except OwnershipLostError as error:
            return held, claim.lost.is_set(), str(error), error.hint
        return None

    before = file_of(tmp_path / "x").read_bytes()
    held, lost, text, hint = elsewhere(in_the_child)
    assert (held, lost) == (False, True)
    assert str(os.getpid()) in text
    assert "handover" in hint
    assert file_of(tmp_path / "x").read_bytes() == before
    claim.verify()
    assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), AlreadyOwnedError)


def test_a_child_may_own_what_its_parent_does_not(tmp_path: Path, claim: Claim) -> None:
    def own() -> Any:
        with ownership.acquire(tmp_path / "y") as other:
            other.verify()
            return other.record.pid == os.getpid(), other.record.instance_id

    same, instance = elsewhere(own)
    assert same
    assert instance != claim.record.instance_id


def test_a_forked_child_that_lives_on_does_not_hold_for_its_dead_parent(tmp_path: Path) -> None:
    """K46: it inherited every descriptor at the fork, and closed them."""
    ready, done = os.pipe(), os.pipe()

    def own_and_leave_a_child() -> int:
        claim = ownership.acquire(tmp_path / "x")
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"x")
            os.close(done[1])
            os.read(done[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        return claim.token

    token = elsewhere(own_and_leave_a_child)
    assert run("say(ownership.inspect(sys.argv[1]).verdict)", tmp_path / "x", prefix=NEW_PIDS) == "gone"
    assert ownership.inspect(tmp_path / "x").verdict is Verdict.GONE
    assert taken(tmp_path / "x") > token
    for number in (*ready, *done):
        os.close(number)
