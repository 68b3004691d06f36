"""Start ids: what two of them say about each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership._process._startid import (
    Comparison,
    LinuxStartId,
    compare_start_ids,
    parse_linux_start_id,
    psutil_start_id,
)

BOOT = "170e1111-2222-4333-8444-555566667777"
OTHER_BOOT = "270e1111-2222-4333-8444-555566667777"
SAME, DIFFERENT, UNKNOWN = Comparison.SAME, Comparison.DIFFERENT, Comparison.UNKNOWN

ids = st.builds(
    LinuxStartId,
    boot_id=st.sampled_from([None, BOOT, OTHER_BOOT]),
    ticks=st.none() | st.integers(0, 3),
    time_namespace=st.sampled_from([None, "none", 4026531834, 4026532000]),
    inode=st.none() | st.integers(0, 3),
)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (f"linux:{BOOT}:5:7:9", f"linux:{BOOT}:5:7:9", SAME),
        (f"linux:{BOOT}:5:7:9", f"linux:{BOOT}:6:8:9", SAME),
        (f"linux:{BOOT}:5:7:9", f"linux:{BOOT}:5:7:10", DIFFERENT),
        (f"linux:{BOOT}:5:7:9", f"linux:{BOOT}:::9", SAME),
        (f"linux:{BOOT}:5:7:9", f"linux:{BOOT}:::10", DIFFERENT),
        (f"linux:{BOOT}:5:7:", f"linux:{BOOT}:5:7:9", SAME),
        (f"linux:{BOOT}:5:7:", f"linux:{BOOT}:6:7:9", DIFFERENT),
        (f"linux:{BOOT}:5:none:", f"linux:{BOOT}:5:none:", SAME),
        (f"linux:{BOOT}:5:none:", f"linux:{BOOT}:6:none:", DIFFERENT),
        (f"linux:{BOOT}:5:7:", f"linux:{BOOT}:6:8:", UNKNOWN),
        (f"linux:{BOOT}:5:7:", f"linux:{BOOT}:5:8:", UNKNOWN),
        (f"linux:{BOOT}:5::", f"linux:{BOOT}:6::", UNKNOWN),
        (f"linux:{BOOT}:5:7:", f"linux:{BOOT}:::9", UNKNOWN),
        (f"linux:{BOOT}:::", f"linux:{BOOT}:::", UNKNOWN),
        (f"linux:{BOOT}:5:7:9", f"linux:{OTHER_BOOT}:5:7:9", UNKNOWN),
        (f"linux:{BOOT}:5:7:9", f"linux:{OTHER_BOOT}:5:7:10", UNKNOWN),
        ("linux::5:7:9", "linux::5:7:9", UNKNOWN),
        (f"linux:{BOOT}:5:7:9", "linux::5:7:9", UNKNOWN),
        (f"linux:{BOOT}:5:7:9", "psutil:5.0", UNKNOWN),
        ("psutil:1764430000.25", "psutil:1764430000.25", SAME),
        ("psutil:1764430000.25", "psutil:1764430000.26", DIFFERENT),
        ("psutil:0.0", "psutil:0.0", UNKNOWN),
        ("psutil:nan", "psutil:nan", UNKNOWN),
        ("psutil:inf", "psutil:inf", UNKNOWN),
        ("psutil:soon", "psutil:soon", UNKNOWN),
        ("", "", UNKNOWN),
        ("other:1", "other:1", UNKNOWN),
        ("linux", "linux", UNKNOWN),
        (f"linux:{BOOT}:5:7:9:1", f"linux:{BOOT}:5:7:9:1", UNKNOWN),
        (f"linux:{BOOT}:five:7:9", f"linux:{BOOT}:five:7:9", UNKNOWN),
        (f"linux:{BOOT}:5:x:9", f"linux:{BOOT}:5:x:9", UNKNOWN),
        (f"linux:{BOOT}:-5:7:9", f"linux:{BOOT}:-5:7:9", UNKNOWN),
        (f"linux:{BOOT}:٥:7:9", f"linux:{BOOT}:٥:7:9", UNKNOWN),
    ],
)
def test_two_start_ids_are_same_different_or_unknown(a: str, b: str, expected: Comparison) -> None:
    """Boot ids first, then the inodes alone, then the ticks within one time namespace, else unknown."""
    assert compare_start_ids(a, b) is expected
    assert compare_start_ids(b, a) is expected


def test_a_number_too_long_to_be_one_is_unknown_and_not_an_error() -> None:
    huge = "9" * 5000
    assert compare_start_ids(f"linux:{BOOT}:{huge}:7:{huge}", f"linux:{BOOT}:5:7:9") is UNKNOWN


@given(ids)
def test_a_linux_start_id_survives_being_written_and_read(start_id: LinuxStartId) -> None:
    assert parse_linux_start_id(str(start_id)) == start_id


@given(ids, ids)
def test_the_order_of_two_start_ids_does_not_matter(a: LinuxStartId, b: LinuxStartId) -> None:
    assert compare_start_ids(str(a), str(b)) is compare_start_ids(str(b), str(a))


@given(ids)
def test_a_start_id_is_never_different_from_itself(start_id: LinuxStartId) -> None:
    assert compare_start_ids(str(start_id), str(start_id)) is not DIFFERENT


@given(ids, st.sampled_from(["boot_id", "ticks", "time_namespace", "inode"]))
def test_forgetting_a_part_never_makes_one_process_two(start_id: LinuxStartId, forgotten: str) -> None:
    """A reader who sees less of the same process must not take it for another one."""
    less = start_id._replace(**{forgotten: None})
    assert compare_start_ids(str(start_id), str(less)) is not DIFFERENT


@given(st.text(), st.text())
def test_text_that_is_no_start_id_is_unknown_and_never_an_error(a: str, b: str) -> None:
    assert compare_start_ids(a, b) is UNKNOWN
    assert compare_start_ids(f"linux:{a}", f"linux:{b}") in Comparison
    assert compare_start_ids(f"psutil:{a}", f"psutil:{b}") in Comparison


@given(st.floats(min_value=1.0, max_value=1e12))
def test_a_creation_time_is_kept_to_the_last_bit(seconds: float) -> None:
    assert float(psutil_start_id(seconds).partition(":")[2]) == seconds
    assert compare_start_ids(psutil_start_id(seconds), psutil_start_id(seconds)) is SAME
