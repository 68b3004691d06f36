"""For how long somebody owns something; and the command line, ``leasectl``."""

from __future__ import annotations

from leases._following import Following
from leases._gate import Gate
from leases._lease import Lease, LeaseLostError, acquire
from leases._lines import NotSyncedError, append_line, read_lines
from leases._roster import Roster
from leases._task import Restored, Task
from leases._task_claim import TaskClaim
from leases._task_errors import TaskLostError, TaskTakenError, TaskTimeoutError
from ownership import FrozenWait, release_if_frozen

__all__ = [
    "Following",
    "FrozenWait",
    "Gate",
    "Lease",
    "LeaseLostError",
    "NotSyncedError",
    "Restored",
    "Roster",
    "Task",
    "TaskClaim",
    "TaskLostError",
    "TaskTakenError",
    "TaskTimeoutError",
    "acquire",
    "append_line",
    "read_lines",
    "release_if_frozen",
]
