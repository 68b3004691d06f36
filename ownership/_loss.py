"""When somebody else came after us, and how that is told."""

from __future__ import annotations

from ownership._errors import OwnershipLostError
from ownership._models import GuardState, Malformed, OwnerIdentity, OwnerRecord
from ownership._paths import Resource
from ownership._process import printable
from ownership._state import State

_FACTS = {
    "owner-replaced": "it was taken over",
    "broken": "it was evicted by a break, or somebody owned it in between",
    "expired": "its lease ran out unrenewed, and it was evicted",
}
_GIVEN_UP = {State.CLOSED: "retired", State.HANDED_OVER: "handed-over", State.FORKED: "forked"}


def is_later(owner: OwnerIdentity | None, token: int, our_token: int, our_instance: str) -> bool:
    """Whether *owner* came after us. Two guards may have issued one token: then the other one counts."""
    if token != our_token:
        return token > our_token
    return owner is not None and owner.instance_id != our_instance


def reason_of(our_token: int, record: OwnerRecord | Malformed | None, remembered: GuardState, ran_out: bool) -> str:
    """Why it is not ours any more, as exactly as it can be told from what is there.

    :param remembered: by the guard
    :param ran_out: our lease has run out, perhaps only since
    """
    previous = remembered.previous
    if (
        previous is not None
        and previous.how == "broken"
        and (remembered.token, remembered.owner) == (our_token + 1, None)
    ):
        return "broken"  # and nobody owned since
    if ran_out:
        return "expired"
    return "owner-replaced" if isinstance(record, OwnerRecord) else "broken"


def evicted(remembered: GuardState, token: int) -> str:
    """How whoever owned by *token* lost it, as far as a guard that names no owner remembers that."""
    previous = remembered.previous
    if previous is not None and previous.how == "expired" and remembered.token == token + 1:
        return "expired"  # and nobody owned since
    return "broken"


def lost_error(
    resource: Resource, lost: Resource, token: int, reason: str, record: OwnerRecord | Malformed | None = None
) -> OwnershipLostError:
    """What to tell whoever owned *resource*, all of it, of which *lost* is another's now.

    :param token: by which it was owned
    :param record: what is there now
    """
    fact = _FACTS.get(reason, reason)
    if isinstance(record, OwnerRecord):
        fact += f" by pid {record.pid} ({printable(record.command)}), token {record.token}"
    since = "" if lost.path == resource.path else f", since {lost.shown}, owned with it, is not"
    return OwnershipLostError(
        f"{resource.shown} is not ours any more{since} (our token {token}): {fact}",
        reason=reason,
        resource=resource.path,
        hint="stop working on it; acquire it again if it is still needed",
    )


def not_ours(resource: Resource, why: str, state: State = State.RELEASED) -> OwnershipLostError:
    """What to tell whoever uses a handle that stands for nothing here and now."""
    reason = _GIVEN_UP.get(state, "released")
    hint = "use handover() and adopt() to pass a claim to a child" if reason == "forked" else "acquire it again"
    return OwnershipLostError(f"{resource.shown} is not ours: {why}", reason=reason, resource=resource.path, hint=hint)
