"""The example that the README shows runs, and leaves no process behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT, environment


@pytest.mark.skipif(sys.platform != "linux", reason="a zombie that is left unreaped on purpose")
def test_the_takeover_is_told_step_by_step() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(ROOT, "examples", "takeover.py"))],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for step in ("owns app.sock with token", "refused: ", "verdict zombie", "took over in", "reaped at last"):
        assert step in done.stdout
    found = re.search(r"token before (\d+), after (\d+)", done.stdout)
    assert found is not None
    assert int(found[1]) < int(found[2])
