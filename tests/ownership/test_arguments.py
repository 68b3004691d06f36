"""Arguments that cannot be right: a ValueError that names the parameter, before anything is done."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import leases
import ownership
from tests.support.records import names

NO_PATHS: tuple[Any, ...] = (None, 1, True, [], Ellipsis, "", b"\0")
PATHS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "acquire": ("resource", ownership.acquire),
    "inspect": ("resource", ownership.inspect),
    "find": ("resource", ownership.find),
    "wait": ("resource", ownership.wait),
    "replace": ("resource", ownership.replace),
    "running": ("directory", ownership.running),
    "inspect_all": ("directory", lambda path: list(ownership.inspect_all(path))),
    "diagnose": ("directory", lambda path: list(ownership.diagnose(path))),
    "reclaim_all": ("directory", lambda path: list(ownership.reclaim_all(path))),
    "waiters": ("directory", ownership.waiters),
    "Survey": ("directory", lambda path: ownership.Survey(path).look()),
    "listen": ("address", ownership.listen),
    "connect": ("address", ownership.connect),
    "ensure": ("address", lambda path: ownership.ensure(path, ["true"])),
    "Gate": ("path", leases.Gate),
    "Roster": ("path", leases.Roster),
}


@pytest.mark.parametrize("path", NO_PATHS, ids=repr)
@pytest.mark.parametrize("call", PATHS)
def test_what_is_no_path(call: str, path: Any) -> None:
    parameter, function = PATHS[call]
    with pytest.raises(ValueError, match=rf"^{parameter} "):
        function(path)


@pytest.mark.parametrize("name", [None, 1, True, [], Ellipsis, "", b""], ids=repr)
def test_what_is_no_name(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^name "):
        ownership.named(name)


CALLS: dict[str, Callable[[str, dict[str, Any]], object]] = {
    "acquire": lambda path, given: ownership.acquire(path, **given),
    "replace": lambda path, given: ownership.replace(path, **given),
    "wait": lambda path, given: ownership.wait(path, **given),
    "listen": lambda path, given: ownership.listen(path, **given),
    "ensure": lambda path, given: ownership.ensure(path, **({"command": ["true"]} | given)),
}
BAD = [
    *[(call, "on_wait", 1) for call in ("acquire", "replace", "wait", "listen")],
    *[("acquire", "also", bad) for bad in (1, "x", Ellipsis, [1], [None])],
    *[("listen", name, bad) for name in ("uid", "gid") for bad in (-5, 2**32 - 1, 2**80, True, 1.0, "root", None)],
    *[("listen", "data", bad) for bad in (1, [1], "x")],
    *[("listen", "backlog", bad) for bad in (-1, 2**31, "x", None)],
    *[("listen", "sock", bad) for bad in (-1, 2**80, "x", [], 1.5)],
    *[("ensure", "command", bad) for bad in (1, Ellipsis, [1], [], "true")],
    *[("ensure", "match", bad) for bad in (1, [1], "x")],
    *[("ensure", "env", bad) for bad in (1, [1], "x")],
    *[("ensure", "cwd", bad) for bad in (1, [], "", "\0")],
]


@pytest.mark.parametrize(("call", "name", "bad"), BAD, ids=[f"{call}-{name}-{bad!r:.20}" for call, name, bad in BAD])
def test_what_cannot_be_right_is_named_and_nothing_is_done(tmp_path: Path, call: str, name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must "):
        CALLS[call](f"{tmp_path}/r", {name: bad})
    assert names(tmp_path) == set()


@pytest.mark.parametrize("data", [1, [1], "x"])
def test_data_that_is_no_mapping(tmp_path: Path, data: Any) -> None:
    with ownership.acquire(tmp_path / "r") as claim:
        with pytest.raises(ValueError, match=r"^data must be a mapping"):
            claim.announce("phase", data=data)
        assert claim.record.phase == "owner"


@pytest.mark.parametrize("environ", [1, [], "x"])
def test_an_environment_that_is_no_mapping(environ: Any) -> None:
    with pytest.raises(ValueError, match=r"^environ must be"):
        ownership.adopt(environ)


@pytest.mark.parametrize("connection", [None, 1, "x"])
def test_a_connection_that_is_no_socket(tmp_path: Path, connection: Any) -> None:
    with pytest.raises(ValueError, match=r"^connection must be a socket"):
        ownership.verify_peer(connection, tmp_path / "r")
    with pytest.raises(ValueError, match=r"^connection must be a socket"):
        ownership.verify_worker(connection)
    with pytest.raises(ValueError, match=r"^connection must be a socket"):
        ownership.adopt_listener(connection)
    with ownership.listen(tmp_path / "s", release="close") as owned:
        with pytest.raises(ValueError, match=r"^connection must be a socket"):
            owned.handover(connection)
        owned.claim.verify()


# -- addresses and sockets


@pytest.mark.parametrize("host", ["a\0b", "x" * 70 + "ü", "\ud800"], ids=ascii)
def test_what_is_no_host(tmp_path: Path, host: str) -> None:
    with pytest.raises(ValueError, match=r"^address must be"):
        ownership.listen((host, 0), resource=tmp_path / "r")
    assert names(tmp_path) == set()


def test_a_host_that_nobody_knows_is_told_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> socket.socket:
        try:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        except OSError as error:
            raise OSError(error.errno, "wrapped") from None

    monkeypatch.setattr(socket, "create_server", unknown)
    with pytest.raises(OSError, match="Name or service not known") as told:
        ownership.listen(("nobody.invalid", 0), resource=tmp_path / "r")
    assert told.value.filename == "nobody.invalid:0"
    assert told.value.errno is not None
    assert told.value.errno > 0
    assert "getent hosts nobody.invalid" in getattr(told.value, "hint", "")
    assert ownership.find(tmp_path / "r") is None


def unbound(stack: ExitStack) -> socket.socket:
    return socket.socket()


def unbound_6(stack: ExitStack) -> socket.socket:
    return socket.socket(socket.AF_INET6)


def unbound_unix(stack: ExitStack) -> socket.socket:
    return socket.socket(socket.AF_UNIX)


def datagrams(stack: ExitStack) -> socket.socket:
    made = socket.socket(type=socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    return made


def connected(stack: ExitStack) -> socket.socket:
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return socket.create_connection(server.getsockname()[:2])


def connected_unix(stack: ExitStack) -> socket.socket:
    ours, theirs = socket.socketpair()
    stack.enter_context(theirs)
    return ours


@pytest.fixture(params=[unbound, unbound_6, unbound_unix, datagrams, connected, connected_unix])
def unfit(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    with ExitStack() as stack, request.param(stack) as made:
        yield made


def test_a_socket_that_nobody_can_be_served_on_is_refused_and_stays_open(unfit: socket.socket, tmp_path: Path) -> None:
    for sock in (unfit, unfit.fileno()):
        for address in (None, tmp_path / "r") if unfit.family == socket.AF_UNIX else (None,):
            with pytest.raises(ValueError, match="sock must be a bound stream socket"):
                ownership.listen(address, sock=sock)
    os.fstat(unfit.fileno())
    assert names(tmp_path) == set()
