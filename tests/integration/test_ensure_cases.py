"""Reaching whoever serves, and starting exactly one: many clients at once, supervisors that crash or never come."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import leases
import ownership
from ownership import Verdict
from ownership._clock import SystemClock
from ownership._sockets._ensuring import _may_be_served_anew
from tests.support.namespaces import NOBODY, elsewhere, needs_linux_root
from tests.support.processes import HERD, ROOT, eventually, lock_directory, run, running, state_of
from tests.support.records import identity

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="starts real supervisors")

SUPERVISOR = f"""
import os, sys, time
sys.path.insert(0, {ROOT!r})
path, way = sys.argv[1], sys.argv[2]
with open(path + ".starts", "a") as file:
    file.write(f"{{os.getpid()}}\\n")
if way == "fail":
    sys.exit("no such luck\\nthe configuration is wrong")
while way == "hang" or way == "late" and not os.path.exists(path + ".go"):
    time.sleep(0.01)
if way == "kill":
    os.kill(os.getpid(), 9)
import ownership
with ownership.listen(path, data={{"version": os.environ.get("VERSION", "1")}}) as owned:
    while way != "mute":
        connection = owned.socket.accept()[0]
        try:
            connection.sendall(str(os.getpid()).encode())
        except BrokenPipeError:
            pass
        connection.close()
    time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.sock"


@pytest.fixture(autouse=True)
def no_supervisor_is_left(path: Path) -> Iterator[None]:
    yield
    end_supervisors(path)


def end_supervisors(path: Path) -> None:
    """Kill those of *path* that live; a number that another process has by now is left alone."""
    for pid in starts(path):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if os.fsencode(path) in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def starts(path: Path) -> list[int]:
    """The pids of the supervisors that were started, in order."""
    try:
        return [int(line) for line in path.with_name("app.sock.starts").read_text().split()]
    except FileNotFoundError:
        return []


def command(path: Path, way: str = "serve") -> list[str]:
    return [sys.executable, "-c", SUPERVISOR, os.fspath(path), way]


def heard(connection: socket.socket) -> int:
    """The pid of whoever answers."""
    with connection:
        return int(connection.recv(20))


CLIENTS = (
    HERD
    + """
path, count, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
command = json.loads(sys.argv[4])
def work(number):
    try:
        connection = ownership.ensure(path, command, timeout)
    except ownership.OwnershipError as error:
        return [type(error).__name__, getattr(error, "returncode", None), getattr(error, "stderr", "")]
    return int(connection.recv(20))
say(herd(count, work))
"""
)


def ask_together(path: Path, way: str, count: int = 30, timeout: float = 60.0) -> list[Any]:
    import json

    found = run(CLIENTS, path, count, timeout, json.dumps(command(path, way)))
    assert isinstance(found, list)
    return found


def die(pid: int) -> None:
    """Kill a supervisor whose parent is gone, and wait until it is over."""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not ownership.is_alive(pid))


# -- many at once


def test_of_thirty_clients_on_a_cold_and_on_a_crashed_supervisor_one_starts_it(path: Path) -> None:
    for number in (1, 2):
        reached = ask_together(path, "serve")
        assert len(starts(path)) == number
        assert reached == [starts(path)[-1]] * 30
        die(starts(path)[-1])


def test_of_thirty_clients_on_a_zombie_one_starts_anew(path: Path) -> None:
    body = "owned = ownership.listen(sys.argv[1]); say(True); hear()"
    with running(body, path) as first:
        first.hear()
        first.process.kill()
        eventually(lambda: state_of(first.pid) == "Z")
        reached = ask_together(path, "serve")
        assert reached == starts(path) * 30
        assert len(starts(path)) == 1


def test_a_supervisor_that_fails_to_start_gives_every_client_that_waits_its_end(path: Path) -> None:
    failures = ask_together(path, "fail", 10)
    assert {tuple(one[:2]) for one in failures} == {("StartError", 1)}
    assert [one for one in failures if "the configuration is wrong" not in one[2]] == []
    assert len(starts(path)) < 10
    assert ownership.inspect(path).verdict is Verdict.FREE


def test_a_signal_that_ended_the_start_is_told(path: Path) -> None:
    with pytest.raises(ownership.StartError, match="signal 9") as failed:
        ownership.ensure(path, command(path, "kill"))
    assert failed.value.returncode == -9
    assert ".stderr" in failed.value.hint
    for _ in range(5):
        with pytest.raises(ownership.StartError):
            ownership.ensure(path, command(path, "fail"))
    assert len(list(lock_directory(path).glob("*.stderr"))) == 4  # they do not pile up


def test_whoever_is_interrupted_while_it_starts_one_lets_nobody_start_another(path: Path) -> None:
    """What was started comes all the same."""

    class Interrupted(SystemClock):
        def wait(self, seconds: float, poller: Any = None) -> bool:
            if starts(path):
                raise KeyboardInterrupt
            return super().wait(seconds, poller)

    with pytest.raises(KeyboardInterrupt):
        ownership.ensure(path, command(path, "late"), 60.0, clock=Interrupted())
    with pytest.raises(ownership.StartTimeoutError, match=f"what it has started is pid {starts(path)[0]}"):
        ownership.ensure(path, command(path), 1.0)
    path.with_name("app.sock.go").touch()
    assert [heard(ownership.ensure(path, command(path), 60.0))] == starts(path)


def test_if_whoever_starts_is_killed_another_client_goes_on(path: Path) -> None:
    """With what that one has started, while it lives; with a new start otherwise."""
    starter = "ownership.ensure(sys.argv[1], json.loads(sys.argv[2]), 60)"
    import json

    with running(starter, path, json.dumps(command(path, "late"))) as one:
        (pid,) = eventually(lambda: starts(path))
        eventually(lambda: ownership.inspect(f"{path}.start").running is not None)
        found = eventually(lambda: (r := ownership.find(f"{path}.start")) and r.data and r)
        assert found.data["child"] == pid
        one.kill()
    reached: list[int] = []
    client = threading.Thread(target=lambda: reached.append(heard(ownership.ensure(path, command(path), 60))))
    client.start()
    path.with_name("app.sock.go").touch()
    client.join()
    assert reached == starts(path) == [pid]
    die(pid)

    path.with_name("app.sock.go").unlink()
    with running(starter, path, json.dumps(command(path, "late"))) as one:
        eventually(lambda: len(starts(path)) == 2)
        one.kill()
    die(starts(path)[1])
    assert heard(ownership.ensure(path, command(path), 60)) == starts(path)[2]


# -- it does not come


def test_a_supervisor_that_keeps_dying_is_not_started_again(path: Path) -> None:
    for _ in range(3):
        die(heard(ownership.ensure(path, command(path))))
    with pytest.raises(ownership.CrashLoopError, match="died 3 times within 60 s") as refused:
        ownership.ensure(path, command(path))
    assert len(refused.value.deaths) == 3
    assert len(starts(path)) == 3
    ownership.acquire(path).release()  # cleanly: that ends the row
    assert heard(ownership.ensure(path, command(path))) == starts(path)[3]


def test_one_that_comes_late_is_waited_for_by_the_next_client_and_not_started_twice(path: Path) -> None:
    with pytest.raises(ownership.StartTimeoutError, match="does not answer yet") as late:
        ownership.ensure(path, command(path, "late"), 0.3)
    assert late.value.returncode is None
    assert str(starts(path)[0]) in str(late.value)
    path.with_name("app.sock.go").touch()
    assert heard(ownership.ensure(path, command(path), 60)) == starts(path)[0]
    assert len(starts(path)) == 1
    eventually(lambda: ownership.inspect(f"{path}.start").verdict is Verdict.FREE)


def test_what_ended_without_a_fault_is_not_said_to_live(path: Path) -> None:
    """It may have left another process behind that is about to serve: that is waited for."""
    with pytest.raises(ownership.StartTimeoutError, match="has ended with 0") as late:
        ownership.ensure(path, [sys.executable, "-c", ""], 0.5)
    assert late.value.returncode == 0


def test_how_it_ended_is_not_made_up_where_nobody_is_told(path: Path) -> None:
    def late() -> tuple[str, int | None]:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with pytest.raises(ownership.StartTimeoutError) as raised:
            ownership.ensure(path, command(path, "fail"), timeout=2.0)
        return str(raised.value), raised.value.returncode

    message, returncode = elsewhere(late)
    assert "has ended, nobody was told how: this process ignores SIGCHLD" in message
    assert returncode is None


def test_a_client_that_gives_up_waiting_for_anothers_start_is_told_of_that(path: Path) -> None:
    with pytest.raises(ownership.StartTimeoutError):
        ownership.ensure(path, command(path, "late"), 0.2)  # goes on starting
    with pytest.raises(ownership.StartTimeoutError, match=f"what it has started is pid {starts(path)[0]}"):
        ownership.ensure(path, command(path), 0.2)
    assert len(starts(path)) == 1


def test_somebody_who_owns_what_stands_for_the_start_is_told_apart(path: Path) -> None:
    with (
        ownership.acquire(f"{path}.start"),
        pytest.raises(
            ownership.AlreadyOwnedError, match=f"cannot be started.* by pid {os.getpid()} for something else"
        ),
    ):
        ownership.ensure(path, command(path), 0.1)
    assert starts(path) == []


def test_a_damaged_record_of_somebody_who_may_live_starts_nobody(path: Path) -> None:
    damaged = ownership.Inspection(path, Verdict.UNKNOWN, "it says nothing", malformed="no JSON")
    assert _may_be_served_anew(damaged)
    assert not _may_be_served_anew(replace(damaged, owner=identity()))


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_what_is_started_writes_to_a_file_that_its_owner_can_read(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with pytest.raises(ownership.StartError):
            ownership.ensure(path, command(path, "kill"), 5)
    finally:
        os.umask(before)
    modes = {one.name: one.stat().st_mode & 0o777 for one in lock_directory(path).iterdir()}
    assert set(modes.values()) == {0o600}


def test_while_an_owner_lives_nobody_is_started_whether_it_answers_or_not(path: Path) -> None:
    with ownership.acquire(path), pytest.raises(ownership.UnreachableError, match=f"pid {os.getpid()} owns it") as told:
        ownership.ensure(path, command(path), 0.2)
    assert told.value.record is not None
    assert starts(path) == []


def test_a_program_that_cannot_be_executed_is_named(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        ownership.ensure(path, ["no-such-program"])
    assert ownership.inspect(f"{path}.start").verdict is Verdict.FREE


def test_a_client_waits_for_a_process_that_has_closed_its_socket_to_end(path: Path) -> None:
    body = "owned = ownership.listen(sys.argv[1]); say(True); hear(); owned.close(); say(True); hear()"
    with running(body, path) as old:
        old.hear()
        old.ask(1)
        reached: list[int] = []
        client = threading.Thread(target=lambda: reached.append(heard(ownership.ensure(path, command(path), 60))))
        client.start()
        with pytest.raises(ownership.UnreachableError):
            ownership.connect(path, 0.1)
        assert starts(path) == []
        old.kill()
        client.join()
    assert reached == starts(path)


def test_a_child_that_was_started_is_reaped_when_it_ends(path: Path) -> None:
    pid = heard(ownership.ensure(path, command(path)))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: state_of(pid) == "X")


# -- which one


def test_an_owner_is_matched_by_what_it_said(path: Path) -> None:
    first = heard(ownership.ensure(path, command(path), match={"version": "1"}))
    with pytest.raises(ownership.AlreadyOwnedError, match="version is '1', not '2'") as refused:
        ownership.ensure(path, command(path), match={"version": "2"})
    assert refused.value.verdict is Verdict.LIVE
    used = ownership.ensure(path, command(path), match={"version": "2"}, on_mismatch="use")
    assert heard(used) == first
    new = {**os.environ, "VERSION": "2"}
    for _ in range(3):  # however often: an owner that we stopped has not died by itself
        second = heard(
            ownership.ensure(path, command(path), 60, match={"version": "2"}, on_mismatch="replace", env=new)
        )
        assert second == starts(path)[-1]
        ownership.ensure(path, command(path), 60, match={"version": "1"}, on_mismatch="replace").close()
    assert len(starts(path)) == 7
    with pytest.raises(ownership.AlreadyOwnedError, match="not '3'"):
        ownership.ensure(path, command(path), 60, match={"version": "3"}, on_mismatch="replace", grace=0.1)


STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
owned = ownership.listen(sys.argv[1], data={"version": "1"})
say(True)
hear()
"""


@pytest.mark.parametrize("timeout", [0, 0.3])
def test_an_owner_that_is_to_be_replaced_has_no_more_time_than_the_whole_call(path: Path, timeout: float) -> None:
    with running(STUBBORN, path) as old:
        old.hear()
        begun = time.monotonic()
        with pytest.raises(ownership.AlreadyOwnedError) as refused:
            ownership.ensure(path, command(path), timeout, match={"version": "2"}, on_mismatch="replace", grace=10)
        assert time.monotonic() - begun < 5
        assert isinstance(refused.value, ownership.AcquireTimeoutError) is (timeout > 0)
        assert "timeout=" in refused.value.hint
        assert starts(path) == []
        seen = ownership.inspect(path)
        assert (seen.verdict, seen.request) == (Verdict.LIVE, None)
        assert seen.owner is not None
        assert seen.owner.pid == old.pid


def test_whoever_is_not_a_unix_socket_is_reached_by_its_endpoint(tmp_path: Path) -> None:
    resource = tmp_path / "web"
    tried: list[str | None] = []

    def dial(found: ownership.Running) -> socket.socket:
        tried.append(found.endpoint)
        assert found.endpoint is not None
        host, _, port = found.endpoint.removeprefix("tcp:").rpartition(":")
        return socket.create_connection((host, int(port)))

    body = """
    owned = ownership.listen(("127.0.0.1", 0), resource=sys.argv[1])
    say(os.getpid())
    owned.socket.accept()[0].sendall(str(os.getpid()).encode())
    hear()
    """
    with running(body, resource) as server:
        pid = server.hear()
        assert heard(ownership.ensure(resource, None, connect=dial)) == pid
    assert tried
    with pytest.raises(ownership.UnreachableError, match="nobody serves"):
        ownership.ensure(resource, None, 0, connect=dial)


def test_connect_never_starts_and_says_who_is_not_there(path: Path) -> None:
    with pytest.raises(ownership.UnreachableError, match="nobody serves it") as told:
        ownership.connect(path)
    assert isinstance(told.value, ConnectionError)
    begun = time.monotonic()
    with pytest.raises(ownership.UnreachableError, match=r"waited 0\.1 s"):
        ownership.connect(path, 0.1)
    assert time.monotonic() - begun >= 0.1
    with ownership.listen(path):
        ownership.connect(path).close()


@needs_linux_root
def test_a_client_of_another_account_need_not_see_the_records(open_directory: Path) -> None:
    path = open_directory / "app.sock"

    def reach() -> str:
        try:
            ownership.connect(path).close()
        except ownership.UnreachableError as error:
            return str(error)
        return "reached"

    with ownership.listen(path, mode=0o666):
        assert elsewhere(reach, uid=NOBODY) == "reached"
        path.unlink()
        told = elsewhere(reach, uid=NOBODY)
    assert "nobody serves it (unknown" in told or "Permission denied" in told or "belongs to" in told


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"command": "serve"}, "command must be a list"),
        ({"command": []}, "command must name a program"),
        ({"command": ["a\0"]}, "no NUL"),
        ({"command": [1]}, "command must be a list"),
        ({"command": None, "on_mismatch": "replace"}, "command must be given"),
        ({"command": ["x"], "on_mismatch": "ignore"}, "on_mismatch must be"),
        ({"command": ["x"], "timeout": -1}, "timeout must be"),
        ({"command": ["x"], "grace": -1}, "grace must be"),
        ({"command": ["x"], "address": "/" + "x" * 107}, "at most 107 bytes"),
    ],
)
def test_what_cannot_be_right_is_refused(path: Path, arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ownership.ensure(**{"address": path, **arguments})
    assert not lock_directory(path).exists()


def test_while_a_gate_is_closed_nobody_new_listens_or_is_started(path: Path) -> None:
    gate, ours = leases.Gate(path.with_name("gate")), leases.Gate(path.with_name("gate"))
    ours.close(reason="maintenance")
    with ours:
        with pytest.raises(ownership.GateClosedError, match="maintenance"):
            ownership.listen(path, gate=gate)
        with pytest.raises(ownership.GateClosedError):
            ownership.ensure(path, command(path), gate=gate)
        assert starts(path) == []
        with ownership.listen(path, release="close"):
            ownership.ensure(path, command(path), gate=gate).close()  # whoever runs already is reached
    assert heard(ownership.ensure(path, command(path), gate=gate)) == starts(path)[0]
    with pytest.raises(ValueError, match="gate must rule"):
        ownership.ensure(path, command(path), gate=leases.Gate("/elsewhere/gate"))


# -- who answers


def test_whoever_answers_is_made_sure_to_be_the_recorded_owner(path: Path) -> None:
    body = "owned = ownership.listen(sys.argv[1]); say(os.getpid(), owned.claim.ref.to_env()); hear()"
    with running(body, path) as server:
        pid, environment = server.hear()
        ref = ownership.OwnerRef.from_env(environment)
        with ownership.connect(path) as connection:
            assert ownership.verify_peer(connection, path).record.pid == pid
            assert ownership.verify_peer(connection, ref).record.token == ref.token
            later = ref.model_copy(update={"token": ref.token - 1})
            with pytest.raises(ownership.PeerError, match="replaced"):
                ownership.verify_peer(connection, later)
        server.kill()
        with socket.socket(socket.AF_UNIX) as stranger:
            path.unlink()
            stranger.bind(os.fspath(path))
            stranger.listen()
            with ownership.connect(path) as connection:
                with pytest.raises(ownership.PeerError, match="nobody is known to own it") as refused:
                    ownership.verify_peer(connection, path)
                assert refused.value.pid == os.getpid()
                body = "c = ownership.acquire(sys.argv[1]); c.announce(data={'version': '1'}); say(1); hear()"
                with running(body, path) as other:
                    other.hear()
                    with pytest.raises(ownership.PeerError, match=f"that is pid {other.pid}"):
                        ownership.verify_peer(connection, path)
                    with pytest.raises(ownership.PeerError):
                        ownership.ensure(path, None, match={"version": "1"})


def test_a_worker_is_known_by_its_descent(path: Path) -> None:
    worker = """
    import socket
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    say(os.getpid())
    hear()
    """
    with ownership.listen(path) as owned:
        with running(worker, path) as ours:
            pid = ours.hear()
            with owned.socket.accept()[0] as connection:
                peer = ownership.verify_worker(connection)
                assert (peer.pid, peer.uid, peer.start_id) == (pid, os.geteuid(), ownership.start_id(pid))
                ours.kill()
                with pytest.raises(ownership.PeerError, match="gone"):
                    ownership.verify_worker(connection)
        supervisor = """
        owned = ownership.listen(sys.argv[1] + ".other")
        say(True)
        say(attempt(ownership.verify_worker, owned.socket.accept()[0]))
        hear()
        """
        with running(supervisor, path) as other:
            other.hear()
            with ownership.connect(f"{path}.other"):
                assert other.hear() == "PeerError"
    with ownership.listen(path.with_name("other")) as owned, socket.socket(socket.AF_UNIX) as loose:
        for one in (owned.socket, loose):  # nobody is at the other end
            with pytest.raises(OSError, match="not connected"):
                ownership.verify_worker(one)
            with pytest.raises(OSError, match="not connected"):
                ownership.verify_peer(one, path)
    ours_, theirs = socket.socketpair()
    with ours_, theirs:
        assert ownership.verify_worker(ours_).pid == os.getpid()
    with socket.socket() as loose, pytest.raises(OSError, match="must be of a unix socket"):
        ownership.verify_worker(loose)
