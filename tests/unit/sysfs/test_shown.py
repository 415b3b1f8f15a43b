"""What is read for people only: sizes of caches, names of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rte.model.machine import CPU
from rte.sysfs import caches, capture, pci_names, read_machine
from rte.sysfs.tree import Tree
from tests import machines
from tests.machines import Shape

if TYPE_CHECKING:
    from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
PCI_IDS = """\
# a comment
10de  NVIDIA Corporation
\t2330  GH100 [H100 SXM5 80GB]
\t\t10de 16c1  a subsystem, which is no device
\t20b2  GA100 [A100 SXM4 80GB]
1002  Advanced Micro Devices
\t2330  another maker's device of the same number
C 03  Display controller
\t00  VGA
"""


def test_sizes_are_those_of_each_group_and_of_the_first_core(tmp_path: Path) -> None:
    shape = Shape(sockets=2, cores=4, threads=2, l3_cores=2, cache_sizes=("48K", "2048K", "33M"))
    machines.generate(shape, tmp_path)
    machine = read_machine(tmp_path / "sys", tmp_path / "proc")
    assert machine.l3_bytes == dict.fromkeys(range(4), 33 * MIB)
    assert machine.core_caches == {"": {"L1d": 48 * KIB, "L1i": 48 * KIB, "L2": 2 * MIB}}


def test_a_capture_keeps_the_sizes(tmp_path: Path) -> None:
    machines.generate(Shape(cores=2, cache_sizes=("32K", "1M", "8M")), tmp_path / "machine")
    for entry in capture.capture(tmp_path / "machine/sys", tmp_path / "machine/proc"):
        path = tmp_path / "copy" / entry.path
        if entry.text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(entry.text)
    copy = read_machine(tmp_path / "copy/sys", tmp_path / "copy/proc")
    assert copy.l3_bytes == {0: 8 * MIB}
    assert copy.core_caches[""]["L2"] == MIB


@pytest.mark.parametrize(
    "size", ["", "32", "-1K", "99999999999K", "32K32K", "0K", "٣K", "x" * 9000]
)
def test_a_size_that_is_none_is_left_out(tmp_path: Path, size: str) -> None:
    index = tmp_path / "cpu0/cache/index3"
    index.mkdir(parents=True)
    (index / "level").write_text("3\n")
    (index / "size").write_text(size)
    cpu = CPU(id=0, core=0, die=0, socket=0, zone=0, l3=0, siblings=1)
    assert caches.read_caches(Tree(tmp_path, "/sys"), "", [cpu]) == ({}, {})


def test_names_come_from_the_first_list_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "pci.ids"
    path.write_text(PCI_IDS)
    wanted = [("0x10de", "0x2330"), ("0x1002", "0x2330"), ("0x10de", "0xffff"), ("0x03", "0x00")]
    assert pci_names.read_names(wanted, [tmp_path / "none", path]) == {
        ("0x10de", "0x2330"): "NVIDIA Corporation GH100 [H100 SXM5 80GB]",
        ("0x1002", "0x2330"): "Advanced Micro Devices another maker's device of the same number",
    }
    assert pci_names.read_names(wanted, [tmp_path / "none"]) == {}
    assert pci_names.read_names([], [path]) == {}
