"""Errors carry data, are what a caller would guess, survive pickling, and say what to do."""

from __future__ import annotations

import copy
import datetime as dt
import errno
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import ownership
from ownership import (
    AcquireTimeoutError,
    AlreadyOwnedError,
    ContentionError,
    CrashLoopError,
    FenceTrippedError,
    GateClosedError,
    GuardTimeoutError,
    HandoverError,
    InvalidRecordError,
    LossError,
    OwnerRecord,
    OwnershipError,
    OwnershipLostError,
    PeerError,
    RecordError,
    SentSignal,
    StartError,
    StartTimeoutError,
    StopReport,
    StopTimeoutError,
    Survivor,
    UnreachableError,
    UnsafeDirectoryError,
    UnsupportedFilesystemError,
    UnsupportedRecordError,
    Verdict,
)
from ownership._errors import explained
from tests.support.records import record

OWNER = OwnerRecord.model_validate_json(json.dumps(record(command="daemon", host="here")))
SENT = SentSignal(dt.datetime(2026, 11, 29, tzinfo=dt.UTC), 0.1, "SIGKILL", "group", 12)
LEFT = StopReport("group", (SENT,), (Survivor(13, "linux:a:1:2:3", "running", "daemon"),), False, 5.5)
HELD: dict[str, Any] = {"resource": "/run/x", "record": OWNER, "verdict": Verdict.LIVE, "reason": "it runs"}

ERRORS: list[tuple[OwnershipError, tuple[type[BaseException], ...], int]] = [
    (AlreadyOwnedError("held", hint="wait", **HELD), (ContentionError, BlockingIOError, OSError), 75),
    (AcquireTimeoutError("held", hint="wait", **HELD), (AlreadyOwnedError, TimeoutError), 75),
    (GuardTimeoutError("busy", resource="/run/x", holder=12, hint="wait"), (ContentionError, TimeoutError), 75),
    (GateClosedError("closed", resource="/run/g", record=OWNER, reason="why", hint="wait"), (ContentionError,), 75),
    (OwnershipLostError("lost", reason="broken", resource="/run/x", hint="stop"), (LossError, RuntimeError), 76),
    (FenceTrippedError("gone", reason="owner-gone", resource="/run/x", hint="stop"), (LossError, RuntimeError), 76),
    (InvalidRecordError("what", resource="/run/x", head="{", hint="look"), (RecordError, ValueError), 65),
    (UnsupportedRecordError("newer", resource="/run/x", hint="upgrade"), (RecordError,), 65),
    (UnsafeDirectoryError("0777", resource="/run", hint="chmod"), (RecordError, PermissionError), 65),
    (UnsupportedFilesystemError("nfs", resource="/run", hint="registry"), (RecordError, OSError), 65),
    (HandoverError("nobody came", resource="/run/x", hint="adopt"), (OwnershipError,), 1),
    (UnreachableError("nobody", resource="/run/x", record=OWNER, hint="start"), (ConnectionError, OSError), 1),
    (PeerError("stranger", pid=12, resource="/run/x", hint="do not talk"), (PermissionError, OSError), 1),
    (StartError("ended", resource="/run/x", returncode=3, stderr="why", hint="look"), (ChildProcessError,), 1),
    (StartTimeoutError("slow", resource="/run/x", returncode=None, hint="wait"), (StartError, TimeoutError), 1),
    (CrashLoopError("again", resource="/run/x", deaths=(3.0, 1.0, 0.0), hint="find out"), (RuntimeError,), 1),
    (StopTimeoutError("still there", report=LEFT, resource="/run/x", hint="look"), (TimeoutError, OSError), 1),
]
by_class = pytest.mark.parametrize(
    ("error", "bases", "code"), ERRORS, ids=[type(error).__name__ for error, _, _ in ERRORS]
)


def test_every_public_error_is_in_the_table() -> None:
    public = {getattr(ownership, name) for name in ownership.__all__}
    concrete = {kind for kind in public if isinstance(kind, type) and issubclass(kind, OwnershipError)}
    abstract = {OwnershipError, ContentionError, LossError, RecordError}
    tested = {type(error) for error, _, _ in ERRORS} | abstract
    assert concrete == tested


@by_class
def test_an_error_is_the_builtin_that_a_caller_would_guess(
    error: OwnershipError, bases: tuple[type[BaseException], ...], code: int
) -> None:
    for base in (*bases, OwnershipError):
        assert isinstance(error, base)
    assert error.exit_code == code


@by_class
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_pickles_with_all_its_data(
    error: OwnershipError, bases: tuple[type[BaseException], ...], code: int, protocol: int
) -> None:
    for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))
        for name in ("errno", "strerror", "filename"):
            assert getattr(twin, name, None) == getattr(error, name, None)


@by_class
def test_an_error_shows_its_hint_in_a_traceback(
    error: OwnershipError, bases: tuple[type[BaseException], ...], code: int
) -> None:
    assert error.__notes__ == [f"hint: {error.hint}"]
    assert str(error) == error.message == error.args[0]


@pytest.mark.parametrize("error", [error for error, _, _ in ERRORS if isinstance(error, OSError)], ids=repr)
def test_an_error_that_is_an_oserror_has_its_fields(error: Any) -> None:
    assert error.errno in {
        errno.EAGAIN,
        errno.ETIMEDOUT,
        errno.EACCES,
        errno.EOPNOTSUPP,
        errno.ECONNREFUSED,
        errno.ECHILD,
    }
    assert (error.strerror, error.filename) == (error.message, error.resource)


def test_a_subclass_of_a_user_pickles_too() -> None:
    twin = pickle.loads(pickle.dumps(BusyError("x", resource=Path("/run/x"))))
    assert (type(twin), twin.resource) == (BusyError, "/run/x")


class BusyError(GuardTimeoutError):
    pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO, errno.ENAMETOOLONG])
def test_a_system_error_keeps_its_type_and_gets_path_and_hint(number: int) -> None:
    error = explained(OSError(number, "it says"), "/run/x", "do that")
    assert type(error) is type(OSError(number, "it says"))
    twin = pickle.loads(pickle.dumps(error))
    for one in (error, twin):
        assert (one.errno, one.filename, one.hint) == (number, "/run/x", "do that")  # type: ignore[attr-defined]
        assert one.__notes__ == ["hint: do that"]
