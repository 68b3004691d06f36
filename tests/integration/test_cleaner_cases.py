"""Lock directories that are deleted, moved, moved back and copied under their owners, between any two steps."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import AlreadyOwnedError, Claim, Verdict, _keeper, _moved, _place
from ownership._directory import LockDirectory
from ownership._guard import Guard
from ownership._hold import Hold
from ownership._location import Location
from ownership._part import Part
from ownership._pinned import DirectoryChanged
from ownership._station import Place
from tests.support.processes import Contender, eventually, open_descriptors, residue, running
from tests.support.records import file_of
from tests.support.waiting import eventually as soon

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
MANY = 70  # more than are looked at one by one


@pytest.fixture
def other() -> Iterator[Contender]:
    with Contender() as one:
        yield one


def deleted(folder: Path) -> None:
    shutil.rmtree(folder / ".leases", ignore_errors=True)


def moved(folder: Path) -> None:
    (folder / ".leases").rename(folder / "moved")


def copied(folder: Path) -> None:
    """A restore of a backup, or a move to another disk."""
    shutil.copytree(folder / ".leases", folder / "copy")
    moved(folder)
    (folder / "copy").rename(folder / ".leases")


@contextmanager
def sitting_in(guard: Path) -> Iterator[None]:
    """Somebody is inside a guard, and stays."""
    body = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", body, os.fspath(guard)], **pipes) as sitter:  # type: ignore[call-overload]
        assert sitter.stdout is not None
        sitter.stdout.readline()
        yield
        sitter.communicate(b"\n")


@pytest.mark.parametrize("way", ["acquired and released there", "acquired there", "looked at"])
@pytest.mark.parametrize("how", [deleted, moved])
def test_many_claims_go_along_although_others_of_the_process_were_in_the_new_directory_first(
    tmp_path: Path, other: Contender, how: Callable[[Path], None], way: str
) -> None:
    claims = [ownership.acquire(tmp_path / f"x{number}") for number in range(MANY)]
    eventually(lambda: not _keeper.UNSETTLED)
    how(tmp_path)
    late: Claim | None = None
    if way == "looked at":
        other.do("acquire", tmp_path / "theirs")  # which makes the directory
        assert ownership.inspect(tmp_path / "x0").verdict is Verdict.FREE
    else:
        late = ownership.acquire(tmp_path / "late")
        if way != "acquired there":
            late.release()
    eventually(lambda: all(file_of(claim.path).exists() for claim in claims))
    for claim in (claims[0], claims[-1]):
        claim.verify()
        assert other.do("acquire", claim.path)["error"] == "AlreadyOwnedError"
    assert not any(claim.lost.is_set() for claim in claims)
    for claim in [*claims, *([late] if late else [])]:
        claim.release()
    assert other.passes(claims[0].path)


def test_a_claim_that_outlived_its_directory_takes_nothing_from_its_successor(tmp_path: Path) -> None:
    """In one process: the greater token is right, and stays so when the other one has learned of it."""
    first = ownership.acquire(tmp_path / "x")
    deleted(tmp_path)
    second = ownership.acquire(tmp_path / "x")
    assert first.lost.wait(30)
    eventually(lambda: first._holding not in _keeper.KEEPER.holdings)
    with pytest.raises(AlreadyOwnedError):
        ownership.acquire(tmp_path / "x")
    second.verify()
    second.release()
    assert not residue(tmp_path / "x")


def test_closed_descriptors_of_a_directory_that_was_left_stop_no_keeper(tmp_path: Path) -> None:
    body = """
    import logging, shutil
    errors = []
    class Handler(logging.Handler):
        def emit(self, record):
            errors.append(record.getMessage())
    logging.getLogger("ownership").addHandler(Handler(logging.ERROR))
    left, kept = sys.argv[1], sys.argv[2]
    gone, stays = ownership.acquire(left + "/x"), ownership.acquire(kept + "/x")
    gone.verify(), stays.verify()
    os.closerange(3, 256)
    shutil.rmtree(left + "/.leases", ignore_errors=True)
    gone.release()
    for _ in range(2):
        time.sleep(1.3)  # the first directory is let go of in between
        for name in os.listdir(kept + "/.leases"):
            if name.endswith(".alive"):
                os.unlink(f"{kept}/.leases/{name}")
        deadline = time.monotonic() + 30
        while not any(name.endswith(".alive") for name in os.listdir(kept + "/.leases")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    say(errors)
    """
    for name in ("left", "kept"):
        (tmp_path / name).mkdir()
    with running(body, tmp_path / "left", tmp_path / "kept") as child:
        assert child.hear() == []


@pytest.mark.parametrize("ttl", [None, 30.0])
def test_with_closed_descriptors_a_claim_goes_along_all_the_same(tmp_path: Path, ttl: float | None) -> None:
    body = """
    import shutil
    ttl = json.loads(sys.argv[2])
    claim = ownership.acquire(sys.argv[1] + "/x", ttl=ttl) if ttl else ownership.acquire(sys.argv[1] + "/x")
    claim.verify()
    os.closerange(3, 256)
    mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    shutil.rmtree(sys.argv[1] + "/.leases", ignore_errors=True)
    os.mkdir(sys.argv[1] + "/other")  # which may get the inode
    deadline = time.monotonic() + 30
    while not os.path.exists(sys.argv[1] + "/.leases/x.json"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    claim.verify()
    say([attempt(os.fstat, number) is not None for number in mine] == [True] * 20)
    hear()
    claim.release()
    say(claim.lost.is_set())
    """
    with Contender() as other, running(body, tmp_path, json.dumps(ttl)) as child:
        assert child.hear() is True
        assert other.do("acquire", tmp_path / "x")["error"] == "AlreadyOwnedError"
        assert child.ask("release") is False
        assert other.passes(tmp_path / "x")


@pytest.mark.parametrize("how", [deleted, moved])
def test_an_adoption_whose_directory_is_replaced_is_the_heirs_or_the_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path], None]
) -> None:
    """Whoever of the two is told that it owns does, for good."""
    claim, recheck = ownership.acquire(tmp_path / "x"), Part.recheck

    def meddled(part: Part, hold: Hold) -> None:
        monkeypatch.undo()
        how(tmp_path)
        recheck(part, hold)

    monkeypatch.setattr(Part, "recheck", meddled)
    outcomes: list[object] = []
    try:
        with claim.handover(timeout=2) as heir:
            try:
                outcomes.append(heir.adopt())
            except ownership.HandoverError as error:
                outcomes.append(error)
    except ownership.HandoverError:
        assert isinstance(outcomes[0], ownership.HandoverError)
        outcomes[0] = claim
    owns = outcomes[0]
    assert isinstance(owns, Claim)
    eventually(lambda: file_of(tmp_path / "x").exists())
    ticked = _keeper.KEEPER._ticked
    eventually(lambda: _keeper.KEEPER._ticked > ticked + 0.7)
    owns.verify()
    owns.release()
    assert not residue(tmp_path / "x")


def test_an_acquire_of_which_something_is_left_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two faults at once: the directory is replaced, and what was published cannot be withdrawn."""
    withdraw, check = Part.withdraw, Part._check

    def fails(part: Part, hold: Hold) -> None:
        monkeypatch.setattr(Part, "withdraw", withdraw)

    def changed(part: Part, published: tuple[int, int], hold: Hold) -> None:
        monkeypatch.setattr(Part, "_check", check)
        raise DirectoryChanged

    monkeypatch.setattr(Part, "withdraw", fails)
    monkeypatch.setattr(Part, "_check", changed)
    with pytest.raises(OSError, match="keeps being changed"):
        ownership.acquire(tmp_path / "x")
    soon(lambda: not file_of(tmp_path / "x").exists())
    with ownership.acquire(tmp_path / "x", timeout=30) as claim:
        claim.verify()


@pytest.mark.parametrize("how", [deleted, moved])
def test_nobody_waits_for_a_guard_that_is_not_there_any_more(
    tmp_path: Path, other: Contender, how: Callable[[Path], None]
) -> None:
    """Whoever is inside it may be stopped for days: meanwhile another one would own what is at the path."""
    with ownership.acquire(tmp_path / "x") as claim, sitting_in(file_of(tmp_path / "x", "guard")):
        how(tmp_path)
        eventually(lambda: file_of(tmp_path / "x").exists())
        claim.verify()
        assert other.do("acquire", tmp_path / "x")["error"] == "AlreadyOwnedError"
    assert other.passes(tmp_path / "x")


def test_what_could_not_be_left_clean_is_cleaned_before_it_counts_as_released(tmp_path: Path, other: Contender) -> None:
    """The guard in the directory that was moved away was busy when its owner went along."""
    claim = ownership.acquire(tmp_path / "x")
    with sitting_in(file_of(tmp_path / "x", "guard")):
        moved(tmp_path)
        eventually(lambda: file_of(tmp_path / "x").exists())
        assert (tmp_path / "moved" / "x.json").exists()
        claim.release()
        assert not file_of(tmp_path / "x").exists()
    eventually(lambda: not (tmp_path / "moved" / "x.json").exists())
    eventually(lambda: claim._holding not in _keeper.KEEPER.holdings)
    (tmp_path / ".leases").rename(tmp_path / "new")
    (tmp_path / "moved").rename(tmp_path / ".leases")
    assert other.passes(tmp_path / "x")


def test_a_release_finds_its_record_in_a_copy_of_the_directory_too(tmp_path: Path, other: Contender) -> None:
    for how in (copied, lambda folder: None):
        claim = ownership.acquire(tmp_path / "x", also=[tmp_path / "y"])
        claim.verify()
        how(tmp_path)
        claim.release()
        for name in ("x", "y"):
            assert not file_of(tmp_path / name).exists()
            assert other.passes(tmp_path / name)
    assert not list((tmp_path / "moved").glob("*.json"))


@pytest.mark.parametrize("how", [copied, moved])
def test_what_cannot_be_removed_from_where_it_was_is_not_taken_for_gone(
    tmp_path: Path, other: Contender, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path], None]
) -> None:
    """The keeper goes on trying, as it does where the directory is in its place."""
    claim, discard, tried = ownership.acquire(tmp_path / "x"), LockDirectory.discard, list[str]()

    def refused(directory: LockDirectory, filename: str) -> None:
        if filename == "x.json" and len(tried) < 4:
            tried.append(filename)
            raise PermissionError(errno.EACCES, "for now", filename)
        discard(directory, filename)

    monkeypatch.setattr(LockDirectory, "discard", refused)
    how(tmp_path)
    claim.release()
    eventually(lambda: claim._holding not in _keeper.KEEPER.holdings)
    assert len(tried) == 4
    assert not list(tmp_path.glob("*/*.json"))
    if how is moved:
        (tmp_path / "moved").rename(tmp_path / ".leases")
    assert other.passes(tmp_path / "x")


def test_a_retired_claim_outlives_a_directory_that_is_away_for_a_while(tmp_path: Path, other: Contender) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    claim = ownership.acquire(folder / "x")
    claim.retire("shutting down")
    folder.rename(tmp_path / "away")
    ticked = _keeper.KEEPER._ticked
    eventually(lambda: _keeper.KEEPER._ticked > ticked + 1)  # several looks
    (tmp_path / "away").rename(folder)
    assert other.do("acquire", folder / "x")["error"] == "AlreadyOwnedError"
    file_of(folder / "x").unlink()
    eventually(lambda: file_of(folder / "x").exists())
    claim.release()
    assert other.passes(folder / "x")
    gone = ownership.acquire(folder / "y")
    gone.retire()
    while folder.exists():  # the keeper may put something back in the middle
        shutil.rmtree(folder, ignore_errors=True)
    eventually(lambda: gone._holding not in _keeper.KEEPER.holdings)  # there is nobody to be kept out


def test_a_retired_claim_among_many_is_put_back_as_soon_as_any_other(tmp_path: Path) -> None:
    claims = [ownership.acquire(tmp_path / f"x{number}") for number in range(MANY)]
    claims[0].retire("later")
    eventually(lambda: not _keeper.UNSETTLED)
    for _ in range(2):
        ticked = _keeper.KEEPER._ticked
        file_of(claims[0].path).unlink()
        eventually(lambda: file_of(claims[0].path).exists())
        assert _keeper.KEEPER._ticked - ticked < 4  # one of many is looked at once in sixteen seconds
    for claim in claims:
        claim.release()


def test_inside_a_critical_section_a_replaced_directory_is_an_error_of_the_system(tmp_path: Path) -> None:
    claim = ownership.acquire(tmp_path / "x")
    with claim.critical():
        moved(tmp_path)
        (tmp_path / ".leases").mkdir(mode=0o700)
        with pytest.raises(OSError, match="deleted or replaced"):
            claim.announce("serving")
    eventually(lambda: file_of(tmp_path / "x").exists())
    claim.verify()
    claim.release()
    assert not residue(tmp_path / "x")


def test_directories_that_come_and_go_leave_nothing_open(tmp_path: Path) -> None:
    body = """
    import gc, shutil
    from ownership import _guard, _place
    def below():
        gc.collect()
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [link for link in links if os.path.lexists(link) and sys.argv[1] in os.readlink(link)]
    for number in range(60):
        claim = ownership.acquire(f"{sys.argv[1]}/x{number}")
        shutil.rmtree(sys.argv[1] + "/.leases", ignore_errors=True)
        if number % 3 == 0:
            claim.verify()
        if number % 3 == 1:
            time.sleep(0.05)
        claim.release()
        shutil.rmtree(sys.argv[1] + "/.leases", ignore_errors=True)
    deadline = time.monotonic() + 30
    while below() or _place.places() or _guard.recent:
        assert time.monotonic() < deadline, (below(), _place.places(), _guard.recent)
        time.sleep(0.05)
    say(True)
    """
    with running(body, tmp_path) as child:
        assert child.hear() is True


def test_threads_and_a_cleaner_leave_nobody_behind(tmp_path: Path, other: Contender) -> None:
    """Whatever is not released is owned in the end, what was released is free, and no place is left with a user."""
    over = threading.Event()
    problems: list[BaseException] = []
    kept: list[Claim] = []

    def cleans() -> None:
        for number in range(60):
            if over.wait(0.01):
                return
            try:
                if number % 3:
                    (tmp_path / ".leases").rename(tmp_path / f"moved{number}")
                else:
                    deleted(tmp_path)
            except OSError:  # there is none at the moment
                pass

    def works(name: str) -> None:
        try:
            for _ in range(20):
                try:
                    with ownership.acquire(tmp_path / name, timeout=30) as claim:
                        claim.verify()
                        claim.announce("serving")
                except (OSError, ownership.OwnershipError):  # it keeps being changed from outside
                    pass
            kept.append(ownership.acquire(tmp_path / name, timeout=30))
        except BaseException as error:
            problems.append(error)

    cleaner = threading.Thread(target=cleans)
    workers = [threading.Thread(target=works, args=(f"x{number}",)) for number in range(4)]
    for thread in (cleaner, *workers):
        thread.start()
    cleaner.join()
    over.set()
    for thread in workers:
        thread.join()
    assert not problems
    assert len(kept) == 4
    eventually(lambda: all(file_of(claim.path).exists() for claim in kept))
    for claim in kept:
        claim.verify()
        assert other.do("acquire", claim.path)["error"] == "AlreadyOwnedError"
        claim.release()
        assert other.passes(claim.path)
    eventually(
        lambda: not [place for place in _place.places() if place.users and str(tmp_path) in place.directory.path]
    )
    assert not [path for path in tmp_path.glob("*/*.json") if path.parent.name != ".leases"]


# -- signal handlers, finalisers and threads in the middle of it


def is_known(claim: Claim) -> bool:
    """Whether the keeper looks after where it is."""
    return claim._holding.part.place in _place.places() and claim._holding.part in claim._holding.part.place.users


@pytest.mark.parametrize("raises", [False, True])
def test_a_handler_in_the_moment_in_which_a_directory_is_found_again_leaves_it_known(
    tmp_path: Path, other: Contender, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """It verifies, and so does what its thread is about to do; or it raises. Whether that directory is new or back."""
    claim, made = ownership.acquire(tmp_path / "x", ttl=30.0), _place._made
    for how in (moved, lambda folder: exchanged(folder)):
        how(tmp_path)

        def handled(location: Location) -> Place:
            monkeypatch.undo()
            place = made(location)
            claim.verify()
            if raises:
                raise KeyboardInterrupt
            return place

        if not (tmp_path / ".leases").exists():
            (tmp_path / ".leases").mkdir(mode=0o700)
        monkeypatch.setattr(_place, "_made", handled)
        with contextlib.suppress(KeyboardInterrupt):
            ownership.inspect(tmp_path / "x")
        monkeypatch.undo()
        eventually(lambda: file_of(tmp_path / "x").exists() and is_known(claim))
        claim.verify()
        assert ownership.inspect(tmp_path / "x").verdict is Verdict.LIVE
        assert other.do("acquire", tmp_path / "x")["error"] == "AlreadyOwnedError"
    claim.release()
    assert other.passes(tmp_path / "x")


def exchanged(folder: Path) -> None:
    """The one that was moved away is back, and the other one away."""
    (folder / ".leases").rename(folder / "between")
    (folder / "moved").rename(folder / ".leases")


def test_whatever_breaks_off_going_along_the_next_call_goes_on_with(
    tmp_path: Path, other: Contender, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave, enter, put = _moved.leave_behind, Place.enter, Part.put
    for number, (owner, name) in enumerate([(_moved, "leave_behind"), (Place, "enter"), (Part, "put")]):
        claim = ownership.acquire(tmp_path / "x")
        claim.verify()
        (tmp_path / ".leases").rename(tmp_path / f"moved{number}")
        real = {"leave_behind": leave, "enter": enter, "put": put}[name]

        def interrupted(*given: Any, real: Any = real) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return real(*given)
            monkeypatch.undo()
            if real is not leave:
                real(*given)
            raise KeyboardInterrupt  # as a handler would, right behind it

        monkeypatch.setattr(owner, name, interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            claim.verify()
        monkeypatch.undo()
        claim.release()
        assert other.passes(tmp_path / "x")
        eventually(lambda: not [place for place in _place.places() if str(tmp_path) in place.directory.path])
        left = {path.suffix for path in tmp_path.glob("moved*/*")} - {".guard", ""}
        assert left == set(), name


def test_what_is_released_while_it_goes_along_leaves_nothing_behind(
    tmp_path: Path, other: Contender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper brings it along, and finds the guard there busy; meanwhile it is released."""
    claim, leave = ownership.acquire(tmp_path / "x"), _moved.leave_behind

    def busy(part: Part, place: Place, guard: Guard) -> bool:
        monkeypatch.setattr(_moved, "leave_behind", leave)
        claim.release()  # as another thread
        return False

    moved(tmp_path)
    monkeypatch.setattr(_moved, "leave_behind", busy)
    claim._holding.part.follow()
    eventually(lambda: claim._holding not in _keeper.KEEPER.holdings)
    shutil.rmtree(tmp_path / ".leases", ignore_errors=True)
    (tmp_path / "moved").rename(tmp_path / ".leases")
    assert other.passes(tmp_path / "x")


@pytest.mark.parametrize("how", ["deleted", "moved", "a file", "unsafe"])
def test_a_registry_that_is_gone_is_nothing_to_wait_for(tmp_path: Path, how: str) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    claim = ownership.acquire(tmp_path / "x", registry=registry)
    registry.rename(tmp_path / "away")
    if how == "deleted":
        shutil.rmtree(tmp_path / "away", ignore_errors=True)
    if how == "a file":
        registry.touch()
    if how == "unsafe":
        registry.mkdir()
        registry.chmod(0o777)
    claim.release()
    eventually(lambda: claim._holding not in _keeper.KEEPER.holdings)
    assert not list(tmp_path.glob("away/*.json"))


def test_directories_that_were_left_are_not_kept_open(tmp_path: Path) -> None:
    for _ in range(5):
        with ownership.acquire(tmp_path / "x") as claim:
            moved(tmp_path)
            claim.verify()
            exchanged(tmp_path)
            claim.verify()
        shutil.rmtree(tmp_path / "between", ignore_errors=True)
    eventually(lambda: gc.collect() >= 0 and not [path for path in open_descriptors() if str(tmp_path) in path])


def test_threads_that_put_back_at_once_what_was_deleted_raise_nothing_and_keep_nothing_open(tmp_path: Path) -> None:
    body = """
    import gc, shutil
    from ownership import _fork
    sys.setswitchinterval(1e-5)
    claims = [ownership.acquire(f"{sys.argv[1]}/x{number}") for number in range(20)]
    over, problems = threading.Event(), []
    def verifies():
        while not over.is_set():
            for claim in claims:
                try:
                    claim.verify()
                except ownership.OwnershipError:
                    pass
                except OSError as error:
                    if error.errno != 11:  # it keeps being changed
                        problems.append(repr(error))
                except Exception as error:
                    problems.append(repr(error))
    threads = [threading.Thread(target=verifies) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        time.sleep(0.02)
        shutil.rmtree(sys.argv[1] + "/.leases", ignore_errors=True)
    over.set()
    for thread in threads:
        thread.join()
    for claim in claims:
        claim.release()
    def below():
        gc.collect()
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [link for link in links if os.path.lexists(link) and sys.argv[1] in os.readlink(link)]
    deadline = time.monotonic() + 30
    while below() or _fork.held:
        assert time.monotonic() < deadline, (below(), len(_fork.held))
        time.sleep(0.05)
    say(problems)
    """
    with running(body, tmp_path) as child:
        assert child.hear() == []


def test_a_handler_that_owns_and_gives_up_meets_no_thread_that_waits_for_its_own(tmp_path: Path) -> None:
    """While a second thread makes directories and their witnesses, and the handler comes anywhere in the main one."""
    body = """
    import shutil
    folder, over, counts = [sys.argv[1] + "/0"], threading.Event(), [0, 0, 0]
    os.mkdir(folder[0])
    sys.setswitchinterval(1e-5)
    nested = []
    def handler(*_):
        if not nested:
            nested.append(True)
            try:
                counts[2] += 1
                attempt(lambda: ownership.acquire(f"{folder[0]}/h{counts[2]}").release())
            finally:
                nested.clear()
    def second():
        while not over.is_set():
            counts[1] += 1
            path = f"{sys.argv[1]}/{counts[1]}"
            os.mkdir(path)
            folder[0] = path
            ownership.acquire(path + "/x").release()
    thread = threading.Thread(target=second)
    signal.signal(signal.SIGALRM, handler)
    thread.start()
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        counts[0] += 1
        attempt(lambda: ownership.acquire(f"{folder[0]}/m{counts[0]}").release())
    signal.setitimer(signal.ITIMER_REAL, 0)
    over.set()
    thread.join()
    say(min(counts) > 0)
    """
    with running(body, tmp_path) as child:
        assert child.hear() is True


@pytest.mark.parametrize("announces", [False, True])
def test_a_wait_leaves_inotify_instances_of_the_program_alone(
    tmp_path: Path, other: Contender, announces: bool
) -> None:
    """K74: it closed ours, and made its own with the same numbers, which watch nothing yet."""
    body = """
    import ctypes
    libc = ctypes.CDLL(None)
    got = []
    def waits():
        with ownership.acquire(sys.argv[1] + "/x", timeout=60, on_wait=lambda error: say("waits")):
            got.append(True)
    thread = threading.Thread(target=waits)
    thread.start()
    deadline = time.monotonic() + 30
    def numbers():
        return [n for n in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{n}")
                and os.readlink(f"/proc/self/fd/{n}") == "anon_inode:inotify"]
    while not numbers():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    hear()
    os.closerange(3, 256)
    mine = [libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK) for _ in range(12)]
    say("made")
    hear()
    marks = [open(f"/proc/self/fdinfo/{n}").read().count("inotify wd") for n in mine]
    say(marks)
    hear()
    thread.join(60)
    say([got, len(numbers())])
    """
    path = tmp_path / "x"
    assert "value" in other.do("acquire", path)
    with running(body, tmp_path) as child:
        assert child.hear() == "waits"
        assert child.ask("close") == "made"
        if announces:
            for _ in range(2):
                assert "value" in other.do("announce", path, phase="serving")
        assert child.ask("look") == [0] * 12
        assert "value" in other.do("release", path)
        assert child.ask("end") == [[True], 12]
    soon(lambda: ownership.inspect(path).verdict is Verdict.FREE)
