"""Whoever asks an owner to go is the only one to follow, blocks nobody once dead, and every rule of that is needed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.model.explorer import explore
from tests.model.replacing import (
    ASKABLE,
    CLEAN,
    EXCLUSIVE,
    FREE,
    HEEDED,
    STANDS,
    UNASKED,
    UNDECIDED,
    ReplaceRules,
    Replacing,
    Scenario,
)

CASES = {
    "a contender, one dies": (1_100, Scenario(("A", "C"), {"death": 1})),
    "two askers and a contender, one dies": (13_000, Scenario(("A", "B", "C"), {"death": 1})),
    "two askers after a dead one": (2_500, Scenario(("A", "B"), {"death": 1}, dead_request=True)),
    "an asker and a contender after a dead asker": (1_200, Scenario(("A", "C"), {"death": 1}, dead_request=True)),
    "a withdrawal fails": (1_600, Scenario(("A", "C"), {"failure": 1, "death": 1})),
    "an asker is stopped for long": (2_900, Scenario(("A", "C"), {"expiry": 1, "death": 1})),
    "two askers, one is stopped for long": (8_900, Scenario(("A", "B"), {"expiry": 1, "death": 1})),
    "a request is withdrawn by decision": (1_200, Scenario(("A", "W"), {"death": 1})),
    "a request is withdrawn by decision, another contends": (6_300, Scenario(("A", "C", "W"), {"death": 1})),
    "a request is withdrawn by decision, or deleted": (2_600, Scenario(("A", "W"), {"cleaner": 1, "death": 1})),
    "a request is withdrawn by decision, another asks": (6_900, Scenario(("A", "B", "W"), {"death of who asks": 1})),
    "the owner hands over": (3_200, Scenario(("A", "C", "H"), {"death": 1})),
}

NEEDED = {
    "ask_takes_guard": (STANDS, "two askers after a dead one"),
    "ask_judges_asker": (ASKABLE, "a contender, one dies"),
    "younger_refused": (STANDS, "two askers and a contender, one dies"),
    "ask_marks": (EXCLUSIVE, "a contender, one dies"),
    "mark_first": (CLEAN, "a contender, one dies"),
    "mark_outlives": (CLEAN, "a withdrawal fails"),
    "mark_beside": (EXCLUSIVE, "a contender, one dies"),
    "acquire_looks": (EXCLUSIVE, "a contender, one dies"),
    "acquire_judges_asker": (FREE, "a contender, one dies"),
    "acquire_clears": (CLEAN, "an asker and a contender after a dead asker"),
    "own_request_goes": (ASKABLE, "a contender, one dies"),
    "withdraw_on_failure": (FREE, "a contender, one dies"),
    "withdraw_only_own": (STANDS, "two askers, one is stopped for long"),
    "retry_withdrawal": (FREE, "a withdrawal fails"),
    "asks_each_owner": (UNASKED, "the owner hands over"),
    "request_expires": (FREE, "an asker is stopped for long"),
    "withdrawal_clears": (HEEDED, "a request is withdrawn by decision"),
    "withdrawal_clears_last": (ASKABLE, "a request is withdrawn by decision"),
    "others_tell": (HEEDED, "a request is withdrawn by decision, another asks"),
    "missed_asks_again": (UNDECIDED, "a request is withdrawn by decision, or deleted"),
    "looks_before_it_stops": (HEEDED, "a request is withdrawn by decision"),
}


@pytest.mark.parametrize("name", CASES)
def test_replacing_holds(name: str) -> None:
    """Every reachable state of the scenario keeps every property."""
    states, scenario = CASES[name]
    model = Replacing(scenario)
    result = explore(model.initial(), model.moves, model.at_rest)
    assert result.holds, str(result)
    assert result.states >= states


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_property_is_violated(rule: str) -> None:
    """Removing exactly one rule breaks the property it is there for."""
    violated, name = NEEDED[rule]
    model = Replacing(CASES[name][1], replace(ReplaceRules(), **{rule: False}))
    result = explore(model.initial(), model.moves, model.at_rest, until=violated)
    assert violated in result.violations, f"{rule} is not needed for {violated!r} in {name!r}: {result}"


def test_an_asker_may_ask_again_if_another_died_between_its_mark_and_its_request_since_it_was_withdrawn() -> None:
    """Not promised: that looks as if a cleaner had deleted the request."""
    model = Replacing(Scenario(("A", "B", "W"), {"death": 1}))
    result = explore(model.initial(), model.moves, model.at_rest)
    assert set(result.violations) == {HEEDED}
    (steps,) = result.violations.values()
    assert steps[steps.index("B dies") - 1] == "B marks the guard"


def test_every_rule_is_shown_to_be_needed() -> None:
    """No rule is without its counterexample."""
    assert {field.name for field in fields(ReplaceRules)} == set(NEEDED)
