"""The protocol holds in every scenario, and every single rule of it is needed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from tests.model.explorer import explore
from tests.model.protocol import Protocol, Rules, Scenario
from tests.model.rules import (
    BREAKABLE,
    BROKEN,
    CONVERGE,
    FOREIGN,
    FRESH,
    GROWING,
    LATER,
    LEFTOVER,
    ONE_OWNER,
    RELEASED,
    TEMPS,
    UNCLAIMED,
    WOKEN,
)

TAKE = ("acquire",)
TAKE_VERIFY = ("acquire", "verify")
TAKE_RELEASE = ("acquire", "release")
TAKE_VERIFY_RELEASE = ("acquire", "verify", "release")
TAKE_UPDATE_RELEASE = ("acquire", "update", "release")
BREAK = ("break",)


@dataclass(frozen=True)
class Case:
    """A scenario, the least number of states it must have, and properties that the design does not promise in it."""

    scenario: Scenario
    states: int
    unpromised: tuple[str, ...] = ()


def case(states: int, programs: dict[str, tuple[str, ...]], *unpromised: str, **options: object) -> Case:
    """A case with its faults and options as keywords."""
    return Case(Scenario(programs, **options), states, unpromised)  # type: ignore[arg-type]


CASES = {
    "nobody interferes, an operator breaks, one dies": case(
        4_000, {"A": TAKE_UPDATE_RELEASE, "O": BREAK, "B": TAKE_RELEASE}, faults={"death": 1}
    ),
    "record damaged, a dead owner, one dies": case(
        3_000,
        {"A": TAKE_VERIFY_RELEASE, "B": TAKE_VERIFY_RELEASE},
        faults={"record damaged": 1, "death": 1},
        keepers=("A",),
        dead_owner=True,
    ),
    "record damaged, an operator breaks": case(
        8_000, {"A": TAKE_VERIFY, "O": BREAK, "B": TAKE_RELEASE}, faults={"record damaged": 1}, keepers=("A",)
    ),
    "record damaged and guard deleted, the keepers run": case(
        10_000, {"A": TAKE_VERIFY, "B": TAKE}, faults={"guard deleted": 1, "record damaged": 1}, keepers=("A", "B")
    ),
    "record deleted, an operator breaks": case(
        13_000, {"A": TAKE_VERIFY, "O": BREAK, "B": TAKE_RELEASE}, faults={"record deleted": 1}, keepers=("A",)
    ),
    "record deleted, one dies": case(
        3_300, {"A": TAKE_UPDATE_RELEASE, "B": TAKE_RELEASE}, faults={"record deleted": 1, "death": 1}, keepers=("A",)
    ),
    "record deleted, three contend": case(
        8_500,
        {"A": TAKE_VERIFY_RELEASE, "B": TAKE_RELEASE, "C": TAKE},
        faults={"record deleted": 1},
        keepers=("A",),
    ),
    "record deleted, two keepers, an operator breaks": case(
        7_500, {"A": TAKE_RELEASE, "B": TAKE, "O": BREAK}, faults={"record deleted": 1}, keepers=("A", "B")
    ),
    "record deleted twice, an operator breaks": case(
        26_000, {"A": TAKE_VERIFY, "B": TAKE, "O": BREAK}, faults={"record deleted": 2}, keepers=("A",)
    ),
    "record deleted twice, interrupted, removing or writing fails": case(
        14_000,
        {"A": TAKE_RELEASE, "B": TAKE},
        faults={"record deleted": 2, "interrupt": 1, "failure": 1},
        keepers=("A", "B"),
    ),
    "record deleted, an operator breaks without a keeper": case(
        8_500, {"A": TAKE, "B": TAKE_RELEASE, "O": BREAK}, faults={"record deleted": 1, "death": 1}
    ),
    "record deleted twice, a dead owner, everybody releases": case(
        20_000,
        {"A": TAKE_VERIFY_RELEASE, "B": TAKE_VERIFY_RELEASE},
        faults={"record deleted": 2, "death": 1},
        keepers=("A", "B"),
        dead_owner=True,
    ),
    "record deleted, one acquires again": case(
        3_400,
        {"A": (*TAKE_VERIFY_RELEASE, *TAKE_VERIFY), "B": TAKE_RELEASE},
        faults={"record deleted": 1},
        keepers=("A",),
    ),
    "guard deleted, three contend": case(
        12_000, {"A": TAKE_VERIFY, "B": TAKE_RELEASE, "C": TAKE}, faults={"guard deleted": 1}
    ),
    "guard deleted, a dead owner, one dies": case(
        55_000,
        {"A": TAKE_VERIFY_RELEASE, "B": TAKE_VERIFY, "C": TAKE_RELEASE},
        faults={"guard deleted": 1, "death": 1},
        dead_owner=True,
    ),
    "guard deleted, an operator breaks": case(
        40_000, {"A": TAKE_VERIFY_RELEASE, "B": TAKE_RELEASE, "O": BREAK}, faults={"guard deleted": 1}, keepers=("A",)
    ),
    "guard deleted while somebody is inside, nobody to evict": case(
        40_000, {"A": TAKE_VERIFY, "B": TAKE_RELEASE, "C": TAKE}, faults={"guard deleted inside": 1}
    ),
    "guard deleted while somebody is inside, a dead owner, removal in one step": case(
        50_000,
        {"A": TAKE_VERIFY, "B": TAKE_RELEASE, "C": TAKE},
        faults={"guard deleted inside": 1},
        dead_owner=True,
        gap=False,
    ),
    "guard deleted while somebody is inside, record deleted, removal in one step": case(
        40_000,
        {"A": TAKE_VERIFY, "B": TAKE_RELEASE},
        LATER,
        faults={"guard deleted inside": 1, "record deleted": 1},
        keepers=("A",),
        gap=False,
    ),
    "directory removed, one dies": case(
        16_000, {"A": TAKE_VERIFY, "B": TAKE_RELEASE}, faults={"directory removed": 1, "death": 1}, keepers=("A",)
    ),
    "directory moved, one dies": case(
        14_000, {"A": TAKE_VERIFY, "B": TAKE_RELEASE}, faults={"directory moved": 1, "death": 1}, keepers=("A",)
    ),
    "directory moved, an operator breaks, one dies": case(
        8_000, {"A": TAKE_VERIFY, "O": BREAK}, faults={"directory moved": 1, "death": 1}, keepers=("A",)
    ),
    "directory moved while a keeper puts its record back": case(
        1_300,
        {"A": TAKE_VERIFY, "B": TAKE_RELEASE},
        faults={"record deleted": 1, "directory moved under keeper": 1},
    ),
    "directory removed after a break, two keepers": case(
        80_000,
        {"A": TAKE, "B": TAKE, "O": BREAK},
        FRESH,
        faults={"directory removed": 1},
        keepers=("A", "B"),
        promised=False,
    ),
    "clock steps back, record deleted, one dies": case(
        8_000,
        {"A": TAKE_RELEASE, "B": TAKE_RELEASE},
        faults={"clock back": 1, "record deleted": 1, "death": 1},
        keepers=("A",),
        dead_owner=True,
    ),
    "clock steps back, guard deleted beside a record": case(
        4_500,
        {"A": TAKE_RELEASE, "B": TAKE_RELEASE},
        faults={"clock back": 1, "guard deleted beside record": 1},
        keepers=("A",),
        dead_owner=True,
    ),
    "clock steps back, guard deleted, an operator breaks": case(
        2_000,
        {"A": TAKE_VERIFY, "O": BREAK},
        GROWING,
        faults={"clock back": 1, "guard deleted": 1},
        keepers=("A",),
    ),
    "clock steps back, directory removed": case(
        34_000,
        {"A": TAKE_RELEASE, "B": TAKE_RELEASE},
        GROWING,
        faults={"clock back": 1, "directory removed": 1},
        keepers=("A",),
    ),
    "clock stands, guard and record deleted": case(
        3_500,
        {"A": TAKE, "B": TAKE},
        GROWING,
        faults={"guard deleted": 1, "record deleted": 1, "clock stands": 1},
        keepers=("A", "B"),
    ),
    "interrupted, removing or writing fails, record damaged, a dead owner": case(
        14_000,
        {"A": TAKE_UPDATE_RELEASE, "B": TAKE_RELEASE},
        faults={"interrupt": 1, "failure": 1, "record damaged": 1},
        keepers=("A", "B"),
        dead_owner=True,
    ),
    "interrupted, removing or writing fails, the same process tries again": case(
        100, {"A": (*TAKE, *TAKE)}, faults={"interrupt": 1, "failure": 1}, keepers=("A",)
    ),
    "an empty file planted, one dies": case(
        1_900, {"A": TAKE_RELEASE, "O": BREAK}, faults={"record planted": 1, "death": 1}, keepers=("A",)
    ),
    "an empty file planted after a break, no keeper": case(400, {"A": TAKE, "O": BREAK}, faults={"record planted": 1}),
    "record damaged under an update and a break, one dies": case(
        2_000, {"A": TAKE_UPDATE_RELEASE, "O": BREAK}, faults={"record damaged": 1, "death": 1}, keepers=("A",)
    ),
    "named temporary files: one dies, one is interrupted": case(
        1_800,
        {"A": TAKE_UPDATE_RELEASE, "B": TAKE_RELEASE},
        faults={"death": 1, "interrupt": 1},
        keepers=("A", "B"),
        dead_owner=True,
        named_temps=True,
    ),
    "named temporary files: an operator breaks, one dies": case(
        3_300,
        {"A": ("acquire", "update"), "B": TAKE_RELEASE, "O": BREAK},
        faults={"death": 1},
        named_temps=True,
    ),
    "named temporary files: guard deleted, one dies": case(
        1_700,
        {"A": ("acquire", "update"), "B": TAKE_RELEASE},
        faults={"death": 1, "guard deleted beside record": 1},
        named_temps=True,
    ),
    "named temporary files: directory removed, one dies": case(
        8_000,
        {"A": TAKE, "B": TAKE},
        faults={"directory removed": 1, "death": 1},
        keepers=("A",),
        named_temps=True,
    ),
}

BIG = {
    "record deleted twice, an operator breaks, one dies": case(
        70_000, {"A": TAKE_VERIFY, "B": TAKE, "O": BREAK}, faults={"record deleted": 2, "death": 1}, keepers=("A",)
    ),
    "record deleted twice, interrupted, removing or writing fails, updates": case(
        50_000,
        {"A": TAKE_UPDATE_RELEASE, "B": TAKE_RELEASE},
        faults={"record deleted": 2, "interrupt": 1, "failure": 1},
        keepers=("A", "B"),
    ),
    "directory removed, an operator breaks, a contender": case(
        270_000, {"A": TAKE_VERIFY, "B": TAKE_RELEASE, "O": BREAK}, faults={"directory removed": 1}, keepers=("A",)
    ),
    "record deleted, one dies, an operator breaks, two keepers": case(
        130_000,
        {"A": TAKE_UPDATE_RELEASE, "B": TAKE_VERIFY_RELEASE, "O": BREAK},
        faults={"record deleted": 1, "death": 1},
        keepers=("A", "B"),
    ),
    "record damaged, interrupted, a break, two keepers": case(
        210_000,
        {"A": TAKE_UPDATE_RELEASE, "B": TAKE_VERIFY_RELEASE, "O": BREAK},
        faults={"record damaged": 1, "interrupt": 1, "failure": 1},
        keepers=("A", "B"),
    ),
    "directory moved, two die, three contend": case(
        370_000,
        {"A": TAKE_VERIFY, "B": TAKE_RELEASE, "C": TAKE},
        faults={"directory moved": 1, "death": 2},
        dead_owner=True,
    ),
}

NEEDED = {
    "lock_guard": (ONE_OWNER, "record damaged, a dead owner, one dies"),
    "check_after_lock": (BROKEN, "guard deleted, an operator breaks"),
    "guard_stays": (LATER, "record deleted, an operator breaks"),
    "post_check": (ONE_OWNER, "directory moved, one dies"),
    "link_never_replaces": (FOREIGN, "guard deleted while somebody is inside, nobody to evict"),
    "remove_only_judged": (
        FOREIGN,
        "guard deleted while somebody is inside, a dead owner, removal in one step",
    ),
    "withdraw_on_failure": (UNCLAIMED, "interrupted, removing or writing fails, record damaged, a dead owner"),
    "withdraw_only_own": (FOREIGN, "guard deleted while somebody is inside, record deleted, removal in one step"),
    "retry_withdrawal": (UNCLAIMED, "interrupted, removing or writing fails, record damaged, a dead owner"),
    "reclaim_own_leftover": (LEFTOVER, "interrupted, removing or writing fails, the same process tries again"),
    "absent_asks_guard": (ONE_OWNER, "record deleted, one dies"),
    "token_above_guard": (GROWING, "clock steps back, record deleted, one dies"),
    "token_above_record": (GROWING, "clock steps back, guard deleted beside a record"),
    "token_from_clock": (GROWING, "guard deleted, three contend"),
    "stamp_token": (GROWING, "clock steps back, record deleted, one dies"),
    "stamp_identity": (ONE_OWNER, "interrupted, removing or writing fails, record damaged, a dead owner"),
    "stamp_before_link": (GROWING, "clock steps back, record deleted, one dies"),
    "settle": (ONE_OWNER, "record damaged and guard deleted, the keepers run"),
    "blank_at_release": (FRESH, "an empty file planted, one dies"),
    "token_at_release": (GROWING, "clock steps back, guard deleted beside a record"),
    "blank_before_unlink": (WOKEN, "nobody interferes, an operator breaks, one dies"),
    "blank_after_break": (FRESH, "an empty file planted after a break, no keeper"),
    "blank_after_failure": (FRESH, "interrupted, removing or writing fails, record damaged, a dead owner"),
    "blank_at_loss": (FRESH, "record damaged under an update and a break, one dies"),
    "loss_enters_guard": (FRESH, "guard deleted while somebody is inside, record deleted, removal in one step"),
    "release_takes_guard": (FOREIGN, "nobody interferes, an operator breaks, one dies"),
    "release_checks_record": (FOREIGN, "nobody interferes, an operator breaks, one dies"),
    "release_removes_damaged": (RELEASED, "record damaged, a dead owner, one dies"),
    "inert_first": (UNCLAIMED, "record deleted, one dies"),
    "update_takes_guard": (FOREIGN, "nobody interferes, an operator breaks, one dies"),
    "update_checks_record": (FOREIGN, "nobody interferes, an operator breaks, one dies"),
    "verify_by_path": (LATER, "directory moved, one dies"),
    "keeper_rechecks_claim": (UNCLAIMED, "record deleted, one acquires again"),
    "keeper_obeys_guard": (LATER, "directory removed, one dies"),
    "keeper_obeys_record": (FOREIGN, "guard deleted while somebody is inside, record deleted, removal in one step"),
    "equal_token_loses": (FOREIGN, "clock stands, guard and record deleted"),
    "keeper_replaces_lower": (CONVERGE, "directory removed after a break, two keepers"),
    "keeper_stamps": (TEMPS, "named temporary files: directory removed, one dies"),
    "keeper_post_check": (LATER, "directory moved while a keeper puts its record back"),
    "break_bumps": (BROKEN, "record deleted, an operator breaks"),
    "bump_above_record": (BROKEN, "clock steps back, guard deleted, an operator breaks"),
    "break_without_record": (BREAKABLE, "record deleted, an operator breaks without a keeper"),
    "break_post_check": (BROKEN, "directory moved, an operator breaks, one dies"),
    "sweep_guard_identity": (TEMPS, "named temporary files: one dies, one is interrupted"),
    "sweep_evicted_owner": (TEMPS, "named temporary files: guard deleted, one dies"),
    "sweep_before_stamp": (TEMPS, "named temporary files: an operator breaks, one dies"),
}

LIMITS = {
    "a guard is deleted while somebody inside it removes a dead owner's record": (
        FOREIGN,
        case(0, {"A": TAKE, "B": TAKE, "C": TAKE}, faults={"guard deleted inside": 1}, dead_owner=True),
    ),
    "a guard is deleted before a broken owner had its next tick": (
        BROKEN,
        case(0, {"A": TAKE_VERIFY, "O": BREAK}, faults={"guard deleted": 1}, promised=False),
    ),
    "record and guard are deleted within one tick, and the guard of the owner in between": (
        LATER,
        case(0, {"A": TAKE_VERIFY, "B": TAKE_RELEASE}, faults={"record deleted": 1, "guard deleted": 2}),
    ),
    "guard deleted and clock behind the last acquisition": (
        GROWING,
        case(0, {"A": TAKE_RELEASE, "B": TAKE}, faults={"clock back": 1, "guard deleted": 1}),
    ),
}


def assert_holds(each: Case) -> None:
    """Everything was explored, enough of it, and nothing promised was violated."""
    model = Protocol(each.scenario)
    result = explore(model.initial(), model.moves, model.at_rest)
    assert not set(result.violations) - set(each.unpromised), str(result)
    assert result.exhaustive
    assert result.states >= each.states


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_holds(name: str) -> None:
    """Every reachable state of the scenario keeps every promised property."""
    assert_holds(CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", BIG)
def test_the_protocol_holds_in_big_scenarios(name: str) -> None:
    """The same with more processes, faults and operations at once."""
    assert_holds(BIG[name])


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_property_is_violated(rule: str) -> None:
    """Removing exactly one rule breaks the property it is there for, where the whole protocol keeps it."""
    violated, name = NEEDED[rule]
    assert violated not in CASES[name].unpromised
    model = Protocol(CASES[name].scenario, replace(Rules(), **{rule: False}))
    result = explore(model.initial(), model.moves, model.at_rest, until=violated)
    assert violated in result.violations, f"{rule} is not needed for {violated!r} in {name!r}: {result}"
    assert result.violations[violated]


def test_every_rule_is_shown_to_be_needed() -> None:
    """No rule is without its counterexample."""
    assert {field.name for field in fields(Rules)} == set(NEEDED)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_documented_limit_is_really_one(limit: str) -> None:
    """What the design does not promise does fail: the exemptions above hide nothing else."""
    violated, each = LIMITS[limit]
    model = Protocol(each.scenario)
    result = explore(model.initial(), model.moves, model.at_rest, until=violated)
    assert violated in result.violations
