"""Who owns, as a value that travels to workers."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ownership
from ownership import OwnerIdentity, OwnerRef
from tests.support.namespaces import needs_linux_root
from tests.support.records import identity

pytestmark = needs_linux_root
VARIABLE = "LEASES_OWNER"

paths = (
    st.binary(min_size=1, max_size=300).filter(lambda raw: b"\0" not in raw).map(lambda raw: os.fsdecode(b"/" + raw))
)
identities = st.builds(
    OwnerIdentity,
    pid=st.integers(1, 2**31 - 1),
    start_id=st.text(min_size=1, max_size=100).filter(lambda text: text.encode("utf-8", "ignore").decode() == text),
    instance_id=st.from_regex(r"\A[0-9A-Za-z_-]{8,64}\Z"),
    boot_id=st.none() | st.just("b"),
    pid_namespace=st.none() | st.just("none") | st.integers(0, 2**64 - 1),
    device=st.none() | st.integers(0, 2**64 - 1),
)


@settings(max_examples=150, deadline=None)
@given(paths, st.none() | paths, st.none() | paths, st.integers(1, 2**53), identities)
@example("/\udcff \n\"'$x", "/é\udc80", "/\udcfe", 5, identity())
def test_a_ref_survives_the_environment(
    path: str, registry: str | None, directory: str | None, token: int, owner: OwnerIdentity
) -> None:
    ref = OwnerRef(resource=path, registry=registry, directory=directory, token=token, owner=owner)
    variables = ref.to_env()
    assert list(variables) == [VARIABLE]
    text = variables[VARIABLE]
    text.encode("ascii", "strict") if owner.start_id.isascii() else text.encode()
    assert "\0" not in text
    again = OwnerRef.from_env(variables)
    assert again == ref
    assert os.fsencode(again.path) == os.fsencode(Path(path))


def test_a_ref_of_a_claim_names_its_owner(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim:
        ref = claim.ref
        assert (ref.path, ref.token, ref.registry) == (tmp_path / "x", claim.token, None)
        assert ref.directory == str(tmp_path / ".leases")
        assert ref.owner.instance_id == claim.record.instance_id
        found = ownership.find(tmp_path / "x")
        assert found is not None
        assert found.ref == ref
        assert pickle.loads(pickle.dumps(ref)) == ref
        assert hash(ref) == hash(found.ref)


def test_a_ref_is_frozen(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "x") as claim, pytest.raises(ValueError, match="frozen"):
        claim.ref.token = 5  # type: ignore[misc]


def test_no_owner_in_the_environment_is_a_lookup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for function in (lambda: OwnerRef.from_env({}), OwnerRef.from_env):
        with pytest.raises(LookupError, match=VARIABLE):
            function()


WHO = '{"pid": 7, "start_id": "a", "instance_id": "aaaaaaaa"}'
BAD: dict[str, str] = {
    "empty": "",
    "no json": "{",
    "list": "[]",
    "nothing": "{}",
    "no hex": '{"resource": "zz", "token": 5, "owner": {}}',
    "no owner": '{"resource": "2f61", "token": 5}',
    "bad pid": '{"resource": "2f61", "token": 5, "owner": ' + WHO.replace("7", "0") + "}",
    "pid as text": '{"resource": "2f61", "token": 5, "owner": ' + WHO.replace("7", '"7"') + "}",
    "deep": "[" * 50_000,
    "nul in the path": '{"resource": "2f00", "token": 5, "owner": ' + WHO + "}",
    "an empty path": '{"resource": "", "token": 5, "owner": ' + WHO + "}",
    "a relative directory": '{"resource": "2f61", "directory": "61", "token": 5, "owner": ' + WHO + "}",
    "a relative path": '{"resource": "61", "token": 5, "owner": ' + WHO + "}",
    "a token that is none": '{"resource": "2f61", "token": 0, "owner": ' + WHO + "}",
    "a token too great": f'{{"resource": "2f61", "token": {2**53 + 1}, "owner": {WHO}}}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_a_value_error_that_names_the_variable(text: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE) as caught:
        OwnerRef.from_env({VARIABLE: text})
    assert len(str(caught.value)) < 2000
    for name in ("_Travelling", "validation error", "fromhex"):
        assert name not in str(caught.value)


def test_a_sender_that_says_nothing_of_the_directory_is_understood() -> None:
    again = OwnerRef.from_env({VARIABLE: '{"resource": "2f61", "token": 5, "owner": ' + WHO + "}"})
    assert again.directory is None


def test_unknown_fields_of_a_newer_sender_are_kept_out() -> None:
    ref = OwnerRef(resource="/x", token=5, owner=identity())
    text = ref.to_env()[VARIABLE][:-1] + ', "more": 1}'
    again: Any = OwnerRef.from_env({VARIABLE: text})
    assert again == ref
