"""Process groups by number: whether somebody lives in one, and a signal that needs somebody to."""

from __future__ import annotations

from functools import partial

from ownership._process import ProcessState, ProcessTable, system_processes, validate_group
from ownership._watch import Watch


def group_has_live_member(pgid: int, *, processes: ProcessTable | None = None) -> bool:
    """Whether somebody lives in the process group *pgid*. False only on proof, true in doubt.

    Zombies do not live; a process of which only some threads have exited does. A group that cannot be listed (``/proc``
    hidden or of another pid namespace) counts as live, unless kill(2) proves it empty. Not guaranteed: that it is the
    group you think of, numbers are reused.

    :param pgid: 2 to 2**31-1
    :raises ValueError: *pgid* cannot be the number of a group
    """
    listing = (processes or system_processes()).list_group(validate_group(pgid))
    return bool(listing.fault) or any(one.state is not ProcessState.ZOMBIE for one in listing.members)


def signal_group_if_held(pgid: int, signal: int, *, processes: ProcessTable | None = None) -> bool:
    """Send *signal* to the process group *pgid*, if somebody lives in it. In doubt nothing is sent.

    Never to an empty group, one of zombies only, or our own. While its leader exists the group is signalled through
    the leader's pidfd (Linux 6.9), so that the group is the one that was looked at. Not guaranteed: that it is the
    group you think of, numbers are reused (:func:`ownership.stop` compares identities); without a leader or such
    pidfds, that the number is not given out again in the microseconds between the look and the signal.

    :param pgid: 2 to 2**31-1
    :param signal: its number, 1 or more
    :returns: whether it was sent
    :raises PermissionError: we may signal nobody in it
    :raises ValueError: *pgid* cannot be the number of a group, or is that of ours; or *signal* is none

    Sources: kill(2), pidfd_send_signal(2).
    """
    table = processes or system_processes()
    if isinstance(signal, bool) or not isinstance(signal, int) or not 1 <= signal <= 64:
        raise ValueError(f"signal must be the number of a signal, got {signal!r}")
    if validate_group(pgid) == table.own_group():
        raise ValueError(f"pgid must be that of another process group, {pgid} is our own")
    hold = Watch()
    try:
        leader = table.observe(pgid)
        if leader.start_id is not None:
            hold.process(partial(table.open_handle, pgid, leader.start_id))
        seen = [one for one in table.list_group(pgid).members if one.exists and one.state is not ProcessState.ZOMBIE]
        if not any(one.group == pgid for one in seen):
            return False
        if hold.handle is None or not table.send_group_of(hold.handle, pgid, leader.start_id or "", signal):
            table.send_group(pgid, int(signal))
    except ProcessLookupError:
        return False
    finally:
        hold.close()
    return True
