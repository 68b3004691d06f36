"""Which line of a task counts, and what of a damaged file can be read: every rule by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leases._roster_lines import FINISHED, GIVEN_UP, MAX_DATA, RUNNING, Lines, State, encoded, head

US, THEM = "0123456789abcdef" * 2, "fedcba9876543210" * 2


def told(*states: State) -> Lines:
    lines = Lines()
    lines.take(b"".join(state.line for state in states))
    return lines


def state(token: int = 1, by: str = US, kind: str = RUNNING, status: str = "", **more: Any) -> State:
    return State("task", token, by, kind, status, **more)


def test_what_is_said_last_stands() -> None:
    assert told(state(status="a"), state(status="b")).get("task") == state(status="b")


def test_what_a_displaced_driver_says_late_counts_for_nothing() -> None:
    theirs = state(2, THEM)
    for late in (state(1, status="late"), state(1, kind=FINISHED), state(1, kind=GIVEN_UP)):
        assert told(state(1), theirs, late).get("task") == theirs


def test_a_token_alone_does_not_make_a_driver() -> None:
    assert told(state(1, US), state(1, THEM, FINISHED)).get("task") == state(1, US)


def test_what_is_finished_stays_so() -> None:
    done = state(1, kind=FINISHED, status="done")
    for late in (state(1, status="more"), state(2, THEM), state(1, kind=GIVEN_UP), done._replace(status="again")):
        assert told(state(1), done, late).get("task") == done


def test_who_gave_it_up_says_nothing_more_and_others_may_take_it() -> None:
    given = state(1, kind=GIVEN_UP)
    assert told(state(1), given, state(1, status="after all")).get("task") == given
    assert told(state(1), given, state(2, THEM)).get("task") == state(2, THEM)
    assert told(state(1), given, state(2, US)).get("task") == state(2, US)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([US, THEM]), st.sampled_from([RUNNING, GIVEN_UP, FINISHED])))
)
def test_reading_lines_again_changes_nothing(said: list[tuple[int, str, str]]) -> None:
    states = [state(token, by, kind) for token, by, kind in said]
    assert told(*states, *states).tasks == told(*states).tasks


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([US, THEM]), st.sampled_from([RUNNING, FINISHED]))))
def test_a_new_file_says_the_same_in_fewer_lines(said: list[tuple[int, str, str]]) -> None:
    before = told(*(state(token, by, kind) for token, by, kind in said))
    after = Lines()
    after.take(before.whole(7).partition(b"\n")[2])
    assert (after.tasks, after.count) == (before.tasks, len(before.tasks))
    assert before.whole(7).startswith(head(7, before.top))


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([US, THEM]), st.integers(0, 300)), max_size=8))
def test_how_much_of_it_stands_is_known_to_the_byte(said: list[tuple[int, str, int]]) -> None:
    lines = told(*(state(token, by, status="x" * size) for token, by, size in said))
    lines.take(encoded({"driver": {"instance_id": US}}) * 2)
    lines.take(b"half a line\0\n")
    whole = lines.whole(7).partition(b"\n")[2]
    assert lines.standing - len(whole) in (0, len(encoded({"driver": {"instance_id": US}})))  # if nothing names it
    assert lines.superseded == lines.size - lines.standing


def test_whatever_was_read_can_be_written_again() -> None:
    """A line of another program's, longer than ours may be, or with a number that JSON has no word for."""
    lines = Lines()
    long = "x" * MAX_DATA * 2
    lines.take(state(data="D").line.replace(b'"D"', b'["%s",1e999,-1e999,"Infinity\\"-Infinity"]' % long.encode()))
    again = Lines()
    whole = lines.whole(7).partition(b"\n")[2]
    again.take(whole)
    assert again.get("task") == lines.get("task")
    assert again.get("task") == state(data=[long, float("inf"), float("-inf"), 'Infinity"-Infinity'])
    json.loads(whole, parse_constant=pytest.fail)


def test_the_greatest_token_is_known() -> None:
    assert told(state(5), state(9, THEM), state(7)).top == 9


def test_a_driver_that_nothing_names_is_forgotten_in_a_new_file() -> None:
    lines = told(state(by=US))
    lines.take(b"".join(encoded({"driver": {"instance_id": one, "pid": 1}}) for one in (US, THEM)))
    assert lines.whole(1).count(b'"driver"') == 1


def test_lines_of_later_versions_are_skipped() -> None:
    lines = Lines()
    lines.take(b'{"note":"what is this"}\n' + state().line.replace(b"{", b'{"colour":"red",', 1))
    assert lines.get("task") == state()


def test_what_a_loss_of_power_left_blank_is_skipped() -> None:
    lines = Lines()
    lines.take(state(1).line + b"\0" * 20 + b"\n" + state(1).line[:20] + b"\0\0\n" + state(1, status="b").line)
    assert lines.get("task") == state(1, status="b")
    assert lines.count == 4


@pytest.mark.parametrize(
    "damaged",
    [
        b"\n",
        b"nothing\n",
        b'{"task":\n',
        b'{"task":"x"},{"task":"y"}\n',
        b"[]\n",
        b"3\n",
        b'{"driver":3}\n',
        b'{"driver":{"instance_id":[]}}\n',
        b'{"task":"task"}\n',
        state().line.replace(b'"token":1', b'"token":"1"'),
        state().line.replace(b'"token":1', b'"token":true'),
        state().line.replace(b'"token":1', b'"token":90071992547409930'),
        state().line.replace(b"running", b"walking"),
        state().line.replace(b'"at":0.0', b'"at":null'),
        state().line.replace(b'"at":0.0', b'"at":1e999'),
        state().line.replace(b'"since":0.0', b'"since":NaN'),
        state().line.replace(b'"task":"task"', b'"task":["task"]'),
    ],
)
def test_a_damaged_line_is_an_error_that_says_which(damaged: bytes) -> None:
    """Skipping it might lose who drives the task now, and make that one lost while it lives."""
    lines = Lines()
    lines.take(state(1).line)
    with pytest.raises(ValueError, match="line 3 is no line of a roster"):
        lines.take(state(1).line + damaged + state(2).line)


@pytest.mark.parametrize("data", [object(), float("nan"), {"a": {1}}, "x" * MAX_DATA, [[]] * MAX_DATA])
def test_what_cannot_be_recorded_is_a_value_error(data: object) -> None:
    with pytest.raises(ValueError, match=r"data|JSON"):
        assert state(data=data).line
