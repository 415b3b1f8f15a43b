"""PCI devices: zone and path from whatever the dump holds."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from rte.sysfs import read_machine
from tests import fixture_machines, machines

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.machine import PCIDevice

BUS = "sys/bus/pci/devices"
GPU = "0000:93:00.0"
PATH = ("0000:90:01.0", "0000:91:00.0", "0000:92:00.0")
PLACE = "/".join(["sys/devices/pci0000:90", *PATH, GPU])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    machines.generate(fixture_machines.FIXTURES["32-2s-gpus"].shape, tmp_path)
    return tmp_path


def devices(root: Path) -> dict[str, PCIDevice]:
    return {d.address: d for d in read_machine(root / "sys", root / "proc").pci}


def test_without_the_bus_directory_the_device_tree_tells_the_same(root: Path) -> None:
    whole = devices(root)
    shutil.rmtree(root / BUS)
    assert devices(root) == whole


def test_a_dump_that_copied_the_links_finds_paths_in_the_device_tree(root: Path) -> None:
    whole = devices(root)
    entry = root / BUS / GPU
    entry.unlink()
    shutil.copytree(root / PLACE, entry, symlinks=True)
    assert devices(root) == whole


def test_absolute_links_stay_in_the_root(root: Path) -> None:
    whole = devices(root)
    entry = root / BUS / GPU
    entry.unlink()
    entry.symlink_to("/" + PLACE)
    assert devices(root) == whole


def test_dangling_links_leave_a_warning_and_the_other_devices(root: Path) -> None:
    whole = devices(root)
    shutil.rmtree(root / PLACE)
    assert devices(root) == {a: d for a, d in whole.items() if a != GPU}
    machine = read_machine(root / "sys", root / "proc")
    assert [line for line in machine.warnings if GPU in line]


def test_a_device_that_does_not_tell_its_zone_has_that_of_the_bridge_above(root: Path) -> None:
    (root / PLACE / "numa_node").unlink()
    assert devices(root)[GPU].zone == 1


@pytest.mark.parametrize(
    ("file", "content"), [("local_cpulist", "8-15,24-31\n"), ("local_cpus", "ff00ff00\n")]
)
def test_old_kernels_tell_the_zone_by_its_cpus(root: Path, file: str, content: str) -> None:
    for place in (root / PLACE, *(root / PLACE).parents):
        (place / "numa_node").unlink(missing_ok=True)
    (root / PLACE / file).write_text(content)
    assert devices(root)[GPU].zone == 1


def test_a_zone_that_is_not_there_is_unknown(root: Path) -> None:
    (root / PLACE / "numa_node").write_text("7\n")
    assert devices(root)[GPU].zone is None


def test_a_device_without_a_class_is_left_out_with_a_warning(root: Path) -> None:
    (root / PLACE / "class").write_text("garbage")
    assert GPU not in devices(root)
    machine = read_machine(root / "sys", root / "proc")
    assert any(GPU in line for line in machine.warnings)


def test_devices_below_one_switch_share_two_bridges(root: Path) -> None:
    found = devices(root)
    assert found[GPU].path == PATH
    assert found["0000:94:00.0"].path[:2] == PATH[:2]
    assert found["0000:a3:00.0"].path[:2] != PATH[:2]


def test_an_interface_behind_virtio_is_found(root: Path) -> None:
    place = root / PLACE
    (place / "class").write_text("0x020000\n")
    net = place / "virtio3/net/eth7"
    net.mkdir(parents=True)
    (net / "address").write_text("02:00:00:00:00:07\n")
    (net / "speed").write_text("-1\n")
    assert dict(devices(root)[GPU].details) == {
        "driver": "nvidia",
        "interface": "eth7",
        "mac": "02:00:00:00:00:07",
    }


@pytest.mark.parametrize("speed", ["", "-1", "0", "65535", "4294967295", "\u00b2"])
def test_a_speed_that_is_none_is_left_out(root: Path, speed: str) -> None:
    nic = next(d for d in devices(root).values() if "speed_mbps" in d.details)
    for path in root.glob(f"{BUS}/{nic.address}/net/*/speed"):
        path.write_text(f"{speed}\n", encoding="utf-8")
    assert "speed_mbps" not in devices(root)[nic.address].details
