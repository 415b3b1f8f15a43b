"""Damaged trees: the next best source, never a traceback, never a wrong zone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rte import errors
from rte.model import bits, machine
from rte.sysfs import read_machine
from tests import machines
from tests.depth import scaled
from tests.machines import GIB, MIB, Shape

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
    "modules": Shape(sockets=2, zones=2, cores=2, modules=True, l3_ids=False),
}
DAMAGES = ("delete", "empty", "garbage", "cut", "directory", "dangling", "loop", "fifo", "binary")


class Damage:
    """Hurts files of a tree and heals them again: far cheaper than a copy for each example."""

    def __init__(self, aside: Path) -> None:
        self._aside = aside
        self._moved: list[tuple[Path, Path]] = []

    def hurt(self, path: Path, kind: str, text: str) -> None:
        if not os.path.lexists(path):
            return
        kept = self._aside / str(len(self._moved))
        was_file = path.is_file() and not path.is_symlink()
        content = path.read_bytes() if was_file else b""
        is_directory = path.is_dir() and not path.is_symlink()
        path.rename(kept)
        self._moved.append((path, kept))
        if is_directory:
            return
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

    def heal(self) -> None:
        for path, kept in reversed(self._moved):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
            kept.rename(path)


@pytest.fixture(scope="module", params=sorted(SHAPES))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(request.param)
    machines.generate(SHAPES[request.param], root)
    return root


@pytest.fixture(scope="module")
def paths(whole: Path) -> list[str]:
    # The directory of all zones is not taken away: what is left then is a machine without NUMA.
    found = (p for p in whole.rglob("*") if p.name not in {"node", "system", "devices", "sys"})
    return sorted(str(path.relative_to(whole)) for path in found)


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_tree_gives_no_traceback_and_no_wrong_zone(
    whole: Path,
    paths: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    shape = SHAPES[whole.name.rstrip("0123456789")]
    truth = {row["id"]: row["zone"] for row in machines.build_rows(shape)}
    chosen = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=30, unique=True))
    kinds = data.draw(st.lists(st.sampled_from(DAMAGES), min_size=30, max_size=30))
    texts = data.draw(st.lists(st.text(max_size=20), min_size=30, max_size=30))
    damage = Damage(tmp_path_factory.mktemp("aside"))
    try:
        for name, kind, text in zip(chosen, kinds, texts, strict=False):
            damage.hurt(whole / name, kind, text)
        found = read_machine(whole / "sys", whole / "proc")
    except errors.SysfsError:
        return
    finally:
        damage.heal()
    check_consistent(found)
    if any(line.startswith("devices/system/node: missing") for line in found.warnings):
        return  # nothing of zones is left: that is a machine without NUMA
    zone_files_hurt = any("/node/" in name or "/node" in Path(name).name for name in chosen)
    for cpu in found.cpus:
        if cpu.id in truth:
            assert cpu.zone in {truth[cpu.id], -1}
            if cpu.online and not zone_files_hurt:
                assert cpu.zone == truth[cpu.id]


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
        assert device.zone is None or device.zone in {zone.id for zone in found.zones}
