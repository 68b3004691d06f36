"""A claim passed on: there is an owner at every moment, and who handed it on has lost nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, HandoverError, OwnershipLostError
from ownership._clock import SystemClock
from tests.support.namespaces import elsewhere, needs_linux_root, owner, taken
from tests.support.records import file_of, guard_of, names
from tests.support.waiting import eventually

pytestmark = needs_linux_root
VARIABLE = "LEASES_HEIR"


def adopt(heir: ownership.Heir[ownership.Claim]) -> int:
    """Adopt, and end without a word to anybody."""
    return heir.adopt().token


def test_a_child_adopts_and_the_parent_counts_as_released(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x", labels={"app": "1"})
    losses: list[object] = []
    with claim.handover() as heir:
        child_token = elsewhere(lambda: adopt(heir))
    assert child_token > claim.token
    assert not claim.held
    assert not claim.lost.is_set()
    with pytest.raises(OwnershipLostError, match="handed over"):
        claim.verify()
    claim.release()
    assert losses == []


def test_the_heir_owns_by_its_own_identity_and_keeps_what_was_announced(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x", labels={"app": "1"})
    claim.announce("serving", endpoint="unix:/run/app.sock", data={"version": "2"})
    before = claim.record

    def work() -> Any:
        adopted = heir.adopt()
        adopted.verify()
        return os.getpid(), adopted.record

    with claim.handover() as heir:
        pid, after = elsewhere(work)
    assert (after.pid, after.labels, after.phase, after.endpoint, after.data) == (
        pid,
        before.labels,
        "serving",
        "unix:/run/app.sock",
        {"version": "2"},
    )
    assert after.instance_id != before.instance_id
    assert after.start_id != before.start_id
    assert after.token > before.token
    assert after.acquired_at == before.acquired_at


def test_there_is_an_owner_at_every_moment(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover() as heir:
        assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), AlreadyOwnedError)
        claim.verify()
        adopted = heir.adopt()
        assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), AlreadyOwnedError)
    adopted.verify()
    assert isinstance(elsewhere(lambda: taken(tmp_path / "x")), AlreadyOwnedError)
    adopted.release()
    assert names(tmp_path / ".leases") >= {"x.guard"}
    assert not file_of(tmp_path / "x").exists()


def test_nobody_adopts_and_it_is_still_ours(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        handing = claim.handover(timeout=0.05)
        heir = handing.__enter__()
        with pytest.raises(HandoverError, match=r"nobody adopted it within 0.05 s; it is still ours") as caught:
            handing.__exit__(None, None, None)
        assert caught.value.hint
        assert caught.value.resource == str(tmp_path / "x")
        claim.verify()
        assert claim.record.heir is None
        with pytest.raises(HandoverError, match="too late") as late:
            heir.adopt()
        assert late.value.hint
        claim.verify()


def test_an_error_in_the_block_takes_the_offer_back_and_is_not_masked(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        with pytest.raises(KeyError), claim.handover() as heir:
            raise KeyError("mine")
        claim.verify()
        with pytest.raises(HandoverError):
            heir.adopt()


def test_the_right_to_adopt_works_once(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover() as heir:
        first = heir.adopt()
        with pytest.raises(HandoverError, match="too late"):
            heir.adopt()
    first.verify()
    first.release()


def test_a_wrong_secret_opens_nothing(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim, claim.handover() as heir:
        fields = json.loads(heir.to_env()[VARIABLE])
        for secret in ("", "0" * 64, fields["secret"][:-1], claim.record.heir):
            forged = {VARIABLE: json.dumps(fields | {"secret": secret})}
            with pytest.raises(HandoverError, match="too late"):
                ownership.adopt(forged)
        claim.verify()
        heir.adopt().release()


def test_the_secret_is_nowhere_in_the_files(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim, claim.handover() as heir:
        secret = json.loads(heir.to_env()[VARIABLE])["secret"].encode()
        for path in (tmp_path / ".leases").iterdir():
            assert secret not in path.read_bytes()
        heir.adopt().release()


def test_a_claim_on_several_resources_is_handed_over_whole(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "b", also=[tmp_path / "a", tmp_path / "c"])
    with claim.handover() as heir:
        adopted = heir.adopt()
    assert set(adopted.tokens) == {tmp_path / "a", tmp_path / "b", tmp_path / "c"}
    assert adopted.path == tmp_path / "b"
    for path, token in adopted.tokens.items():
        assert token > claim.tokens[path]
    adopted.verify()
    adopted.release()
    for name in ("a", "b", "c"):
        assert isinstance(taken(tmp_path / name), int)


def test_leaving_the_block_in_a_forked_child_does_nothing(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")

    def leave_the_block() -> bool:
        before = file_of(tmp_path / "x").read_bytes()
        handing.__exit__(None, None, None)
        return file_of(tmp_path / "x").read_bytes() == before

    handing = claim.handover(timeout=10.0)
    with handing as heir:
        assert elsewhere(leave_the_block) is True
        claim.verify()
        adopted = heir.adopt()
    adopted.release()


def test_the_heir_may_end_before_its_predecessor_looks(tmp_path: Path) -> None:
    """It adopted, did its work and released: nothing was lost."""
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover() as heir:
        elsewhere(lambda: heir.adopt().release())
    assert not claim.lost.is_set()


def test_the_heir_may_die_before_its_predecessor_looks(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover() as heir:
        elsewhere(lambda: adopt(heir))
    assert not claim.lost.is_set()
    assert isinstance(taken(tmp_path / "x"), int)


@pytest.mark.parametrize("ends", ["releases", "dies"])
def test_a_stranger_may_have_it_after_the_heir_before_its_predecessor_looks(tmp_path: Path, ends: str) -> None:
    """The hand-over worked; what its heir did with it is no loss of ours."""
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover() as heir:
        elsewhere(lambda: heir.adopt().release() if ends == "releases" else adopt(heir))
        stranger = owner(tmp_path / "x")
    with stranger:
        assert not claim.lost.is_set()
        assert not claim.held


def test_a_break_during_the_offer_is_a_loss(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with pytest.raises(OwnershipLostError) as caught, claim.handover(timeout=5.0) as heir:
        ownership.break_claim(tmp_path / "x", token=claim.token)
    assert caught.value.reason == "broken"
    assert claim.lost.is_set()
    with pytest.raises(HandoverError):
        heir.adopt()


def test_another_owner_during_the_offer_is_a_loss(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    handing = claim.handover(timeout=5.0)
    handing.__enter__()
    ownership.break_claim(tmp_path / "x", token=claim.token)
    with owner(tmp_path / "x"):
        with pytest.raises(OwnershipLostError):
            handing.__exit__(None, None, None)
        assert claim.lost.is_set()


def test_the_predecessor_dies_and_anybody_may_acquire(tmp_path: Path) -> None:
    """Without an heir by then, the offer dies with whoever made it; who comes too late is told so."""

    def offer_and_die() -> dict[str, str]:
        claim = ownership.acquire(tmp_path / "x")
        return claim.handover().__enter__().to_env()

    env = elsewhere(offer_and_die)
    with ownership.acquire(tmp_path / "x") as claim:
        with pytest.raises(HandoverError, match="too late"):
            ownership.adopt(dict(env))
        claim.verify()


def test_an_orphaned_offer_may_still_be_adopted_before_anybody_acquires(tmp_path: Path) -> None:
    def offer_and_die() -> dict[str, str]:
        claim = ownership.acquire(tmp_path / "x")
        return claim.handover().__enter__().to_env()

    claim = ownership.adopt(elsewhere(offer_and_die))
    claim.verify()
    claim.release()


def test_a_daemon_forked_twice_owns_in_the_end(tmp_path: Path) -> None:
    """K48: acquire, fork twice, parents exit; the record names the daemon."""
    reader, writer = os.pipe()

    def daemonise() -> int:
        claim = ownership.acquire(tmp_path / "x")
        with claim.handover() as heir:
            if os.fork() == 0:
                if os.fork() == 0:
                    adopted = heir.adopt()
                    os.write(writer, str(adopted.record.pid).encode())
                    os.close(writer)
                    eventually((tmp_path / "end").exists, 60.0)
                    adopted.release()
                    os._exit(0)
                os._exit(0)
            os.wait()
        return claim.token

    token = elsewhere(daemonise)
    os.close(writer)
    daemon = int(os.read(reader, 100))
    os.close(reader)
    found = ownership.inspect(tmp_path / "x")
    assert found.record is not None
    assert (found.verdict, found.record.pid) == (ownership.Verdict.LIVE, daemon)
    assert found.record.token > token
    (tmp_path / "end").touch()
    eventually(lambda: not file_of(tmp_path / "x").exists())


def test_without_a_hand_over_the_child_is_told(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        error = elsewhere(claim.verify)
        assert isinstance(error, OwnershipLostError)
        assert "handover()" in error.hint
        claim.verify()


def test_the_guard_remembers_that_it_was_handed_over(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover() as heir:
        adopted = heir.adopt()
    remembered = guard_of(tmp_path / "x")
    assert remembered["owner"]["instance_id"] == adopted.record.instance_id
    assert remembered["previous"]["how"] == "released"
    adopted.release()


def test_the_waiter_is_not_disturbed_by_a_hand_over(tmp_path: Path) -> None:
    """The record changes hands while somebody waits: told again, as it is another owner."""
    claim = ownership.acquire(tmp_path / "x")
    holders: list[int] = []
    with owner(tmp_path / "other"):
        with claim.handover() as heir:
            adopted = heir.adopt()
        error = elsewhere(lambda: taken(tmp_path / "x", timeout=0.3, on_wait=lambda one: holders.append(1)))
        assert isinstance(error, ownership.AcquireTimeoutError)
        assert error.record is not None
        assert error.record.token == adopted.token
    adopted.release()


class Stopping(SystemClock):
    """Fails when the second resource is about to be adopted, the first being published already."""

    def __init__(self) -> None:
        self._asked = 0

    def wall_ns(self) -> int:  # type: ignore[override]
        self._asked += 1
        if self._asked == 2:
            raise ZeroDivisionError("in the middle")
        return super().wall_ns()


def test_an_adoption_that_fails_after_it_published_gives_the_record_back(tmp_path: Path) -> None:
    """Byte for byte, and the guard too: the predecessor never ceased to own, and the offer is as good as before."""
    first, second = tmp_path / "a", tmp_path / "b"
    with ownership.acquire(first, also=[second]) as claim:
        handing = claim.handover(timeout=10.0)
        heir = handing.__enter__()
        before = {path: (file_of(path).read_bytes(), guard_of(path)) for path in (first, second)}

        def fail() -> Any:
            with pytest.raises(ZeroDivisionError):
                heir.adopt(clock=Stopping())
            left = {path: (file_of(path).read_bytes(), guard_of(path)) for path in before}
            return left, [name for name in names(tmp_path / ".leases") if name.endswith(".alive")]

        left, witnesses = elsewhere(fail)
        assert left == before
        assert witnesses == [f"{claim.record.instance_id}.alive"]
        claim.verify()
        assert isinstance(elsewhere(lambda: taken(second)), AlreadyOwnedError)
        adopted = elsewhere(lambda: adopt(heir))
        assert adopted > claim.token
        handing.__exit__(None, None, None)
    assert not claim.lost.is_set()


# what cannot be adopted

UNREADABLE = {
    "empty": "",
    "no json": "{",
    "list": "[]",
    "no fields": "{}",
    "no targets": '{"secret": "x", "targets": []}',
    "targets as text": '{"secret": "x", "targets": "abc"}',
    "no hex": '{"secret": "x", "targets": [["zz", null, 1]]}',
    "an empty path": '{"secret": "x", "targets": [["", null, 1]]}',
    "nul in the path": '{"secret": "x", "targets": [["2f00", null, 1]]}',
    "a relative path": '{"secret": "x", "targets": [["61", null, 1]]}',
    "a token that is none": '{"secret": "x", "targets": [["2f61", null, "a"]]}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_an_offer_that_cannot_be_read_is_a_value_error_and_gone(text: str) -> None:
    environ = {VARIABLE: text}
    with pytest.raises(ValueError, match=VARIABLE) as caught:
        ownership.adopt(environ)
    assert len(str(caught.value)) < 1000
    assert environ == {}


def test_no_offer_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match=VARIABLE):
        ownership.adopt({})


def test_an_offer_for_a_resource_that_is_not_owned_comes_too_late(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with pytest.raises(HandoverError), claim.handover(timeout=0.0) as heir:
        env = heir.to_env()
    claim.release()
    before = names(tmp_path / ".leases")
    with pytest.raises(HandoverError, match="too late"):
        ownership.adopt(env)
    assert names(tmp_path / ".leases") == before


@pytest.mark.parametrize("timeout", [-1, "1", True, float("nan")])
def test_a_timeout_that_is_none_is_refused(tmp_path: Path, timeout: Any) -> None:
    with ownership.acquire(tmp_path / "x") as claim, pytest.raises(ValueError, match="timeout"):
        claim.handover(timeout=timeout)


def test_what_is_not_held_cannot_be_handed_over(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    claim.release()
    with pytest.raises(OwnershipLostError):
        claim.handover()


def test_the_right_to_adopt_is_shown_without_its_secret(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x", also=[tmp_path / "y"]) as claim:
        assert "x and 1 more held" in repr(claim)
        with claim.handover() as heir:
            assert heir.secret not in repr(heir)
            adopted = heir.adopt()
        adopted.release()
