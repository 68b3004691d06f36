"""Leases and the gate hold by their rules, and by every one of them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.model.explorer import Result, explore
from tests.model.gate import LISTED, REFUSED, Closing, GateRules
from tests.model.leasing import AFTERWARDS, EARLY, TAKEN, LeaseRules, Leasing
from tests.model.renewing import KEPT, OTHERS, Renewing, RenewRules
from tests.model.renewing import TAKEN as RUN_OUT

SCENARIOS: dict[str, dict[str, Any]] = {
    "one clock": {},
    "another clock": {"shifted": True},
    "a deleted witness": {"deletions": 1},
    "another clock and a deleted witness": {"shifted": True, "deletions": 1, "renewals": 1},
}
NEEDED = {  # which scenario shows what becomes of a lease without the rule
    "holder_looks_again": ("one clock", EARLY),
    "late_takes_guard": ("one clock", AFTERWARDS),
    "late_verifies": ("one clock", AFTERWARDS),
    "contender_takes_guard": ("one clock", AFTERWARDS),
    "clock_first": ("one clock", EARLY),
    "other_clock_is_watched": ("another clock", EARLY),
    "watch_begins_after": ("another clock", EARLY),
    "missing_is_watched": ("a deleted witness", EARLY),
    "beat_is_visible": ("a deleted witness", EARLY),
}
RENEW_NEEDED = {
    "worker_takes_guard": OTHERS,
    "worker_verifies": OTHERS,
    "worker_looks_again": KEPT,
    "change_keeps_renewal": KEPT,
    "put_back_renews": KEPT,
}
GATE_NEEDED = {
    "ask_inside_guard": LISTED,
    "ask_before_publishing": LISTED,
    "publish_first": LISTED,
    "pass_guards": LISTED,
    "without_records": LISTED,
}


def leased(rules: LeaseRules, scenario: str, **keywords: Any) -> Result:
    model = Leasing(rules, **SCENARIOS[scenario])
    return explore(model.initial, model.moves, model.broken, **keywords)


def renewed(rules: RenewRules) -> Result:
    model = Renewing(rules)
    return explore(model.initial, model.moves)


def closed(rules: GateRules) -> Result:
    model = Closing(rules)
    return explore(model.initial, model.moves, model.broken)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_leases_hold_by_their_rules(scenario: str) -> None:
    """And one that is not renewed is taken over: else nothing could go wrong."""
    result = leased(LeaseRules(), scenario)
    assert result.exhaustive
    assert set(result.violations) == {TAKEN}, result


@pytest.mark.parametrize("rule", NEEDED)
def test_every_rule_of_leases_is_needed(rule: str) -> None:
    scenario, name = NEEDED[rule]
    result = leased(replace(LeaseRules(), **{rule: False}), scenario, until=name)
    assert name in result.violations, result


def test_renewing_for_others_holds_by_its_rules() -> None:
    result = renewed(RenewRules())
    assert result.exhaustive
    assert set(result.violations) == {RUN_OUT}, result


@pytest.mark.parametrize("rule", RENEW_NEEDED)
def test_every_rule_of_renewing_for_others_is_needed(rule: str) -> None:
    result = renewed(replace(RenewRules(), **{rule: False}))
    assert RENEW_NEEDED[rule] in result.violations, result


def test_the_gate_holds_by_its_rules() -> None:
    assert closed(GateRules()).holds


@pytest.mark.parametrize("rule", GATE_NEEDED)
def test_every_rule_of_the_gate_is_needed(rule: str) -> None:
    result = closed(replace(GateRules(), **{rule: False}))
    assert GATE_NEEDED[rule] in result.violations, result
    assert set(result.violations) <= {LISTED, REFUSED}


def test_every_rule_is_shown_to_be_needed() -> None:
    assert {field.name for field in fields(LeaseRules)} == set(NEEDED)
    assert {field.name for field in fields(RenewRules)} == set(RENEW_NEEDED)
    assert {field.name for field in fields(GateRules)} == set(GATE_NEEDED)
