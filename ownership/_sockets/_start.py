"""Starting whoever should answer: by one client at a time, who waits until it does, or has ended without."""

from __future__ import annotations

import os
import re
import signal
import subprocess  # now, since a child that is forked while another thread imports it would wait for ever
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ownership._claim import Claim
from ownership._clock import Clock
from ownership._errors import AlreadyOwnedError, explained
from ownership._inspection import Inspection
from ownership._paths import Resource, quoted
from ownership._process import ProcessState, ProcessTable, printable
from ownership._sockets._errors import StartError, StartTimeoutError
from ownership._sockets._nursery import look_after
from ownership._system import NO_FOLLOW
from ownership._verdict import Verdict

LOG, LABEL = ".stderr", "starts"
SUFFIX = ".start"  # of the resource that whoever starts owns meanwhile
_QUICK, _SLOW = 0.001, 0.02  # seconds between two attempts to connect, at first and at most
_TAIL, _LINES, _KEPT = 4096, 20, 3  # bytes and lines of stderr that are told; files of it before the next
_CHILD = getattr(signal, "SIGCHLD", None)  # not on Windows
_FAILED = re.compile(r"not started: exit (-?\d+)")


def checked_command(command: Sequence[str | os.PathLike[str]] | None) -> list[str] | None:
    """*command* as it is executed."""
    if command is None:
        return None
    if isinstance(command, str | bytes) or not _is_of_words(command):
        raise ValueError(f"command must be a list of a program and its arguments, got {command!r}")
    words = [os.fspath(one) for one in command]
    if not words or any("\0" in one for one in words):
        raise ValueError(f"command must name a program, and hold no NUL, got {command!r}")
    return words


def _is_of_words(command: object) -> bool:
    return isinstance(command, Iterable) and all(isinstance(one, str | os.PathLike) for one in command)


class Starting:
    """One start, by the claim on who starts.

    :param claim: on ``PATH.start``: while we hold it, nobody else starts
    """

    def __init__(
        self,
        claim: Claim,
        resource: Resource,
        command: list[str],
        environ: Mapping[str, str] | None,
        folder: str | None,
        clock: Clock,
        processes: ProcessTable,
    ) -> None:
        self._claim = claim
        self._resource = resource
        self._command = command
        self._environ = environ
        self._folder = folder
        self._clock = clock
        self._processes = processes
        part = claim._holding.part
        self._directory = part.place.directory
        self._logs = Logs(part.directory, part.resource.name)
        self._log = self._logs.path(part.token)

    def run(self, attempt: Callable[[], Any], is_owned: Callable[[], bool], deadline: float) -> Any:
        """Start it; what *attempt* gives once that is not ``None``.

        :param is_owned: whether somebody owns the resource, perhaps another than the one we started
        :raises StartError: it ended, and nobody owns the resource
        :raises StartTimeoutError: it lives, and *attempt* gave nothing until *deadline*
        """
        child: subprocess.Popen[bytes] | None = None
        comes = True  # what was started may still serve, however this call ends
        try:
            child = self._spawn()
            start_id = self._processes.observe(child.pid).start_id
            self._claim.announce("starting", data={"child": child.pid, "child_start_id": start_id})
            pause = _QUICK
            while True:
                ended = child.poll()  # before the attempt: what has ended may have answered before
                comes = ended is None
                if (reached := attempt()) is not None:
                    comes = False
                    return reached
                if ended and not is_owned():
                    raise self._failed(ended)
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise self._late(child)
                self._clock.wait(min(pause, left))
                pause = min(pause * 1.5, _SLOW)
        finally:
            if child is not None and comes:  # until it has, or has ended, nobody is to start another one
                look_after(child, is_owned, self._claim.release)
            else:
                if child is not None:
                    look_after(child)
                self._claim.release()

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._logs.sweep()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | NO_FOLLOW
        with open(self._log, "wb", opener=lambda path, _: os.open(path, flags, 0o600)) as stderr:
            self._directory.fill(stderr.fileno(), b"")  # mode and owner as of any file there
            try:
                return subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=None if self._environ is None else dict(self._environ),
                    cwd=self._folder,
                    start_new_session=True,
                )
            except OSError as error:
                named = error.filename or self._command[0]  # the program, or the working directory
                raise explained(
                    error, named, "name a program that can be executed, in a directory that exists"
                ) from None

    def _failed(self, returncode: int) -> StartError:
        self._claim.release(f"not started: exit {returncode}")
        return start_error(self._resource, returncode, self._log)

    def _late(self, child: subprocess.Popen[bytes]) -> StartTimeoutError:
        command = printable(" ".join(self._command))[:200]
        unreported = _CHILD is not None and signal.getsignal(_CHILD) is signal.SIG_IGN
        if child.returncode is None:
            fate = f"pid {child.pid} ({command}) was started and lives"
            hint = f"wait longer (timeout=), or see what it does: pid {child.pid}, {quoted(self._log)}"
        else:  # it may have left another one behind that is about to serve
            how = (
                f" with {child.returncode}" if not unreported else ", nobody was told how: this process ignores SIGCHLD"
            )
            fate = f"what was started, pid {child.pid} ({command}), has ended{how}"
            hint = (
                f"have it serve in the foreground, or wait longer (timeout=) for what it left; see {quoted(self._log)}"
            )
        return StartTimeoutError(
            f"{self._resource.shown} does not answer yet; {fate}",
            resource=self._resource.path,
            returncode=None if unreported else child.returncode,
            stderr=tail(self._log),
            hint=hint,
        )


class Logs(NamedTuple):
    """What those wrote to standard error that were started: a file for each start, named by the starter's token."""

    directory: str
    name: str

    def path(self, token: int) -> str:
        return f"{self.directory}/{self.name}.{token}{LOG}"

    def sweep(self) -> None:
        """Remove all but the last few: clients may still be about to read those."""
        with os.scandir(self.directory) as entries:
            found = [
                (int(middle), entry.path)
                for entry in entries
                if entry.name.startswith(f"{self.name}.") and entry.name.endswith(LOG)
                if (middle := entry.name[len(self.name) + 1 : -len(LOG)]).isdecimal()
            ]
        for _, path in sorted(found)[:-_KEPT]:
            try:
                os.unlink(path)
            except OSError:  # it is only clutter
                pass


def tail(path: str) -> str:
    """The last lines of a file, as text."""
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, os.O_RDONLY | NO_FOLLOW)) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            text = file.read().decode("utf-8", "backslashreplace")
    except OSError:
        return ""
    return "\n".join(printable(line) for line in text.splitlines()[-_LINES:])


def start_error(resource: Resource, returncode: int, log: str) -> StartError:
    """What every client is told that waited for that start."""
    how = f"exit code {returncode}" if returncode >= 0 else f"signal {-returncode}"
    said = tail(log)
    last = f"; it said: {said.splitlines()[-1]}" if said else ""
    return StartError(
        f"{resource.shown} is not served: what was started to serve it has ended ({how}){last}",
        resource=resource.path,
        returncode=returncode,
        stderr=said,
        hint=f"see {quoted(log)}",
    )


def failure_of(resource: Resource, seen: Inspection, before: int, logs: Logs | None) -> StartError | None:
    """The failure of a start that began after *before*, a token, if that is how the last one ended.

    :param seen: of ``PATH.start``
    """
    if seen.previous is None or seen.verdict is not Verdict.FREE or seen.token <= before or logs is None:
        return None
    found = _FAILED.match(seen.previous.reason)
    return None if found is None else start_error(resource, int(found[1]), logs.path(seen.token))


def late_start(resource: Resource, seen: Inspection, log: str) -> StartTimeoutError | None:
    """That somebody else's start goes on, if that is what *seen*, of ``PATH.start``, shows."""
    record = seen.record
    if record is None or record.labels.get(LABEL) != resource.shown:
        return None
    child = record.data.get("child")
    return StartTimeoutError(
        f"{resource.shown} does not answer yet; pid {record.pid} starts it since {record.acquired_at}"
        + (f", and what it has started is pid {child}" if child else ""),
        resource=resource.path,
        returncode=None,
        stderr=tail(log),
        hint=f"wait longer (timeout=), or see what it does: {quoted(log)}",
    )


def in_the_way(resource: Resource, seen: Inspection) -> AlreadyOwnedError:
    """Somebody owns what stands for starting it, and does not start it.

    :param seen: of ``PATH.start``
    """
    return AlreadyOwnedError(
        f"{resource.shown} cannot be started: {seen.resource}, which stands for starting it, is owned "
        f"by pid {seen.owner.pid if seen.owner else '?'} for something else ({seen.verdict.value}: {seen.reason})",
        resource=seen.resource,
        record=seen.record,
        verdict=seen.verdict,
        reason=seen.reason,
        hint="call that resource by another name, or start the server by hand",
    )


def is_starting(record_data: Mapping[str, Any], processes: ProcessTable) -> bool:
    """Whether the child that a starter told of lives, though the starter does not."""
    pid, start_id = record_data.get("child"), record_data.get("child_start_id")
    if type(pid) is not int or not isinstance(start_id, str) or not 1 <= pid <= 2**31 - 1:
        return False
    seen = processes.observe(pid)
    return seen.exists is not False and seen.start_id == start_id and seen.state is not ProcessState.ZOMBIE
