"""The gate among real processes: whoever gets in is listed, and whoever stops or dies keeps nothing shut."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import ownership
from leases import Gate
from ownership import GateClosedError, GuardTimeoutError
from tests.support.processes import HERD, eventually, run, running, stopped

CLOSER = """
import leases
gate = leases.Gate(sys.argv[1], ttl=float(sys.argv[2]))
gate.close(reason="test")
say(True)
while True:
    request = hear()
    if request == "open":
        gate.open()
        say(True)
    else:
        try:
            gate.verify()
            say("closed throughout")
        except leases.LeaseLostError as error:
            say(error.reason)
"""

SLOW = """
import leases
class Slow:
    "An open gate; whoever asks it is stopped right after it was found open."
    def check(self):
        leases.Gate(sys.argv[1]).check()
        os.kill(os.getpid(), signal.SIGSTOP)
say(os.getpid())
claim = ownership.acquire(sys.argv[2], gate=Slow())
say(claim.token)
hear()
"""


def enter(gate: Gate) -> None:
    ownership.acquire(gate.path.with_name("x"), gate=gate).release()


def test_a_dead_closer_opens_it_at_once(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with running(CLOSER, gate.path, 600) as closer:
        assert closer.hear()
        with pytest.raises(GateClosedError, match=f"is closed by pid {closer.pid} .*: test"):
            enter(gate)
        closer.signal(signal.SIGKILL)
        eventually(lambda: not ownership.is_alive(closer.pid))  # not reaped
        enter(gate)


def test_a_closer_that_is_stopped_opens_it_and_is_told_when_it_goes_on(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with running(CLOSER, gate.path, 1.0) as closer:
        assert closer.hear()
        assert closer.ask("verify") == "closed throughout"
        with stopped(closer.pid):
            eventually(lambda: not gate.is_closed)
            with ownership.acquire(tmp_path / "x", gate=gate):
                closer.say("verify")
        assert closer.hear() == "expired"
        with pytest.raises(GateClosedError):  # closed again: it refuses rather too many than too few
            enter(gate)
        assert closer.ask("open")
        enter(gate)


def test_whoever_is_stopped_between_asking_and_publishing_keeps_it_from_closing(tmp_path: Path) -> None:
    """It sits in its guard, which has no record yet: closed without it, it would get in unseen."""
    gate = Gate(tmp_path / "gate")
    with running(SLOW, gate.path, tmp_path / "x") as slow:
        assert slow.hear() == slow.pid
        eventually(lambda: ownership.is_stopped(slow.pid))
        with pytest.raises(GuardTimeoutError, match="could not be closed") as busy:
            gate.close(timeout=0.1)
        assert busy.value.holder == slow.pid
        assert f"kill -CONT {slow.pid}" in busy.value.hint
        assert not gate.is_closed
        slow.signal(signal.SIGCONT)
        token = slow.hear()
        with gate:
            listed = {one.resource.name: one.token for one in ownership.inspect_all(tmp_path)}
            assert listed["x"] == token


RACE = """
import leases
folder, rounds = sys.argv[1], int(sys.argv[2])
gate_path, missed = folder + "/gate", []
def work(number):
    gate = leases.Gate(gate_path)
    got = []
    if number == 0:
        time.sleep(0.001 * (turn % 7))
        try:
            with gate.close(timeout=10):
                listed = [one.resource.name for one in ownership.inspect_all(folder)]
                time.sleep(0.03)
                after = [one.resource.name for one in ownership.inspect_all(folder)]
        except ownership.ContentionError as error:
            return {"listed": None, "why": str(error)}
        return {"listed": listed, "after": after}
    held = []
    for one in range(6):
        try:
            held.append(ownership.acquire(f"{folder}/{number}-{one}-{turn}", gate=gate))
        except ownership.GateClosedError:
            break
    time.sleep(0.05)
    for claim in held:
        claim.release()
    return {"got": len(held)}
for turn in range(rounds):
    told = herd(4, work)
    closer = told[0]
    if closer["listed"] is None or set(closer["after"]) - set(closer["listed"]):
        missed.append(closer)
say(missed)
"""


def test_after_it_is_closed_nobody_appears_that_was_not_listed(tmp_path: Path) -> None:
    """Guards are new every time, so those without a record have to be entered too."""
    assert run(HERD + RACE, tmp_path, 8) == []


@pytest.mark.slow
def test_after_it_is_closed_nobody_appears_in_many_rounds(tmp_path: Path) -> None:
    assert run(HERD + RACE, tmp_path, 400, patience=600) == []


def test_closing_takes_no_time_to_speak_of_whatever_lies_there(tmp_path: Path) -> None:
    for number in range(300):
        ownership.acquire(tmp_path / str(number)).release()
    begun = time.monotonic()
    with Gate(tmp_path / "gate"):
        assert time.monotonic() - begun < 10
