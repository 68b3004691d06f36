"""What can go wrong with a task of a roster."""

from __future__ import annotations

import errno
from os import PathLike
from typing import ClassVar

from leases._task import Task
from ownership import ContentionError, LossError


class TaskLostError(LossError):
    """This handle does not drive its task any more, and never will again: nothing it says counts.

    :ivar task: the task as it is now, ``None`` if the roster does not have it
    :ivar reason: ``owner-replaced``: another process drives it now, or this is a forked child; ``record-missing``: the
        roster does not have it any more
    """

    def __init__(
        self, message: str, *, reason: str, resource: PathLike[str] | str, task: Task | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, reason=reason, resource=resource, hint=hint)
        self.task = task


class TaskTakenError(ContentionError):
    """The task is not to be had: somebody drives it, nobody can tell whether somebody does, or it is finished.

    :ivar task: the task as it was found
    """

    def __init__(self, message: str, *, resource: PathLike[str] | str, task: Task, hint: str = "") -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.task = task


class TaskTimeoutError(ContentionError, TimeoutError):
    """The task had not ended when the time was over: nothing is known about its end.

    :ivar task: the task as it was last seen
    """

    _errno: ClassVar[int | None] = errno.ETIMEDOUT

    def __init__(self, message: str, *, resource: PathLike[str] | str, task: Task, hint: str = "") -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.task = task
