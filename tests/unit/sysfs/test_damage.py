"""Damaged trees: the next best source, never a traceback, never a wrong zone."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rte import errors
from rte.model import bits, machine
from rte.sysfs import read_machine
from tests import machines
from tests.machines import GIB, MIB, Shape

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = {
    "snc": Shape(
        sockets=2,
        zones=2,
        cores=2,
        threads=2,
        memory=(4 * GIB,),
        pools={2 * MIB: (64, 0, 32), GIB: (0,)},
        memory_only={9: GIB},
        l3_cores=1,
        die_zones=1,
    ),
    "old": Shape(sockets=2, cores=3, threads=2, old=True, l3_ids=False, zone_ids=(0, 4)),
    "books": Shape(sockets=4, cores=2, books=2, offline=(3,)),
}
DAMAGES = ("delete", "empty", "garbage", "cut", "directory", "dangling", "loop", "fifo", "binary")


def damage(path: Path, kind: str, text: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    content = b"" if path.is_symlink() else path.read_bytes()
    path.unlink()
    match kind:
        case "empty":
            path.touch()
        case "garbage":
            path.write_text(text, encoding="utf-8")
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "directory":
            path.mkdir()
        case "dangling":
            path.symlink_to("/nowhere/at/all")
        case "loop":
            path.symlink_to(path.name)
        case "fifo":
            os.mkfifo(path)
        case "binary":
            path.write_bytes(b"\x00\xff\xfe" * 700)


@pytest.fixture(scope="module", params=sorted(SHAPES))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(request.param)
    machines.generate(SHAPES[request.param], root)
    return root


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damaged_tree_gives_no_traceback_and_no_wrong_zone(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shape = SHAPES[whole.name.rstrip("0123456789")]
    truth = {row["id"]: row for row in machines.build_rows(shape)}
    root = tmp_path_factory.mktemp("damaged") / "root"
    shutil.copytree(whole, root, symlinks=True)
    # The directory of all zones is not taken away: what is left then is a machine without NUMA.
    paths = sorted(
        str(p.relative_to(root)) for p in root.rglob("*") if p.name not in {"node", "system"}
    )
    chosen = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=30, unique=True))
    lists_hurt = set()
    for name in chosen:
        kind = data.draw(st.sampled_from(DAMAGES))
        text = data.draw(st.text(max_size=40))
        path = root / name
        if os.path.lexists(path):
            if name.rpartition("/")[2] in {"cpulist", "cpumap"} or path.name.startswith("node"):
                lists_hurt.add(name)
            damage(path, kind, text)
    try:
        found = read_machine(root / "sys", root / "proc")
    except errors.SysfsError:
        return
    finally:
        shutil.rmtree(root.parent)
    check_consistent(found)
    for cpu in found.cpus:
        if cpu.id in truth and not any(z.id == 0 and len(found.zones) == 1 for z in found.zones):
            assert cpu.zone in {truth[cpu.id]["zone"], -1}, (cpu, chosen)
            if cpu.online and not lists_hurt:
                assert cpu.zone == truth[cpu.id]["zone"]


def check_consistent(found: machine.Machine) -> None:
    """What accounting builds upon, whatever the files say."""
    assert found.cpus
    assert [cpu.id for cpu in found.cpus] == sorted({cpu.id for cpu in found.cpus})
    assert [zone.id for zone in found.zones] == sorted({zone.id for zone in found.zones})
    by_id = {cpu.id: cpu for cpu in found.cpus}
    for zone in found.zones:
        assert zone.cpus == bits.of(c.id for c in found.cpus if c.online and c.zone == zone.id)
        assert zone.distances[zone.id] == 10
        assert zone.memory_bytes >= 0
        assert all(count >= 0 for count in zone.hugepages.values())
    for cpu in found.cpus:
        assert cpu.siblings >> cpu.id & 1
        for mate in bits.members(cpu.siblings):
            assert by_id[mate].siblings == cpu.siblings
        if cpu.online:
            assert not cpu.siblings & ~found.online
    for device in found.pci:
        assert device.zone is None or device.zone in found.zone_by_id
