"""For how long somebody owns something; and the command line, ``leasectl``."""

from __future__ import annotations

from leases._gate import Gate
from leases._lease import Lease, LeaseLostError, acquire
from ownership import FrozenWait, release_if_frozen

__all__ = [
    "FrozenWait",
    "Gate",
    "Lease",
    "LeaseLostError",
    "acquire",
    "release_if_frozen",
]
