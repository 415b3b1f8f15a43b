"""Every committed machine reads as the parameters that it was made from."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rte.model import bits
from rte.sysfs import document, read_machine
from tests import fixture_machines, machines
from tests.depth import scaled
from tests.machines import GIB, MIB, Shape

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
def test_online_cpus_of_a_zone_are_partitioned_by_the_zones(name: str) -> None:
    machine = read_machine(ROOT / name / "sys", ROOT / name / "proc")
    seen = 0
    for zone in machine.zones:
        assert not zone.cpus & seen
        seen |= zone.cpus
    assert seen == bits.of(cpu.id for cpu in machine.cpus if cpu.online and cpu.zone >= 0)


def contents(root: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(root)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_every_committed_machine_has_a_recipe() -> None:
    assert sorted(fixture_machines.FIXTURES) == NAMES


# The same writer makes the large ones; comparing their thousands of files takes seconds.
@pytest.mark.parametrize("name", [name for name in NAMES if int(name.split("-")[0]) <= 64])
def test_committed_machine_is_what_its_recipe_writes(name: str, tmp_path: Path) -> None:
    fixture_machines.write(fixture_machines.FIXTURES[name], tmp_path / name)
    assert contents(tmp_path / name) == contents(ROOT / name)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    sockets = draw(st.integers(1, 3))
    zones = draw(st.integers(1, 3))
    cores = draw(st.integers(1, 3))
    threads = draw(st.sampled_from([1, 2, 4]))
    n_zones, n_cpus = sockets * zones, sockets * zones * cores * threads
    ids = draw(st.sets(st.integers(0, 40), min_size=n_zones, max_size=n_zones))
    others = draw(st.sets(st.integers(41, 60), max_size=3))
    stride = draw(st.integers(1, 3))
    memory = st.integers(1, 64).map(lambda gib: gib * GIB)
    counts = st.lists(st.integers(0, 64), min_size=1, max_size=4).map(tuple)
    return Shape(
        sockets=sockets,
        zones=zones,
        cores=cores,
        threads=threads,
        zone_ids=tuple(sorted(ids)),
        memory=tuple(draw(st.lists(memory, min_size=1, max_size=n_zones))),
        pools=draw(st.dictionaries(st.sampled_from([64 << 10, 2 * MIB, GIB]), counts)),
        memory_only={zone: draw(memory) for zone in sorted(others)},
        empty_zones=draw(st.sampled_from([(), (70,)])),
        adjacent=draw(st.booleans()),
        l3_cores=draw(st.sampled_from([None, 1, cores])),
        die_zones=draw(st.sampled_from([0, 1])) if zones > 1 else 0,
        cpu_stride=stride,
        # CPU 0 stays on-line, as it does on most machines.
        offline=tuple(
            cpu * stride for cpu in sorted(draw(st.sets(st.integers(1, n_cpus), max_size=3)))
        ),
    )


@settings(max_examples=scaled(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes(), full=st.booleans())
def test_any_machine_reads_as_the_parameters_it_was_made_from(shape: Shape, full: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        machines.generate(shape, Path(name), full=full)
        found = read(Path(name))
    wanted = machines.expected(shape)
    del wanted["about"]
    assert found == wanted
