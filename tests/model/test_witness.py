"""The witness speaks the truth about an owner that cannot be seen, and every single rule of it is needed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.model.explorer import explore
from tests.model.witness import (
    BACK,
    DEAD,
    LEFT,
    LIVE,
    SWEPT,
    WITNESSED,
    Witness,
    WitnessRules,
    WitnessScenario,
)

CASES = {
    "acquired twice, everybody looks, it dies": (
        6_000,
        WitnessScenario(("acquire", "release", "acquire", "release"), "CRG", {"death": 1}),
    ),
    "it exits while it owns": (350, WitnessScenario(("acquire", "release", "acquire", "exit"), "CG")),
    "a child is forked": (850, WitnessScenario(("acquire", "fork", "release"), "CR", {"death": 1, "child death": 1})),
    "it executes another program": (200, WitnessScenario(("acquire", "exec"), "CG", {"death": 1})),
    "the witness is deleted": (
        3_500,
        WitnessScenario(("acquire", "release", "acquire"), "CR", {"death": 1, "witness deleted": 1}),
    ),
    "the witness is deleted, a sweeper runs": (
        1_000,
        WitnessScenario(("acquire", "release", "acquire"), "CG", {"witness deleted": 1}),
    ),
}

BIG = {
    "acquired three times, a child, everybody looks": (
        20_000,
        WitnessScenario(
            ("acquire", "release", "acquire", "fork", "release", "acquire", "exit"),
            "CRG",
            {"death": 1, "child death": 1, "witness deleted": 1},
        ),
    ),
}

NEEDED = {
    "visible_once_locked": (WITNESSED, "acquired twice, everybody looks, it dies"),
    "before_record": (DEAD, "acquired twice, everybody looks, it dies"),
    "idle_under_lock": (LIVE, "acquired twice, everybody looks, it dies"),
    "pending_counts": (DEAD, "acquired twice, everybody looks, it dies"),
    "owns_until_unlinked": (DEAD, "acquired twice, everybody looks, it dies"),
    "unlink_then_close": (LIVE, "acquired twice, everybody looks, it dies"),
    "hook_spares_owned": (DEAD, "it exits while it owns"),
    "restored": (BACK, "the witness is deleted"),
    "test_shared": (DEAD, "acquired twice, everybody looks, it dies"),
    "tester_checks_path": (LIVE, "the witness is deleted"),
    "missing_is_unknown": (LIVE, "the witness is deleted"),
    "rereads_record": (LEFT, "acquired twice, everybody looks, it dies"),
    "sweeper_tests_first": (DEAD, "acquired twice, everybody looks, it dies"),
    "sweeper_checks_path": (DEAD, "acquired twice, everybody looks, it dies"),
    "sweeper_reads_records": (DEAD, "acquired twice, everybody looks, it dies"),
    "sweep_after_eviction": (SWEPT, "acquired twice, everybody looks, it dies"),
    "sweep_after_creation": (SWEPT, "acquired twice, everybody looks, it dies"),
    "child_closes": (DEAD, "a child is forked"),
    "child_never_unlocks": (LIVE, "a child is forked"),
    "kept_across_exec": (LIVE, "it executes another program"),
}


def assert_holds(states: int, scenario: WitnessScenario) -> None:
    """Everything was explored, enough of it, and nothing was violated."""
    model = Witness(scenario)
    result = explore(model.initial(), model.moves, model.at_rest)
    assert result.holds, str(result)
    assert result.states >= states


@pytest.mark.parametrize("name", CASES)
def test_the_witness_holds(name: str) -> None:
    """Every reachable state of the scenario keeps every property."""
    assert_holds(*CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", BIG)
def test_the_witness_holds_in_big_scenarios(name: str) -> None:
    """The same with more operations and faults at once."""
    assert_holds(*BIG[name])


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_property_is_violated(rule: str) -> None:
    """Removing exactly one rule breaks the property it is there for."""
    violated, name = NEEDED[rule]
    model = Witness(CASES[name][1], replace(WitnessRules(), **{rule: False}))
    result = explore(model.initial(), model.moves, model.at_rest, until=violated)
    assert violated in result.violations, f"{rule} is not needed for {violated!r} in {name!r}: {result}"


def test_every_rule_is_shown_to_be_needed() -> None:
    """No rule is without its counterexample."""
    assert {field.name for field in fields(WitnessRules)} == set(NEEDED)
