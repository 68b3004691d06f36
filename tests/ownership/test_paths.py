"""From a spelling to one canonical path, one set of file names and one lock directory."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ownership
from ownership import UnsafeDirectoryError, named
from ownership._paths import escape, resolve, unescape
from tests.support.namespaces import elsewhere
from tests.support.records import file_of, names, plant, record

HASHED = 80 + 2 + 64


def awkward() -> list[bytes]:
    return [b"a/b", b"a_b", b"a%2Fb", b"a%2fb", b"..", b".", b"%2E", b"%2E.", b"x" * 300, b"x" * 301, b"A", b"a"]


components = st.binary(min_size=1, max_size=255)


@settings(max_examples=300, deadline=None)
@given(components)
@example(b".hidden")
@example(b"%-" + b"a" * 64)
@example(b"\xff" * 255)
def test_an_escaped_name_is_a_plain_file_name_and_leads_back(raw: bytes) -> None:
    name = escape(raw)
    assert "/" not in name
    assert "\0" not in name
    assert name.isascii()
    assert name.isprintable()
    assert not name.startswith(".")
    assert 0 < len(name) <= 180
    back = unescape(name)
    assert back is None or os.fsencode(back) == raw
    if back is None:
        assert len(name) <= HASHED


@settings(max_examples=300, deadline=None)
@given(components, components)
@example(b"a/b", b"a%2Fb")
@example(b".x", b"%2Ex")
@example(b"x" * 181, b"x" * 80 + b"%-" + b"0" * 64)
def test_different_names_never_meet(a: bytes, b: bytes) -> None:
    assert (escape(a) == escape(b)) is (a == b)


def test_a_long_name_cannot_be_imitated_by_a_short_one() -> None:
    long = escape(b"z" * 255)
    assert escape(long.encode()) != long


def test_awkward_names_have_files_of_their_own(tmp_path: Path) -> None:
    """One owner of each at the same time, none in another's way, none outside the lock directory (K66)."""
    folder = tmp_path / "registry"
    folder.mkdir(mode=0o700)
    plain = [
        b"x",
        b"x.json",
        b"x.guard",
        b"x.alive",
        b"x.new",
        b"x.request",
        b"x.json.guard",
        b".gitignore",
        b" ",
        b"~",
    ]
    accents = ["é".encode(), "e\u0301".encode(), b"\xe9", b"A", b"a", b"%", b"%%", b"a%2Fb", b"-", b"\n", b"*"]
    claims = [ownership.acquire(os.path.join(os.fsencode(tmp_path), raw)) for raw in (*plain, *accents)]
    assert len({claim.path for claim in claims}) == len(plain) + len(accents)
    records = [name for name in names(tmp_path / ".leases") if name.endswith(".json")]
    assert len(records) == len(claims)
    for claim in claims:
        claim.verify()
        found = ownership.find(claim.path)
        assert found is not None
        assert found.record.token == claim.token
        claim.release()
    assert set(os.listdir(tmp_path)) == {".leases", "registry"}


def test_in_a_registry_names_stand_for_whole_paths(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir(mode=0o700)
    spelled = ["/a/b", "/a_b", "/a%2Fb", "/a/" + "x" * 200, "/a/" + "x" * 199 + "y"]
    claims = [ownership.acquire(one, registry=registry) for one in spelled]
    assert [str(claim.path) for claim in claims] == spelled
    for claim in claims:
        claim.release()


def test_what_was_resolved_before_is_resolved_anew_once_it_leads_elsewhere(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    def resolved() -> list[str]:
        return [resolve(str(first / "x")).path for _ in range(3)]

    assert resolved() == [str(first / "x")] * 3
    (first / "x").symlink_to(second / "y")
    assert resolved() == [str(second / "y")] * 3
    (first / "x").unlink()
    first.chmod(0o711)
    assert resolved() == [str(first / "x")] * 3
    first.rmdir()
    assert resolve(str(first / "x")).above is None
    first.symlink_to(second)
    assert resolved() == [str(second / "x")] * 3


def test_every_spelling_leads_to_one_resource(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "alias").symlink_to("link/file")
    (tmp_path / "real" / "future").symlink_to("not-yet")
    monkeypatch.chdir(tmp_path / "real")
    target = str(tmp_path / "real" / "file")
    spelled: list[Any] = [
        target,
        os.fsencode(target),
        Path(target),
        "file",
        "./file",
        "../link/file",
        "//".join(target.rsplit("/", 1)),
        str(tmp_path / "link" / "file"),
        str(tmp_path / "alias"),
        str(tmp_path / "link" / ".." / "real" / "file"),
    ]
    assert {resolve(one).path for one in spelled} == {target}
    assert resolve("future").path == str(tmp_path / "real" / "not-yet")


def test_the_canonical_path_is_pinned_at_acquire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After ``current -> releases/43`` the same spelling is another resource."""
    for name in ("42", "43"):
        (tmp_path / name).mkdir()
    (tmp_path / "current").symlink_to("42")
    monkeypatch.chdir(tmp_path)
    with ownership.acquire("current/app") as old:
        (tmp_path / "current").unlink()
        (tmp_path / "current").symlink_to("43")
        monkeypatch.chdir("/")
        with ownership.acquire(tmp_path / "current/app") as new:
            assert (old.path, new.path) == (tmp_path / "42" / "app", tmp_path / "43" / "app")
            old.verify()


def test_a_relative_registry_is_pinned_at_acquire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registry").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    with ownership.acquire("x", registry="registry") as claim:
        monkeypatch.chdir("/")
        assert claim.ref.registry == str(tmp_path / "registry")
        claim.announce("still the same")
        with claim.handover(timeout=0.0) as heir:
            assert json_targets(heir)[0][1] == os.fsencode(tmp_path / "registry").hex()
            heir.adopt().release()


def json_targets(heir: Any) -> Any:
    return json.loads(heir.to_env()["LEASES_HEIR"])["targets"]


def test_a_directory_that_was_replaced_under_the_same_spelling_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with ownership.acquire(tmp_path / "a" / "old") as old:
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "a").symlink_to("c")
        (tmp_path / "c").mkdir()
        with ownership.acquire(tmp_path / "a" / "x") as new:
            assert new.path == tmp_path / "c" / "x"
        assert old.path == tmp_path / "a" / "old"
        (tmp_path / "a").unlink()
        (tmp_path / "b").rename(tmp_path / "a")
        old.verify()


BAD: dict[str, Any] = {
    "empty": "",
    "empty bytes": b"",
    "nul": "a\0b",
    "nul in bytes": b"a\0b",
    "last component too long": "x" * 256,
    "last component too long in bytes": "é" * 128,
    "first component too long": "x" * 256 + "/y",
    "component in the middle too long": "a/" + "x" * 300 + "/y",
    "path too long": "/" + "a/" * 2100,
    "path too long in bytes": "/" + "é/" * 1400,
    "lone surrogate": "a\ud800",
}


@pytest.mark.parametrize("spelled", BAD.values(), ids=BAD)
@pytest.mark.parametrize("known", [False, True], ids=["first", "again"])
def test_a_path_that_no_system_takes_is_a_value_error_that_names_it(
    spelled: Any, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {".leases"} if known else set()
    if known:
        ownership.acquire("x").release()
    for function in (ownership.acquire, ownership.inspect, ownership.find, ownership.reclaim):
        with pytest.raises(ValueError, match=r"resource|surrogate") as caught:
            function(spelled)
        assert len(str(caught.value)) < 5000
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("registry", ["", "a\0b"])
def test_a_bad_registry_is_not_called_a_bad_resource(registry: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="registry"):
        ownership.acquire(tmp_path / "x", registry=registry)


def test_a_bad_companion_is_not_called_a_bad_resource(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="also"):
        ownership.acquire(tmp_path / "x", also=[""])


def test_bytes_that_are_no_text_work_and_are_shown_escaped(tmp_path: Path) -> None:
    odd = os.path.join(os.fsencode(tmp_path), b"caf\xe9 \xff")
    with ownership.acquire(odd) as claim:
        assert os.fsencode(claim.path) == odd
        assert claim.record.resource.endswith("/caf%E9 %FF")
        claim.record.resource.encode()
        with pytest.raises(ownership.AlreadyOwnedError) as caught:
            ownership.acquire(odd)
        str(caught.value).encode()
        caught.value.hint.encode()
        assert ownership.inspect(odd).verdict is ownership.Verdict.LIVE
        assert [os.fsencode(one.resource) for one in ownership.inspect_all(tmp_path)] == [odd]
        assert os.fsencode(ownership.OwnerRef.from_env(claim.ref.to_env()).path) == odd


def test_a_long_path_of_bytes_that_are_no_text_works(tmp_path: Path) -> None:
    """Escaped for people it is three times as long as it is."""
    folder = os.fsencode(tmp_path)
    for _ in range(7):
        folder += b"/" + b"\xff" * 250
        os.mkdir(folder)
    with ownership.acquire(folder + b"/x") as claim:
        claim.verify()
        assert ownership.inspect(folder + b"/x").verdict is ownership.Verdict.LIVE


@pytest.mark.parametrize("length", [254, 255])
@pytest.mark.parametrize("letter", [b"x", b"\xff", b"%", b"."], ids=["plain", "no text", "escaped", "dots"])
def test_the_longest_name_works(length: int, letter: bytes, tmp_path: Path) -> None:
    spelled = os.path.join(os.fsencode(tmp_path), letter * length)
    with ownership.acquire(spelled):
        assert ownership.inspect(spelled).verdict is ownership.Verdict.LIVE


@pytest.mark.parametrize("name", ["x; touch pwned", "$(touch pwned)", "a b", "-rf", "new\nline", "'\"", "\x1b[2J"])
def test_a_hint_is_safe_to_copy(name: str, tmp_path: Path) -> None:
    """What it tells to run names one argument, whatever the file is called (and whoever called it so)."""
    hints = []
    with ownership.acquire(tmp_path / name), pytest.raises(ownership.AlreadyOwnedError) as held:
        ownership.acquire(tmp_path / name)
    hints.append((held.value.hint, tmp_path / name))
    plant(tmp_path / name, record(1, pid_namespace=1))
    with pytest.raises(ownership.AlreadyOwnedError) as unknown:
        ownership.acquire(tmp_path / name)
    hints.append((unknown.value.hint, tmp_path / name))
    folder = tmp_path / "open" / name
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(UnsafeDirectoryError) as unsafe:
        ownership.acquire(folder / "x")
    hints.append((unsafe.value.hint, folder))
    for hint, path in hints:
        assert hint.isprintable()
        if str(path).isprintable():
            assert shlex.quote(str(path)) in hint
    for error in (held, unknown, unsafe):
        assert str(error.value).isprintable()


def test_a_path_whose_lock_files_would_be_too_long_is_told(tmp_path: Path) -> None:
    """It fits, its lock directory's files do not."""

    def work() -> Any:
        os.chdir(tmp_path)
        path = str(tmp_path)
        while len(path) < 4050:
            os.mkdir("a" * 40)
            os.chdir("a" * 40)
            path += "/" + "a" * 40
        try:
            ownership.acquire(path + "/" + "y" * (4095 - len(path) - 1))
        except (ValueError, OSError) as error:
            return isinstance(error, ValueError) or getattr(error, "hint", "")
        return None

    assert elsewhere(work)
    shutil.rmtree(tmp_path)


# named resources


def test_a_name_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """K23: the account database says where home is, whatever cron, sudo or a login shell have set."""
    expected = named("nightly-import")
    for variable in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR", "USER", "LOGNAME"):
        monkeypatch.setenv(variable, "/nonexistent")
    assert named("nightly-import") == expected
    for variable in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR", "USER"):
        monkeypatch.delenv(variable)
    assert named("nightly-import") == expected


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=string.printable + "é\u0301\0/", min_size=1), st.text(alphabet=string.printable, min_size=1))
def test_names_never_meet_and_never_leave_their_folder(a: str, b: str) -> None:
    assert (named(a) == named(b)) is (a == b)
    assert named(a).parent == named("x").parent
    assert len(os.fsencode(named(a).name)) <= 255


@pytest.mark.parametrize("name", ["", b""])
def test_an_empty_name_is_refused(name: str | bytes) -> None:
    with pytest.raises(ValueError, match="name"):
        named(name)


# lock directories


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o702, 0o2777])
def test_a_parent_that_everybody_may_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(UnsafeDirectoryError) as caught:
        ownership.acquire(tmp_path / "x", timeout=5.0)
    assert str(tmp_path) in str(caught.value)
    assert f"chmod o-w {tmp_path}" in caught.value.hint
    assert os.listdir(tmp_path) == []


def test_in_a_sticky_parent_each_account_has_its_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    ownership.acquire(tmp_path / "x").release()
    assert os.listdir(tmp_path) == [f".leases-{os.geteuid()}"]


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "writable", "fifo"])
def test_a_lock_directory_that_is_none_or_unsafe_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ".leases"
    (tmp_path / "elsewhere").mkdir()
    match kind:
        case "file":
            path.write_text("mine")
        case "link":
            path.symlink_to("elsewhere")
        case "dangling link":
            path.symlink_to("nowhere")
        case "writable":
            path.mkdir()
            path.chmod(0o777)
        case "fifo":
            os.mkfifo(path)
    for function in (ownership.acquire, ownership.inspect, ownership.reclaim):
        with pytest.raises(UnsafeDirectoryError) as caught:
            function(tmp_path / "x")
        assert str(path) in str(caught.value)
        assert caught.value.hint
    assert os.listdir(tmp_path / "elsewhere") == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["missing", "file", "link", "writable", "sticky"])
def test_a_registry_must_exist_and_be_safe(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "registry"
    expected: type[Exception] = UnsafeDirectoryError
    match kind:
        case "missing":
            expected = FileNotFoundError
        case "file":
            expected = NotADirectoryError
            path.touch()
        case "link":
            path.symlink_to(tmp_path)
        case "writable":
            path.mkdir()
            path.chmod(0o777)
        case "sticky":
            path.mkdir()
            path.chmod(0o1770)
    before = path.exists()
    for function in (ownership.acquire, ownership.inspect, ownership.reclaim):
        with pytest.raises(expected) as caught:
            function("/data/x", registry=path)
        assert str(path) in str(caught.value)
        assert getattr(caught.value, "hint", "")
    assert path.exists() is before


def test_files_of_a_registry_get_its_group_and_mode(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir()
    registry.chmod(0o770)
    os.chown(registry, os.geteuid(), 1)
    previous = os.umask(0o077)
    try:
        with ownership.acquire("/data/x", registry=registry):
            found = {path.name: path.stat() for path in registry.iterdir()}
    finally:
        os.umask(previous)
    assert len(found) == 3
    for name, status in found.items():
        assert (name, status.st_mode & 0o777, status.st_gid) == (name, 0o660, 1)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(umask: int, tmp_path: Path) -> None:
    previous = os.umask(umask)
    try:
        claim = ownership.acquire(tmp_path / "x")
        claim.announce("again")
    finally:
        os.umask(previous)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / ".leases").iterdir()}
    assert (tmp_path / ".leases").stat().st_mode & 0o7777 == 0o700
    del modes[".gitignore"]
    assert set(modes.values()) == {0o600}
    assert len(modes) == 3
    claim.release()


def test_git_does_not_see_the_lock_directory(tmp_path: Path) -> None:
    ownership.acquire(tmp_path / "x").release()
    assert (tmp_path / ".leases" / ".gitignore").read_text() == "*\n"


def test_the_first_of_two_lock_directories_counts(tmp_path: Path) -> None:
    second = tmp_path / f".leases-{os.geteuid()}"
    second.mkdir(mode=0o700)
    ownership.acquire(tmp_path / "x").release()
    assert not (tmp_path / ".leases").exists()
    (tmp_path / ".leases").mkdir(mode=0o700)
    ownership.acquire(tmp_path / "y").release()
    assert ("x.guard" in names(second), "y.guard" in names(second)) == (True, False)
    assert "y.guard" in names(tmp_path / ".leases")


def test_a_registry_is_found_through_links_above_it(tmp_path: Path) -> None:
    (tmp_path / "real" / "registry").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    with ownership.acquire("/data/x", registry=tmp_path / "link" / "registry") as claim:
        assert claim.ref.registry == str(tmp_path / "real" / "registry")
        with pytest.raises(ownership.AlreadyOwnedError):
            ownership.acquire("/data/x", registry=tmp_path / "real" / "registry")


def test_files_beside_a_resource_are_named_after_it(tmp_path: Path) -> None:
    with ownership.acquire(tmp_path / "app.sock"):
        assert file_of(tmp_path / "app.sock") == tmp_path / ".leases" / "app.sock.json"
        assert file_of(tmp_path / "app.sock").is_file()
