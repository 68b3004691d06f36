"""When a lease has run out: only by the owner's own monotonic clock, and never in doubt."""

from __future__ import annotations

import math

import pytest

from ownership import LeaseTerms
from ownership._expiry import deadline, has_expired


def lease(*, auto_renew: bool = True) -> LeaseTerms:
    return LeaseTerms(ttl=30.0, auto_renew=auto_renew, renewed_at=100.0)


@pytest.mark.parametrize(
    ("auto_renew", "beat", "expected"),
    [(True, 120.0, 150.0), (True, 50.0, 130.0), (True, None, None), (False, 120.0, 130.0), (False, None, 130.0)],
)
def test_the_deadline_is_the_last_renewal_and_the_ttl(auto_renew: bool, beat: float | None, expected: float) -> None:
    assert deadline(lease(auto_renew=auto_renew), beat) == expected


@pytest.mark.parametrize(("now", "expected"), [(149.999, False), (150.0, True), (1e9, True), (0.0, False)])
def test_it_has_expired_from_the_deadline_on(now: float, expected: bool) -> None:
    assert has_expired(lease(), 120.0, now, same_clock=True) is expected


def test_another_clock_proves_nothing() -> None:
    assert not has_expired(lease(auto_renew=False), 120.0, 1e9, same_clock=False)


def test_a_missing_heartbeat_proves_nothing() -> None:
    assert not has_expired(lease(), None, 1e9, same_clock=True)


def test_a_claim_without_a_lease_never_expires() -> None:
    assert not has_expired(None, 1.0, math.inf, same_clock=True)


def test_a_renewal_from_the_future_only_prolongs() -> None:
    """A clock that stands behind the renewal (another machine's state, a damaged file) evicts nobody."""
    assert not has_expired(LeaseTerms(ttl=30.0, renewed_at=1e9), 5.0, 1000.0, same_clock=True)
