"""Listening as the one owner of a socket: real sockets, real processes, and whatever may lie at the path."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import socketserver
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import ownership
from ownership import Verdict
from tests.support.injection import Interrupter
from tests.support.namespaces import AS_NOBODY, NOBODY, needs_linux_root, other_accounts_can_run_us
from tests.support.processes import (
    HERD,
    Contender,
    eventually,
    lock_directory,
    open_descriptors,
    opened_since,
    run,
    running,
    stopped,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and credentials")

SERVER = """
path, keywords = sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
owned = attempt(ownership.listen, path, **keywords)
say(owned if isinstance(owned, str) else os.getpid())
while True:
    what = hear()
    if what == "close":
        owned.close("done")
        say(True)
    elif what == "accept":
        connection = owned.socket.accept()[0]
        connection.sendall(str(os.getpid()).encode())
        connection.close()
        say(True)
    elif what == "verify":
        say(attempt(owned.claim.verify))
    elif what == "lost":
        say(owned.path_lost)
    elif what == "listen":
        owned = attempt(ownership.listen, path, **keywords)
        say(owned if isinstance(owned, str) else True)
"""


def dialled(path: Path) -> int:
    """The error number of connecting to *path* without waiting, 0 if it is taken."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)
        return connection.connect_ex(os.fspath(path))


def answered(path: Path, owned: ownership.Listener) -> bool:
    """Whether a client of *path* reaches *owned*."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.fspath(path))
        accepted, _ = owned.socket.accept()
        with accepted:
            accepted.sendall(b"x")
            return client.recv(1) == b"x"


def left(path: Path) -> set[str]:
    """What is in the lock directory of *path* but the guard, and the witness, which stays for a while."""
    return {
        one.name
        for one in lock_directory(path).iterdir()
        if one.suffix not in (".guard", ".alive") and one.name != ".gitignore"
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.sock"


@pytest.fixture
def foreign(path: Path) -> Iterator[socket.socket]:
    """A socket at the path that no record names."""
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.fspath(path))
        yield one


# -- the path


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_path_of_107_bytes_works_and_a_longer_one_makes_nothing(tmp_path: Path, letter: str) -> None:
    room = 107 - len(os.fsencode(tmp_path)) - 1
    fits = letter * (room // len(letter.encode()))
    with ownership.listen(tmp_path / fits, release="close") as owned:
        assert answered(tmp_path / fits, owned)
    deeper = tmp_path / "deeper"
    deeper.mkdir()
    for size in (108, 200):
        name = letter * (-(-(size - len(os.fsencode(deeper)) - 1) // len(letter.encode())))
        with pytest.raises(ValueError, match=r"address must be a path of at most 107 bytes.* has \d+"):
            ownership.listen(deeper / name)
    assert not list(deeper.iterdir())


def test_two_spellings_of_one_socket_conflict(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "alias").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    with ownership.listen(path), Contender():
        for spelling in ("app.sock", "./app.sock", tmp_path / "link" / "app.sock", tmp_path / "alias"):
            assert run(SERVER_ONCE, os.fspath(spelling)) == "AlreadyOwnedError"


SERVER_ONCE = "say(attempt(lambda: bool(ownership.listen(sys.argv[1]))))"


def test_two_sockets_with_one_state_directory_conflict_both_ways(tmp_path: Path) -> None:
    first, second, state = tmp_path / "a.sock", tmp_path / "b.sock", tmp_path / "state"
    state.mkdir()
    for mine, other in ((first, second), (second, first)):
        with running(SERVER, mine, f'{{"also": ["{state}"]}}') as owner:
            owner.hear()
            before = other.exists()  # the one that was killed has left it
            with running(SERVER, other, f'{{"also": ["{state}"]}}') as contender:
                assert contender.hear() == "AlreadyOwnedError"
            assert other.exists() == before


def test_the_socket_of_a_killed_owner_is_removed_and_nothing_else_of_it_is_left(path: Path) -> None:
    with running(SERVER, path) as owner:
        owner.hear()
        owner.process.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # a zombie
        assert path.exists()
        with ownership.listen(path, release="close") as owned:
            assert answered(path, owned)
    assert not path.exists()
    assert not left(path)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo], ids=["file", "directory", "fifo"])
def test_what_is_no_socket_is_never_removed(path: Path, make: Any) -> None:
    make(path)
    before = path.lstat()
    with pytest.raises(FileExistsError, match="no socket") as refused:
        ownership.listen(path)
    assert "ls -l" in refused.value.hint  # type: ignore[attr-defined]
    assert path.lstat() == before
    assert not left(path)
    assert ownership.inspect(path).verdict is Verdict.FREE


def test_somebody_who_listens_without_a_record_is_named_and_left_alone(path: Path, foreign: socket.socket) -> None:
    foreign.listen(0)
    with pytest.raises(ownership.AlreadyOwnedError, match=rf"pid {os.getpid()} .*no record names: it answers") as told:
        ownership.listen(path)
    assert told.value.verdict is Verdict.UNKNOWN
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(os.fspath(path))
    with pytest.raises(ownership.AlreadyOwnedError, match=rf"pid {os.getpid()} .*backlog is full"):
        ownership.listen(path)
    for one in waiting:
        one.close()
    assert not left(path)
    foreign.close()
    with ownership.listen(path) as owned:
        assert answered(path, owned)


def test_a_listener_whose_maker_is_gone_is_said_to_be_inherited(path: Path, foreign: socket.socket) -> None:
    child = os.fork()
    if child == 0:
        foreign.listen(5)
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(ownership.AlreadyOwnedError, match=f"inherited the socket of pid {child}, which is gone"):
        ownership.listen(path)


def test_a_socket_of_another_kind_is_not_taken_for_a_dead_one(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(os.fspath(path))
        with pytest.raises(OSError, match="cannot be told, and it was not removed"):
            ownership.listen(path)
    assert path.exists()
    assert not left(path)


@needs_linux_root
def test_a_socket_that_may_not_be_connected_to_is_not_taken_for_a_dead_one(open_directory: Path) -> None:
    """EACCES says nothing about whether anybody listens."""
    if not other_accounts_can_run_us():
        pytest.skip("another account cannot run this interpreter")
    path = open_directory / "app.sock"
    os.chown(open_directory, NOBODY, NOBODY)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(os.fspath(path))
        other.listen()
        path.chmod(0o600)
        assert run(SERVER_ONCE, path, prefix=AS_NOBODY) == "PermissionError"
        assert path.exists()


def test_out_of_descriptors_a_live_socket_is_not_taken_for_a_dead_one(path: Path) -> None:
    body = """
    import resource, socket
    foreign = socket.socket(socket.AF_UNIX)
    foreign.bind(sys.argv[1])
    foreign.listen()
    ownership.acquire(sys.argv[1] + ".warm").release()
    room, said = len(os.listdir("/proc/self/fd")) - 1, []
    for more in range(24):
        resource.setrlimit(resource.RLIMIT_NOFILE, (room + more, 4096))
        said.append(attempt(ownership.listen, sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        if not os.path.exists(sys.argv[1]) or ownership.inspect(sys.argv[1]).verdict != "free":
            said.append("something was changed")
    say(said)
    """
    said = run(body, path)
    assert said[0] == "OSError"
    assert said[-1] == "AlreadyOwnedError"
    assert set(said) == {"OSError", "AlreadyOwnedError"}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_mode_is_the_one_asked_for_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with ownership.listen(path, mode=0o660):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        os.umask(before)


@needs_linux_root
def test_the_socket_is_given_to_the_account_and_group_asked_for(path: Path) -> None:
    with ownership.listen(path, uid=NOBODY, gid=NOBODY):
        assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


COMING_AND_GOING = (
    HERD
    + """
import socket, errno
path, over = sys.argv[1], sys.argv[1] + ".over"
def work(number):
    if number:
        met = {}
        while not os.path.exists(over):
            client = socket.socket(socket.AF_UNIX); client.setblocking(False)
            met_now = errno.errorcode.get(client.connect_ex(path), "taken")
            met[met_now] = met.get(met_now, 0) + 1
            client.close()
        return met
    for _ in range(60):
        with ownership.listen(path, release="close", backlog=100):
            time.sleep(0.002)
    open(over, "w").close()
    return {}
say(herd(3, work))
"""
)


def test_a_client_never_meets_a_socket_that_refuses(path: Path) -> None:
    """While owners come and go it finds nothing, or somebody who takes it."""
    _, *met = run(COMING_AND_GOING, path)
    together = {name for one in met for name in one}
    assert "taken" in together
    assert together <= {"taken", "ENOENT", "EAGAIN"}


def test_what_clients_are_to_know_stands_in_the_record_before_the_socket_is_found(path: Path) -> None:
    with ownership.listen(path, data={"version": "1.2"}) as owned:
        found = ownership.find(path)
        assert found is not None
        assert (found.endpoint, found.data, found.phase) == (f"unix:{path}", {"version": "1.2"}, "listening")
        assert owned.endpoint == found.endpoint


# -- losing the path


def test_a_path_that_was_removed_is_noticed_and_put_back_with_whoever_waits(path: Path) -> None:
    told: list[ownership.Listener] = []
    with ownership.listen(path) as owned:
        owned.on_path_lost(told.append)
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(os.fspath(path))
            path.unlink()
            eventually(lambda: owned.path_lost)
            eventually(lambda: told)
            assert not owned.claim.lost.is_set()
            before = owned.socket
            assert owned.rebind() is before
            accepted, _ = owned.socket.accept()
            accepted.close()
        assert not owned.path_lost
        assert answered(path, owned)
        path.unlink()
        eventually(lambda: len(told) == 2)
    assert told == [owned, owned]
    assert not path.exists()


def test_a_listener_can_put_its_path_back_by_itself(path: Path) -> None:
    with ownership.listen(path) as owned:
        owned.on_path_lost(ownership.Listener.rebind)
        for _ in range(3):
            path.unlink()
            eventually(path.exists)
        assert answered(path, owned)


def test_without_its_other_name_the_socket_is_made_anew(path: Path) -> None:
    with ownership.listen(path, mode=0o640) as owned:
        before = owned.socket
        path.unlink()
        (lock_directory(path) / "app.sock.socket").unlink()
        assert owned.rebind() is owned.socket is not before
        assert before.fileno() == -1
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert answered(path, owned)


def test_a_path_that_another_took_is_lost_but_not_taken_back_by_force(path: Path) -> None:
    with ownership.listen(path) as owned, socket.socket(socket.AF_UNIX) as other:
        path.unlink()
        other.bind(os.fspath(path))
        other.listen()
        eventually(lambda: owned.path_lost)
        with pytest.raises(ownership.AlreadyOwnedError, match="no record names"):
            owned.rebind()
        owned.claim.verify()
    assert path.exists()  # it is the other's


def test_a_second_start_is_refused_while_the_owner_lives_without_its_socket(path: Path) -> None:
    """And without its record as well, which its keeper puts back."""
    with running(SERVER, path) as owner, Contender() as contender:
        owner.hear()
        path.unlink()
        assert run(SERVER_ONCE, path) == "AlreadyOwnedError"
        (lock_directory(path) / "app.sock.json").unlink()
        assert contender.do("acquire", path)["error"] == "AlreadyOwnedError"
        eventually(lambda: owner.ask("lost"))
        assert owner.ask("verify") is None


def test_a_slow_owner_is_not_taken_for_a_dead_one(path: Path) -> None:
    with running(SERVER, path, '{"backlog": 0}') as owner:
        owner.hear()
        with stopped(owner.pid):
            waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(os.fspath(path))
            assert dialled(path) != 0
            assert run(SERVER_ONCE, path) == "AlreadyOwnedError"
            assert path.exists()
            for one in waiting:
                one.close()


# -- losing the claim, and leaving


def test_a_predecessor_leaves_its_successors_socket_alone(path: Path) -> None:
    with running(SERVER, path) as old:
        old.hear()
        ownership.break_claim(path, token=ownership.inspect(path).token)
        path.unlink()
        with ownership.listen(path) as owned:
            assert old.ask("close")
            assert answered(path, owned)
            owned.claim.verify()
            child = os.fork()
            if child == 0:
                owned.close()
                os._exit(0)
            os.waitpid(child, 0)
            assert answered(path, owned)


def test_whoever_lost_the_claim_refuses_its_clients_by_itself(path: Path) -> None:
    with ownership.listen(path) as owned:
        os.link(path, path.with_suffix(".kept"))
        ownership.break_claim(path, token=owned.claim.token)
        eventually(lambda: dialled(path.with_suffix(".kept")) != 0)
        assert owned.claim.lost.is_set()


def test_nobody_else_listens_before_the_process_has_ended(path: Path) -> None:
    with running(SERVER, path) as owner, contextlib.ExitStack() as stack:
        owner.hear()
        heir = stack.enter_context(running(SERVER, path, '{"timeout": 30}'))
        assert owner.ask("close")
        assert not path.exists()
        with pytest.raises(ownership.AlreadyOwnedError, match="clos"):
            ownership.listen(path)
        assert owner.ask("listen") is True  # but itself
        assert owner.ask("close")
        owner.kill()
        assert heir.hear() == heir.pid
        previous = ownership.inspect(path).previous
        assert previous is not None
        assert (previous.how, previous.reason) == ("closed", "done")


def test_it_may_be_left_to_others_at_once(path: Path) -> None:
    with running(SERVER, path, '{"release": "close"}') as owner:
        owner.hear()
        assert owner.ask("close")
        with ownership.listen(path):
            pass


def test_a_dropped_listener_is_closed_with_a_warning(path: Path) -> None:
    kept = [ownership.listen(path)]
    with pytest.warns(ResourceWarning, match="unclosed listener"):
        kept.clear()
    assert not path.exists()


class Interruption(BaseException):
    """What a signal handler raises."""


def test_an_interrupted_call_leaves_a_listener_or_nothing(path: Path) -> None:
    """At every point where a signal handler could run."""

    def interrupt() -> None:
        raise Interruption

    ownership.listen(path, release="close").close()
    interrupter, number = Interrupter(interrupt), 1
    while True:
        owned = None
        try:
            owned = interrupter.run(number, lambda: ownership.listen(path, release="close"))
        except Interruption:
            pass
        if owned is not None:
            owned.close()
        eventually(lambda: not path.exists() and not left(path))
        if not interrupter.point:
            break
        number += 1
    assert number > 300


@pytest.mark.parametrize("release", ["close", "exit"])
def test_closing_that_is_interrupted_is_finished(path: Path, release: Literal["close", "exit"]) -> None:
    """By the next call, or by the keeper."""

    def interrupt() -> None:
        raise Interruption

    interrupter, number = Interrupter(interrupt), 1
    while True:
        owned = ownership.listen(path, release=release, timeout=20)  # what is left of the claim the keeper finishes
        try:
            interrupter.run(number, owned.close)
        except Interruption:
            pass
        if number % 8 or number < 8:  # before it has begun nobody else closes it
            owned.close()
        eventually(lambda owned=owned: owned.done)
        assert not path.exists()
        eventually(lambda: not left(path) - {"app.sock.json"})  # the keeper may be writing just now
        assert not owned.claim.held
        assert owned.socket.fileno() == -1
        if not interrupter.point:
            break
        number += 1 if number < 24 else 9
    assert number > 60
    if release == "close":
        eventually(lambda: ownership.inspect(path).verdict is Verdict.FREE)
    else:
        eventually(lambda: ownership.inspect(path).reason.count("closed"))


def test_closing_while_the_path_is_put_back_leaves_nobody_listening(path: Path) -> None:
    """A handler may close what the interrupted call is about."""
    number = 1
    while True:
        owned = ownership.listen(path, release="close")
        path.unlink()
        if number % 2:
            (lock_directory(path) / "app.sock.socket").unlink()
        interrupter = Interrupter(owned.close)
        with contextlib.suppress(OSError, RuntimeError, ownership.OwnershipError):
            interrupter.run(number, owned.rebind)
        owned.close()
        assert not path.exists()
        assert not left(path)
        assert not owned.claim.held
        if not interrupter.point:
            break
        number += 1
    assert number > 40


def test_descriptors_that_the_program_closed_and_reused_stay_its_own(path: Path) -> None:
    body = """
    import socket
    owned = ownership.listen(sys.argv[1], release="close")
    keep = os.dup(owned.fileno())  # not to be closed with the rest
    os.set_inheritable(keep, False)
    number = owned.fileno()
    os.close(number)
    mine = open(sys.argv[1] + ".mine", "w+")
    os.dup2(mine.fileno(), number)
    begun = time.monotonic()
    while not owned.path_lost and time.monotonic() - begun < 20:
        time.sleep(0.01)
    lost, before = owned.path_lost, owned.socket
    owned.rebind()
    client = ownership.connect(sys.argv[1])
    owned.socket.accept()[0].close()
    owned.close()
    os.fstat(number)
    say(lost, owned.socket is not before, os.path.exists(sys.argv[1]))
    """
    assert run(body, path) == [True, True, False]


def test_who_inherited_the_socket_of_a_dead_owner_blocks_nobody(path: Path) -> None:
    body = """
    owned = ownership.listen(sys.argv[1])
    child = os.fork()
    if child == 0:
        say(os.getpid())
        hear()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    with running(body, path) as owner:
        child = owner.hear()
        eventually(lambda: ownership.inspect(path).verdict is Verdict.ZOMBIE)  # its other threads have ended, too
        try:
            assert dialled(path) == 0  # though nobody will accept
            with ownership.listen(path) as owned:
                assert answered(path, owned)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_socket_whose_claim_alone_was_released_refuses(path: Path) -> None:
    with ownership.listen(path) as owned:
        owned.claim.release()
        eventually(lambda: dialled(path) == errno.ECONNREFUSED)
        assert run(SERVER_ONCE, path) is True


# -- other sockets


def test_a_socket_that_was_passed_to_us_is_listened_on_again_and_never_removed(path: Path) -> None:
    """As systemd does it: bound and listened on by another process, whose credentials clients would see."""
    body = """
    import socket, struct
    owned = ownership.listen(sock=int(sys.argv[1]), release="close")
    say(str(owned.claim.path), owned.endpoint, os.getpid())
    hear()
    owned.close()
    say(True)
    """
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))
        made.listen()
        with _inheriting(made, body) as service:
            owned_path, endpoint, pid = service.hear()
            assert (owned_path, endpoint) == (os.fspath(path), f"unix:{path}")
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(os.fspath(path))
                assert ownership.verify_peer(client, path).record.pid == pid
            service.say(1)
            assert service.hear() is True
    assert path.exists()
    assert not left(path)


def _inheriting(one: socket.socket, body: str) -> Any:
    os.set_inheritable(one.fileno(), True)
    import subprocess

    from tests.support.processes import Child, program

    return Child(
        subprocess.Popen(
            [sys.executable, "-c", program(body), str(one.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(one.fileno(),),
            bufsize=0,
        )
    )


def test_a_port_is_owned_by_a_name_or_a_resource_and_told_in_the_record(tmp_path: Path) -> None:
    with ownership.listen(("127.0.0.1", 0), resource=tmp_path / "web") as owned:
        port = owned.socket.getsockname()[1]
        assert owned.claim.record.endpoint == owned.endpoint == f"tcp:127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            owned.socket.accept()[0].close()
        body = "say(attempt(lambda: bool(ownership.listen(('127.0.0.1', 0), resource=sys.argv[1]))))"
        assert run(body, tmp_path / "web") == "AlreadyOwnedError"
        with pytest.raises(OSError, match=f"127.0.0.1:{port}") as taken:
            ownership.listen(("127.0.0.1", port), resource=tmp_path / "other")
        assert "ss -ltnp" in taken.value.hint  # type: ignore[attr-defined]
    assert ownership.inspect(tmp_path / "other").verdict is Verdict.FREE


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "address must be given"),
        ({"address": ("127.0.0.1", 0)}, "resource must be given"),
        ({"address": ("127.0.0.1", 70000)}, "host and port"),
        ({"address": ("127.0.0.1",)}, "host and port"),
        ({"address": ""}, "address must be a path"),
        ({"address": "/x/\0"}, "NUL"),
        ({"address": "/nowhere/x", "mode": 0o1777}, "mode must be"),
        ({"address": "/nowhere/x", "backlog": -1}, "backlog must be"),
        ({"address": "/nowhere/x", "release": "never"}, "release must be"),
        ({"address": "/nowhere/x", "resource": "/nowhere/y"}, "resource must be left out"),
        ({"sock": "no"}, "sock must be"),
        ({"sock": 987654}, "sock must be"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_made(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ownership.listen(**arguments)


def test_a_missing_directory_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ownership.listen(tmp_path / "nowhere" / "app.sock")


def test_servers_of_the_standard_library_serve_it(path: Path) -> None:
    """And closing them, which may unlink what they were bound to, leaves the path to its owner."""

    class Echo(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(self.rfile.readline())

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def serve(owned: ownership.Listener) -> bytes:
        async with await asyncio.start_unix_server(echo, sock=owned.socket):
            return await asyncio.to_thread(ask)

    def ask() -> bytes:
        with ownership.connect(path) as client:
            client.sendall(b"hello\n")
            return client.makefile("rb").read()

    with ownership.listen(path, release="close") as owned:
        server = socketserver.UnixStreamServer(os.fspath(path), Echo, bind_and_activate=False)
        server.socket.close()
        server.socket = owned.socket
        asked = threading.Thread(target=server.handle_request)
        asked.start()
        assert ask() == b"hello\n"
        asked.join()
    with ownership.listen(path, release="close") as owned:
        assert asyncio.run(serve(owned)) == b"hello\n"
        assert path.exists()
    assert not path.exists()
    assert not left(path)


# -- handing it over

HEIR = """
import socket
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.settimeout(20)
say(os.getpid())
if hear() == "die":
    os._exit(1)
owned = attempt(ownership.adopt_listener, connection, release="close")
say(owned if isinstance(owned, str) else owned.claim.token)
hear()
taken = owned.socket.accept()[0]
taken.sendall(b"heir")
taken.close()
owned.close()
say(True)
"""


def test_a_socket_is_handed_over_without_a_moment_in_which_nobody_listens(path: Path) -> None:
    owned = ownership.listen(path, data={"version": "1"})
    before = owned.claim.token
    with running(HEIR, path) as heir:
        pid = heir.hear()
        accepted, _ = owned.socket.accept()
        with accepted, socket.socket(socket.AF_UNIX) as early:
            early.connect(os.fspath(path))  # in the backlog
            heir.say("adopt")
            owned.handover(accepted)
            assert owned.socket.fileno() == -1
            assert not owned.claim.lost.is_set()
            assert heir.hear() > before
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(os.fspath(path))
                found = ownership.verify_peer(client, path)
                assert (found.record.pid, found.data) == (pid, {"version": "1"})
            assert heir.ask("serve") is True
            assert early.recv(9) == b"heir"
    assert not path.exists()
    assert not left(path)


def test_a_descriptor_that_the_program_closed_is_not_handed_over(path: Path) -> None:
    """Its number may be that of any file by now; put back, it is a socket again."""
    with ownership.listen(path) as owned:
        number = owned.socket.fileno()
        other = os.open("/etc/passwd", os.O_RDONLY)
        os.dup2(other, number, inheritable=False)
        os.close(other)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with pytest.raises(ownership.HandoverError, match="its descriptor was closed by this program"):
                owned.handover(ours, timeout=0.1)
            theirs.setblocking(False)
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
        owned.claim.verify()
        owned.rebind()
        assert answered(path, owned)
        os.close(number)


def test_a_hand_over_that_fails_leaves_the_owner_owning_and_listening(path: Path) -> None:
    with ownership.listen(path) as owned:
        with running(HEIR, path) as heir:
            heir.hear()
            accepted, _ = owned.socket.accept()
            heir.say("die")
            with accepted, pytest.raises((ownership.HandoverError, OSError)):
                owned.handover(accepted, timeout=0.3)
        owned.claim.verify()
        assert answered(path, owned)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with pytest.raises(ownership.HandoverError, match="nobody adopted"):
                owned.handover(ours, timeout=0.1)
            theirs.settimeout(5)
            with pytest.raises(ownership.HandoverError, match="too late"):
                ownership.adopt_listener(theirs)
        assert answered(path, owned)


@pytest.mark.parametrize("sent", [b"", b"\0\0\0\2{}", b"GET / HTTP/1.0\r\n\r\n"])
def test_whatever_else_comes_on_the_connection_is_no_hand_over(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(sent)
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(ownership.HandoverError, match="no socket was handed over"):
            ownership.adopt_listener(theirs)


FACTS = {"right": {}, "backlog": 1, "made": False, "path": None, "anchor": None, "which": None}


@pytest.mark.parametrize(
    "told",
    [
        b"[" * 100_000,
        b"\xff",
        b"9" * 5000,
        *(
            json.dumps(one).encode()
            for one in (
                [],
                {},
                1,
                None,
                {"right": 1},
                FACTS,
                FACTS | {"right": {"LEASES_HEIR": 1}},
                FACTS | {"right": {"LEASES_HEIR": "{}"}},
                *(FACTS | {name: bad} for name in FACTS for bad in (1.5, [], {}, "x", [1], "00", "2f00", -1)),
                FACTS | {"made": True, "path": "2f78"},
                *(FACTS | {"made": True, "path": "2f78", "permissions": bad} for bad in ([], 1, [1, 2], ["a", 1, 1])),
            )
        ),
    ],
    ids=lambda told: repr(told[:60]),
)
@pytest.mark.parametrize("descriptor", ["unix", "tcp", "datagram", "pipe"])
def test_rubbish_with_a_descriptor_is_no_hand_over(told: bytes, descriptor: str) -> None:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    kinds = {
        "unix": (socket.AF_UNIX, socket.SOCK_STREAM),
        "tcp": (socket.AF_INET, socket.SOCK_STREAM),
        "datagram": (socket.AF_INET, socket.SOCK_DGRAM),
    }
    try:
        with ours, theirs, socket.socket(*kinds.get(descriptor, kinds["unix"])) as passed:
            number = reader if descriptor == "pipe" else passed.fileno()
            socket.send_fds(ours, [struct.pack(">I", len(told))], [number])
            ours.sendall(told)
            before = open_descriptors()
            with pytest.raises(ownership.HandoverError, match="was handed over"):
                ownership.adopt_listener(theirs)
            assert [one for one in opened_since(before) if one.startswith(("socket:", "pipe:"))] == []
    finally:
        os.close(reader)
        os.close(writer)


@needs_linux_root
def test_another_account_is_not_handed_the_socket(open_directory: Path) -> None:
    if not other_accounts_can_run_us():
        pytest.skip("another account cannot run this interpreter")
    path = open_directory / "app.sock"
    with ownership.listen(path, mode=0o666) as owned:
        with running(HEIR, path, prefix=AS_NOBODY) as heir:
            heir.hear()
            accepted, _ = owned.socket.accept()
            with accepted:
                if os.geteuid() == 0:
                    with pytest.raises(ownership.PeerError, match=f"uid {NOBODY}"):
                        owned.handover(accepted, timeout=0.1)
        owned.claim.verify()


# -- races

RACE = (
    HERD
    + """
import socket
path, rounds = sys.argv[1], int(sys.argv[2])
problems = []
def work(number):
    try:
        owned = ownership.listen(path)
    except ownership.AlreadyOwnedError:
        with open(f"{path}.refused", "a") as file:
            file.write("r")
        return "refused"
    connection = owned.socket.accept()[0]
    connection.sendall(str(os.getpid()).encode())
    connection.close()
    while os.path.getsize(f"{path}.refused") < 3:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)
def reach():
    for _ in range(4000):
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(path)
            if answer := client.recv(20):
                return int(answer)
        except (ConnectionError, FileNotFoundError):
            pass
        finally:
            client.close()
        time.sleep(0.005)
for round in range(rounds):
    reached = []
    open(f"{path}.refused", "w").close()
    outcomes = herd(4, work, after=lambda: reached.append(reach()))
    served = [one for one in outcomes if one != "refused"]
    if len(served) != 1 or served[0] != {"error": "died"} or reached == [None]:
        problems.append([outcomes, reached])
say(problems)
"""
)


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_of_racing_starters_one_owns_and_is_reached(path: Path, rounds: int) -> None:
    """Over the record and the socket of one that was killed, and is not reaped yet."""
    assert run(RACE, path, rounds, patience=300.0) == []


def test_a_successor_of_an_immediate_restart_waits_for_its_predecessor(path: Path) -> None:
    """The old one takes its time to end: timeout 0 is refused, a longer one owns once it has ended."""
    with running(SERVER, path) as old, contextlib.ExitStack() as stack:
        old.hear()
        heir = stack.enter_context(running(SERVER, path, '{"timeout": 30}'))
        old.ask("close")
        assert run(SERVER_ONCE, path) == "AlreadyOwnedError"
        old.signal(signal.SIGTERM)
        assert heir.hear() == heir.pid
        old.process.wait()
        heir.say("accept")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(path))
            assert client.recv(20) == str(heir.pid).encode()
