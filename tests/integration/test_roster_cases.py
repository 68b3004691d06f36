"""Rosters of real processes: killed, stopped, replaced, of other accounts and namespaces, many at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ownership
from leases import Roster, Task, TaskTakenError, TaskTimeoutError
from ownership import AlreadyOwnedError, Verdict
from tests.support.namespaces import NEW_PIDS, NOBODY, elsewhere, program
from tests.support.processes import HERD, Child, eventually, run, running, stopped

PATIENCE = 60.0

DRIVER = """
import leases
roster = leases.Roster(sys.argv[1])
tasks = {}
say(os.getpid())
while True:
    what, name, *more = hear()
    try:
        if what in ("start", "claim_lost"):
            tasks[name] = getattr(roster, what)(name, *more)
            say(tasks[name].token)
        elif what == "own":
            claim = ownership.acquire(name)
            say(claim.token)
        else:
            say(getattr(tasks[name], what)(*more))
    except Exception as error:
        say({"error": type(error).__name__, "text": str(error)})
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.roster"


@contextlib.contextmanager
def driver(path: Path, prefix: tuple[str, ...] = ()) -> Iterator[Child]:
    with running(DRIVER, path, prefix=prefix) as child:
        child.hear()
        yield child


def names(found: tuple[Task, ...]) -> set[str]:
    return {task.name for task in found}


# one driver


def test_a_driver_that_is_killed_leaves_a_lost_task_reaped_or_not_or_its_number_reused(path: Path) -> None:
    """In a pid namespace of its own, where nobody else takes the number."""
    told = run(
        """
        import leases
        from ownership.testing import reuse_pid
        roster, (reading, writing) = leases.Roster(sys.argv[1]), os.pipe()
        child = os.fork()
        if child == 0:
            roster.start("a")
            os.write(writing, b".")
            signal.pause()
        os.read(reading, 1)
        said = [roster.task("a")]
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        said.append(roster.task("a"))
        os.waitpid(child, 0)
        said.append(roster.task("a"))
        with reuse_pid(child):
            said.append(roster.task("a"))
            assert [task.name for task in roster.restore().lost] == ["a"]
        say([[task.state, task.verdict] for task in said])
        """,
        path,
        prefix=NEW_PIDS,
    )
    assert told == [["running", "live"], ["lost", "zombie"], ["lost", "gone"], ["lost", "reused"]]


def test_a_stopped_driver_drives_on(path: Path) -> None:
    roster = Roster(path)
    with driver(path) as child:
        child.ask(["start", "a"])
        with stopped(child.pid):
            assert roster.task("a").verdict is Verdict.STOPPED
            assert names(roster.restore().running) == {"a"}
            with pytest.raises(TaskTakenError, match="stopped"):
                roster.claim_lost("a")
            with pytest.raises(TaskTimeoutError):
                roster.wait("a", 0.3)
        assert child.ask(["finish", "a"]) is None
    assert roster.task("a").state == "finished"


def test_followers_in_many_processes_end_with_the_driver_at_once_and_once_each(path: Path) -> None:
    follow = """
    import leases, asyncio
    roster, ended = leases.Roster(sys.argv[1]), []
    following = roster.follow("a", ended.append)
    say("following")
    async def main():
        return await following
    found = asyncio.run(main())
    again = roster.wait("a")
    time.sleep(0.3)
    say([found.state, again.state, len(ended), ended[0].verdict])
    """
    with driver(path) as child, contextlib.ExitStack() as stack:
        child.ask(["start", "a"])
        followers = [stack.enter_context(running(follow, path)) for _ in range(3)]
        for one in followers:
            one.hear()
        child.process.kill()
        for one in followers:
            state, again, count, verdict = one.hear()
            assert (state, again, count) == ("lost", "lost", 1)
            assert verdict == "zombie"


def test_a_program_that_ends_because_a_task_did_calls_back_first(path: Path) -> None:
    told = run(
        """
        import leases
        roster = leases.Roster(sys.argv[1])
        task = roster.start("a")
        roster.follow("a", lambda task: (time.sleep(0.3), say(task.state)))
        task.finish()
        roster.wait("a")
        """,
        path,
    )
    assert told == "finished"


def test_a_program_does_not_wait_for_ever_for_a_callback(path: Path) -> None:
    body = """
    import leases
    roster = leases.Roster(sys.argv[1])
    task = roster.start("a")
    roster.follow("a", lambda task: (say(True), time.sleep(600)))
    task.finish()
    roster.wait("a")
    """
    with running(body, path) as child:
        assert child.hear()
        assert child.process.wait(PATIENCE) == 0


def test_a_handle_in_a_forked_child_is_inert_and_the_child_may_drive_tasks_of_its_own(path: Path) -> None:
    found = run(
        """
        import leases
        roster = leases.Roster(sys.argv[1])
        task, other = roster.start("a"), threading.Thread(target=lambda: [roster.start(f"t{n}") for n in range(20)])
        following = roster.follow("a")
        other.start()
        reading, writing = os.pipe()
        if os.fork() == 0:
            said = [attempt(task.finish), attempt(task.verify), attempt(following.wait)]
            try:
                task.verify()
            except leases.TaskLostError as error:
                said.append(error.reason)
            roster.start("child").update("mine")
            said.append([one.name for one in roster.restore().lost])
            os.write(writing, json.dumps(said).encode())
            os._exit(0)
        other.join()
        said = json.loads(os.read(reading, 1000))
        os.wait()
        task.finish()
        say([said, following.wait().state, roster.task("child").state, len(roster.restore().running)])
        """,
        path,
    )
    assert found == [["TaskLostError", "TaskLostError", "RuntimeError", "forked", []], "finished", "lost", 20]


def test_the_image_before_exec_drives_no_more(path: Path) -> None:
    after = (
        "import sys, leases; roster = leases.Roster(sys.argv[1]); task = roster.claim_lost('a'); task.finish(); "
        "print(repr(task.before.reason))"
    )
    body = f"""
    import leases
    leases.Roster(sys.argv[1]).start("a")
    os.execv(sys.executable, [sys.executable, "-c", {after!r}, sys.argv[1]])
    """
    with running(body, path) as child:
        out = child._output.read()
    assert b"before exec" in out
    assert Roster(path).task("a").state == "finished"


def test_closed_descriptors_do_no_harm(path: Path) -> None:
    found = run(
        """
        import leases
        roster = leases.Roster(sys.argv[1])
        task = roster.start("a")
        following = roster.follow("a")
        time.sleep(0.1)
        os.closerange(3, 256)
        files = [open(sys.argv[1] + f".own{n}", "w+") for n in range(30)]
        task.update("more")
        time.sleep(0.3)
        task.finish()
        say([following.wait(20).state, [file.read() for file in files] == [""] * 30])
        """,
        path,
    )
    assert found == ["finished", True]


INTERRUPTED = """
import itertools, warnings
import leases
from tests.support.injection import Interrupter
warnings.simplefilter("ignore")

class Interruption(BaseException):
    pass

def interrupt():
    raise Interruption

what, step = sys.argv[2], int(sys.argv[3])
faults = []
for number in itertools.count(1, step):
    path = f"{sys.argv[1]}-{number % 2}"  # a new one each time: reading more lines takes more points
    if os.path.exists(path):
        os.unlink(path)
    roster, name = leases.Roster(path, timeout=5), "task"
    roster.start("first").finish()
    task = None
    if what in ("update", "finish"):
        task = roster.start(name)
    elif what == "claim_lost":
        roster.start(name).give_up()
    acts = {
        "start": lambda: roster.start(name),
        "claim_lost": lambda: roster.claim_lost(name),
        "update": lambda: task.update("more"),
        "finish": lambda: task.finish(),
        "compact": roster.compact,
        "follow": lambda: roster.follow(name).wait(5),
    }
    if what == "follow":
        roster.start(name).finish()
    interrupter = Interrupter(interrupt)
    try:
        got = interrupter.run(number, acts[what])
    except Interruption:
        got = None
    if not interrupter.point:
        break
    running = [one.name for one in roster.restore().running]
    if what in ("start", "claim_lost"):
        if running != ([name] if got is not None else []):
            faults.append([interrupter.point, running, got is not None])
        task = got
    if task is not None:
        task.finish()
    late = []
    other = threading.Thread(target=lambda: late.append(leases.Roster(path, timeout=5).start("other").finish()))
    other.start()
    other.join(20)
    if not late or (late := roster.restore().running):
        faults.append([interrupter.point, "others", len(late)])
    if len(faults) > 5:
        break
say([number, faults])
"""


@pytest.mark.parametrize("what", ["start", "claim_lost", "finish", "compact", "follow"])
def test_interrupted_anywhere_there_is_a_handle_or_nothing_of_ours(path: Path, what: str) -> None:
    count, faults = run(INTERRUPTED, path, what, 37)
    assert not faults
    assert count > 37


@pytest.mark.slow
@pytest.mark.parametrize("what", ["start", "claim_lost", "update", "finish", "compact", "follow"])
def test_interrupted_at_each_point_there_is_a_handle_or_nothing_of_ours(path: Path, what: str) -> None:
    count, faults = run(INTERRUPTED, path, what, 1, patience=600)
    assert not faults
    assert count > 17


# many


def test_of_many_restorers_exactly_one_takes_each_lost_task_and_none_a_live_one(path: Path) -> None:
    with driver(path) as dead, driver(path) as live:
        for number in range(100):
            dead.ask(["start", f"lost-{number}"])
        for number in range(10):
            live.ask(["start", f"live-{number}"])
        dead.process.kill()
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        outcomes = run(
            HERD
            + """
import leases, random
def work(number):
    roster, mine = leases.Roster(sys.argv[1], timeout=60), []
    found = roster.restore()
    every = [*found.lost, *found.running]
    random.Random(number).shuffle(every)
    for task in every:
        try:
            mine.append(roster.claim_lost(task).name)
        except leases.TaskTakenError:
            pass
    after = roster.restore()
    os.close(os.open(f"{sys.argv[1]}.done{number}", os.O_CREAT))
    while any(not os.path.exists(f"{sys.argv[1]}.done{one}") for one in range(16)):
        time.sleep(0.01)  # whoever ends earlier loses what it has taken
    return [mine, [one.name for one in (*after.lost, *found.lost) if one.name.startswith("live")]]
say(herd(16, work))
""",
            path,
            patience=120,
        )
        assert all(isinstance(outcome, list) for outcome in outcomes), outcomes
        taken = sorted(name for mine, _ in outcomes for name in mine)
        assert taken == sorted(f"lost-{number}" for number in range(100))
        assert not any(wrong for _, wrong in outcomes)
        assert names(Roster(path).restore().running) == {f"live-{number}" for number in range(10)}


def test_writers_killed_at_any_moment_lose_nothing_that_they_were_told_was_written(path: Path) -> None:
    """Every finish that returned is there; what was driven by a killed one is lost; nothing of a live one is."""
    write = """
    import leases
    roster = leases.Roster(sys.argv[1])
    for number in range(10_000):
        task = roster.start(f"{os.getpid()}-{number}")
        task.update("half way", data={"n": number})
        task.finish()
        say(number)
        if number % 7 == 0:
            roster.compact()
    """
    roster, rng, told = Roster(path), random.Random(7), {}
    with driver(path) as live:
        live.ask(["start", "live"])
        following = roster.follow("live")
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                writers = [stack.enter_context(running(write, path)) for _ in range(3)]
                until = time.monotonic() + rng.uniform(0.05, 0.25)
                for one in writers:
                    one.hear()
                while time.monotonic() < until:
                    assert "live" in names(roster.restore().running)
                for one in writers:
                    one.process.kill()
                    heard = one._heard + one._output.read()
                    told[one.pid] = max([0, *(int(line) for line in heard.split(b"\n")[:-1])])
        found = roster.restore()
        assert names(found.running) == {"live"}
        finished = names(found.finished)
        for pid, last in told.items():
            assert {f"{pid}-{number}" for number in range(last + 1)} <= finished
        assert len(found.lost) <= len(told)
        for task in found.lost:
            roster.claim_lost(task).finish()
        assert not roster.restore().lost
        live.ask(["finish", "live"])
        assert following.wait(PATIENCE).state == "finished"
    roster.compact()
    assert not list(path.parent.glob("*.new"))


def test_a_writer_that_is_stopped_inside_is_named_and_goes_on_when_it_may(path: Path) -> None:
    inside = """
    import leases
    from leases._roster_file import OpenRoster
    roster, append = leases.Roster(sys.argv[1]), OpenRoster.append
    def stopping(file, lines):
        os.kill(os.getpid(), signal.SIGSTOP)
        return append(file, lines)
    roster.start("a")
    OpenRoster.append = stopping
    say(os.getpid())
    hear()
    say(roster.start("b").token)
    """
    roster = Roster(path, timeout=0.2)
    with running(inside, path) as child:
        child.hear()
        child.say("go")
        eventually(lambda: ownership.is_stopped(child.pid))
        with pytest.raises(AlreadyOwnedError, match=f"pid {child.pid}"):
            roster.start("c")
        assert names(roster.restore().running) == {"a"}  # looking waits for nobody
        child.signal(signal.SIGCONT)
        token = child.hear()
        assert roster.task("b").token == token
        roster.start("c").finish()


def test_a_writer_that_was_broken_and_wakes_takes_nothing_from_others(path: Path) -> None:
    """Whoever is stopped inside may be broken by decision; what it writes late is settled by its token."""
    inside = """
    import leases
    from leases._roster_file import OpenRoster
    roster, append = leases.Roster(sys.argv[1]), OpenRoster.append
    def stopping(file, lines):
        OpenRoster.append = append
        os.kill(os.getpid(), signal.SIGSTOP)
        return append(file, lines)
    OpenRoster.append = stopping
    say(attempt(lambda: roster.claim_lost("a").token))
    """
    roster = Roster(path)
    roster.start("a").give_up()
    with running(inside, path) as child:
        eventually(lambda: ownership.is_stopped(child.pid))
        ownership.break_claim(path, token=ownership.inspect(path).token)
        ours = roster.claim_lost("a")
        child.signal(signal.SIGCONT)
        assert child.hear() == "TaskTakenError"
        assert roster.task("a").token == ours.token
        ours.finish()
    assert roster.task("a").state == "finished"


# full disks, other accounts, other namespaces


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_an_error_and_nothing_that_was_told_is_lost(small: Path) -> None:
    roster, told, failed = Roster(small / "x"), [], 0
    ballast = small / "ballast"
    for number in range(200):
        try:
            roster.start(f"task-{number}", data="x" * random.Random(number).randrange(2000)).finish()
            told.append(f"task-{number}")
        except OSError as error:
            failed += error.errno == errno.ENOSPC
            if failed > 5:
                break
    assert failed > 5
    found = roster.restore()
    assert names(found.finished) == set(told)
    for task in found.running:  # it could be begun, and not even be given up
        assert roster.driven
        assert task.owner is not None
    assert not ballast.exists()
    subprocess.run(["mount", "-o", "remount,size=1m", small], check=True)
    for task in found.running:
        roster.driven(task.name).finish()
    for task in roster.restore().lost:
        roster.claim_lost(task).finish()
    roster.start("after").finish()
    assert names(roster.restore().finished) >= {*told, "after"}
    roster.compact()
    assert names(Roster(small / "x").restore().finished) >= {*told, "after"}


def test_a_limit_on_file_sizes_is_told_as_what_it_is(path: Path) -> None:
    told = run(
        """
        import leases, resource
        roster = leases.Roster(sys.argv[1])
        task = roster.start("a", data="x" * 9000)  # longer than lock files are
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1]) + 50, resource.RLIM_INFINITY))
        said = []
        for _ in range(2):
            try:
                task.update(data=1)
            except OSError as error:
                said.append([error.errno, error.filename, error.hint])
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        task.update(data=2)
        say([*said, roster.task("a").data])
        """,
        path,
    )
    assert told == [*[[errno.EFBIG, str(path), "raise the limit of file sizes (ulimit -f)"]] * 2, 2]


def test_tasks_of_another_account_are_judged_and_left_alone(open_directory: Path) -> None:
    registry, place = open_directory / "registry", open_directory / "place"
    for folder in (registry, place):
        folder.mkdir()
        os.chown(folder, 0, NOBODY)
        folder.chmod(0o2770)
    path = place / "x.roster"
    mine = Roster(path, registry=registry).start("root's")

    def theirs() -> list[str]:
        roster = Roster(path, registry=registry)
        roster.start("nobody's").finish()
        roster.start("lost")
        found = roster.restore()
        try:
            roster.claim_lost("root's")
        except TaskTakenError as taken:
            refused = str(taken.task.verdict)
        return [*sorted(names(found.running)), *names(found.lost), refused]

    assert elsewhere(theirs, uid=NOBODY) == ["lost", "root's", "live"]
    found = Roster(path, registry=registry).restore()
    assert (names(found.running), names(found.lost), names(found.finished)) == ({"root's"}, {"lost"}, {"nobody's"})
    Roster(path, registry=registry).claim_lost("lost").finish()
    Roster(path, registry=registry).compact()
    assert (path.stat().st_gid, path.stat().st_mode & 0o777) == (NOBODY, 0o660)
    elsewhere(lambda: Roster(path, registry=registry).start("again").finish(), uid=NOBODY)
    mine.finish()
    assert not Roster(path, registry=registry).restore().lost[1:]


def test_one_run_as_root_locks_nobody_out(open_directory: Path) -> None:
    home = open_directory / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    Roster(home / "x").start("root's").finish()

    def theirs() -> set[str]:
        Roster(home / "x").start("ours").finish()
        Roster(home / "x").compact()
        return names(Roster(home / "x").restore().finished)

    assert elsewhere(theirs, uid=NOBODY) == {"root's", "ours"}
    Roster(home / "x").compact()
    assert (home / "x").stat().st_uid == NOBODY


def test_a_driver_in_another_pid_namespace_is_judged_by_its_witness(path: Path) -> None:
    roster = Roster(path)
    with driver(path, NEW_PIDS) as child:
        child.ask(["start", "a"])
        child.ask(["own", str(path.with_name("session"))])
        found = roster.task("a")
        assert (found.state, found.verdict) == ("running", Verdict.LIVE)
        assert "another pid namespace" in found.reason
        following = roster.follow("a")
        child.kill()
        found = following.wait(PATIENCE)
        assert (found.state, found.verdict) == ("lost", Verdict.GONE)
    roster.claim_lost("a").finish()


def kept_busy(path: Path) -> None:
    """Others use the directory, which sweeps what no record names."""
    run("ownership.acquire(sys.argv[1]).release(); say(None)", path.with_name("other"))
    ownership.reclaim(path.with_name("session"))


@pytest.mark.parametrize("reclaimed", [False, True])
def test_a_driver_of_another_pid_namespace_stays_lost_whatever_others_do(path: Path, reclaimed: bool) -> None:
    roster = Roster(path)
    with driver(path, NEW_PIDS) as child:
        for name in "abc":
            child.ask(["start", name])
        child.ask(["own", str(path.with_name("session"))])
        assert names(roster.restore().running) == {"a", "b", "c"}
        child.kill()
    kept_busy(path)
    if reclaimed:
        assert ownership.reclaim(path.with_name("x.roster.driver-1")).verdict is Verdict.GONE
    kept_busy(path)
    assert names(roster.restore().lost) == {"a", "b", "c"}
    for name in "abc":  # the first of which takes the seat of the dead one
        roster.claim_lost(name).finish()
    assert names(roster.restore().finished) == {"a", "b", "c"}


def test_a_driver_that_nothing_can_be_told_of_keeps_its_task_until_somebody_decides(path: Path) -> None:
    """Dead, in another pid namespace, and a cleaner took its witness: as with any owner, to break it is a decision."""
    roster, seat = Roster(path), path.with_name(f"{path.name}.driver-1")
    with driver(path, NEW_PIDS) as child:
        child.ask(["start", "a"])
        child.kill()
    for witness in (path.parent / ".leases").glob("*.alive"):
        witness.unlink()
    assert roster.task("a").verdict is Verdict.UNKNOWN
    with roster.start("other"):  # by a driver that has another seat
        assert roster.task("a").state == "running"
    ownership.break_claim(seat, token=ownership.inspect(seat).token)
    found = roster.task("a")
    assert (found.state, found.verdict) == ("lost", Verdict.GONE)
    assert "does not own its seat 1 any more: broken" in found.reason
    roster.claim_lost("a").finish()


def test_seats_are_used_again(path: Path) -> None:
    """However many drive one after the other, no more guards are left than drove at one time."""
    for number in range(4):
        with driver(path) as child, driver(path) as other:
            child.ask(["start", f"a{number}"])
            other.ask(["start", f"b{number}"])
            if number % 2:
                child.kill()
    assert {one.name for one in (path.parent / ".leases").glob("*.driver-*.guard")} == {
        "x.roster.driver-1.guard",
        "x.roster.driver-2.guard",
    }


def test_a_process_has_one_seat_however_many_tasks_and_gives_it_up_when_it_ends(path: Path) -> None:
    body = """
    import leases
    for number in range(3):
        leases.Roster(sys.argv[1]).start(f"a{number}")
    say(sorted(one.resource.name for one in ownership.inspect_all(os.path.dirname(sys.argv[1]))))
    """
    assert run(body, path) == ["x.roster.driver-1"]
    found = ownership.inspect(path.with_name("x.roster.driver-1"))
    assert found.verdict is Verdict.FREE
    assert found.previous is not None
    assert found.previous.how == "released"
    assert names(Roster(path).restore().lost) == {"a0", "a1", "a2"}


def test_whoever_only_tries_to_drive_takes_no_seat(path: Path) -> None:
    with driver(path) as child:
        child.ask(["start", "a"])
        roster = Roster(path)
        with pytest.raises(TaskTakenError):
            roster.claim_lost("a")
        with pytest.raises(TaskTakenError):
            roster.start("a")
        assert len(list((path.parent / ".leases").glob("*.driver-*"))) == 2


BECOME = """
    import leases
    roster = leases.Roster(sys.argv[1])
    for name in "abc":
        roster.start(name)
    os.execv(sys.argv[2], sys.argv[2:])
    """
AGAIN = """
    import leases
    roster = leases.Roster(sys.argv[1])
    found = [[task.name for task in roster.restore().lost]]
    for name in "ab":
        roster.claim_lost(name)
        found.append([task.name for task in roster.restore().lost])
    say(found)
    hear()
    """


def test_what_an_earlier_image_drove_stays_lost_for_everybody(path: Path) -> None:
    """Before exec: the process lives on, but nobody in it drives those tasks."""
    with running(BECOME, path, *program(AGAIN, path)) as child:
        assert child.hear() == [["a", "b", "c"], ["b", "c"], ["c"]]
        task = Roster(path).task("c")
        assert (task.state, task.verdict) == ("lost", Verdict.GONE)
        assert "has become another program" in task.reason
        assert names(Roster(path).restore().running) == {"a", "b"}
        Roster(path).claim_lost("c").finish()
        child.say("end")


@pytest.mark.slow  # examples are run by themselves
def test_the_example_goes_on_where_it_was_killed() -> None:
    here = Path(ownership.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, here / "examples" / "job_runner.py"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(here)},
    )
    assert done.returncode == 0, done.stderr
    assert "takes over transform at step 2" in done.stdout


def test_threads_follow_and_change_while_others_are_killed(path: Path) -> None:
    roster, ended = Roster(path), []
    with contextlib.ExitStack() as stack:
        drivers = [stack.enter_context(driver(path)) for _ in range(4)]
        for number, one in enumerate(drivers):
            for turn in range(3):
                one.ask(["start", f"{number}-{turn}"])
        threads = [
            threading.Thread(target=lambda name=f"{number}-{turn}": ended.append(roster.wait(name, PATIENCE)))
            for number in range(4)
            for turn in range(3)
        ]
        for thread in threads:
            thread.start()
        for number, one in enumerate(drivers):
            one.ask(["finish", f"{number}-0"])
            one.process.kill()
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted((task.name, task.state) for task in ended) == sorted(
        (f"{number}-{turn}", "finished" if turn == 0 else "lost") for number in range(4) for turn in range(3)
    )
