"""The keeper: one thread of a process that puts back what others deleted, and finishes what a call could not.

It also walks the rounds of every fence. It never waits for a guard, and it goes on after errors.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from ownership import _fork
from ownership._asked import LISTENING, listen
from ownership._callbacks import CALLBACKS
from ownership._closing import abandon, close, forsake, is_homeless
from ownership._errors import GuardTimeoutError, OwnershipError, explained
from ownership._flag import Alarm
from ownership._holding import UNSETTLED, Holding
from ownership._log import log, tell
from ownership._patrol import Patrol, Watchman
from ownership._pinned import DirectoryChanged
from ownership._place import forget, forget_strays, forget_unused, places
from ownership._renewal import renew_late
from ownership._rounds import Rounds
from ownership._state import KEPT, State
from ownership._station import Place

TICK = 0.25  # seconds between two looks at what is owned
_HURRY, _HURRIES = 0.01, 20  # seconds between, and number of, looks that follow one at which a guard was busy
_IDLE = 2.0  # seconds a witness stays after its process owned anything in that directory
_DAY = 86400.0


class Keeper:
    """Looks after every holding and every fence of this process.

    :ivar holdings: what is owned, or was and is not withdrawn yet
    """

    def __init__(self) -> None:
        self._mutex: Any = threading.RLock()  # a signal handler may come here too
        self._wake = Alarm()
        self._idle = False
        self._thread: threading.Thread | None = None
        self._touched = self._ticked = time.monotonic()
        self._rounds = Rounds()
        self._patrol = Patrol(self._wake)
        self._busy = 0  # looks in a row at which a guard was busy
        self._was_busy = False
        self._changes = 0  # how often holdings have come and gone
        self.holdings: set[Holding] = set()

    def add(self, holding: Holding) -> None:
        """Look after *holding* from now on; call before anything of it is published.

        :raises OSError: the thread cannot be started
        """
        self.holdings.add(holding)
        self._changes += 1
        if self._thread is None:
            try:
                self._ensure_thread(holding.primary.path)
            finally:
                if self._thread is None:
                    self.holdings.discard(holding)
        UNSETTLED.add(holding)
        if self._idle:
            self._wake.set()

    def drop(self, holding: Holding) -> None:
        """Nothing of *holding* is left."""
        self.forget(holding)
        holding.parts = [part.ended() for part in holding.parts]  # another thread may be looking at the old ones

    def forget(self, holding: Holding) -> None:
        """There is nothing to be looked after."""
        self.holdings.discard(holding)
        UNSETTLED.discard(holding)
        self._changes += 1

    def attend(self, watchman: Watchman, interval: float, path: str) -> None:
        """Send *watchman* every *interval* seconds from now on, until it is dismissed or over.

        :param path: what it is about, for errors
        :raises OSError: the thread cannot be started
        """
        self._patrol.add(watchman, interval)
        try:
            self._ensure_thread(path)
        except BaseException:
            self._patrol.dismiss(watchman)
            raise
        self._wake.set()

    def dismiss(self, watchman: Watchman) -> None:
        """*watchman* is over: nothing of it stays open for long."""
        self._patrol.dismiss(watchman)

    def tidy(self) -> None:
        """A call that owns nothing is over: keep no directory open for it."""
        if self._thread is None:
            forget_unused()

    def _ensure_thread(self, path: str) -> None:
        handled = sys.exc_info()[1]  # by our caller
        try:
            with self._mutex:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="ownership-keeper", daemon=True)
                    try:
                        self._thread = thread
                        thread.start()
                    except BaseException:
                        self._thread = None  # if it was started after all, it ends by that
                        raise
                    atexit.register(_leave, os.getpid())
        except RuntimeError as error:
            raised = error.__context__  # perhaps by a signal handler, and Thread.start() made another one of that
            if raised is not None and raised is not handled:
                raise raised from None
            raise explained(
                OSError(errno.ENOMEM, f"the keeper's thread cannot be started: {error}"),
                path,
                "raise the limit of processes (ulimit -u), or stop some threads",
            ) from None

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the program's own threads
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        me = threading.current_thread()
        while self._thread is me:
            try:
                self._rest()
                self.tick()
            except BaseException:  # whatever it is: everything rests on this thread
                tell(log.exception, "the keeper goes on after an error")
                time.sleep(TICK)
        self._wake.set()  # it may have been meant for another one

    def _rest(self) -> None:
        """Until the next tick, or, with nothing to look after, until there is."""
        self._idle = True
        if not self.holdings and not self._patrol and not places() and not CALLBACKS.pending:
            self._wake.wait()
            self._ticked = time.monotonic()
        self._idle = False
        hurried = 0 < self._busy <= _HURRIES
        self._patrol.wait(time.monotonic() + _HURRY if hurried else self._ticked + TICK)
        if not hurried:
            self._ticked = max(self._ticked + TICK, time.monotonic() - TICK)

    def tick(self) -> None:
        """One look at everything."""
        busy, self._was_busy = self._busy, False
        for place in places():
            if place.heartbeat.is_due:
                self._renew(place)
            if place.heartbeat.found_late:
                place.heartbeat.found_late = False
                UNSETTLED.update(one for one in list(self.holdings) if one.leased)
        for holding in self._due():
            try:
                self._look(holding)
            except Exception:
                tell(log.exception, "the keeper goes on after an error about %s", holding.primary.shown)
        for place in places():
            try:
                self._look_at_place(place)
            except Exception:
                tell(log.exception, "the keeper goes on after an error about %s", place.directory.path)
        forget_strays()
        if LISTENING:
            listen()
        self._busy = busy + 1 if self._was_busy else 0
        CALLBACKS.relieve()
        if time.monotonic() - self._touched > _DAY:
            self._touch()

    def _renew(self, place: Place) -> None:
        """Renew every lease there by one write; what is late is to be renewed under its guard."""
        try:
            place.heartbeat.beat(place)
        except (OSError, OwnershipError, DirectoryChanged) as error:
            tell(log.warning, "%s: leases cannot be renewed now: %s", place.directory.path, error)

    def _due(self) -> set[Holding]:
        due = set(self._rounds.due(self.holdings, places(), self._changes))
        for holding in list(UNSETTLED):
            if holding in self.holdings:
                due.add(holding)
            else:
                UNSETTLED.discard(holding)
        return due

    def _look(self, holding: Holding) -> None:
        if holding.handle is not None and holding.handle() is None:
            abandon(holding)  # the finaliser comes after the collector has cleared the reference, or was interrupted
            holding.abandoned = True
        if holding.state is State.CLOSED or (holding.state is State.HELD and not holding.abandoned):
            try:
                self._keep(holding)
            except (OSError, OwnershipError, DirectoryChanged) as error:
                self._was_busy |= isinstance(error, GuardTimeoutError) or holding.state not in KEPT
                tell(log.debug, "%s: not to be looked at now: %s", holding.primary.shown, error)
                if holding.state is State.CLOSED and is_homeless(holding):
                    forsake(holding)
                    self.drop(holding)
        elif holding.state is not State.ACQUIRING or holding.abandoned:
            holding.retire(State.RELEASED)
            if holding.withdraw_quietly(*holding.ended):
                self.drop(holding)
            else:
                self._was_busy = True

    def _keep(self, holding: Holding) -> None:
        if holding.state is State.CLOSED:
            close(holding, wait=0.0)
        for part in holding.parts:
            if not part.is_untouched():
                holding.look(part, wait=0.0)
        if holding.leased:
            renew_late(holding, wait=0.0, by_hand=False)
        if all(part.confirmed for part in holding.parts):
            UNSETTLED.discard(holding)

    def _look_at_place(self, place: Place) -> None:
        try:
            with place.mutex:
                if place.users:
                    place.restore()
                    return
                since = place.idle_since = place.idle_since or time.monotonic()
            if time.monotonic() - since >= _IDLE:
                place.move_out()
                forget(place)  # not under its mutex: whoever makes places comes the other way
        except (OSError, DirectoryChanged) as error:
            tell(log.debug, "%s: not to be looked at now: %s", place.directory.path, error)

    def _touch(self) -> None:
        """Once a day, so that age-based cleaners leave our files alone."""
        self._touched = time.monotonic()
        for holding in list(self.holdings):
            for part in holding.parts:
                for filename in (part.filename, f"{part.resource.name}.guard", f"{part.instance_id}.alive"):
                    try:
                        os.utime(filename, dir_fd=part.place.directory.fd, follow_symlinks=False)
                    except OSError:
                        pass


KEEPER = Keeper()


def _leave(process: int) -> None:
    """Exit hook of the process that made them: remove witnesses that stand for nothing. Records stay: we still live."""
    if os.getpid() == process:
        for holding in list(KEEPER.holdings):
            if holding.state not in (*KEPT, State.ACQUIRING):
                holding.withdraw_quietly(*holding.ended)
        for place in places():
            with suppress(OSError, DirectoryChanged):
                place.move_out()


def _child() -> None:
    global KEEPER
    for holding in list(KEEPER.holdings):
        holding.disown()
    KEEPER.holdings.clear()
    UNSETTLED.clear()
    KEEPER.__init__()  # type: ignore[misc]


_fork.in_child(_child)
