"""Every row of the table by which an owner is judged: record × observation × who asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ownership._models import OwnerIdentity
from ownership._process import Identity, ProcessObservation, ProcessState
from ownership._verdict import Observation, Self, Verdict, WitnessState, judge
from ownership._verdict import Testimony as Said

BOOT, OTHER_BOOT = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
NAMESPACE, OTHER_NAMESPACE = 4026531836, 4026532000
DEVICE = 65024


def start_id(ticks: int = 100, inode: int | None = 7, boot: str = BOOT) -> str:
    return f"linux:{boot}:{ticks}:4026531834:{inode or ''}"


ME = Identity(500, start_id(900, 90), "m" * 32, BOOT, NAMESPACE, "here", "me")
OWNER = OwnerIdentity(
    pid=42, start_id=start_id(), instance_id="o" * 32, boot_id=BOOT, pid_namespace=NAMESPACE, device=DEVICE
)
ELSEWHERE = {
    "another boot": {"boot_id": OTHER_BOOT},
    "another pid namespace": {"pid_namespace": OTHER_NAMESPACE},
    "both": {"boot_id": OTHER_BOOT, "pid_namespace": OTHER_NAMESPACE},
    "its boot unknown": {"boot_id": None},
    "its namespace unknown": {"pid_namespace": None},
    "a system without namespaces": {"pid_namespace": "none"},
}
BLIND = {
    "our boot unknown": {"boot_id": None},
    "our namespace unknown": {"pid_namespace": None},
    "everything unknown": {"boot_id": None, "pid_namespace": None},
}
LIVE, STOPPED, GONE, ZOMBIE, REUSED = Verdict.LIVE, Verdict.STOPPED, Verdict.GONE, Verdict.ZOMBIE, Verdict.REUSED
UNKNOWN, EXPIRED = Verdict.UNKNOWN, Verdict.EXPIRED


def verdict(record: OwnerIdentity, seen: Observation, me: Self | None = None) -> Verdict:
    judgement = judge(record, seen, me or Self(ME))
    assert judgement.reason
    return judgement.verdict


def said(state: WitnessState | None, **facts: Any) -> Observation:
    return Observation(witness=None if state is None else Said(state), **{"device": DEVICE, **facts})


def process(state: ProcessState = ProcessState.RUNNING, **changes: Any) -> ProcessObservation:
    return ProcessObservation(**{"pid": 42, "exists": True, "start_id": start_id(), "state": state, **changes})


# row 2: another boot or pid namespace, or unknown on either side: only the witness speaks


@pytest.mark.parametrize("changes", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("alive", [True, False], ids=["a process has the pid", "no process has the pid"])
@pytest.mark.parametrize(
    ("state", "believable", "expected"),
    [
        (WitnessState.HELD, False, LIVE),
        (WitnessState.HELD, True, LIVE),
        (WitnessState.FREE, True, GONE),
        (WitnessState.MISSING, True, UNKNOWN),
        (WitnessState.MISSING, False, UNKNOWN),
        (WitnessState.UNTESTABLE, True, UNKNOWN),
        (None, True, UNKNOWN),
    ],
)
def test_elsewhere_only_the_witness_speaks(
    changes: dict[str, Any], alive: bool, state: WitnessState | None, believable: bool, expected: Verdict
) -> None:
    there = process() if alive else process(ProcessState.UNKNOWN, exists=False, start_id=None)
    seen = said(state, believable=believable, process=there)
    assert verdict(OWNER.model_copy(update=changes), seen) is expected


@pytest.mark.parametrize("changes", BLIND.values(), ids=BLIND)
@pytest.mark.parametrize(
    ("state", "expected"),
    [(WitnessState.HELD, LIVE), (WitnessState.FREE, GONE), (WitnessState.MISSING, UNKNOWN), (None, UNKNOWN)],
)
def test_who_knows_not_where_it_runs_asks_only_the_witness(
    changes: dict[str, Any], state: WitnessState | None, expected: Verdict
) -> None:
    seen = said(state, believable=True, process=process(ProcessState.UNKNOWN, exists=False, start_id=None))
    assert verdict(OWNER, seen, Self(replace(ME, **changes))) is expected


@pytest.mark.parametrize(
    ("changes", "device", "expected"),
    [
        ({"pid_namespace": OTHER_NAMESPACE}, DEVICE, GONE),
        ({"pid_namespace": OTHER_NAMESPACE}, DEVICE + 1, UNKNOWN),
        ({"pid_namespace": OTHER_NAMESPACE}, None, UNKNOWN),
        ({"pid_namespace": OTHER_NAMESPACE, "device": None}, DEVICE, UNKNOWN),
        ({"pid_namespace": OTHER_NAMESPACE, "device": None}, None, UNKNOWN),
        ({"boot_id": OTHER_BOOT}, DEVICE, UNKNOWN),
        ({"boot_id": None}, DEVICE, UNKNOWN),
    ],
)
def test_a_free_witness_on_an_unknown_filesystem_needs_the_same_kernel_and_device(
    changes: dict[str, Any], device: int | None, expected: Verdict
) -> None:
    seen = said(WitnessState.FREE, believable=False, device=device)
    assert verdict(OWNER.model_copy(update=changes), seen) is expected


def test_two_unknown_boots_are_not_the_same_boot() -> None:
    seen = said(WitnessState.FREE, believable=False)
    owner = OWNER.model_copy(update={"boot_id": None})
    assert verdict(owner, seen, Self(replace(ME, boot_id=None))) is UNKNOWN


def test_a_system_without_pid_namespaces_knows_where_it_is() -> None:
    """``"none"`` on both sides is equal and known: the process is looked at."""
    owner = OWNER.model_copy(update={"pid_namespace": "none"})
    here = Self(replace(ME, pid_namespace="none"))
    assert verdict(owner, Observation(process=process(exists=False, start_id=None)), here) is GONE


# row 3: same boot and pid namespace: the process speaks

PROCESSES = {
    "absent": (process(ProcessState.UNKNOWN, exists=False, start_id=None), GONE),
    "absent, whatever its state": (process(ProcessState.ZOMBIE, exists=False), GONE),
    "another one": (process(start_id=start_id(100, 8)), REUSED),
    "another one by ticks": (process(start_id=start_id(101, None)), REUSED),
    "another one, stopped": (process(ProcessState.STOPPED, start_id=start_id(100, 8)), REUSED),
    "another one, a zombie": (process(ProcessState.ZOMBIE, start_id=start_id(100, 8)), REUSED),
    "another one, exec-ing": (process(ProcessState.UNKNOWN, start_id=start_id(100, 8)), REUSED),
    "running": (process(), LIVE),
    "a zombie": (process(ProcessState.ZOMBIE), ZOMBIE),
    "a zombie whose start id is hidden": (process(ProcessState.ZOMBIE, start_id=None), ZOMBIE),
    "stopped": (process(ProcessState.STOPPED), STOPPED),
    "traced": (process(ProcessState.TRACED), STOPPED),
    "frozen": (process(ProcessState.FROZEN), STOPPED),
    "dumping core": (process(ProcessState.DUMPING), LIVE),
    "in an unknown state": (process(ProcessState.UNKNOWN), UNKNOWN),
    "running, start id hidden": (process(start_id=None), UNKNOWN),
    "stopped, start id hidden": (process(ProcessState.STOPPED, start_id=None), UNKNOWN),
    "running, start id of another source": (process(start_id="psutil:1.5"), UNKNOWN),
    "running, start id of another boot": (process(start_id=start_id(boot=OTHER_BOOT)), UNKNOWN),
    "running, start id unreadable": (process(start_id="garbage"), UNKNOWN),
    "perhaps there": (process(ProcessState.UNKNOWN, exists=None, start_id=None, detail="EMFILE"), UNKNOWN),
    "perhaps there, perhaps another": (process(exists=None, start_id=start_id(1, 1)), UNKNOWN),
    "not looked at": (None, UNKNOWN),
}


@pytest.mark.parametrize(("there", "expected"), PROCESSES.values(), ids=PROCESSES)
@pytest.mark.parametrize("state", [None, WitnessState.HELD, WitnessState.FREE], ids=["unasked", "held", "free"])
def test_here_the_process_speaks_and_the_witness_is_not_heard(
    there: ProcessObservation | None, expected: Verdict, state: WitnessState | None
) -> None:
    """A forked child may have inherited the witness, and a cleaner may have removed it."""
    seen = said(state, process=there, believable=True)
    assert verdict(OWNER, seen) is expected
    assert verdict(OWNER, seen, Self(ME, acquiring=True)) is expected


def test_a_core_dump_in_progress_is_named() -> None:
    assert "core dump" in judge(OWNER, Observation(process=process(ProcessState.DUMPING)), Self(ME)).reason


# our own process under another instance id

IMAGE = OWNER.model_copy(update={"pid": ME.pid, "start_id": ME.start_id})
OURS = process(pid=ME.pid, start_id=ME.start_id)


@pytest.mark.parametrize(
    ("state", "kept", "acquiring", "expected"),
    [
        (WitnessState.FREE, frozenset(), True, GONE),
        (WitnessState.HELD, frozenset({IMAGE.instance_id}), True, GONE),
        (WitnessState.MISSING, frozenset({IMAGE.instance_id}), True, GONE),
        (WitnessState.HELD, frozenset(), True, LIVE),
        (WitnessState.HELD, frozenset({"another"}), True, LIVE),
        (WitnessState.MISSING, frozenset(), True, LIVE),
        (WitnessState.UNTESTABLE, frozenset(), True, LIVE),
        (None, frozenset(), True, LIVE),
        (WitnessState.FREE, frozenset(), False, LIVE),
        (WitnessState.HELD, frozenset({IMAGE.instance_id}), False, LIVE),
    ],
)
def test_an_earlier_image_of_this_process_gives_way_only_to_us(
    state: WitnessState | None, kept: frozenset[str], acquiring: bool, expected: Verdict
) -> None:
    seen = said(state, process=OURS)
    assert verdict(IMAGE, seen, Self(ME, kept=kept, acquiring=acquiring)) is expected


def test_an_earlier_image_is_our_process_by_its_start_id_not_by_its_pid() -> None:
    other = IMAGE.model_copy(update={"start_id": start_id(900, 91)})
    assert verdict(other, said(WitnessState.HELD, process=OURS), Self(ME, acquiring=True)) is REUSED


# our own image: instance ids are random, so an equal one is proof


@pytest.mark.parametrize("changes", [{}, *ELSEWHERE.values()], ids=["here", *ELSEWHERE])
@pytest.mark.parametrize(("holds", "expected"), [(True, LIVE), (False, GONE)])
def test_our_own_image_knows_whether_it_owns(changes: dict[str, Any], holds: bool, expected: Verdict) -> None:
    ours = IMAGE.model_copy(update={"instance_id": ME.instance_id, **changes})
    assert verdict(ours, Observation(), Self(ME, holds=holds)) is expected


# a descriptor of that very process, which needs no full look


@pytest.mark.parametrize(("there", "before"), PROCESSES.values(), ids=PROCESSES)
def test_a_descriptor_that_says_that_it_ended_settles_what_a_look_leaves_open_and_nothing_else(
    there: ProcessObservation | None, before: Verdict
) -> None:
    expected = GONE if before is UNKNOWN else before
    assert verdict(OWNER, Observation(process=there, ended=True)) is expected


def test_a_descriptor_says_nothing_about_an_owner_elsewhere() -> None:
    owner = OWNER.model_copy(update={"pid_namespace": OTHER_NAMESPACE})
    assert verdict(owner, said(None, ended=True)) is UNKNOWN


# row 4: an expired lease


@pytest.mark.parametrize(("there", "before"), PROCESSES.values(), ids=PROCESSES)
def test_an_expired_lease_evicts_whoever_may_live_and_only_them(
    there: ProcessObservation | None, before: Verdict
) -> None:
    expected = before if before in (GONE, REUSED, ZOMBIE) else EXPIRED
    assert verdict(OWNER, Observation(process=there, expired=True)) is expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (WitnessState.HELD, EXPIRED),
        (WitnessState.FREE, GONE),
        (WitnessState.MISSING, EXPIRED),
        (WitnessState.UNTESTABLE, EXPIRED),
    ],
)
def test_an_expired_lease_evicts_elsewhere_too(state: WitnessState, expected: Verdict) -> None:
    owner = OWNER.model_copy(update={"pid_namespace": OTHER_NAMESPACE})
    assert verdict(owner, said(state, believable=True, expired=True)) is expected


# what a verdict means


def test_only_proof_and_expiry_evict() -> None:
    assert {one for one in Verdict if one.may_be_evicted} == {GONE, ZOMBIE, REUSED, EXPIRED}
    assert {one for one in Verdict if one.is_dead} == {GONE, ZOMBIE, REUSED}


def test_a_verdict_is_its_word() -> None:
    assert [str(one) for one in Verdict] == [
        "free",
        "live",
        "stopped",
        "gone",
        "zombie",
        "reused",
        "expired",
        "unknown",
    ]


@pytest.mark.parametrize(
    ("state", "verb"),
    [
        (WitnessState.HELD, "it lives in another pid namespace"),
        (WitnessState.FREE, "it belonged to another pid namespace"),
        (WitnessState.MISSING, "it belongs to another pid namespace"),
    ],
)
def test_an_owner_elsewhere_is_told_with_its_namespace(state: WitnessState, verb: str) -> None:
    owner = OWNER.model_copy(update={"pid_namespace": OTHER_NAMESPACE})
    judgement = judge(owner, said(state, believable=True), Self(ME))
    assert judgement.reason.startswith(f"{verb} ({OTHER_NAMESPACE}, ours is {NAMESPACE})")
    assert judgement.elsewhere == f"pid namespace {OTHER_NAMESPACE} (ours is {NAMESPACE})"
    assert judge(OWNER, Observation(process=process()), Self(ME)).elsewhere == ""
