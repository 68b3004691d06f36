"""The helpers for everybody: what they answer, and what they answer in doubt."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

import ownership._process as process
from ownership._process import ProcessState, validate_pid
from ownership.testing import FakeProcessTable, reuse_pid, sleeping_process, stopped_process, zombie

HELPERS: list[Callable[[Any], object]] = [
    process.exists,
    process.is_alive,
    process.is_zombie,
    process.is_stopped,
    process.start_id,
]
NONSENSE = [
    0,
    -1,
    -(2**31),
    2**31,
    2**64,
    10**30,
    10**5000,
    1.0,
    1.5,
    True,
    False,
    "1",
    "",
    b"1",
    None,
    [1],
    Decimal(1),
]


@pytest.mark.parametrize("pid", NONSENSE, ids=lambda pid: str(type(pid).__name__))
@pytest.mark.parametrize("helper", HELPERS)
def test_what_is_no_process_number_is_a_value_error_and_no_signal(helper: Callable[[Any], object], pid: Any) -> None:
    """kill(2) takes zero and negative numbers for groups, and would raise OverflowError for large ones."""
    with pytest.raises(ValueError, match=r"^pid must be an integer from 1 to 2147483647, not "):
        helper(pid)


def test_the_message_names_the_parameter_and_shows_the_value() -> None:
    with pytest.raises(ValueError, match=r"^owner must be an integer from 1 to 2147483647, not '4242'$"):
        validate_pid("4242", name="owner")
    with pytest.raises(ValueError, match=r"not True$"):
        validate_pid(True)
    with pytest.raises(ValueError, match="more digits"):
        validate_pid(10**5000)


def test_a_process_number_is_returned_as_a_plain_int() -> None:
    class Number(int):
        pass

    assert validate_pid(1) == 1
    assert validate_pid(2**31 - 1) == 2**31 - 1
    assert type(validate_pid(Number(7))) is int


def test_this_process_is_alive() -> None:
    pid = os.getpid()
    assert process.exists(pid)
    assert process.is_alive(pid)
    assert not process.is_zombie(pid)
    assert not process.is_stopped(pid)
    assert process.start_id(pid) == process.system_processes().current().start_id


def test_a_zombie_exists_and_is_not_alive() -> None:
    with zombie() as pid:
        assert process.exists(pid)
        assert not process.is_alive(pid)
        assert process.is_zombie(pid)
        assert not process.is_stopped(pid)
        assert process.start_id(pid) is not None


def test_a_stopped_process_is_alive() -> None:
    with stopped_process() as pid:
        assert process.exists(pid)
        assert process.is_alive(pid)
        assert process.is_stopped(pid)
        assert not process.is_zombie(pid)


def test_a_reaped_process_is_nothing_at_all() -> None:
    with sleeping_process() as pid:
        assert process.is_alive(pid)
    assert not process.exists(pid)
    assert not process.is_alive(pid)
    assert not process.is_zombie(pid)
    assert not process.is_stopped(pid)
    assert process.start_id(pid) is None


def test_a_reused_number_has_another_start_id() -> None:
    with sleeping_process() as pid:
        before = process.start_id(pid)
    with reuse_pid(pid):
        after = process.start_id(pid)
        assert before is not None
        assert after is not None
        assert process.compare_start_ids(before, after) is process.Comparison.DIFFERENT


def test_a_thread_id_is_not_a_process() -> None:
    """Signal 0 accepts one."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        os.kill(thread.native_id, 0)
        assert not process.exists(thread.native_id)
        assert not process.is_alive(thread.native_id)
        assert process.start_id(thread.native_id) is None
    finally:
        done.set()
        thread.join()


@pytest.fixture
def doubtful(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProcessTable]:
    """A system whose probe of process 7 fails."""
    with FakeProcessTable() as table:
        table.fail(7)
        monkeypatch.setattr(process, "system_processes", lambda: table)
        yield table


def test_in_doubt_a_process_exists_lives_and_is_nothing_special(doubtful: FakeProcessTable) -> None:
    """Fail closed: nobody is evicted on a failed probe, nobody resumed or reaped either."""
    assert process.exists(7)
    assert process.is_alive(7)
    assert not process.is_zombie(7)
    assert not process.is_stopped(7)
    assert process.start_id(7) is None


@pytest.mark.parametrize(
    ("state", "stopped", "alive"),
    [
        (ProcessState.RUNNING, False, True),
        (ProcessState.STOPPED, True, True),
        (ProcessState.TRACED, True, True),
        (ProcessState.FROZEN, True, True),
        (ProcessState.DUMPING, False, True),
        (ProcessState.ZOMBIE, False, False),
        (ProcessState.UNKNOWN, False, True),
    ],
)
def test_each_state_has_its_answers(
    doubtful: FakeProcessTable, state: ProcessState, stopped: bool, alive: bool
) -> None:
    doubtful.add(8)
    doubtful.set_state(8, state)
    assert process.is_stopped(8) is stopped
    assert process.is_alive(8) is alive
    assert process.is_zombie(8) is not alive
    assert process.exists(8)


def test_the_system_is_chosen_once() -> None:
    assert process.system_processes() is process.system_processes()


def test_states_are_lower_case_words() -> None:
    assert {state.name.lower() for state in ProcessState} == {state.value for state in ProcessState}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere psutil is the way")
def test_nothing_heavy_is_imported_on_linux() -> None:
    """Neither by the import nor by the first look."""
    code = """
import sys
sys.modules["ownership"] = type(sys)("ownership")
sys.modules["ownership"].__path__ = [sys.argv[1]]
import ownership._process as process
process.system_processes().current()
assert process.is_alive(1)
print(sorted({"psutil", "ctypes", "subprocess", "asyncio"} & set(sys.modules)))
"""
    path = os.path.dirname(os.path.dirname(os.path.abspath(process.__file__)))
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
