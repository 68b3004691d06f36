"""A roster whose writer dies or fails at every system call: it is whole, and says what its writers were told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leases import Roster
from ownership import Verdict
from tests.crash.conftest import chosen
from tests.support.injection import END, Point, Server, can_trace, points
from tests.support.processes import Child, running

WHATS = ("first", "start", "finish", "claim_lost", "compact")
NOT_FAILED = ("close", "access", "faccessat", "faccessat2")
LIVE = """
import leases
task = leases.Roster(sys.argv[1]).start("live")
say(os.getpid())
hear()
"""


@dataclass
class Scene:
    """Rosters in which somebody lives and drives a task, each for one fault."""

    server: Server
    folder: Path
    count: int = 0

    @contextlib.contextmanager
    def roster(self, what: str) -> Iterator[tuple[Path, dict[str, Any], Child | None]]:
        """A roster with a task of a live process, a lost one and a finished one; keywords of the actor; who lives."""
        self.count += 1
        path = self.folder / str(self.count) / "x.roster"
        path.parent.mkdir()
        if what == "first":  # the file is to be made
            yield path, {"what": "start"}, None
            return
        with running(LIVE, path) as live:
            live.hear()
            Roster(path).start("finished").finish()
            Roster(path).start("lost").give_up()
            yield path, {"what": what, "lost": "lost"}, live


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if not can_trace():
        pytest.skip("needs strace(1) and the right to attach")
    folder = tmp_path_factory.mktemp("roster")
    with Server(folder) as server:
        yield Scene(server, folder)


def found(scene: Scene, what: str) -> list[Point]:
    """Every call of one change, once everything is warm."""
    with scene.roster(what) as (path, keywords, _):
        outcome = scene.server.traced("roster", path, **keywords)
        assert outcome.status == 0, outcome.said
    return points(outcome.trace)


def is_whole(path: Path, live: Child | None) -> None:
    """It can be read and changed; what lives is not lost, what was finished is; of nothing else anybody is left."""
    roster = Roster(path, timeout=10)
    before = roster.restore()
    doubtful = {task.name for task in before.running if task.verdict is Verdict.UNKNOWN}  # it could not say who it was
    assert {task.name for task in before.running} - doubtful == ({"live"} if live is not None else set())
    if live is not None:
        assert "finished" in {task.name for task in before.finished}
    for task in before.lost:
        roster.claim_lost(task).finish()
    roster.start("afterwards").finish()
    roster.compact()
    after = Roster(path).restore()
    assert not after.lost
    assert {task.name for task in after.running} == {task.name for task in before.running}
    assert {"afterwards", *(task.name for task in before.finished)} <= {task.name for task in after.finished}
    assert {one.name for one in path.parent.iterdir()} == {path.name, ".leases"}


def kill(scene: Scene, what: str, point: Point) -> None:
    with scene.roster(what) as (path, keywords, live):
        outcome = scene.server.traced("roster", path, f"{point.name}:signal=KILL:when={point.when}", **keywords)
        assert outcome.was_killed, (outcome.status, outcome.said)
        is_whole(path, live)


def fail(scene: Scene, what: str, point: Point, error: str) -> None:
    """A call that fails is an error with its file, or none at all; a task that was not begun is driven by nobody."""
    with scene.roster(what) as (path, keywords, live):
        outcome = scene.server.traced("roster", path, f"{point.name}:error={error}:when={point.when}", **keywords)
        if "(INJECTED)" not in outcome.trace.partition(END)[0]:  # it made one call less than when they were counted
            return
        assert outcome.status == 0, outcome.said
        told, then = outcome.said[0], outcome.said[1]
        if "error" in told:
            assert told["typed"] or told["error"] == "RuntimeError", told  # no thread for the keeper
            if what in ("first", "start", "claim_lost"):
                assert then == {"running": []}, (told, then)
        elif what in ("first", "start", "claim_lost"):
            assert then["running"], told
        is_whole(path, live)


def sweep(scene: Scene, what: str, limit: int, act: Any, *more: Any) -> None:
    failures = []
    every = [point for point in found(scene, what) if act is kill or point.name not in NOT_FAILED]
    for point in chosen(every, limit) if limit else every:
        try:
            act(scene, what, point, *more)
        except AssertionError as failure:
            failures.append(f"{point}: {failure}"[:600])
    assert not failures, f"{len(failures)} of {len(every)} points:\n" + "\n".join(failures[:8])


@pytest.mark.parametrize("what", ["first", "finish", "compact"])
def test_a_writer_that_dies_at_a_changing_call_leaves_a_whole_roster(scene: Scene, what: str) -> None:
    sweep(scene, what, 5, kill)


@pytest.mark.parametrize("what", ["first", "claim_lost", "compact"])
def test_a_call_that_fails_leaves_a_whole_roster_and_nothing_begun(scene: Scene, what: str) -> None:
    sweep(scene, what, 5, fail, "ENOSPC")


@pytest.mark.slow
@pytest.mark.parametrize("what", WHATS)
def test_a_writer_that_dies_at_any_call_leaves_a_whole_roster(scene: Scene, what: str) -> None:
    sweep(scene, what, 0, kill)


@pytest.mark.slow
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EMFILE", "EACCES", "EINTR"])
@pytest.mark.parametrize("what", WHATS)
def test_any_call_that_fails_leaves_a_whole_roster_and_nothing_begun(scene: Scene, what: str, error: str) -> None:
    sweep(scene, what, 0, fail, error)
