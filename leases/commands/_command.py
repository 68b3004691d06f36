"""Command lines as tables show them: short enough to tell one owner from another."""

from __future__ import annotations

import os
import re
import shlex

_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|nodejs|php|lua|sh|bash|dash|zsh|ksh)[\d.]*t?")


def brief(command: str) -> str:
    """*command* without the folders of its program, and without the interpreter where a script follows."""
    first = _WORD.match(command)
    if first is None:
        return command
    second = _WORD.match(command, first.end() + 1)
    program = _base(first[0])
    if _INTERPRETER.fullmatch(program) and second is not None and not second[0].startswith("-"):
        return _base(second[0]) + command[second.end() :]
    return program + command[first.end() :]


def _base(word: str) -> str:
    """The last component of a path as a shell spells it; anything else as it is, ``[kworker/0:1]`` for instance."""
    try:
        [path] = shlex.split(word)
    except ValueError:
        return word
    name = os.path.basename(path)
    return shlex.quote(name) if name and "/" in path and not path.startswith("[") else word
