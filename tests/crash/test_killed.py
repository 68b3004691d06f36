"""Killed at every system call: whoever comes next acquires at once, and nothing is left behind."""

from __future__ import annotations

import pytest

from tests.crash.conftest import SCENARIOS, Scenario, Scene, aftermath, chosen, undisturbed
from tests.support.injection import Point

FORMS = pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])


def sweep(scene: Scene, scenario: Scenario, named: bool, limit: int = 0) -> int:
    """Kill an actor at each point, or at *limit* of them; how many there are. All failures are told together."""
    found, _ = undisturbed(scene, scenario, named)
    failures = []
    for point in chosen(found, limit) if limit else found:
        try:
            kill(scene, scenario, named, point)
        except AssertionError as error:
            failures.append(f"{point}: {error}"[:400])
    assert not failures, f"{len(failures)} of {len(found)} points:\n" + "\n".join(failures[:8])
    return len(found)


def kill(scene: Scene, scenario: Scenario, named: bool, point: Point) -> None:
    resources, keywords = scenario.prepare(scene)
    fault = f"{point.name}:signal=KILL:when={point.when}"
    outcome = scene.server.traced(scenario.operation, resources[0], fault, named=named, **keywords)
    assert outcome.was_killed, (outcome.status, outcome.said)
    aftermath(scene, scenario, resources, keywords)
    scene.next_one_acquires(*resources)
    scene.others_are_untouched()


@FORMS
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_whoever_dies_at_a_changing_call_leaves_the_resource_free_and_the_directory_clean(
    scene: Scene, scenario: Scenario, named: bool
) -> None:
    sweep(scene, scenario, named, limit=12)


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_whoever_dies_at_any_call_leaves_the_resource_free_and_the_directory_clean(
    scene: Scene, scenario: Scenario, named: bool
) -> None:
    assert sweep(scene, scenario, named) > 5
