"""Records and guard states: strict when written, tolerant when read, and never more than one kind of surprise."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ownership
from ownership import InvalidRecordError, LeaseTerms, OwnerIdentity, OwnerRecord, Previous, UnsupportedRecordError
from ownership._models import MAX_TOKEN, NO_GUARD_STATE, Death, GuardState, Malformed
from ownership._record import MAX_GUARD_BYTES, MAX_RECORD_BYTES, decode, decode_guard, encode, encode_guard
from tests.support.records import record

GOOD: dict[str, Any] = record()


def raw(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
times = st.datetimes(timezones=st.just(dt.UTC))
names = st.sampled_from([*OwnerRecord.model_fields, "unknown"])


def check(content: bytes) -> None:
    try:
        found = decode(content, "/run/x")
    except (InvalidRecordError, UnsupportedRecordError):
        return
    if isinstance(found, Malformed):
        assert found.fault
        assert found.head.isprintable()
    else:
        assert type(found.pid) is int
        assert 1 <= found.pid < 2**31
        assert type(found.token) is int
        assert 1 <= found.token <= MAX_TOKEN
        assert found.start_id


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_raise_anything_else(content: bytes) -> None:
    check(content)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(names, json_values, max_size=4), st.booleans())
@example({"token": 10**400}, True)
@example({"token": -(10**400)}, True)
@example({"version": 10**400, "pid": 0}, True)
@example({"version": 2, "token": 2**53 + 1}, True)
@example({"pid": 10**30}, True)
@example({"data": {"x": 10**4299}}, True)
def test_no_json_makes_the_parser_raise_anything_else(fields: dict[str, Any], valid_rest: bool) -> None:
    check(json.dumps((GOOD | fields) if valid_rest else fields).encode())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=MAX_GUARD_BYTES))
@example(b'{"token": 1' + b"0" * 400 + b"}")
@example(b'{"token": 9007199254740993}')
def test_no_bytes_make_the_guard_parser_raise_anything_else(content: bytes) -> None:
    try:
        state = decode_guard(content, "/run/x")
    except InvalidRecordError:
        return
    assert 0 <= state.token < MAX_TOKEN


@pytest.mark.parametrize("pid", [0, -1, 1.5, True, "123", 2**31, 10**30, None, [], {}, "0x1", 1e3, -0.0])
def test_a_nonsense_pid_is_malformed(pid: Any) -> None:
    assert isinstance(decode(raw(pid=pid), "/run/x"), Malformed)


@pytest.mark.parametrize("name", ["pid", "start_id", "instance_id", "token"])
def test_a_record_without_an_identity_is_malformed(name: str) -> None:
    assert isinstance(decode(without(name), "/run/x"), Malformed)


MALFORMED = {
    "empty": b"",
    "blank": b" \n",
    "truncated": raw()[:-20],
    "list": b"[]",
    "text": b'"x"',
    "nothing": b"{}",
    "null": b"null",
    "duplicate keys": raw()[:-1] + b', "pid": 7}',
    "nul bytes": b"\0" * 100,
    "nul at the end": raw() + b"\0",
    "utf-16": raw().decode().encode("utf-16"),
    "utf-8 with a mark": b"\xef\xbb\xbf" + raw(),
    "invalid utf-8": raw(command="é").replace(b"\\u00e9", b"\xff"),
    "two objects": raw() + raw(),
    "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep and unclosed": b"[" * 60_000,
    "nan": raw(lease=None).replace(b'"token": 1000', b'"token": NaN'),
    "big digits": raw().replace(b'"token": 1000', b'"token": ' + b"9" * 5000),
    "token as text": raw(token="5"),
    "token zero": raw(token=0),
    "token negative": raw(token=-5),
    "token as float": raw(token=5.0),
    "instance with a slash": raw(instance_id="../../../etc/passwd"),
    "instance too short": raw(instance_id="x"),
    "instance hidden": raw(instance_id=".........."),
    "start id empty": raw(start_id=""),
    "start id as number": raw(start_id=5),
    "lease without an end": raw(lease={"ttl": 1e400, "renewed_at": 0}),
    "lease of nothing": raw(lease={}),
    "lease too short": raw(lease={"ttl": 0.5, "renewed_at": 0.0}),
    "version zero": raw(version=0),
    "version as text": raw(version="2"),
    "version true": raw(version=True),
    "time without zone": raw(acquired_at="2026-01-01T00:00:00"),
    "data as list": raw(data=[]),
    "labels not text": raw(labels={"a": 1}),
    "lone surrogate": raw().replace(b'"token"', b'"command": "\\ud800", "token"'),
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_record_is_malformed(content: bytes) -> None:
    found = decode(content, "/run/x")
    assert isinstance(found, Malformed)
    assert len(found.head) <= 4 * 200
    assert "\n" not in found.fault + found.head


@pytest.mark.parametrize("token", [2**53 + 1, 2**63, 10**30, 10**400], ids=["one more", "2^63", "10^30", "10^400"])
def test_a_token_that_no_check_could_compare_is_refused(token: int) -> None:
    for content in (raw(token=token), raw(token=token, version=2)):
        with pytest.raises(InvalidRecordError) as caught:
            decode(content, "/run/x")
        assert "2^53" in str(caught.value)
        assert "/run/x" in str(caught.value)
        assert caught.value.hint
        assert caught.value.head


@pytest.mark.parametrize("token", [2**53, 2**53 + 5, 10**30, 10**400], ids=["last", "beyond", "10^30", "10^400"])
def test_a_guard_that_leaves_no_greater_token_is_refused(token: int) -> None:
    with pytest.raises(InvalidRecordError, match=r"2\^53") as caught:
        decode_guard(json.dumps({"token": token}).encode(), "/run/x")
    assert caught.value.hint


def test_the_greatest_token_is_still_a_token() -> None:
    assert isinstance(decode(raw(token=2**53), "/run/x"), OwnerRecord)
    assert decode_guard(json.dumps({"token": 2**53 - 1}).encode(), "/run/x").token == 2**53 - 1


def test_unknown_fields_are_kept_out() -> None:
    found = decode(raw(favourite="blue"), "/run/x")
    assert isinstance(found, OwnerRecord)
    assert not hasattr(found, "favourite")


def test_a_newer_record_is_known_by_its_identity_whatever_else_it_holds() -> None:
    found = decode(raw(version=2, lease={"new": "shape"}, data=[1], labels=3, phase=None, acquired_at=5), "/run/x")
    assert isinstance(found, OwnerRecord)
    assert (found.version, found.pid, found.lease) == (2, GOOD["pid"], None)


@pytest.mark.parametrize("changes", [{"pid": 0}, {"pid": "7"}, {"start_id": None}, {"instance_id": "a/b"}])
def test_a_newer_record_without_a_valid_identity_is_unsupported(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedRecordError) as caught:
        decode(raw(version=99, **changes), "/run/x")
    assert "version 99" in str(caught.value)
    assert caught.value.hint


text = st.text(max_size=40).filter(lambda value: value.isascii() or value.encode("utf-8", "ignore").decode() == value)
finite_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
records = st.builds(
    OwnerRecord,
    pid=st.integers(1, 2**31 - 1),
    start_id=text.filter(bool),
    instance_id=st.from_regex(r"\A[0-9A-Za-z_-]{8,64}\Z"),
    token=st.integers(1, MAX_TOKEN),
    boot_id=st.none() | text,
    pid_namespace=st.none() | st.just("none") | st.integers(0, 2**64 - 1),
    device=st.none() | st.integers(0, 2**64 - 1),
    resource=text,
    command=text,
    phase=text.filter(bool),
    acquired_at=st.none() | times,
    lease=st.none() | st.builds(LeaseTerms, ttl=st.floats(1, 1e6), renewed_at=st.floats(0, 1e9)),
    endpoint=st.none() | text,
    data=st.dictionaries(text, finite_json, max_size=4),
    labels=st.dictionaries(text, text, max_size=4),
)


@settings(max_examples=100, deadline=None)
@given(records)
def test_a_record_survives_being_written_and_read(one: OwnerRecord) -> None:
    again = decode(encode(one), "/run/x")
    assert again == one


def test_a_record_beyond_the_limit_is_refused_when_written() -> None:
    one = OwnerRecord(**{**GOOD, "data": {"x": "y" * MAX_RECORD_BYTES}})
    with pytest.raises(ValueError, match="65536"):
        encode(one)


identities = st.builds(
    OwnerIdentity,
    pid=st.integers(1, 2**31 - 1),
    start_id=st.text(alphabet="linux:0123456789abcdef-", min_size=1, max_size=90),
    instance_id=st.from_regex(r"\A[0-9a-f]{32}\Z"),
    boot_id=st.none() | st.text(alphabet="0123456789abcdef-", max_size=36),
    pid_namespace=st.none() | st.integers(0, 2**64 - 1),
    device=st.none() | st.integers(0, 2**64 - 1),
)
guards = st.builds(
    GuardState,
    token=st.integers(0, MAX_TOKEN - 1),
    owner=st.none() | identities,
    previous=st.none()
    | st.builds(
        Previous,
        how=st.sampled_from(["released", "closed", "died"]),
        reason=st.text(max_size=120),
        at=st.none() | times,
    ),
    adopted=st.none() | st.from_regex(r"\A[0-9a-f]{64}\Z"),
    deaths=st.lists(
        st.builds(Death, at=st.floats(0, 1e8), boot_id=st.text(alphabet="0123456789abcdef", max_size=8)), max_size=3
    ).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(guards)
def test_a_guard_keeps_token_owner_and_adoption_in_512_bytes(state: GuardState) -> None:
    """What is only for people may be dropped; the token, the identity and the way the owner came in may not."""
    content = encode_guard(state)
    assert len(content) == MAX_GUARD_BYTES - 1  # the mark of a request comes after it
    for mark, requested in ((b"", False), (b" ", False), (b"?", True)):
        again = decode_guard(content + mark, "/run/x")
        assert (again.token, again.owner, again.adopted) == (state.token, state.owner, state.adopted)
        assert again.requested is requested


def test_the_last_three_deaths_fit_beside_an_owner_and_an_ordinary_end() -> None:
    state = a_full_guard()
    assert decode_guard(encode_guard(state), "/run/x").deaths == state.deaths


def test_a_hand_over_is_remembered_beside_everything_else() -> None:
    """A predecessor that looks late tells by it a hand-over that worked from a loss."""
    state = a_full_guard()._replace(adopted="a" * 64)
    again = decode_guard(encode_guard(state), "/run/x")
    assert (again.owner, again.adopted) == (state.owner, "a" * 64)


def a_full_guard() -> GuardState:
    """What is remembered of an owner of ordinary size after three deaths."""
    owner = OwnerIdentity(
        pid=1234567,
        start_id="linux:4cf94a06-d9c6-49b1-a3ff-600659699c69:240257:4026531834:158088",
        instance_id="8af2c7800a51cf15f94d5cf8b83fdf9f",
        boot_id="4cf94a06-d9c6-49b1-a3ff-600659699c69",
        pid_namespace=4026531836,
        device=65024,
    )
    deaths = tuple(Death(at=2403.001 + one, boot_id="4cf94a06") for one in range(3))
    at = dt.datetime(2026, 11, 29, 18, 15, 43, 791464, dt.UTC)
    previous = Previous(how="died", reason="no process 28312", at=at)
    return GuardState(token=1795976143791376, owner=owner, previous=previous, deaths=deaths)


@pytest.mark.parametrize("content", [b"", b" " * 512, b"\0" * 512, b"[]", b"{", b'{"token": -1}', b'{"token": "5"}'])
def test_an_unreadable_guard_counts_as_none(content: bytes) -> None:
    assert decode_guard(content, "/run/x") == NO_GUARD_STATE
    marked = decode_guard(content[:511].ljust(511) + b"?", "/run/x")
    assert marked == NO_GUARD_STATE._replace(requested=True)


def test_the_schema_describes_what_is_written() -> None:
    described = ownership.schema()
    assert set(json.loads(encode(OwnerRecord(**GOOD)))) <= set(described["properties"])
    assert set(described["required"]) == {"pid", "start_id", "instance_id", "token"}
    json.dumps(described)


def test_values_are_frozen() -> None:
    one = OwnerRecord(**GOOD)
    with pytest.raises(ValueError, match="frozen"):
        one.token = 5  # type: ignore[misc]


@pytest.mark.parametrize("ttl", [0.0, 0.999, math.nan, math.inf, -1.0])
def test_lease_terms_without_a_useful_ttl_cannot_be_made(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl"):
        LeaseTerms(ttl=ttl, renewed_at=0.0)
