"""What ``doctor`` finds of sockets: gone, mute, hidden, stale; real ones, and nothing of what is well."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

import ownership
from ownership import Finding, FindingCode, Severity
from tests.integration.test_listen_cases import SERVER
from tests.support.processes import running
from tests.support.records import snapshot

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads credentials")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.sock"


def found(path: Path) -> list[Finding]:
    """The findings about sockets; looking changes nothing."""
    before = snapshot(path.parent / ".leases")
    every = [one for one in ownership.diagnose(path.parent) if one.resource == path]
    assert snapshot(path.parent / ".leases") == before
    codes = {
        FindingCode.SOCKET_MISSING,
        FindingCode.SOCKET_MUTE,
        FindingCode.HIDDEN_LISTENER,
        FindingCode.STALE_SOCKET,
    }
    return [one for one in every if one.code in codes]


def test_a_socket_that_is_found_and_answers_is_well(path: Path) -> None:
    with ownership.listen(path):
        assert found(path) == []


def test_an_owner_whose_path_is_gone_cannot_be_reached(path: Path) -> None:
    with ownership.listen(path):
        path.unlink()
        (one,) = found(path)
        assert (one.code, one.severity) == (FindingCode.SOCKET_MISSING, Severity.PROBLEM)
        assert f"pid {os.getpid()}" in one.what
        assert "rebind()" in one.advice
        assert one.remedy == f"leasectl stop {path}"
        path.touch()
        (one,) = found(path)
        assert "no socket" in one.what


def test_an_owner_whose_backlog_is_full_does_not_answer(path: Path) -> None:
    with running(SERVER, path, '{"backlog": 0}') as owner:
        owner.hear()
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(os.fspath(path))
            (one,) = found(path)
    assert (one.code, one.severity) == (FindingCode.SOCKET_MUTE, Severity.PROBLEM)
    assert "backlog is full" in one.what


def test_whoever_listens_without_a_record_is_named(path: Path) -> None:
    ownership.listen(path, release="close").close()
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(os.fspath(path))
        hidden.listen()
        (one,) = found(path)
        assert (one.code, one.severity) == (FindingCode.HIDDEN_LISTENER, Severity.PROBLEM)
        assert one.evidence["listener_pid"] == os.getpid()
        with running(SERVER, path) as owner:
            assert owner.hear() == "AlreadyOwnedError"
    path.unlink()
    with running(SERVER, path) as owner, socket.socket(socket.AF_UNIX) as hidden:
        owner.hear()
        path.unlink()
        hidden.bind(os.fspath(path))
        hidden.listen()
        (one,) = found(path)
        assert (one.code, one.evidence["listener_pid"]) == (FindingCode.HIDDEN_LISTENER, os.getpid())


def test_the_socket_of_a_dead_owner_harms_nobody(path: Path) -> None:
    with running(SERVER, path) as owner:
        owner.hear()
    (one,) = found(path)
    assert (one.code, one.severity) == (FindingCode.STALE_SOCKET, Severity.NOTE)
    with ownership.listen(path):
        assert found(path) == []
