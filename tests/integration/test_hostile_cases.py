"""What hostile users found: each was two owners, a blocked successor, or something held for ever."""

from __future__ import annotations

import collections
import contextlib
import copy
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, OwnershipLostError, Verdict, _directory, _hold
from ownership._clock import SYSTEM_CLOCK
from ownership._flag import Alarm, Flag
from ownership._guard import Busy
from ownership._locking import locked
from tests.support.namespaces import NOBODY, needs_linux_root
from tests.support.processes import open_descriptors, running
from tests.support.waiting import eventually


def taken_elsewhere(path: Path, *, timeout: float = 0.0) -> str:
    """What another process is told that tries to own *path*."""
    program = (
        "import ownership, sys\n"
        "try:\n ownership.acquire(sys.argv[1], timeout=float(sys.argv[2])).release(); print('taken')\n"
        "except ownership.AlreadyOwnedError as error: print('refused', error.verdict)\n"
    )
    command = [sys.executable, "-c", program, str(path), str(timeout)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_many_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    """A thread on its way out must not unlock the guard that another has just taken."""
    inside, worst, errors = [0], [0], []

    def work() -> None:
        try:
            for _ in range(4):
                with ownership.acquire(tmp_path / "x", timeout=60.0) as claim:
                    inside[0] += 1
                    worst[0] = max(worst[0], inside[0])
                    claim.verify()
                    inside[0] -= 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert worst == [1]


def test_a_record_is_replaced_although_somebody_deletes_what_is_written(tmp_path: Path) -> None:
    claim, deleted = ownership.acquire(tmp_path / "x"), list[Path]()
    directory = claim._holding.parts[0].place.directory
    write = directory._write_temporary

    def written(temporary: str, content: bytes) -> os.stat_result:
        found = write(temporary, content)
        if len(deleted) < 2:
            deleted.append(tmp_path / ".leases" / temporary)
            deleted[-1].unlink()
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(directory, "_write_temporary", written)
        claim.announce("ready")
        assert len(deleted) == 2
        deleted.clear()
        patched.setattr(_directory, "_WRITTEN", 2)
        with pytest.raises(FileNotFoundError):
            claim.announce("late")
    claim.release()


def test_sections_of_two_threads_take_turns(tmp_path: Path) -> None:
    """Though each comes back at once."""
    with ownership.acquire(tmp_path / "x") as claim:
        entered = collections.Counter[int]()

        def work() -> None:
            while entered.total() < 200:
                with claim.critical(timeout=30.0):
                    entered[threading.get_ident()] += 1
                    os.stat(tmp_path)  # a moment in which others run

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(entered) == 2
        assert min(entered.values()) > 20


def test_a_crowd_that_wants_to_own_gives_way_to_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could keep an owner from giving up in time. Not always: who waits may be in a signal handler."""
    claim, looks = ownership.acquire(tmp_path / "x"), list[object]()
    (guard,) = (part.guard for part in claim._holding.parts)
    guard.waiting[0] = Alarm()  # as if a thread did
    for gives_way in (1.0, 0.0):
        monkeypatch.setattr(_hold, "_GIVES_WAY", gives_way)
        with pytest.raises(Busy) if gives_way else contextlib.nullcontext():
            locked([guard], 0.0, SYSTEM_CLOCK, looks.append, patient=False)
    assert len(looks) == 1
    claim.release()  # waiting behind that one, which does not come
    assert taken_elsewhere(tmp_path / "x") == "taken"


@pytest.mark.parametrize("how", ["free", "of a dead owner"])
def test_who_waits_for_one_of_several_keeps_nobody_from_the_others(tmp_path: Path, how: str) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    if how == "of a dead owner":
        with running("claim = ownership.acquire(sys.argv[1]); say(1); hear()", first) as owner:
            owner.hear()
            owner.kill()
    inside = "claim = ownership.acquire(sys.argv[1]); section = claim.critical(); section.__enter__(); say(1); hear()"
    with running(inside, second) as owner:
        owner.hear()
        owner.signal(signal.SIGSTOP)
        try:
            waiting = threading.Event()
            both = threading.Thread(target=acquire_both, args=(first, second, waiting.set))
            both.start()
            assert waiting.wait(30.0)
            assert taken_elsewhere(first) == "taken"
        finally:
            owner.signal(signal.SIGCONT)
            owner.kill()
            both.join()


def acquire_both(first: Path, second: Path, waits: Callable[[], object]) -> None:
    ownership.acquire(first, also=[second], timeout=60.0, on_wait=lambda error: waits()).release()


@pytest.mark.parametrize("timeout", [0.0, 0.6])
def test_deleting_the_record_once_makes_no_second_owner(tmp_path: Path, timeout: float) -> None:
    """The guard knows who owns; the keeper puts the record back."""
    record = tmp_path / ".leases" / "x.json"
    with ownership.acquire(tmp_path / "x") as claim:
        record.unlink()
        assert taken_elsewhere(tmp_path / "x", timeout=timeout).startswith("refused")
        claim.verify()
        eventually(record.exists)
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.LIVE


def test_a_claim_that_was_released_does_not_come_back_when_its_record_was_deleted(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    (tmp_path / ".leases" / "x.json").unlink()
    claim.release()
    assert taken_elsewhere(tmp_path / "x") == "taken"


def test_breaking_works_while_the_record_is_deleted(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    (tmp_path / ".leases" / "x.json").unlink()
    ownership.break_claim(tmp_path / "x", token=claim.token)
    with pytest.raises(OwnershipLostError):
        claim.verify()
    previous = ownership.inspect(tmp_path / "x").previous
    assert previous is not None
    assert previous.how == "broken"
    assert taken_elsewhere(tmp_path / "x") == "taken"


def test_a_directory_that_comes_back_later_is_owned_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with ownership.acquire(folder / "x") as claim:
        shutil.rmtree(folder)
        with pytest.raises(OSError, match="folder"):
            claim.verify()
        folder.mkdir()
        eventually(lambda: (folder / ".leases" / "x.json").exists())
        assert taken_elsewhere(folder / "x").startswith("refused")
        claim.verify()


def test_a_directory_that_was_moved_is_nobodys_once_the_owner_followed_the_path(tmp_path: Path) -> None:
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    folder.mkdir()
    with ownership.acquire(folder / "x"):
        folder.rename(moved)
        folder.mkdir()
        eventually(lambda: (folder / ".leases" / "x.json").exists())
        eventually(lambda: not (moved / ".leases" / "x.json").exists())
        assert taken_elsewhere(moved / "x") == "taken"
        assert taken_elsewhere(folder / "x").startswith("refused")


def test_a_refused_acquire_keeps_nothing_open(tmp_path: Path) -> None:
    program = (
        "import ownership, os, sys\n"
        "try: ownership.acquire(sys.argv[1])\n"
        "except ownership.AlreadyOwnedError: pass\n"
        "ownership.inspect(sys.argv[1])\n"
        "opened = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') "
        "if os.path.exists(f'/proc/self/fd/{n}')]\n"
        "print([name for name in opened if '.leases' in name])\n"
    )
    with ownership.acquire(tmp_path / "x"):
        command = [sys.executable, "-c", program, str(tmp_path / "x")]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_released_claim_that_is_kept_keeps_no_directory_open(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    claim.release()
    eventually(lambda: not any(str(tmp_path) in name for name in open_descriptors()))
    assert not claim.held


def test_a_claim_is_one_object(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="claim"):
                duplicate(claim)
        claim.verify()


def test_losing_one_of_several_frees_the_others_at_the_end_of_the_block(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "a", also=[tmp_path / "b"]) as claim:
        ownership.break_claim(tmp_path / "b", token=claim.tokens[tmp_path / "b"])
        with pytest.raises(OwnershipLostError):
            claim.verify()
    ownership.acquire(tmp_path / "a", also=[tmp_path / "b"]).release()


def test_the_cache_of_descriptors_leaves_room_for_the_program(tmp_path: Path) -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))\n"
        "import ownership, sys\n"
        "claims = [ownership.acquire(f'{sys.argv[1]}/r{n}') for n in range(300)]\n"
        "print(len(claims))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "300"


def test_ones_own_claim_is_named_as_such(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x"), pytest.raises(AlreadyOwnedError) as caught:
        ownership.acquire(tmp_path / "x")
    assert "this process" in caught.value.hint


def test_a_handler_that_releases_at_any_moment_never_waits_however_many_resources_there_are(tmp_path: Path) -> None:
    """More than are kept at hand: one that is used may push out another, and be interrupted at any step of that."""
    body = """
    from ownership import _guard
    directory = sys.argv[1]
    claims = [ownership.acquire(f"{directory}/held-{n}") for n in range(100)]
    steps, at = 0, 0
    def trace(frame, event, argument):
        global steps
        if frame.f_code is not _guard.remember.__code__:
            return trace
        frame.f_trace_opcodes = True
        if event in ("line", "opcode"):  # Python 3.12 tells of few opcodes
            steps += 1
            if steps == at and claims:
                sys.settrace(None)
                claims.pop(0).release()  # its guard is not at hand any more
        return trace
    while True:
        steps, at = 0, at + 1
        sys.settrace(trace)
        ownership.acquire(f"{directory}/{at % 90}").release()
        sys.settrace(None)
        if steps < at:
            break
    for claim in claims:
        claim.release()
    say([at > 4, [name for name in os.listdir(f"{directory}/.leases") if name.endswith(".json")]])
    """
    with running(body, tmp_path) as child:
        assert child.hear() == [True, []]


def test_many_threads_with_many_resources_get_no_errors_of_ours(tmp_path: Path) -> None:
    body = """
    sys.setswitchinterval(1e-6)
    errors = []
    def work(thread):
        for turn in range(250):
            try:
                ownership.acquire(f"{sys.argv[1]}/{thread}-{turn % 40}").release()
            except Exception as error:
                errors.append(repr(error))
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(errors[:5])
    """
    with running(body, tmp_path) as child:
        assert child.hear() == []


@needs_linux_root
@pytest.mark.parametrize("first", ["a", "b"])
def test_one_resource_by_two_mounts_of_its_directory_is_owned_once(tmp_path: Path, first: str) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    subprocess.run(["mount", "--bind", a, b], check=True)
    try:
        other = "b" if first == "a" else "a"
        with ownership.acquire(tmp_path / first / "x", also=[tmp_path / other / "x", tmp_path / "y"]) as claim:
            assert claim.path == tmp_path / first / "x"
            assert len(claim.tokens) == 2
            claim.verify()
            for path in (a / "x", b / "x", tmp_path / "y"):
                assert taken_elsewhere(path) == "refused live"
        assert taken_elsewhere(b / "x") == "taken"
    finally:
        subprocess.run(["umount", "-l", b], check=True)


@needs_linux_root
def test_a_lock_directory_that_is_given_away_meanwhile_gets_files_of_its_new_owner(open_directory: Path) -> None:
    """K75: a daemon of root goes on after somebody followed the advice to chown."""
    (open_directory / ".leases").mkdir(mode=0o700)
    os.chown(open_directory, NOBODY, NOBODY)
    with ownership.acquire(open_directory / "a"):
        os.chown(open_directory / ".leases", NOBODY, NOBODY)
        for name in ("a.guard", "a.json"):
            os.chown(open_directory / ".leases" / name, NOBODY, NOBODY)
        ownership.acquire(open_directory / "b").release()
    assert (open_directory / ".leases" / "b.guard").stat().st_uid == NOBODY
    (open_directory / ".leases").chmod(0o777)
    with pytest.raises(ownership.UnsafeDirectoryError):
        ownership.acquire(open_directory / "c")


def test_a_worker_forked_by_a_handler_in_the_middle_of_acquire_takes_nothing_of_its_parent(tmp_path: Path) -> None:
    """At each step in turn: it ends by an exception, and its copy of the call unwinds."""
    body = """
    import ownership._owning
    path, codes = sys.argv[1], set()
    def functions(module):
        for one in vars(module).values():
            if hasattr(one, "__code__"):
                yield one.__code__
            for method in vars(one).values() if isinstance(one, type) else ():
                if hasattr(method, "__code__"):
                    yield method.__code__
    for name in ("_acquire", "_hold", "_part", "_directory", "_locking"):
        codes.update(functions(sys.modules["ownership." + name]))
    steps = at = 0
    parent, children, robbed = os.getpid(), [], []
    def trace(frame, event, argument):
        global steps
        if frame.f_code in codes and event == "line":
            steps += 1
            if steps == at and os.getpid() == parent:
                child = os.fork()
                if child == 0:
                    sys.settrace(None)
                    raise SystemExit(0)
                children.append(child)
        return trace
    while True:
        steps, at = 0, at + 1
        try:
            sys.settrace(trace)
            claim = ownership.acquire(path)
            sys.settrace(None)
        except BaseException:
            os._exit(0)
        if children:
            os.waitpid(children.pop(), 0)
        if not os.path.exists(sys.argv[2]):
            robbed.append(at)
        claim.verify()
        claim.release()
        if steps < at:
            break
    say([at > 30, robbed])
    """
    with running(body, tmp_path / "x", tmp_path / ".leases" / "x.json") as child:
        assert child.hear() == [True, []]


def test_a_worker_forked_by_a_handler_in_the_middle_of_announce_takes_nothing_of_its_parent(tmp_path: Path) -> None:
    """At each step in turn; it goes on with its copy of the call."""
    body = """
    import ownership._holding
    path = sys.argv[1]
    codes = set()
    for name in ("_holding", "_hold", "_part", "_directory", "_locking", "_place"):
        for one in vars(sys.modules["ownership." + name]).values():
            for method in (one, *(vars(one).values() if isinstance(one, type) else ())):
                if hasattr(method, "__code__"):
                    codes.add(method.__code__)
    steps = at = 0
    parent, robbed = os.getpid(), []
    def trace(frame, event, argument):
        global steps
        if frame.f_code in codes and event == "line":
            steps += 1
            if steps == at and os.getpid() == parent:
                child = os.fork()
                if child == 0:
                    sys.settrace(None)
                else:
                    os.waitpid(child, 0)
        return trace
    claim = ownership.acquire(path)
    while True:
        steps, at = 0, at + 1
        try:
            sys.settrace(trace)
            claim.announce(f"step {at}")
            sys.settrace(None)
        except BaseException:
            if os.getpid() == parent:
                raise
        if os.getpid() != parent:
            os._exit(0)
        if not os.path.exists(sys.argv[2]):
            robbed.append(at)
        claim.verify()
        if steps < at:
            break
    say([at > 30, robbed])
    """
    with running(body, tmp_path / "x", tmp_path / ".leases" / "x.json") as child:
        assert child.hear() == [True, []]


def test_a_child_that_was_forked_while_its_parent_waits_does_not_own_in_its_name(tmp_path: Path) -> None:
    body = """
    def daemonize(error):
        if os.fork() == 0:
            signal.alarm(60)
    try:
        claim = ownership.acquire(sys.argv[1], timeout=30, on_wait=daemonize)
        say(["owns", claim.record.pid == os.getpid()])
        hear()
    except RuntimeError as error:
        say(["told", "forked child" in str(error)])
    """
    claim = ownership.acquire(tmp_path / "x")
    with running(body, tmp_path / "x") as child:
        assert child.hear() == ["told", True]
        claim.release()
        assert child.hear() == ["owns", True]


def test_a_claim_whose_finaliser_was_interrupted_is_released_all_the_same(tmp_path: Path) -> None:
    body = """
    from ownership._holding import Holding
    claim = ownership.acquire(sys.argv[1])
    def interrupt(frame, event, argument):
        if frame.f_code is Holding.retire.__code__:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt
    sys.unraisablehook = lambda unraisable: None
    sys.settrace(interrupt)
    del claim
    sys.settrace(None)
    say(True)
    hear()
    """
    with running(body, tmp_path / "x") as child:
        child.hear()
        ownership.acquire(tmp_path / "x", timeout=10).release()


def test_events_stay_usable_when_setting_them_is_interrupted_anywhere() -> None:
    for step in range(1, 40):
        flag, alarm, seen = Flag(), Alarm(), [0]
        woken = threading.Thread(target=flag.wait, args=(30,))
        woken.start()

        def interrupt(frame: Any, event: str, argument: Any, step: int = step, seen: list[int] = seen) -> Any:
            if frame.f_code in (Flag.set.__code__, Alarm.set.__code__):
                frame.f_trace_opcodes = True
                seen[0] += event == "opcode"
                if seen[0] == step:
                    raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            flag.set()
            alarm.set()
        sys.settrace(None)
        flag.set()
        woken.join(10)
        assert not woken.is_alive()
        alarm.set()
        assert alarm.wait(0)
        assert not alarm.wait(0)


def test_a_logging_handler_that_raises_ends_no_thread_of_ours(tmp_path: Path) -> None:
    body = """
    import logging
    class Broken(logging.Handler):
        def emit(self, record):
            raise OSError("no space left")
    logging.getLogger("ownership").addHandler(Broken())
    logging.getLogger("ownership").setLevel(logging.DEBUG)
    claim = ownership.acquire(sys.argv[1] + "/x")
    def fail(error):
        raise ValueError
    other = ownership.acquire(sys.argv[1] + "/y")
    other.on_loss(fail)
    ownership.break_claim(sys.argv[1] + "/y", token=other.token)
    other.lost.wait(10)
    told = threading.Event()
    claim.on_loss(lambda error: told.set())
    os.unlink(sys.argv[1] + "/.leases/x.json")
    until = time.monotonic() + 10
    while not os.path.exists(sys.argv[1] + "/.leases/x.json") and time.monotonic() < until:
        time.sleep(0.01)
    say(os.path.exists(sys.argv[1] + "/.leases/x.json"))
    ownership.break_claim(sys.argv[1] + "/x", token=claim.token)
    say([claim.lost.wait(10), told.wait(10)])
    """
    with running(body, tmp_path) as child:
        assert child.hear() is True
        assert child.hear() == [True, True]


def test_an_acquire_that_runs_out_of_stack_leaves_the_guard_free(tmp_path: Path) -> None:
    body = """
    def deep(levels):
        if levels:
            return deep(levels - 1)
        return ownership.acquire(sys.argv[1])
    sys.setrecursionlimit(220)
    outcomes = set()
    for levels in range(120, 220):
        try:
            deep(levels).release()
        except BaseException as error:
            outcomes.add(type(error).__name__)
    sys.setrecursionlimit(1000)
    ownership.acquire(sys.argv[1]).release()
    say(sorted(outcomes))
    """
    with running(body, tmp_path / "x") as child:
        assert child.hear() == ["RecursionError"]


@needs_linux_root
def test_processes_that_name_two_directories_in_different_orders_do_not_lock_each_other_out(tmp_path: Path) -> None:
    """``z`` is ``m`` by another name that sorts behind ``p``."""
    (tmp_path / "m").mkdir()
    (tmp_path / "p").mkdir()
    (tmp_path / "z").mkdir()
    subprocess.run(["mount", "--bind", tmp_path / "m", tmp_path / "z"], check=True)
    body = """
    first, second = sys.argv[1:]
    say(True)
    hear()
    errors = []
    for _ in range(150):
        try:
            ownership.acquire(first, also=[second], timeout=20).release()
        except Exception as error:
            errors.append(repr(error))
    say(errors[:3])
    """
    try:
        pairs = [(tmp_path / "m" / "x", tmp_path / "p" / "y"), (tmp_path / "z" / "x", tmp_path / "p" / "y")]
        with running(body, *pairs[0]) as one, running(body, *pairs[1]) as two:
            for child in (one, two):
                child.hear()
            for child in (one, two):
                child.say("go")
            assert [one.hear(), two.hear()] == [[], []]
    finally:
        subprocess.run(["umount", "-l", tmp_path / "z"], check=True)


def test_more_directories_than_descriptors_may_be_used_one_after_the_other(tmp_path: Path) -> None:
    """Each keeps some for a moment, in case it is used again; one that is held meanwhile is not let go of."""
    body = """
    import resource
    held = [ownership.acquire(sys.argv[1] + f"/held-{number}/x") for number in range(8)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    def work(thread):
        for turn in range(60):
            directory = f"{sys.argv[1]}/{thread}-{turn}"
            os.mkdir(directory)
            ownership.acquire(directory + "/x").release()
            ownership.inspect(directory + "/x")
    errors = []
    threading.excepthook = lambda told: errors.append(repr(told.exc_value))
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for claim in held:
        claim.verify()
    say(errors)
    """
    for number in range(8):
        (tmp_path / f"held-{number}").mkdir()
    with running(body, tmp_path) as child:
        assert child.hear() == []
