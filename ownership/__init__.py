"""Who owns this, right now, on this machine: owner records in plain files, judged by what the kernel knows."""

from __future__ import annotations

from ownership._behalf import renew
from ownership._claim import Claim
from ownership._diagnose import diagnose
from ownership._errors import (
    AcquireTimeoutError,
    AlreadyOwnedError,
    ContentionError,
    FenceTrippedError,
    GateClosedError,
    GuardTimeoutError,
    HandoverError,
    InvalidRecordError,
    LossError,
    OwnershipError,
    OwnershipLostError,
    RecordError,
    StopTimeoutError,
    UnsafeDirectoryError,
    UnsupportedFilesystemError,
    UnsupportedRecordError,
)
from ownership._fence import Fence
from ownership._finding import Finding, FindingCode, Severity
from ownership._frozen_wait import FrozenWait, release_if_frozen
from ownership._group import group_has_live_member, signal_group_if_held
from ownership._handover import Heir
from ownership._inspect import find, inspect, inspect_all, running, wait
from ownership._inspection import Inspection, Running
from ownership._judging import judge_owner
from ownership._models import LeaseTerms, OwnerIdentity, OwnerRecord, Previous
from ownership._owner_watch import OwnerWatch
from ownership._owning import acquire, adopt
from ownership._passing import pass_guards
from ownership._paths import named
from ownership._process import exists, is_alive, is_stopped, is_zombie, start_id
from ownership._reclaim import break_claim, reclaim
from ownership._reclaim_all import reclaim_all
from ownership._record import schema
from ownership._ref import OwnerRef
from ownership._replacing import replace
from ownership._report import SentSignal, StopReport, Survivor
from ownership._request import StopRequest
from ownership._sockets._ensure import connect, ensure
from ownership._sockets._errors import CrashLoopError, PeerError, StartError, StartTimeoutError, UnreachableError
from ownership._sockets._listen import adopt_listener, listen
from ownership._sockets._listener import Listener
from ownership._sockets._peer import Peer, verify_peer, verify_worker
from ownership._stop import stop
from ownership._survey import Survey
from ownership._verdict import Judgement, Verdict
from ownership._waiters import waiters

__all__ = [
    "AcquireTimeoutError",
    "AlreadyOwnedError",
    "Claim",
    "ContentionError",
    "CrashLoopError",
    "Fence",
    "FenceTrippedError",
    "Finding",
    "FindingCode",
    "FrozenWait",
    "GateClosedError",
    "GuardTimeoutError",
    "HandoverError",
    "Heir",
    "Inspection",
    "InvalidRecordError",
    "Judgement",
    "LeaseTerms",
    "Listener",
    "LossError",
    "OwnerIdentity",
    "OwnerRecord",
    "OwnerRef",
    "OwnerWatch",
    "OwnershipError",
    "OwnershipLostError",
    "Peer",
    "PeerError",
    "Previous",
    "RecordError",
    "Running",
    "SentSignal",
    "Severity",
    "StartError",
    "StartTimeoutError",
    "StopReport",
    "StopRequest",
    "StopTimeoutError",
    "Survey",
    "Survivor",
    "UnreachableError",
    "UnsafeDirectoryError",
    "UnsupportedFilesystemError",
    "UnsupportedRecordError",
    "Verdict",
    "acquire",
    "adopt",
    "adopt_listener",
    "break_claim",
    "connect",
    "diagnose",
    "ensure",
    "exists",
    "find",
    "group_has_live_member",
    "inspect",
    "inspect_all",
    "is_alive",
    "is_stopped",
    "is_zombie",
    "judge_owner",
    "listen",
    "named",
    "pass_guards",
    "reclaim",
    "reclaim_all",
    "release_if_frozen",
    "renew",
    "replace",
    "running",
    "schema",
    "signal_group_if_held",
    "start_id",
    "stop",
    "verify_peer",
    "verify_worker",
    "wait",
    "waiters",
]
