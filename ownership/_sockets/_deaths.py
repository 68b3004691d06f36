"""How often the owners of a resource have died lately."""

from __future__ import annotations

from ownership._eviction import boottime
from ownership._inspection import Inspection
from ownership._locking import peek
from ownership._paths import Resource, argument_of
from ownership._place import existing
from ownership._sockets._errors import CrashLoopError

_MANY, _SECONDS = 3, 60.0


def refuse_crash_loop(resource: Resource, registry: str | None, seen: Inspection, boot_id: str | None) -> None:
    """Do nothing, unless three owners in a row have died within 60 s: none released it cleanly in between.

    :param seen: *resource* just now: an owner found dead counts, though nobody has evicted it yet
    :param boot_id: of this boot
    :raises CrashLoopError: they have
    """
    place = existing(resource, registry)
    if place is None:
        return
    now, boot = boottime(), (boot_id or "")[:8]
    ages = [now - death.at for death in peek(place.directory, resource).deaths if death.boot_id == boot]
    if seen.verdict.is_dead:
        ages.append(0.0)
    lately = tuple(round(age, 1) for age in ages if age <= _SECONDS)
    if len(lately) >= _MANY:
        raise CrashLoopError(
            f"{resource.shown}: its owners died {len(lately)} times within {_SECONDS:g} s "
            f"({', '.join(f'{age:g} s ago' for age in lately)}): not started again",
            resource=resource.path,
            deaths=lately,
            hint=f"find out why they die; the oldest of these deaths counts for {_SECONDS - max(lately):.0f} s more; "
            f"leasectl show {argument_of(resource.path, registry)}; if you ended them yourself, forget these deaths: "
            f"leasectl run {argument_of(resource.path, registry)} -- true",
        )
