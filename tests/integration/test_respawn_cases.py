"""Services that are started again at once: never two inside, and no gap that a client would see."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.cli import environment, quick, started
from tests.support.namespaces import needs_linux_root
from tests.support.processes import residue

pytestmark = needs_linux_root

INSIDE = """
import fcntl, os, signal, time
inside = os.open({folder!r} + "/inside", os.O_CREAT | os.O_RDWR)
try:
    fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("somebody else is inside", flush=True)
    raise SystemExit(9)
counted = int(os.pread(inside, 20, 0) or b"0")
def end(*_):
    os.pwrite(inside, str(counted + 1).encode(), 0)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print(time.monotonic(), flush=True)
while True:
    time.sleep(0.01)
"""


def service(path: Path, folder: Path, *options: str, how: str = "run") -> subprocess.Popen[str]:
    """``leasectl run``, or ``replace``, whose CMD says the time as soon as it runs."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    arguments = [how, *options, os.fspath(path), "--", *quick(INSIDE.format(folder=os.fspath(folder)))]
    process: subprocess.Popen[str] = started(arguments, text=True, env=environment(), **pipes)
    return process


def begun(process: subprocess.Popen[str]) -> float:
    """When CMD began; it was alone."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return float(line)


def close(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=30)


@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_a_service_that_is_respawned_at_once_is_never_there_twice_and_never_away_for_long(
    tmp_path: Path, rounds: int
) -> None:
    """The next one is started while the old one still runs; that is ended by TERM and by KILL in turn."""
    path = tmp_path / "x"
    current = service(path, tmp_path)
    begun(current)
    ended_well, gaps = 0, dict[int, list[float]]()
    try:
        for number in range(rounds):
            following = service(path, tmp_path, "--timeout", "30")
            try:
                assert following.stderr is not None
                assert "waiting" in following.stderr.readline()
                how = signal.SIGKILL if number % 2 else signal.SIGTERM
                current.send_signal(how)
                current.wait(30)
                ended = time.monotonic()
                gaps.setdefault(how, []).append(begun(following) - ended)
                ended_well += how == signal.SIGTERM
            finally:
                close(current)
                current = following
    finally:
        close(current)
    assert int((tmp_path / "inside").read_text()) == ended_well
    assert max(map(min, gaps.values())) < 0.3, gaps  # at best: one slow moment of a shared machine says nothing


def test_a_service_that_is_started_again_after_its_end_finds_nobody_in_its_way(tmp_path: Path) -> None:
    """As a supervisor does it: the next one at the moment of the end, without a timeout."""
    path = tmp_path / "x"
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        process = service(path, tmp_path)
        begun(process)
        process.send_signal(how)
        process.wait(30)
        close(process)
    close(service(path, tmp_path))


def test_deployments_that_replace_each_other_are_never_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "x"
    services = [service(path, tmp_path)]
    try:
        begun(services[0])
        for _ in range(4):
            services.append(service(path, tmp_path, "--grace", "5", "--reason", "deploy", how="replace"))
            begun(services[-1])
            assert services[-2].wait(30) in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
        services[-1].terminate()
        assert services[-1].wait(30) == 0
        assert int((tmp_path / "inside").read_text()) == 5
        assert not residue(path)
    finally:
        for one in services:
            close(one)
