"""How the packages are built: who may import whom, what is public, what runs at start-up."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import leases
import ownership
from leases import aio

ROOT = Path(ownership.__file__).resolve().parents[1]
PACKAGES = ("ownership", "leases")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
HEAVY = ("rich", "click", "psutil", "asyncio", "multiprocessing")
# who may know of signals by number and of /proc: the reader of processes, and who stands by descriptors
MAY_KILL = {"_process", "_stop", "_watch", "testing"}
MAY_READ_PROC = {
    *(
        "_process",
        "_stop",
        "_watch",
        "_inotify",
        "_notices",
        "_witness",
        "_paths",
        "_guard",
        "_locks",
        "_directory",
        "_making",
        "_files",
        "_sockets",
    ),
    "testing",
}


def imports(name: str, *, everywhere: bool = False) -> Iterator[tuple[str, str | None]]:
    """Module and imported name of every import of module *name*; by default those made when it is imported."""
    tree = TREES[name]
    nodes = ast.walk(tree) if everywhere else _at_module_level(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            for alias in node.names:
                yield node.module or "", alias.name


def _at_module_level(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _at_module_level(node)


def targets(name: str) -> set[str]:
    """The modules of ours that *name* imports, those only for type checking included."""
    found = set()
    for module, member in imports(name):
        full = f"{module}.{member}"
        if full in MODULES:
            found.add(full)
        elif module in MODULES:
            found.add(module)
    return found - {name}


def test_ownership_knows_nothing_of_leases() -> None:
    for name in MODULES:
        if name.split(".")[0] == "ownership":
            for module, _ in imports(name, everywhere=True):
                assert module.split(".")[0] != "leases", name


def test_leases_uses_the_public_door() -> None:
    public = {*ownership.__all__, None}
    for name in MODULES:
        if name.split(".")[0] != "leases":
            continue
        for module, member in imports(name, everywhere=True):
            if module.split(".")[0] == "ownership":
                assert module in ("ownership", "ownership.testing"), f"{name} imports {module}"
                assert module != "ownership" or member in public, f"{name} imports ownership.{member}"


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Types only imported for checking count too."""
    state: dict[str, int] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert state.get(name) != 1, " -> ".join((*path, name))
        if name in state:
            return
        state[name] = 1
        for target in sorted(targets(name)):
            if target not in PACKAGES:
                visit(target, (*path, name))
        state[name] = 2

    for name in MODULES:
        if name not in PACKAGES:
            visit(name, ())


def test_nothing_inside_a_package_imports_its_own_facade() -> None:
    for name in MODULES:
        package = name.split(".")[0]
        if name in PACKAGES or name.startswith(f"{package}.testing") or package == "leases":
            continue
        for module, member in imports(name, everywhere=True):
            assert (module != package) or f"{package}.{member}" in MODULES, f"{name} imports {module}.{member}"


@pytest.mark.parametrize("package", [ownership, leases, aio], ids=[*PACKAGES, "leases.aio"])
def test_the_public_names_are_listed_sorted_and_complete(package: object) -> None:
    listed = package.__all__  # type: ignore[attr-defined]
    assert listed == sorted(listed)
    assert len(listed) == len(set(listed))
    name = package.__name__  # type: ignore[attr-defined]
    imported = {member for module, member in imports(name) if module.split(".")[0] in PACKAGES}
    assert set(listed) == imported
    assert all(hasattr(package, one) for one in listed)


@pytest.mark.parametrize("package", [*PACKAGES, "leases.aio"])
def test_a_facade_only_imports_and_lists(package: str) -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    assert all(isinstance(node, allowed) for node in TREES[package].body)


def test_everything_else_is_private() -> None:
    for name in MODULES:
        package, *parts = name.split(".")
        if package == "ownership" and parts:
            assert parts[0].startswith("_") or parts[0] == "testing", name


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_one_noun(name: str) -> None:
    lines = len(MODULES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= 280, f"{name} has {lines} lines"


@pytest.mark.parametrize("name", MODULES)
def test_a_function_is_one_step(name: str) -> None:
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert length <= 50, f"{name}.{node.name} has {length} lines"


def owner_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_signals_are_sent_by_number_in_few_places() -> None:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("kill", "killpg")
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
            ):
                assert owner_of(name) in MAY_KILL or name.startswith("leases."), f"{name} line {node.lineno}"


def test_proc_is_read_in_few_places() -> None:
    for name, tree in TREES.items():
        docstrings = {id(node.body[0].value) for node in ast.walk(tree) if _has_docstring(node)}  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value.startswith("/proc")
                and id(node) not in docstrings
            ):
                assert owner_of(name) in MAY_READ_PROC, f"{name} line {node.lineno}: {node.value}"
    for name in (
        "ownership._directory",
        "ownership._witness",
        "ownership._making",
        "ownership._files",
        "ownership._sockets._address",
    ):
        for node in ast.walk(TREES.get(name, ast.Module([], []))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc"):
                assert node.value.startswith("/proc/self/fd"), name


def _has_docstring(node: ast.AST) -> bool:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def test_logic_never_asks_which_system_it_is_on() -> None:
    """Platform differences live behind one seam."""
    seams = {"_process", "_system", "_watch", "testing"}
    for name, tree in TREES.items():
        if owner_of(name) in seams or name.startswith("leases"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("sys", "platform"), ("os", "name")}, name


def fresh(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout


def test_nothing_heavy_is_imported_at_start_and_nothing_runs() -> None:
    code = f"""
import sys, threading, signal
import pydantic, filelock
before = set(sys.modules)
import ownership
new = set(sys.modules) - before
handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)]
print(sorted(name for name in new if name.split(".")[0] in {HEAVY!r}), threading.active_count(), handlers)
"""
    said = fresh(code).split()
    assert said[0] == "[]"
    assert said[1] == "1"


def test_asyncio_is_imported_by_its_users_only() -> None:
    code = """
import sys, pydantic, filelock
before = set(sys.modules)
import leases
print("asyncio" in set(sys.modules) - before, end=" ")
import leases.aio
print("asyncio" in sys.modules)
"""
    assert fresh(code) == "False True\n"


@pytest.mark.parametrize("module", ["rich", "click", "psutil", "ctypes"])
def test_the_library_starts_without_what_only_some_need(module: str) -> None:
    """Owning and releasing need none of it on this system."""
    code = f"""
import sys
sys.modules[{module!r}] = None
import pydantic, filelock
import ownership, tempfile, os
folder = tempfile.mkdtemp()
with ownership.acquire(folder + "/x") as claim:
    claim.verify()
    assert ownership.find(folder + "/x")
print({module!r}, "is not needed")
"""
    assert "is not needed" in fresh(code)


def test_what_every_program_may_need_is_imported_at_once() -> None:
    """In a child that is forked while another thread imports a module, importing that would never end."""
    late = {"ctypes", "asyncio"}  # the one is there already, the other since a loop runs
    rare = {"psutil", "Scope"}
    for name, tree in TREES.items():
        if name.startswith(("leases.commands", "leases.cli", "leases._leasectl", "ownership.testing")):
            continue
        functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in (node for one in functions for node in ast.walk(one)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert {alias.name for alias in node.names} <= late | rare, f"{name}:{node.lineno} imports late"
    assert "ctypes" in dict(imports("ownership._inotify"))


def test_both_packages_are_typed() -> None:
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").exists()


def test_no_module_mentions_a_place_of_its_making() -> None:
    for name, path in MODULES.items():
        text = path.read_text(encoding="utf-8")
        for word in ("/tmp/", "/root/", "TODO", "FIXME"):
            assert word not in text, f"{name} mentions {word}"


def test_everything_can_be_imported_without_the_modules_that_only_unix_has() -> None:
    body = """
import asyncio, importlib, subprocess, sys, tempfile  # what these need of them is not ours
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(name)
ABSENT = ("fcntl", "grp", "pwd", "resource", "termios")
sys.meta_path.insert(0, Absent())
for name in ABSENT:
    sys.modules.pop(name, None)
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", body, *MODULES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
