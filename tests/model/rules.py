"""The properties that must hold, and every rule of the protocol as a switch."""

from __future__ import annotations

from dataclasses import dataclass

ONE_OWNER = "at most one owner"
GROWING = "tokens grow in the order of publication"
LATER = "verify does not pass after another acquired later"
BROKEN = "verify of a broken owner does not pass"
FOREIGN = "a live foreign record is neither overwritten nor removed"
UNCLAIMED = "no record names a live process that was given no claim"
FRESH = "a fresh acquire succeeds when nobody owns"
LEFTOVER = "a process is not refused by its own leftover"
CONVERGE = "two believers converge on the higher token"
RELEASED = "a release takes its record away, damaged or not"
TEMPS = "temporary files of the dead are swept"
WOKEN = "whoever sees a record go at its release does not find its live owner in the guard"
BREAKABLE = "after a break a fresh acquire succeeds"

NEED_CLAIM = frozenset({"release", "update", "verify"})
MAX_TRIES = 2
WAITED_TICKS = 2  # the first may have begun before the wait


@dataclass(frozen=True)
class Rules:
    """Every rule of the protocol; the defaults are the design, False removes one rule."""

    lock_guard: bool = True  # read, decide and write inside the guard
    check_after_lock: bool = True  # directory and locked guard are those at the path
    guard_stays: bool = True  # our own code never unlinks a guard
    post_check: bool = True  # after publishing: directory, guard and record at the path are still ours
    link_never_replaces: bool = True  # publish by link, not by rename
    remove_only_judged: bool = True  # compare the record with the judged one before unlinking it
    withdraw_on_failure: bool = True  # an acquire that fails or is interrupted takes its record away
    withdraw_only_own: bool = True  # but only if the record there is its own
    retry_withdrawal: bool = True  # if that fails, the keeper goes on trying
    reclaim_own_leftover: bool = True  # and the own next acquire replaces it
    absent_asks_guard: bool = True  # no record beside a guard that names somebody live: its keeper puts it back
    token_above_guard: bool = True
    token_above_record: bool = True
    token_from_clock: bool = True
    stamp_token: bool = True  # the token is written into the guard
    stamp_identity: bool = True  # and who published with it
    stamp_before_link: bool = True  # before the record is published
    settle: bool = True  # a malformed record beside a guard without identity: wait for a live keeper, then reclaim
    blank_at_release: bool = True  # the guard's identity is blanked by a release,
    token_at_release: bool = True  # which leaves its token there if a new guard has a lower one;
    blank_before_unlink: bool = True  # and which does both before the record goes;
    blank_after_break: bool = True  # by a break,
    blank_after_failure: bool = True  # by an acquire that fails after it wrote it,
    blank_at_loss: bool = True  # and by an owner that finds its claim lost under the guard
    loss_enters_guard: bool = True  # even if it was found lost without the guard: its keeper goes in and looks
    release_takes_guard: bool = True
    release_checks_record: bool = True  # only if the record is ours
    release_removes_damaged: bool = True  # a damaged record is ours if the guard names us and our token
    inert_first: bool = True  # the handle is inert before the record goes
    update_takes_guard: bool = True
    update_checks_record: bool = True
    verify_by_path: bool = True  # not through the pinned directory
    keeper_rechecks_claim: bool = True  # under the guard: the claim is still held
    keeper_obeys_guard: bool = True  # a higher token in the guard is loss
    keeper_obeys_record: bool = True  # a higher token in a readable record is loss
    equal_token_loses: bool = True  # so is an equal token of another
    keeper_replaces_lower: bool = True  # a foreign record with a lower token gives way
    keeper_stamps: bool = True  # token and identity into the guard before republishing
    keeper_post_check: bool = True  # after republishing, as after an acquire; also that the claim is still held
    break_bumps: bool = True  # the next token into the guard before the record goes
    bump_above_record: bool = True  # above the broken record's token too
    break_without_record: bool = True  # a claim whose record is missing is broken in the guard alone
    break_post_check: bool = True  # afterwards: directory and guard are still those at the path
    sweep_guard_identity: bool = True  # named temporary files: of the dead process that the guard names,
    sweep_evicted_owner: bool = True  # of the evicted owner,
    sweep_before_stamp: bool = True  # before the identity is overwritten
