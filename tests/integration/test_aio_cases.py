"""Leases of asyncio programs: stopped, robbed, blocked, signalled; and what the loop has to bear."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import sys
from pathlib import Path

import pytest

import leases
import ownership
from leases import append_line, read_lines
from ownership import Verdict
from tests.support.cli import ROOT
from tests.support.processes import Contender, eventually, is_locked, residue, run, running, stopped
from tests.support.records import file_of
from tests.support.timing import assert_at_best

SERVICE = """
import asyncio, leases
from leases import aio
path, ttl = sys.argv[1], float(sys.argv[2])
async def main():
    async with aio.acquire(path, ttl=ttl) as lease:
        say(lease.token)
        number = 0
        while True:
            try:
                await aio.append_line(lease, f"{lease.token} {number} " + "x" * 300)
            except ownership.GuardTimeoutError:  # somebody looks
                pass
            number += 1
            await asyncio.sleep(0.002)
try:
    asyncio.run(main())
except leases.LeaseLostError as lost:
    say([type(lost).__name__, lost.reason])
hear()
"""


def test_a_service_that_was_stopped_past_its_ttl_writes_nothing_after_its_successor(tmp_path: Path) -> None:
    """K52, K53."""
    path = tmp_path / "x"
    with running(SERVICE, path, 1.0) as service:
        token = service.hear()
        eventually(lambda: path.exists() and path.stat().st_size > 0)
        while True:
            service.signal(signal.SIGSTOP)
            eventually(lambda: ownership.is_stopped(service.pid))
            if not is_locked(file_of(path, "guard")):
                break
            service.signal(signal.SIGCONT)
        with leases.acquire(path, ttl=30.0, timeout=20.0) as lease:
            append_line(lease, f"{lease.token} 0 mine")
            service.signal(signal.SIGCONT)
            assert service.hear() == ["LeaseLostError", "expired"]
            append_line(lease, f"{lease.token} 1 mine")
            written = [int(line.split()[0]) for line in read_lines(path)]
            assert written[-2:] == [lease.token] * 2
            assert set(written[:-2]) == {token}


def test_a_pause_without_a_contender_ends_nothing(tmp_path: Path) -> None:
    """K54: neither a stopped process nor a loop that is blocked for longer than the ttl."""
    body = """
    import asyncio
    from leases import aio
    async def main():
        async with aio.acquire(sys.argv[1], ttl=1.0) as lease:
            say(True)
            time.sleep(1.4)  # the loop is blocked
            await asyncio.sleep(0.3)
            say([lease.held, lease.lapses])
            await asyncio.to_thread(hear)
            await lease.verify()
            await asyncio.sleep(0.3)
            say([lease.held, lease.lapses])
            await asyncio.to_thread(hear)
    asyncio.run(main())
    """
    path = tmp_path / "x"
    with running(body, path) as service, Contender() as contender:
        assert service.hear()
        assert contender.do("acquire", path, timeout=1.2)["error"] == "AcquireTimeoutError"
        assert service.hear() == [True, 0]
        with stopped(service.pid):
            eventually(lambda: ownership.inspect(path).verdict is Verdict.EXPIRED)
            service.say("go on")
        assert service.hear() == [True, 1]


def test_ctrl_c_ends_the_body_and_releases(tmp_path: Path) -> None:
    body = """
    import asyncio
    from leases import aio
    async def main():
        async with aio.acquire(sys.argv[1], ttl=30.0):
            say(True)
            await asyncio.sleep(60)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        say("interrupted")
    hear()
    """
    with running(body, tmp_path / "x") as service:
        assert service.hear()
        service.signal(signal.SIGINT)
        assert service.hear() == "interrupted"
        assert residue(tmp_path / "x") == set()


def test_a_process_ends_although_a_thread_of_it_waits_for_ever(tmp_path: Path) -> None:
    body = """
    import asyncio
    from leases import aio
    async def main():
        asyncio.create_task(aio.acquire(sys.argv[1], timeout=None)._open())
        await asyncio.sleep(0.1)
    asyncio.run(main())
    loop = asyncio.new_event_loop()
    task = loop.create_task(aio.acquire(sys.argv[1], timeout=None)._open())
    loop.run_until_complete(asyncio.sleep(0.1))
    task._log_destroy_pending = False
    say(True)
    """
    with ownership.acquire(tmp_path / "x") as owner, running(body, tmp_path / "x") as service:
        assert service.hear()
        assert service.process.wait(30) == 0
        assert owner.held


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "raise KeyError", "return"])
def test_a_child_that_is_forked_inside_the_body_takes_nothing_with_it(tmp_path: Path, end: str) -> None:
    """K45. It ends before the loop does, which the two share."""
    body = """
    import asyncio
    from leases import aio
    parent = os.getpid()
    async def hold():
        async with aio.acquire(sys.argv[1], ttl=30.0) as lease:
            async with lease.critical():
                if os.fork() == 0:
                    END
            os.wait()
            say(lease.held)
            await lease.verify()
            async with lease.critical():
                await aio.append_line(lease, "still here")
            say(True)
            await asyncio.to_thread(hear)
    async def main():
        try:
            await hold()
        finally:
            if os.getpid() != parent:
                os._exit(0)
    asyncio.run(main())
    """
    path = tmp_path / "x"
    with running(body.replace("END", end), path) as parent, Contender() as contender:
        assert parent.hear(20) is True
        assert parent.hear(20) is True
        assert contender.do("acquire", path)["error"] == "AlreadyOwnedError"
        parent.say("go on")
        assert parent.process.wait(30) == 0
    assert list(read_lines(path)) == [b"still here"]
    assert residue(path) == set()


INTERRUPTED = """
import asyncio, gc, warnings
from leases import aio
from leases.aio import _worker
from tests.support.injection import Interrupter
warnings.simplefilter("ignore")
sys.unraisablehook = lambda _: None
path, first, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
class Alarm(Exception):
    pass
def ring():
    raise Alarm
async def main():
    async with aio.acquire(path, ttl=30.0) as lease:
        await lease.verify()
        async with lease.critical():
            await aio.append_line(lease, "line")
def forgotten(loop):
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task._log_destroy_pending = False
        task.cancel()
    if tasks and number % 2:  # as asyncio.run does; else they are dropped
        loop.run_until_complete(asyncio.wait(tasks, timeout=0.5))
    loop.close()
def round(interrupter, number):
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.call_later(0.5, loop.stop)  # where a callback of the loop was hit, nobody is told
    task = loop.create_task(main())
    try:
        interrupter.run(number, lambda: loop.run_until_complete(task))
    except (Alarm, RuntimeError):
        pass
    del task
    forgotten(loop)
# where an exception loses a callback of the loop, or a thread that is about to be started, is not ours to mend
stdlib = ("asyncio", "selectors", "contextlib", "threading")
theirs = tuple(module.__file__ for name, module in list(sys.modules.items()) if name.startswith(stdlib))
number, points = first, []
while True:
    interrupter = Interrupter(ring, theirs + ("<string>",))
    round(interrupter, number)
    if not interrupter.point:
        break
    points.append(interrupter.point)
    deadline = time.monotonic() + 20
    while True:
        gc.collect()
        try:
            ownership.acquire(path).release()
            break
        except ownership.OwnershipError as error:
            assert time.monotonic() < deadline, (interrupter.point, error)
            time.sleep(0.01)
    while sum(thread.name == "leases-aio" for thread in threading.enumerate()) != len(_worker._resting):
        gc.collect()
        assert time.monotonic() < deadline, (interrupter.point, "a thread is left")
        time.sleep(0.001)
    number += step
say([len(points), sorted(name for name in os.listdir(os.path.dirname(path) + "/.leases") if name.endswith(".json"))])
"""


def test_whatever_a_signal_handler_raises_in_the_loop_leaves_nothing(tmp_path: Path) -> None:
    """K51, at every fourth point; once the tasks are dropped."""
    points, records = run(INTERRUPTED, tmp_path / "x", 3, 4)
    assert records == []
    assert points > 10
    assert set(read_lines(tmp_path / "x")) <= {b"line"}


@pytest.mark.slow
def test_whatever_a_signal_handler_raises_at_any_point_leaves_nothing(tmp_path: Path) -> None:
    points, records = run(INTERRUPTED, tmp_path / "x", 1, 1, patience=600)
    assert records == []
    assert points > 100


LAG = """
import asyncio, statistics
from leases import aio
folder, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
async def main():
    lags = []
    async def beat():
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - before - 0.001)
    held = [await aio.acquire(f"{folder}/{number}", ttl=5.0) for number in range(count)]
    beating = asyncio.create_task(beat())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await held[0].verify()
        await asyncio.sleep(0.01)
    beating.cancel()
    lags.sort()
    say([len(lags), lags[len(lags) // 2], lags[int(len(lags) * 0.99)]])
    for lease in held:
        await lease.release()
asyncio.run(main())
"""


def test_the_loop_is_hardly_kept_from_running_while_many_leases_are_held(tmp_path: Path) -> None:
    """The bounds are generous: machines are shared. ``tests.benchmarks.appending`` tells the figures."""

    def lag() -> float:
        count, median, late = run(LAG, tmp_path, 200, 1.0)
        assert count > 50
        return max(median * 10, late)

    assert_at_best(0.2, lag)


@pytest.mark.slow
def test_the_loop_is_hardly_kept_from_running_while_a_thousand_are_held(tmp_path: Path) -> None:
    assert_at_best(0.05, lambda: run(LAG, tmp_path, 1000, 10.0)[2])


def test_a_server_is_started_once_for_all_tasks_and_survives_who_gave_up(tmp_path: Path) -> None:
    server = f"""
import sys, time
sys.path[:0] = [{leases.__file__.rpartition("/leases/")[0]!r}]
import ownership
open(sys.argv[1] + ".starts", "a").write("one ")
time.sleep(0.3)
with ownership.listen(sys.argv[1]) as owned:
    while True:
        connection, _ = owned.socket.accept()
        connection.sendall(b"x")
        connection.close()
"""
    body = """
    import asyncio
    from leases import aio
    command = [sys.executable, "-B", "-c", sys.argv[2], sys.argv[1]]
    async def main():
        try:
            async with asyncio.timeout(0.1):
                await aio.ensure(sys.argv[1], command, timeout=30)
        except TimeoutError:
            pass
        async def one():
            reader, writer = await asyncio.open_unix_connection(sock=await aio.ensure(sys.argv[1], command, timeout=30))
            heard = await reader.read()
            writer.close()
            return heard.decode()
        say(await asyncio.gather(*(one() for _ in range(8))))
        server = ownership.find(sys.argv[1])
        say([sent.signal for sent in ownership.stop(server, grace=30.0).signalled])
        say(open(sys.argv[1] + ".starts").read())
    asyncio.run(main())
    """
    with running(body, tmp_path / "s", server) as client:
        assert client.hear() == ["x"] * 8
        assert client.hear() == ["SIGTERM"]  # which the thread that started it has not blocked
        assert client.hear() == "one "  # nobody is left who was started besides


STOPPED_INSIDE = """
import sys, time, leases
with leases.acquire(sys.argv[1], ttl=1.0) as lease:
    print("works", flush=True)
    sys.stdin.readline()
    with lease.critical():
        print("is inside", flush=True)
        seen = time.monotonic()
        while time.monotonic() - seen < 0.5:  # until it has been stopped
            seen = time.monotonic()
            time.sleep(0.01)
    while True:
        time.sleep(0.01)
        lease.verify()
"""


def test_the_example_stops_its_service_again_if_that_was_in_the_middle_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("asyncio_service", Path(ROOT, "examples", "asyncio_service.py"))
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "TTL", 0.3)  # five of which it waits
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "x"

    async def play() -> None:
        pipe = asyncio.subprocess.PIPE
        arguments = (sys.executable, "-c", STOPPED_INSIDE, str(path))
        first = await asyncio.create_subprocess_exec(
            *arguments, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
        second = None
        try:
            assert await example.heard(first, "first") == "works"
            second = await example.started(path)
            assert await example.heard(second, "second") == "stands by"
            assert first.stdin is not None
            first.stdin.write(b"enter\n")
            assert await example.heard(first, "first") == "is inside"
            assert await example.taken_over(first, second) == "works"
        finally:
            for process in filter(None, (first, second)):
                if process.returncode is None:
                    process.kill()
                await process.wait()

    asyncio.run(asyncio.wait_for(play(), 60))
    assert capsys.readouterr().out.count("is stopped") > 1
