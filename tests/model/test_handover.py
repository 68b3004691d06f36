"""Handing a claim on leaves one owner or none at every moment, and every single rule of it is needed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.model.explorer import explore
from tests.model.handover import ANSWER, GAP, Handover, HandoverRules
from tests.model.protocol import Rules, Scenario
from tests.model.rules import FOREIGN, FRESH, GROWING, LATER, ONE_OWNER

PARENT = ("acquire", "offer", "close", "verify")
CHILD = ("adopt", "verify")

CASES = {
    "a contender, one dies": (
        16_000,
        Scenario(
            {"P": (*PARENT, "release"), "K": (*CHILD, "release"), "C": ("acquire", "release")},
            {"death": 1},
            keepers=("P",),
        ),
    ),
    "two children, one dies": (
        4_500,
        Scenario({"P": PARENT, "K": CHILD, "Kb": CHILD}, {"death": 1}, keepers=("P",)),
    ),
    "record deleted": (
        38_000,
        Scenario({"P": PARENT, "K": CHILD, "C": ("acquire",)}, {"record deleted": 1}, keepers=("P", "K")),
    ),
    "record damaged, one dies": (
        32_000,
        Scenario({"P": PARENT, "K": ("adopt",), "C": ("acquire",)}, {"record damaged": 1, "death": 1}, keepers=("P",)),
    ),
    "directory moved": (
        31_000,
        Scenario({"P": PARENT, "K": ("adopt",), "C": ("acquire",)}, {"directory moved": 1}),
    ),
    "directory removed, one dies": (
        10_000,
        Scenario({"P": PARENT, "K": ("adopt",)}, {"directory removed": 1, "death": 1}, keepers=("P",)),
    ),
    "an operator breaks": (
        20_000,
        Scenario({"P": PARENT, "K": CHILD, "C": ("acquire",), "O": ("break",)}, keepers=("P",)),
    ),
    "one is interrupted, writing fails": (
        15_000,
        Scenario(
            {"P": PARENT, "K": CHILD, "C": ("acquire", "release")},
            {"interrupt": 1, "failure": 1},
            keepers=("P", "K", "C"),
        ),
    ),
    "guard deleted, one dies": (
        22_000,
        Scenario({"P": PARENT, "K": CHILD, "C": ("acquire", "release")}, {"guard deleted": 1, "death": 1}),
    ),
}

BIG = {
    "record damaged, one dies, everybody has a keeper": (
        120_000,
        Scenario(
            {"P": PARENT, "K": CHILD, "C": ("acquire",)}, {"record damaged": 1, "death": 1}, keepers=("P", "K", "C")
        ),
    ),
}

NEEDED = {
    "parent_stays": (GAP, "a contender, one dies"),
    "close_takes_guard": (ONE_OWNER, "a contender, one dies"),
    "close_blanks": (FRESH, "record damaged, one dies"),
    "adopt_takes_guard": (ONE_OWNER, "a contender, one dies"),
    "adopt_checks_hash": (ONE_OWNER, "a contender, one dies"),
    "adopt_checks_parent": (FOREIGN, "two children, one dies"),
    "adopt_replaces": (ONE_OWNER, "guard deleted, one dies"),
    "adopt_draws_token": (GROWING, "a contender, one dies"),
    "adopt_stamps": (LATER, "record deleted"),
    "adopt_renames_first": (ONE_OWNER, "record damaged, one dies"),
    "adopt_post_check": (ONE_OWNER, "directory moved"),
    "adopt_blanks": (FRESH, "one is interrupted, writing fails"),
    "adoption_noted": (ANSWER, "directory removed, one dies"),
    "guard_remembers": (ANSWER, "a contender, one dies"),
}


def assert_holds(states: int, scenario: Scenario) -> None:
    """Everything was explored, enough of it, and nothing was violated."""
    model = Handover(scenario)
    result = explore(model.initial(), model.moves, model.at_rest)
    assert result.holds, str(result)
    assert result.states >= states


@pytest.mark.parametrize("name", CASES)
def test_the_handover_holds(name: str) -> None:
    """Every reachable state of the scenario keeps every property."""
    assert_holds(*CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", BIG)
def test_the_handover_holds_in_big_scenarios(name: str) -> None:
    """The same with more keepers at once."""
    assert_holds(*BIG[name])


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_property_is_violated(rule: str) -> None:
    """Removing exactly one rule breaks the property it is there for."""
    violated, name = NEEDED[rule]
    model = Handover(CASES[name][1], replace(HandoverRules(), **{rule: False}))
    result = explore(model.initial(), model.moves, model.at_rest, until=violated)
    assert violated in result.violations, f"{rule} is not needed for {violated!r} in {name!r}: {result}"


def test_a_documented_limit_is_really_one() -> None:
    """A directory deleted before a parent has noticed the adoption lets the parent come back until its next look."""
    scenario = Scenario({"P": PARENT, "K": ("adopt",)}, {"directory removed": 1}, promised=False)
    model = Handover(scenario)
    result = explore(model.initial(), model.moves, model.at_rest, until=LATER)
    assert LATER in result.violations


def test_every_rule_is_shown_to_be_needed() -> None:
    """No rule of the handover is without its counterexample; those of the protocol have theirs elsewhere."""
    inherited = {field.name for field in fields(Rules)}
    assert {field.name for field in fields(HandoverRules)} - inherited == set(NEEDED)
