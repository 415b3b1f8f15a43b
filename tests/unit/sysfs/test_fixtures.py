"""Every committed machine reads as the parameters that it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rte.sysfs import document, read_machine

ROOT = Path(__file__).parents[3] / "fixtures" / "sysfs"
NAMES = sorted(path.name for path in ROOT.iterdir())


def read(fixture: Path) -> document.Document:
    found = document.build_document(read_machine(fixture / "sys", fixture / "proc"))
    # How a complaint is worded is not part of the promise; which file it names is.
    found["warnings"] = sorted({line.split(": ")[0].split(" (")[0] for line in found["warnings"]})
    return found


def test_there_are_shapes_enough() -> None:
    assert len(NAMES) >= 16


@pytest.mark.parametrize("name", NAMES)
def test_machine_reads_as_expected(name: str) -> None:
    wanted = json.loads((ROOT / name / "expected.json").read_text())
    assert wanted.pop("about")
    found = read(ROOT / name)
    for key in wanted:
        assert found[key] == wanted[key], key
    assert found == wanted


@pytest.mark.parametrize("name", NAMES)
def test_online_cpus_are_partitioned_by_the_zones(name: str) -> None:
    machine = read_machine(ROOT / name / "sys", ROOT / name / "proc")
    seen = 0
    for zone in machine.zones:
        assert not zone.cpus & seen
        seen |= zone.cpus
    assert seen == machine.online
