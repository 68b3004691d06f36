"""Fixtures that tests of both packages share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other accounts can reach, which those of ``tmp_path`` are not."""
    path = Path(tempfile.mkdtemp(prefix="ownership-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)
