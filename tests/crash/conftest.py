"""One scene for all crash tests: a lock directory that others use too, and operations done in it by actors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import Verdict
from tests.support.injection import CHANGING, Outcome, Point, Server, can_trace, points
from tests.support.processes import Child, Contender, eventually, files, is_locked, lock_directory, running

HANDS_OVER = """
while True:
    path = hear()
    claim = ownership.acquire(path, timeout=10)
    offer = claim.handover(timeout=0)
    heir = offer.__enter__()
    say(heir.to_env())
    hear()
    outcome = attempt(offer.__exit__, None, None, None)
    claim.release()
    say(outcome)
"""


@dataclass
class Scene:
    """Where operations take place.

    :ivar neighbour: a live process that owns another resource in the same lock directory
    :ivar others: what is there of others, and must stay as it is: name to inode and bytes
    :ivar last_token: the greatest token seen of each resource
    """

    server: Server
    folder: Path
    neighbour: Contender
    victim: Contender
    predecessor: Child
    others: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    last_token: dict[Path, int] = field(default_factory=dict)
    fresh: int = 0

    def __post_init__(self) -> None:
        (self.folder / "work").mkdir()
        resource = self.folder / "work" / "resource"
        self.neighbour.do("acquire", self.folder / "work" / "neighbour")
        self.server.perform("die", self.folder / "work" / "dead")
        for name in files(resource):
            file = lock_directory(resource) / name
            self.others[name] = (file.stat().st_ino, file.read_bytes())
        assert {"neighbour.json", "dead.json"} <= set(self.others)
        assert sum(name.endswith(".alive") for name in self.others) == 2

    def others_are_untouched(self) -> None:
        folder = self.folder / "work" / ".leases"
        for name, (inode, content) in self.others.items():
            file = folder / name
            if name.endswith(".alive"):  # it beats
                content = file.read_bytes()
            assert (file.stat().st_ino, file.read_bytes()) == (inode, content), name

    def nothing_is_left(self, *resources: Path) -> None:
        """Guards stay, what belongs to others, and witnesses of live processes; nothing else does."""
        folder = lock_directory(resources[0])
        left = {name for name in files(resources[0]) - set(self.others) if not name.endswith(".guard")}
        left = {name for name in left - {".gitignore"} if not (name.endswith(".alive") and is_locked(folder / name))}
        left &= files(resources[0])  # a live process may remove a witness that it needs no more at any moment
        assert not left, f"left behind: {sorted(left)}"

    def next_one_acquires(self, *resources: Path) -> None:
        """A fresh process acquires each of them within two seconds, with a greater token, and leaves nothing."""
        for resource in resources:
            outcome = self.server.perform("pass_on", resource)
            assert outcome.status == 0, outcome.said
            said = outcome.said[0]
            assert said["took"] < 2.0
            assert said["token"] > self.last_token.get(resource, 0)
            self.last_token[resource] = said["token"]
        self.nothing_is_left(*resources)


@dataclass(frozen=True)
class Scenario:
    """One operation, and what it finds.

    :ivar prepare: make what it finds; the resources it is about, and the actor's keywords
    :ivar owned_after: whether an actor whose operation returned owns the resource; ``None``: somebody else may
    :ivar owned_after_failure: whether it does when the operation raised
    """

    name: str
    operation: str
    prepare: Callable[[Scene], tuple[list[Path], dict[str, Any]]]
    owned_after: bool | None
    owned_after_failure: bool | None = False

    def __str__(self) -> str:
        return self.name


def _plain(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    return [scene.folder / "work" / "resource"], {}


def _fresh(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    scene.fresh += 1
    folder = scene.folder / f"fresh{scene.fresh}"
    folder.mkdir()
    return [folder / "resource"], {}


def _dead(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    resources, keywords = _plain(scene)
    assert scene.server.perform("die", resources[0]).was_killed
    return resources, keywords


def _several(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    folder = scene.folder / "work"
    return [folder / "resource", folder / "and", folder / "too"], {"also": [str(folder / "and"), str(folder / "too")]}


def _several_dead(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    resources, keywords = _several(scene)
    assert scene.server.perform("die", resources[0], **keywords).was_killed
    return resources, keywords


def _malformed(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    resources, keywords = _dead(scene)
    (lock_directory(resources[0]) / "resource.json").write_bytes(b"")
    return resources, keywords


def _owned(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    resources, _ = _plain(scene)
    owner = scene.victim.do("acquire", resources[0], timeout=10)
    return resources, {"token": owner["value"]}


def _by_hand(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    return _plain(scene)[0], {"ttl": 600.0, "auto_renew": False}


def _leased(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    resources, _ = _plain(scene)
    scene.victim.do("acquire", resources[0], timeout=10, ttl=600.0, auto_renew=False)
    return resources, {}


def _expired(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    """A live owner whose lease has run out."""
    resources, _ = _owned(scene)
    record = lock_directory(resources[0]) / "resource.json"
    fields = {**json.loads(record.read_bytes()), "lease": {"ttl": 1.0, "auto_renew": False, "renewed_at": 0.0}}
    planted = record.with_name("planted")
    planted.write_text(json.dumps(fields))
    planted.replace(record)
    return resources, {"ttl": 600.0}


def _handed_over(scene: Scene) -> tuple[list[Path], dict[str, Any]]:
    resources, _ = _plain(scene)
    scene.predecessor.say(str(resources[0]))
    return resources, {"heir": scene.predecessor.hear()}


SCENARIOS = [
    Scenario("acquire", "acquire", _plain, True),
    Scenario("acquire-in-a-fresh-directory", "acquire", _fresh, True),
    Scenario("acquire-over-a-dead-owner", "acquire", _dead, True),
    Scenario("acquire-over-an-empty-record", "acquire", _malformed, True),
    Scenario("acquire-three", "acquire", _several, True),
    Scenario("acquire-three-over-a-dead-owner", "acquire", _several_dead, True),
    Scenario("acquire-over-an-expired-lease", "acquire", _expired, True),
    Scenario("release", "release", _plain, False),
    Scenario("release-three", "release", _several, False),
    Scenario("announce", "announce", _plain, True, True),
    Scenario("renew", "renew", _by_hand, True, True),
    Scenario("renew-for-its-owner", "renew_for", _leased, None, None),
    Scenario("put-back-a-deleted-record", "verify", _plain, True, True),
    Scenario("reclaim", "reclaim", _dead, False),
    Scenario("break", "break_claim", _owned, None, None),
    Scenario("adopt", "adopt", _handed_over, None, None),
    Scenario("retire", "retire", _plain, True, True),
    Scenario("ask-an-owner-that-stays", "ask", _owned, None, None),
    Scenario("replace", "replace", _plain, True, None),
]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if not can_trace():
        pytest.skip("needs strace(1) and the right to attach")
    folder = tmp_path_factory.mktemp("crash")
    with Server(folder) as server, Contender() as neighbour, Contender() as victim, running(HANDS_OVER) as predecessor:
        yield Scene(server, folder, neighbour, victim, predecessor)


def aftermath(scene: Scene, scenario: Scenario, resources: list[Path], keywords: dict[str, Any]) -> None:
    """What the other party of an operation does once the actor is over."""
    if scenario.operation == "break_claim":
        again = scene.server.perform("break_claim", resources[0], **keywords)
        assert again.status == 0, again.said
        assert scene.victim.do("verify", resources[0])["error"] == "OwnershipLostError"
        scene.victim.do("release", resources[0])
    if scenario.operation in ("ask", "renew_for"):  # whatever became of whoever asked, the owner owns
        assert "error" not in scene.victim.do("verify", resources[0])
        assert "error" not in scene.victim.do("release", resources[0])
    if scenario.operation == "replace":  # the owner ends with whoever asked it
        eventually(lambda: ownership.inspect(resources[0]).verdict in (Verdict.FREE, Verdict.GONE, Verdict.ZOMBIE))
    if scenario.prepare is _expired:
        scene.victim.do("release", resources[0])
    if scenario.operation == "adopt":
        assert scene.predecessor.ask("leave") in (None, "HandoverError", "OwnershipLostError")


def undisturbed(scene: Scene, scenario: Scenario, named: bool) -> tuple[list[Point], Outcome]:
    """Every point of *scenario*, and its outcome without a fault."""
    for _ in range(2):  # the first one may have to make guards
        resources, keywords = scenario.prepare(scene)
        outcome = scene.server.traced(scenario.operation, resources[0], named=named, **keywords)
        assert outcome.status == 0, outcome.said
        aftermath(scene, scenario, resources, keywords)
    return points(outcome.trace), outcome


def chosen(found: list[Point], limit: int) -> list[Point]:
    """At most *limit* points: calls that change something first, evenly spread, and others for the rest."""
    changing = [point for point in found if point.name in CHANGING]
    others = [point for point in found if point.name not in CHANGING]
    taken = _spread(changing, limit * 3 // 4)
    taken += _spread(others, limit - len(taken))
    return [point for point in found if point in taken]


def _spread(found: list[Point], count: int) -> list[Point]:
    """*count* of them, the first and the last among them."""
    if len(found) <= count:
        return list(found)
    return [found[round(index * (len(found) - 1) / (count - 1))] for index in range(count)]
