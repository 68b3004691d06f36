"""Whoever has closed keeps the others out until its process is gone, however that ends; then the next owns at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import ownership
from tests.support.processes import Child, Contender, residue, running
from tests.support.timing import assert_at_best

CLOSING = """
claim = ownership.acquire(sys.argv[1])
claim.retire("upgrade")
say(claim.token)
how = hear()
if how == "exit":
    sys.exit(0)
if how == "_exit":
    os._exit(0)
if how == "drop":
    del claim
    raise SystemExit("with an error")
os.kill(os.getpid(), getattr(signal, how))
time.sleep(60)
"""


def closing(path: Path) -> Child:
    return running(CLOSING, path)


@pytest.mark.parametrize("how", ["exit", "_exit", "drop", "SIGTERM", "SIGKILL"])
def test_however_it_ends_it_had_closed_and_the_next_owns_within_300_ms(tmp_path: Path, how: str) -> None:
    path = tmp_path / "x"

    def followed() -> float:
        with closing(path) as old, Contender() as heir:
            token = old.hear()
            assert heir.do("acquire", path)["error"] == "AlreadyOwnedError"
            heir.start("acquire", path, timeout=30, tells=True)
            assert heir.hear() == "waiting"
            old.say(how)
            old.process.wait(30)
            ended = time.monotonic()
            assert heir.hear()["value"] > token
            took = time.monotonic() - ended
            previous = ownership.inspect(path).previous
            assert previous is not None
            assert (previous.how, previous.reason) == ("closed", "upgrade")
            assert '"deaths"' not in (tmp_path / ".leases" / "x.guard").read_text()
            assert "value" in heir.do("release", path)
        assert not residue(path)
        return took

    assert_at_best(0.3, followed)


def test_an_unreaped_process_that_had_closed_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with closing(path) as old, Contender() as heir:
        old.hear()
        old.say("SIGKILL")
        assert "value" in heir.do("acquire", path, timeout=30)
        assert ownership.is_zombie(old.pid)
        assert ownership.inspect(path).previous.how == "closed"  # type: ignore[union-attr]


def test_a_record_swept_after_it_was_closed_is_back_within_a_second_and_a_contender_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with closing(path) as old, Contender() as other:
        old.hear()
        (tmp_path / ".leases" / "x.json").unlink()
        assert other.do("acquire", path)["error"] == "AlreadyOwnedError"
        assert other.do("acquire", path, timeout=1)["error"] == "AcquireTimeoutError"
        assert ownership.inspect(path).record.phase == "closed"  # type: ignore[union-attr]
