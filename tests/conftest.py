"""Fixtures that tests of both packages share, and what a machine must have for them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leases import _seat
from tests.support import warm

REAL = {"integration", "crash"}
TOOLS = ("strace", "faketime", "unshare", "setpriv", "mount", "chattr")


def _lacking() -> str:
    """What of root, Linux and tools this machine does not have."""
    if not sys.platform.startswith("linux"):
        return "Linux"
    if os.geteuid() != 0:
        return "root"
    return ", ".join(tool for tool in TOOLS if shutil.which(tool) is None)


def pytest_configure() -> None:
    """Children are to die of the signals that they are sent, also when the tests run under nohup."""
    for name in ("SIGHUP", "SIGQUIT", "SIGTERM"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs namespaces, other accounts and injected faults where those are not to be had; name the reason.

    ``LEASES_TESTS_NEED_EVERYTHING=1`` makes that an error: nothing is skipped unseen.
    """
    lacking = _lacking()
    if not lacking:
        return
    if os.environ.get("LEASES_TESTS_NEED_EVERYTHING"):
        raise pytest.UsageError(f"this machine lacks: {lacking}")
    skip = pytest.mark.skip(reason=f"this machine lacks: {lacking}")
    for item in items:
        if REAL & set(item.path.parts):
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def programs() -> Iterator[None]:
    """What programs are forked from is there from the start: tests that count descriptors see no difference."""
    if warm.CAN_FORK:
        warm.template()
    yield
    warm.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other accounts can reach, which those of ``tmp_path`` are not."""
    path = Path(tempfile.mkdtemp(prefix="ownership-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def seats() -> Iterator[None]:
    """Whoever drove a task in this process is not looked after any more by its keeper."""
    yield
    if _seat._held:
        _seat._leave()
        _seat._held.clear()
