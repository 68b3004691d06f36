"""``leasectl schema``."""

from __future__ import annotations

from pathlib import Path

import ownership
from tests.support.cli import Leasectl


def test_the_schema_is_that_of_the_record(leasectl: Leasectl, tmp_path: Path) -> None:
    for options in ((), ("--json",), ("--registry", tmp_path)):
        said = leasectl("schema", *options)
        assert said.code == 0
        assert said.json == ownership.schema()
    assert set(said.json["properties"]) == set(ownership.OwnerRecord.model_fields)
