"""Signal handlers that fork in the middle of a call, and return in the child, too: there the call does nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import ownership
from ownership import Claim, Verdict
from tests.support.injection import forking
from tests.support.namespaces import needs_linux_root
from tests.support.records import snapshot

pytestmark = needs_linux_root


def released(claim: Claim) -> None:
    claim.release()


def announced(claim: Claim) -> None:
    claim.announce("busy", data={"n": 1})


def verified(claim: Claim) -> None:
    claim.verify()


def entered(claim: Claim) -> None:
    with claim.critical():
        claim.announce("inside")


def handed_over(claim: Claim) -> None:
    with pytest.raises(ownership.HandoverError), claim.handover(timeout=0):
        pass


def retired(claim: Claim) -> None:
    claim.retire()


OPERATIONS = [released, announced, verified, entered, handed_over, retired]


def everywhere(operation: Callable[[], object], check: Callable[[Callable[[], None]], None], step: int) -> int:
    """*operation*, forked from at every point; *check* is given what lets the child go on. How many points it has."""
    for number in itertools.count(1, step):
        with forking(number, operation, (__file__,)) as fork:
            try:
                check(fork.go_on)
            except BaseException as error:
                error.add_note(f"forked at {fork.point}")
                raise
        if not fork.point:
            return number
    raise AssertionError


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("followed", [True, False])
def test_a_child_that_is_forked_from_an_acquire_acquires_nothing_in_the_name_of_its_parent(
    tmp_path: Path, step: int, followed: bool
) -> None:
    """In its own it may: if its parent had not begun to."""
    path, claims = tmp_path / "x", list[Claim]()

    def check(go_on: Callable[[], None]) -> None:
        claims.pop().release()
        if followed:
            with ownership.acquire(path) as successor:
                before = snapshot(tmp_path)
                go_on()
                assert snapshot(tmp_path) == before
                successor.verify()
        else:
            go_on()
            found = ownership.inspect(path)
            assert found.record is None or found.record.pid != os.getpid()
            assert found.verdict in (Verdict.FREE, Verdict.GONE)

    assert everywhere(lambda: claims.append(ownership.acquire(path)), check, step) > 100


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_child_that_is_forked_from_a_call_on_a_claim_changes_nothing(
    tmp_path: Path, step: int, operation: Callable[[Claim], None]
) -> None:
    path = tmp_path / "x"
    claims = [ownership.acquire(path, ttl=30.0, auto_renew=False)]

    def check(go_on: Callable[[], None]) -> None:
        claims.pop().release()
        with ownership.acquire(path, ttl=30.0, auto_renew=False) as successor:
            before = snapshot(tmp_path)
            go_on()
            assert snapshot(tmp_path) == before
            successor.verify()
        claims.append(ownership.acquire(path, ttl=30.0, auto_renew=False))

    assert everywhere(lambda: operation(claims[0]), check, step) > 10
    claims.pop().release()
