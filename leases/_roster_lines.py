"""The lines of a roster, and what they come to. Pure.

A line is one JSON object: the head (``{"roster":1,...}``), a driver (``{"driver":{...}}``: one process image), or the
whole state of one task. Of the lines of a task the last that *counts* stands: one with a greater token than any before,
or one by whoever drives it with the same token, as long as it is unfinished. So what a displaced driver writes late
counts for nothing, wherever it comes to stand.
"""

from __future__ import annotations

import functools
import json
import re
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic_core import SchemaValidator, ValidationError, core_schema

VERSION = 1
RUNNING, GIVEN_UP, FINISHED = "running", "given-up", "finished"
MAX_DATA = 64 * 1024  # bytes of JSON
MAX_NAME, MAX_STATUS = 512, 1024
MAX_TOKEN = 2**53
_needed = itemgetter("token", "by", "state", "since", "at")


class State(NamedTuple):
    """The state of a task, as one line says it.

    :ivar by: the instance id of its driver
    :ivar since: seconds since the epoch when that one began
    :ivar at: seconds since the epoch when this was said
    """

    task: str
    token: int
    by: str
    state: str
    status: str = ""
    data: Any = None
    since: float = 0.0
    at: float = 0.0

    @property
    def line(self) -> bytes:
        """What stands in the file; ``ValueError`` if it cannot be recorded."""
        told: dict[str, Any] = {"task": self.task, "token": self.token, "by": self.by, "state": self.state}
        if self.status:
            told["status"] = self.status
        if self.data is not None:
            told["data"] = self.data
        try:
            return encoded({**told, "since": self.since, "at": self.at}, self.data)
        except ValueError as error:
            raise ValueError(f"{error} (task {self.task!r:.80})") from None

    @property
    def is_open(self) -> bool:
        """Whether it is unfinished."""
        return self.state != FINISHED


def encoded(value: object, data: object = None) -> bytes:
    """One line.

    :param data: what may make it long; else a task with much of it could not even be finished
    :raises ValueError: JSON cannot say it, or *data* is longer than 64 KiB
    """
    try:
        text = _json(value)
        size = len(_json(data)) if len(text) > MAX_DATA else 0
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"data must be what JSON can say: {error}") from None
    if size > MAX_DATA:
        raise ValueError(f"data must be small, at most {MAX_DATA} bytes of JSON, got {size}")
    return text + b"\n"


def _json(value: object, *, strict: bool = True) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=not strict).encode()


def head(generation: int, top: int) -> bytes:
    """The first line of a file.

    :param generation: tells this file from every other that had its name
    :param top: the greatest token so far
    """
    return encoded({"roster": VERSION, "generation": generation, "token": top})


def state_of(line: dict[str, Any]) -> State:
    """The state that *line* says, which counted."""
    get = line.get
    return State(
        line["task"],
        line["token"],
        line["by"],
        line["state"],
        get("status", ""),
        get("data"),
        line["since"],
        line["at"],
    )


def read_back(lines: bytes) -> State:
    """The state that the last of *lines* says, as everybody will read it.

    :raises ValueError: not everybody can
    """
    line = lines.rstrip(b"\n").rpartition(b"\n")[2]
    try:
        found = _validator().validate_json(b"[" + line + b"]")
    except ValueError as error:  # half of a surrogate pair, for instance, or very many levels
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        name = json.loads(line)["task"]
        raise ValueError(f"data must be what JSON can say, and everybody can read: {why} (task {name!r:.80})") from None
    return state_of(found[0])


@functools.cache
def _validator() -> SchemaValidator:
    """Reads a list of lines. Made when it is first needed."""
    fields = {
        "task": core_schema.str_schema(strict=True),
        "token": core_schema.int_schema(strict=True, ge=0, le=MAX_TOKEN),
        "by": core_schema.str_schema(strict=True),
        "state": core_schema.literal_schema([RUNNING, GIVEN_UP, FINISHED]),
        "status": core_schema.str_schema(strict=True),
        "data": core_schema.any_schema(),
        "since": core_schema.float_schema(strict=True, allow_inf_nan=False),
        "at": core_schema.float_schema(strict=True, allow_inf_nan=False),
        "driver": core_schema.any_schema(),
    }
    optional = {name: core_schema.typed_dict_field(kind, required=False) for name, kind in fields.items()}
    return SchemaValidator(core_schema.list_schema(core_schema.typed_dict_schema(optional)))


class Lines:
    """What the whole lines read so far come to. They are kept as they were read: few are asked for one by one.

    :ivar tasks: the line that stands, by name, in the order in which they first came
    :ivar drivers: what is known of each process image, by instance id
    :ivar top: the greatest token
    :ivar count: how many lines there were
    :ivar size: how many bytes
    :ivar standing: how many of them are not superseded
    """

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.drivers: dict[str, dict[str, Any]] = {}
        self.top = 0
        self.count = 0
        self.size = self.standing = 0
        self._sizes: dict[str, int] = {}  # of the lines of tasks that stand

    def get(self, name: str) -> State | None:
        """The state of the task *name*, ``None`` if there is none."""
        line = self.tasks.get(name)
        return None if line is None else state_of(line)

    def take(self, raw: bytes) -> None:
        """Count *raw*, whole lines.

        A line with a NUL is what a loss of power leaves of lines that nobody was told were written: it is skipped.

        :raises ValueError: one of them is no line of a roster; says which, counted from 1
        """
        lines = raw.split(b"\n")
        del lines[-1]
        if b"\0" in raw:
            lines = [b"{}" if b"\0" in line else line for line in lines]
        try:
            parsed = _validator().validate_json(b"[" + b",".join(lines) + b"]")
            if len(parsed) != len(lines):
                raise ValueError("not a line each")
            self._fold(parsed, lines)
        except (ValueError, KeyError, TypeError, AttributeError):
            self._take_each(lines)
        self.size += len(raw)

    def _take_each(self, lines: list[bytes]) -> None:
        """One by one, to say which it is. What was folded already counts once, however often it comes."""
        for number, line in enumerate(lines, self.count + 1):
            try:
                before, self.count = self.count, 0
                (parsed,) = _validator().validate_json(b"[" + line + b"]")
                self._fold([parsed], [line])
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f"line {number} is no line of a roster: {line[:80]!r}") from None
            finally:
                self.count = before
        self.count += len(lines)

    def _fold(self, parsed: list[dict[str, Any]], lines: list[bytes]) -> None:
        tasks, top, sizes, standing = self.tasks, self.top, self._sizes, self.standing
        for line, raw in zip(parsed, lines, strict=True):
            task = line.get("task")
            if task is None:
                if "driver" in line:
                    by = line["driver"]["instance_id"]
                    standing += len(raw) + 1 if by not in self.drivers else 0
                    self.drivers[by] = line["driver"]
                continue
            token = _needed(line)[0]
            known = tasks.get(task)
            if known is None or _counts(line, known):
                tasks[task] = line
                size = len(raw) + 1
                standing += size if known is None else size - sizes[task]
                sizes[task] = size
                if token > top:
                    top = token
        self.top, self.standing = top, standing
        self.count += len(parsed)

    @property
    def superseded(self) -> int:
        """Bytes that a new file would not have."""
        return self.size - self.standing

    def whole(self, generation: int) -> bytes:
        """The same, without what is superseded."""
        named = {line["by"] for line in self.tasks.values()}
        drivers = [{"driver": told} for by, told in self.drivers.items() if by in named]
        lines = [_rewritten(line) for line in (*drivers, *self.tasks.values())]
        return b"\n".join([head(generation, self.top)[:-1], *lines, b""])


def _rewritten(line: dict[str, Any]) -> bytes:
    """What was read can be written: a number too great for us is still one, not the word that JSON does not have."""
    try:
        return _json(line)
    except ValueError:
        return _OUTSIDE_STRINGS.sub(lambda found: found[1] or b"1e999", _json(line, strict=False))


_OUTSIDE_STRINGS = re.compile(rb'("(?:[^"\\]|\\.)*")|Infinity')


def _counts(told: dict[str, Any], known: dict[str, Any]) -> bool:
    if known["state"] == FINISHED:
        return told == known
    if told["token"] != known["token"]:
        return bool(told["token"] > known["token"])
    return told["by"] == known["by"] and (known["state"] == RUNNING or told == known)


def checked_name(name: object) -> str:
    """*name* if a task may have it."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not _is_text(name):
        raise ValueError(f"name must be text of 1 to {MAX_NAME} characters, got {name!r:.80}")
    return name


def checked_status(status: object) -> str:
    """*status* if a driver may say it."""
    if not isinstance(status, str) or len(status) > MAX_STATUS or not _is_text(status):
        raise ValueError(f"status must be text of at most {MAX_STATUS} characters, got {status!r:.80}")
    return status


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
