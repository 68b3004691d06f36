"""Every system call fails once: a typed error or a handle, never both, nothing left owned, and the same again works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.conftest import SCENARIOS, Scenario, Scene, aftermath, chosen, undisturbed
from tests.support.injection import END, Point

FORMS = pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "ENOLCK", "ENOSYS", "ESTALE", "EINTR")
# A failed close(2) has closed all the same; strace would leave the descriptor open instead, which no kernel does.
NOT_FAILED = ("close", "access", "faccessat", "faccessat2")
READ_ONLY = Scenario("inspect", "inspect", SCENARIOS[2].prepare, None, None)


def sweep(scene: Scene, scenario: Scenario, named: bool, errors: tuple[str, ...], limit: int = 0) -> int:
    """Let each call fail with each error, or *limit* calls with errors in turn; how many there are.

    All failures are told together.
    """
    found, calm = undisturbed(scene, scenario, named)
    found = [point for point in found if point.name not in NOT_FAILED]
    failures = []
    for number, point in enumerate(chosen(found, limit) if limit else found):
        for error in errors if not limit else (errors[number % len(errors)],):
            try:
                fail(scene, scenario, named, point, error, calm.said[-1])
            except AssertionError as failure:
                failures.append(f"{error} of {point}: {failure}"[:900])
    assert not failures, f"{len(failures)} of {len(found)} points:\n" + "\n".join(failures[:8])
    return len(found)


def fail(scene: Scene, scenario: Scenario, named: bool, point: Point, error: str, calm: Any) -> None:
    resources, keywords = scenario.prepare(scene)
    fault = f"{point.name}:error={error}:when={point.when}"
    actor = scene.server
    actor.begin(scenario.operation, resources[0], fault, named=named, pause=True, **keywords)
    try:
        said = [actor.hear()]
        while said[-1] != "paused":
            said.append(actor.hear())
        look(scene, scenario, resources, said)
    finally:
        actor.go_on()
        outcome = actor.finish()
        aftermath(scene, scenario, resources, keywords)
    if came_late(outcome.trace):  # a sweep found less than in the run that was counted
        return
    assert outcome.status == 0, (said, outcome.said)
    assert f"= -1 {error}" in outcome.trace, "not reached"
    assert outcome.said[-1:] in ([calm], []), "descriptors leaked"
    scene.next_one_acquires(*resources)
    scene.others_are_untouched()


def came_late(trace: str) -> bool:
    """Whether the fault hit what was done after the operation."""
    before, _, after = trace.partition(END)
    return "(INJECTED)" not in before and "(INJECTED)" in after


def look(scene: Scene, scenario: Scenario, resources: list[Path], said: list[Any]) -> None:
    """While the actor stands still: is its outcome one of the two, and do others see the same?"""
    raised = "error" in said[0]
    if raised and said[0]["error"] != "RuntimeError":  # no thread can be started for the keeper
        assert said[0]["typed"], said[0]
    for told in said[1:-1]:  # a look that failed says nothing about the owner
        assert not told.get("ours") or told["ours"].startswith(("OSError", "PermissionError", "BlockingIOError")), told
    owned = scenario.owned_after_failure if raised else scenario.owned_after
    if owned is None:
        return
    for resource in resources:
        contender = scene.neighbour.do("pass", resource, timeout=0 if owned else 2)
        if owned:
            assert contender.get("error") == "AlreadyOwnedError", (resource.name, contender, said)
        else:
            assert "value" in contender, (resource.name, contender, said)


@FORMS
@pytest.mark.parametrize("scenario", [*SCENARIOS, READ_ONLY], ids=str)
def test_a_call_that_fails_gives_a_typed_error_and_leaves_nothing_owned(
    scene: Scene, scenario: Scenario, named: bool
) -> None:
    sweep(scene, scenario, named, ("EIO", "ENOSPC"), limit=8)


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("scenario", [*SCENARIOS, READ_ONLY], ids=str)
def test_any_call_that_fails_in_any_way_gives_a_typed_error_and_leaves_nothing_owned(
    scene: Scene, scenario: Scenario, error: str, named: bool
) -> None:
    assert sweep(scene, scenario, named, (error,)) > 5
