"""What the tests of the commands share."""

from __future__ import annotations

import pytest

from tests.support.cli import Leasectl


@pytest.fixture
def leasectl(capsys: pytest.CaptureFixture[str]) -> Leasectl:
    """``leasectl`` in this process."""
    return Leasectl(capsys)
