"""Across exec: pid and start id survive, so the new program owns on; what it may take over, and from whom."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import ownership
from tests.support.namespaces import NEW_PIDS, elsewhere, needs_linux_root, program, run, running, taken
from tests.support.records import file_of, names
from tests.support.waiting import eventually

pytestmark = needs_linux_root

# acquires sys.argv[1], prepares as sys.argv[2] says, and becomes the program in sys.argv[3:]
BECOME = """
    claim = ownership.acquire(sys.argv[1])
    if sys.argv[2] == "keep":
        claim.keep_across_exec("the next program")
    elif sys.argv[2] == "twice":
        other = ownership.acquire(sys.argv[1] + ".d/other")
        claim.keep_across_exec()
        other.keep_across_exec()
    elif sys.argv[2] == "blind":
        claim.keep_across_exec()
        del os.environ["LEASES_KEPT"]
    elif sys.argv[2].startswith("closed"):
        os.closerange(3, 256)
        for _ in range(20 if sys.argv[2] == "closed and reused" else 0):
            os.open("/etc/passwd", os.O_RDONLY)
        claim.keep_across_exec()
    elif sys.argv[2] == "in a thread":
        import threading
        claim.keep_across_exec()
        threading.Thread(target=lambda: os.execv(sys.argv[3], sys.argv[3:])).start()
        time.sleep(60)
    os.execv(sys.argv[3], sys.argv[3:])
    """
ACQUIRE_AGAIN = """
    before = sorted(os.listdir(os.path.dirname(sys.argv[1]) + "/.leases"))
    result = attempt(ownership.acquire, sys.argv[1])
    say([os.getpid(), result, "LEASES_KEPT" in os.environ])
    """
WAIT = """
    say([os.getpid(), ownership.start_id(os.getpid())])
    hear()
    """


def witness_of(path: Path) -> Path:
    record = ownership.inspect(path).record
    assert record is not None
    return file_of(path).with_name(f"{record.instance_id}.alive")


def become(path: Path, how: str, body: str, *arguments: object) -> tuple[str, ...]:
    return (str(path), how, *program(body, *arguments))


@pytest.mark.parametrize("how", ["closed", "closed and reused"])
def test_a_program_that_closed_our_descriptors_leaves_the_next_one_none_of_its_own(tmp_path: Path, how: str) -> None:
    """K74: right before exec, when the keeper has not had a tick yet; the witness is locked anew."""
    body = """
    inodes = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            inodes.append(os.fstat(number).st_ino)
        except OSError:
            pass
    say([inodes, os.environ["LEASES_KEPT"]])
    hear()
    """
    with running(BECOME, *become(tmp_path / "x", how, body)) as child:
        inodes, kept = child.said()
        assert os.stat("/etc/passwd").st_ino not in inodes
        assert witness_of(tmp_path / "x").stat().st_ino in inodes
        assert kept.startswith(f"{child.pid}:")
        look = "say(ownership.inspect(sys.argv[1]).verdict)"
        assert run(look, tmp_path / "x", prefix=NEW_PIDS) == "live"


@pytest.mark.parametrize("how", ["keep", "in a thread"])
def test_the_next_program_takes_over_from_its_earlier_image(tmp_path: Path, how: str) -> None:
    pid, result, announced = run(BECOME, *become(tmp_path / "x", how, ACQUIRE_AGAIN, tmp_path / "x"))
    assert result["error"] is None
    assert result["record"]["pid"] == pid
    assert not announced
    assert isinstance(taken(tmp_path / "x"), int)


def test_the_next_program_takes_over_a_witness_that_was_not_kept(tmp_path: Path) -> None:
    """The witness came free at exec, which proves that no image but ours can be the owner."""
    _, result, _ = run(BECOME, *become(tmp_path / "x", "nothing", ACQUIRE_AGAIN, tmp_path / "x"))
    assert result["error"] is None


def test_a_witness_held_by_nobody_knows_whom_is_not_taken_over(tmp_path: Path) -> None:
    """Its variable was dropped: to the new image it looks like a second copy of this library."""
    _, result, _ = run(BECOME, *become(tmp_path / "x", "blind", ACQUIRE_AGAIN, tmp_path / "x"))
    assert (result["error"], result["verdict"]) == ("AlreadyOwnedError", "live")
    assert "second copy" in result["reason"]


@pytest.mark.parametrize("how", ["keep", "nothing"])
def test_others_see_the_process_own_on_after_exec(tmp_path: Path, how: str) -> None:
    with running(BECOME, *become(tmp_path / "x", how, WAIT)) as process:
        pid, start_id = process.said()
        assert pid == process.pid
        found = ownership.inspect(tmp_path / "x")
        assert found.verdict is ownership.Verdict.LIVE
        assert found.record is not None
        assert (found.record.pid, found.record.start_id) == (pid, start_id)
        if how == "keep":
            assert found.record.command == "the next program"
        assert isinstance(taken(tmp_path / "x"), ownership.AlreadyOwnedError)
        process.end()
        assert isinstance(taken(tmp_path / "x"), int)


@pytest.mark.parametrize(("how", "expected"), [("keep", "live"), ("nothing", "gone")])
def test_another_pid_namespace_sees_it_live_only_if_the_witness_was_kept(
    tmp_path: Path, how: str, expected: str
) -> None:
    body = "say(ownership.inspect(sys.argv[1]).verdict)"
    with running(BECOME, *become(tmp_path / "x", how, WAIT)) as process:
        process.said()
        assert run(body, tmp_path / "x", prefix=NEW_PIDS) == expected


def test_a_child_of_the_next_program_has_kept_nothing(tmp_path: Path) -> None:
    """It inherits the variable and perhaps the descriptor, but it is another process; and the owner lives."""
    body = f"""
        child = subprocess.run({program(ACQUIRE_AGAIN, tmp_path / "x")!r}, capture_output=True, text=True)
        say([json.loads(child.stdout)[1], attempt(ownership.acquire, {str(tmp_path / "x")!r})])
        """
    child, parent = run(BECOME, *become(tmp_path / "x", "keep", body))
    assert (child["error"], child["verdict"]) == ("AlreadyOwnedError", "live")
    assert parent["error"] is None


def test_nothing_of_the_earlier_image_stays_open_in_children_of_the_next(tmp_path: Path) -> None:
    """Each of two directories has a witness that was kept; once read, none is inheritable any more."""
    (tmp_path / "x.d").mkdir()
    body = f"""
        first = ownership.acquire({str(tmp_path / "x")!r})
        second = ownership.acquire({str(tmp_path / "x.d" / "other")!r})
        listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout
        say(listed.count(".alive"))
        """
    assert run(BECOME, *become(tmp_path / "x", "twice", body)) == 0


def test_what_an_earlier_image_left_goes_with_the_next_sweep(tmp_path: Path) -> None:
    run(BECOME, *become(tmp_path / "x", "keep", ACQUIRE_AGAIN, tmp_path / "x"))
    list(ownership.reclaim_all(tmp_path))
    assert names(tmp_path / ".leases") == {"x.guard"}


def second_copy() -> Any:
    """The library once more, as an embedded copy under another name would be; only for a child that ends."""
    for name in [one for one in sys.modules if one.partition(".")[0] == "ownership"]:
        sys.modules["first-" + name] = sys.modules.pop(name)
    copy = importlib.import_module("ownership")
    assert copy is not ownership
    return copy


def test_a_second_copy_of_the_library_is_refused(tmp_path: Path) -> None:
    """The same pid, the same start id, another instance; neither may take the other's place (K02)."""

    def try_both() -> list[Any]:
        claim = ownership.acquire(tmp_path / "x")
        other = second_copy()
        before = file_of(tmp_path / "x").read_bytes()
        refused = refusal_of(other.acquire, tmp_path / "x")
        claim.verify()
        seen = str(other.inspect(tmp_path / "x").verdict), file_of(tmp_path / "x").read_bytes() == before
        claim.release()
        theirs = other.acquire(tmp_path / "x")
        back = refusal_of(ownership.acquire, tmp_path / "x")
        theirs.verify()
        return [refused, seen, back]

    refused, seen, back = elsewhere(try_both)
    assert seen == ("live", True)
    for name, verdict, reason in (refused, back):
        assert (name, verdict) == ("AlreadyOwnedError", "live")
        assert "second copy" in reason


def refusal_of(function: Any, *args: Any) -> tuple[str, str, str]:
    try:
        function(*args)
    except Exception as error:
        return type(error).__name__, str(getattr(error, "verdict", "")), getattr(error, "reason", str(error))
    raise AssertionError("it was not refused")


# hand-over to a program

OFFER = """
    claim = ownership.acquire(sys.argv[1])
    started = time.monotonic()
    outcome = None
    try:
        with claim.handover(timeout=float(sys.argv[2])) as heir:
            env = {**os.environ, **heir.to_env()}
            child = subprocess.Popen(sys.argv[3:], env=env, stdout=subprocess.PIPE, text=True)
    except ownership.HandoverError as error:
        outcome = [str(error), error.hint]
        claim.verify()
    child.kill() if outcome else None
    out = child.communicate()[0]
    say([outcome, out and json.loads(out), claim.held, claim.lost.is_set(), time.monotonic() - started])
    """
ADOPT = """
    claim = ownership.adopt()
    claim.verify()
    say([os.getpid(), claim.token, "LEASES_HEIR" in os.environ, ownership.inspect(claim.path).record.pid])
    claim.release()
    """


def test_a_program_adopts_by_its_environment(tmp_path: Path) -> None:
    outcome, said, held, lost, _ = run(OFFER, tmp_path / "x", 20.0, *program(ADOPT))
    assert (outcome, held, lost) == (None, False, False)
    pid, _, still_set, recorded = said
    assert (recorded, still_set) == (pid, False)


def test_a_program_that_never_adopts_leaves_it_with_its_parent(tmp_path: Path) -> None:
    outcome, _, held, lost, seconds = run(OFFER, tmp_path / "x", 0.3, *program("time.sleep(60)"))
    assert "still ours" in outcome[0]
    assert outcome[1]
    assert (held, lost) == (True, False)
    assert seconds < 10


def test_a_program_that_dies_first_leaves_it_with_its_parent(tmp_path: Path) -> None:
    outcome, _, held, lost, _ = run(OFFER, tmp_path / "x", 0.5, *program("os._exit(1)"))
    assert "still ours" in outcome[0]
    assert (held, lost) == (True, False)


def test_a_program_that_comes_too_late_is_told(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with pytest.raises(ownership.HandoverError), claim.handover(timeout=0.0) as heir:
        env = heir.to_env()
    result, still_set = run("say([attempt(ownership.adopt), 'LEASES_HEIR' in os.environ])", env=env)
    assert result["error"] == "HandoverError"
    assert result["hint"]
    assert not still_set
    claim.verify()
    claim.release()


def test_odd_paths_and_a_registry_travel_through_the_environment(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    odd = os.path.join(os.fsencode(tmp_path), b"caf\xe9 \n\"'")
    claim = ownership.acquire(odd, also=[tmp_path / "second"], registry=registry)
    body = "claim = ownership.adopt(); say([os.fsencode(one).hex() for one in claim.tokens]); claim.release()"
    with claim.handover(timeout=30.0) as heir:
        adopted = run(body, env=heir.to_env(), prefix=("env", "-C", "/"))
    assert set(adopted) == {odd.hex(), os.fsencode(tmp_path / "second").hex()}
    assert not claim.lost.is_set()


def test_an_heir_that_is_done_before_its_predecessor_leaves_the_block_is_no_error(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with claim.handover(timeout=30.0) as heir:
        assert run("claim = ownership.adopt(); say(claim.token); claim.release()", env=heir.to_env()) > claim.token
        eventually(lambda: claim._holding.part.place is None)  # the keeper has seen it, and let go of everything
    assert not claim.lost.is_set()
    assert not claim.held


def test_the_parent_dies_and_its_heir_owns_on(tmp_path: Path) -> None:
    body = f"""
        claim = ownership.acquire(sys.argv[1])
        with claim.handover() as heir:
            env = {{**os.environ, **heir.to_env()}}
            child = subprocess.Popen({program(ADOPT.replace("claim.release()", "hear(); claim.release()"))!r}, env=env)
        say(claim.token)
        os._exit(0)
        """
    with running(body, tmp_path / "x") as process:
        said: list[Any] = [process.said(), process.said()]
        child, token = next(one for one in said if isinstance(one, list))[:2]
        process.process.wait(timeout=30)
        found = ownership.inspect(tmp_path / "x")
        assert found.verdict is ownership.Verdict.LIVE
        assert found.record is not None
        assert (found.record.pid, found.record.token) == (child, token)
        process.tell()
        eventually(lambda: ownership.inspect(tmp_path / "x").verdict is ownership.Verdict.FREE)


def test_a_ref_finds_its_owner_in_a_worker(tmp_path: Path) -> None:
    odd = os.path.join(os.fsencode(tmp_path), b"\xff \n")
    with ownership.acquire(odd) as claim:
        body = """
            ref = ownership.OwnerRef.from_env()
            say([os.fsencode(ref.path).hex(), ref.token, ref.owner.pid])
            """
        assert run(body, env=claim.ref.to_env()) == [odd.hex(), claim.token, os.getpid()]
