"""Programs without an interpreter's start: a template has everything imported, and forks one of itself per program.

What runs so is a process of its own all the same: a child of the tests, in their directory, with their environment,
with nothing open but its three streams, run as ``__main__`` and ended as an interpreter ends. What depends on being
started by exec(2) (namespaces, accounts, a preloaded library, what is imported when) asks for an interpreter of its
own. ``LEASES_TESTS_COLD=1`` gives one to every program.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TESTS = str(Path(__file__).absolute().parents[2])  # where the package ``tests`` is
CAN_FORK = sys.platform.startswith("linux") and not os.environ.get("LEASES_TESTS_COLD")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans below us become our children
_LIMIT = 1 << 20
_OWN_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "FAKETIME")  # what matters to an interpreter that starts


def start(
    source: str,
    arguments: Sequence[str] = (),
    *,
    prefix: Sequence[str] = (),
    command: Sequence[str | bytes] | None = None,
    **options: Any,
) -> Any:
    """A ``Popen`` of a Python program: forked where that makes no difference, else started after *prefix*.

    :param command: what starts the same program, if it is not ``python -c``
    """
    command = [*prefix, *(command or (sys.executable, "-B", "-c", source, *arguments))]
    if prefix or not _is_plain(options):
        return subprocess.Popen(command, **options)
    return Forked(command, source, arguments, **options)


def _is_plain(options: Mapping[str, Any]) -> bool:
    known = {"stdin", "stdout", "stderr", "cwd", "env", "text", "bufsize", "errors"}
    env: Mapping[str, str] = options.get("env") or os.environ
    changed = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)}
    if env.get("PYTHONPATH") == TESTS:  # where the template has everything from
        changed.discard("PYTHONPATH")
    return CAN_FORK and set(options) <= known and not any(name.startswith(_OWN_START) for name in changed)


def finish(process: Any, patience: float = 60.0) -> str:
    """Wait for the end of *process*, which must be a success; what it said."""
    with process:
        try:
            said, told = process.communicate(timeout=patience)
        finally:
            process.kill()
    assert process.returncode == 0, told
    return str(said)


class Template:
    """The tests' end of the process that is forked from."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for one in (self._socket, other):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LIMIT)
        code = f"import sys; sys.path[:0] = [{TESTS!r}]; from tests.support.warm import serve; exec(*serve({{0}}))"
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-B", "-c", code.format(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """The pid of a new child of ours that carries out *request*."""
        prctl = ctypes.CDLL(None).prctl
        prctl(_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            answer = self._socket.recv(_LIMIT)  # its parent there is over: it is ours now
        finally:
            prctl(_SUBREAPER, 0, 0, 0, 0)
        if not answer:
            raise OSError(f"the template has ended with {self._process.wait(60)}")
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)


_templates: dict[int, Template] = {}  # by the process that started it: no other would be the parent


def template() -> Template:
    """The template of this process."""
    if os.getpid() not in _templates:
        _templates[os.getpid()] = Template()
    return _templates[os.getpid()]


def close() -> None:
    """End the template of this process, if it has one."""
    if os.getpid() in _templates:
        _templates.pop(os.getpid()).close()


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """A ``Popen`` whose process is forked from the template."""

    def __init__(self, command: Sequence[str | bytes], source: str, arguments: Sequence[str], **options: Any) -> None:
        self._source, self._arguments = source, list(arguments)
        super().__init__(command, **options)

    def _execute_child(self, *given: Any) -> None:
        what = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        pipes = [what[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        streams = [own if pipe < 0 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        status = Path("/proc/self/status").read_text()
        try:
            request = {
                "source": self._source,
                "arguments": self._arguments,
                "command": [os.fsdecode(one) for one in what["args"]],
                "directory": os.path.join(os.getcwd(), what["cwd"] or ""),
                "umask": int(status.partition("\nUmask:")[2].split()[0], 8),
                "env": dict(what["env"] or os.environ),
            }
            self.pid = template().fork(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


# -- the template, a process of its own


def serve(number: int) -> tuple[types.CodeType, dict[str, Any]]:
    """Fork for every request until nobody asks any more; in the forked process: what it is to run, and where."""
    _import_everything()
    requests = socket.socket(fileno=number)
    while True:
        data, streams, _, _ = socket.recv_fds(requests, _LIMIT, 3)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            parent = os.getpid()
            child = os.fork()
            if child:
                os.write(writing, str(child).encode())
                os._exit(0)  # and the tests are its parent
            for one in (reading, writing, requests.detach()):
                os.close(one)
            while os.getppid() == parent:
                os.sched_yield()
            return _become(json.loads(data), streams)
        os.waitpid(between, 0)
        requests.send(os.read(reading, 100))
        for one in (reading, writing, *streams):
            os.close(one)


def _import_everything() -> None:
    import subprocess  # noqa: F401
    import threading  # noqa: F401
    import time  # noqa: F401

    import leases.cli
    import ownership  # noqa: F401
    import tests.support.injection
    import tests.support.processes  # noqa: F401

    for name in leases.cli.leasectl.list_commands(None):  # type: ignore[arg-type]
        leases.cli.leasectl.get_command(None, name)  # type: ignore[arg-type]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.freeze()


def _become(request: dict[str, Any], streams: list[int]) -> tuple[types.CodeType, dict[str, Any]]:
    for target, given in enumerate(streams):
        os.dup2(given, target)
    os.closerange(3, max(streams) + 1)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)  # knows whether what it was opened on can seek
        mode = "w" if number else "r"
        new = open(number, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        new.reconfigure(line_buffering=number == 2)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["directory"])
    os.umask(request["umask"])
    sys.argv = ["-c", *request["arguments"]]
    sys.orig_argv = request["command"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    return compile(request["source"], "<string>", "exec"), main.__dict__
