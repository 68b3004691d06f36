"""What a process knows to own in a directory: nobody ends what another one has begun meanwhile."""

from __future__ import annotations

from pathlib import Path

import ownership
from ownership import Verdict
from ownership._owned import Owned
from ownership._paths import resolve
from ownership._place import pinned
from tests.support.injection import Interrupter


class One:
    owns_in: Owned | None = None

    def __init__(self, token: int) -> None:
        self.token = token


def test_it_is_owned_by_the_token_of_whoever_entered_last() -> None:
    owned, first, second = Owned(), One(1), One(2)
    assert owned.token("x") is None
    owned.enter("x", first)
    assert owned.token("x") == 1
    owned.enter("x", second)
    first.owns_in = None
    owned.drop("x", first)
    assert owned.token("x") == 2
    assert "x" in owned


def test_who_owns_it_no_more_is_dropped_and_who_does_is_not() -> None:
    owned, one = Owned(), One(1)
    owned.enter("x", one)
    owned.drop("x", one)
    assert owned.token("x") == 1
    one.owns_in = None
    assert "x" not in owned
    owned.drop("x", one)
    assert owned._owning == {}
    owned.drop("x", one)


def test_what_went_along_to_another_directory_is_not_owned_in_this_one() -> None:
    here, there, one = Owned(), Owned(), One(1)
    here.enter("x", one)
    there.enter("x", one)
    assert (here.token("x"), there.token("x")) == (None, 1)


def test_nothing_is_kept_of_what_was_released(tmp_path: Path) -> None:
    place = pinned(resolve(tmp_path / "0"), None)
    for number in range(10):
        ownership.acquire(tmp_path / str(number)).release()
    with ownership.acquire(tmp_path / "x"):
        assert set(place.owned._owning) == {"x"}
    assert place.owned._owning == {}


def test_who_is_interrupted_in_a_release_by_another_release_and_an_acquire_ends_nothing_of_that(tmp_path: Path) -> None:
    """As another thread may be: the keeper goes on with a release that has begun."""
    path, again, number = tmp_path / "x", list[ownership.Claim](), 0
    while True:
        claim, number = ownership.acquire(path), number + 1

        def follow(claim: ownership.Claim = claim) -> None:
            try:
                claim.release()
                again.append(ownership.acquire(path))
            except ownership.ContentionError:  # inside the guard already
                pass

        interrupter = Interrupter(follow, (__file__,))
        interrupter.run(number, claim.release)
        for one in again:
            one.verify()
            assert ownership.inspect(path).verdict is Verdict.LIVE
            try:
                ownership.acquire(path)
            except ownership.AlreadyOwnedError:
                pass
            else:
                raise AssertionError(f"two owners: {interrupter.point}")
            one.release()
        again.clear()
        if not interrupter.point:
            break
    assert number > 30
