"""Memory blocks of a zone go on and off line (DIMMs, virtio-mem, CXL): who is told what, and when.

A kubelet reads the machine at its start; what comes later is none of its memory until it starts
again (machine information of cadvisor, taken once in pkg/kubelet/kubelet.go).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from rte import accounting
from rte.accounting import zone_resources
from rte.agent import follow
from rte.agent.observer import messages
from rte.agent.observer.known import Scope
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import KubeletChange
from rte.model.kubelet import CPUManagerState, KubeletView
from rte.model.node import KubeletConfig
from rte.sysfs import read_machine
from tests.unit.agent.kubelets import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.machine import Machine
    from rte.model.node import NodeReading, NodeState

#: As x86 has it below 64 GiB of memory, times eight: ``block_size_bytes``.
BLOCK_KIB = 1 << 20


class Plugged:
    """The two zones of 32 GiB of a fixture, whose memory comes in blocks of 1 GiB."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        shutil.copytree(FIXTURES / "16-2s-hugepages/sys", self.sys, symlinks=True)
        shutil.copytree(FIXTURES / "16-2s-hugepages/proc", self.proc, symlinks=True)
        self.blocks = self.sys / "devices/system/memory"
        self.blocks.mkdir()
        (self.blocks / "block_size_bytes").write_text(f"{BLOCK_KIB << 10:x}\n")
        self.zones: dict[int, set[int]] = {0: set(range(32)), 1: set(range(32, 64))}
        for zone, numbers in self.zones.items():
            for number in numbers:
                self._make(zone, number)

    def _make(self, zone: int, number: int) -> None:
        block = self.blocks / f"memory{number}"
        block.mkdir()
        (block / "state").write_text("online\n")
        node = self.sys / f"devices/system/node/node{zone}"
        (node / block.name).symlink_to(f"../../memory/{block.name}")

    def off(self, number: int) -> None:
        """A block goes off line, as after ``echo offline > state``."""
        (self.blocks / f"memory{number}/state").write_text("offline\n")
        for zone, numbers in self.zones.items():
            numbers.discard(number)
            self._write(zone)

    def on(self, zone: int, number: int) -> None:
        """A block of that zone comes on line, of memory that may have been plugged in."""
        node = self.sys / f"devices/system/node/node{zone}"
        if zone not in self.zones:
            self._make_zone(node, zone)
        if not (self.blocks / f"memory{number}").exists():
            self._make(zone, number)
        (self.blocks / f"memory{number}/state").write_text("online\n")
        self.zones[zone].add(number)
        self._write(zone)

    def _make_zone(self, node: Path, zone: int) -> None:
        """A zone without CPUs, for memory that is further away."""
        node.mkdir()
        (node / "cpulist").write_text("\n")
        (node / "distance").write_text("20 20 10\n")
        for other, row in ((0, "10 20 20\n"), (1, "20 10 20\n")):
            (node.parent / f"node{other}/distance").write_text(row)
        (node.parent / "online").write_text(f"0-{zone}\n")
        self.zones[zone] = set()

    def _write(self, zone: int) -> None:
        kib = len(self.zones[zone]) * BLOCK_KIB
        text = f"Node {zone} MemTotal: {kib:>14} kB\nNode {zone} HugePages_Total:     0\n"
        (self.sys / f"devices/system/node/node{zone}/meminfo").write_text(text)
        total = sum(map(len, self.zones.values())) * BLOCK_KIB
        (self.proc / "meminfo").write_text(f"MemTotal: {total:>14} kB\n")

    def read(self) -> Machine:
        return read_machine(self.sys, self.proc)

    def shown(self) -> str:
        return follow.hardware(self.sys)


@pytest.fixture
def plugged(tmp_path: Path) -> Plugged:
    return Plugged(tmp_path)


def gib(reading: NodeReading) -> dict[int, tuple[int, int]]:
    """Zone -> GiB of memory that it has, and that it offers."""
    return {
        zone: (each["memory"].capacity >> 30, each["memory"].allocatable >> 30)
        for zone, each in zone_resources(reading).items()
    }


def test_blocks_that_come_and_go_are_noticed_and_nothing_else_is(plugged: Plugged) -> None:
    looks = [plugged.shown()]
    plugged.off(63)
    looks.append(plugged.shown())
    plugged.on(1, 63)
    looks.append(plugged.shown())
    plugged.on(2, 64)
    looks.append(plugged.shown())
    assert looks[0] != looks[1]
    assert looks[2] == looks[0]
    assert looks[3] not in looks[:3]
    assert plugged.shown() == looks[3]


def test_without_a_kubelet_the_report_follows_the_hardware(plugged: Plugged) -> None:
    observer = Observer(Scope(node_name="n0", kubelet=False, files=False, podresources=False))
    observer.handle(messages.MachineRead(plugged.read()), 0.0)
    assert observer.reading is not None
    assert gib(observer.reading) == {0: (32, 32), 1: (32, 32)}
    plugged.off(63)
    plugged.on(2, 64)
    observer.handle(messages.Noticed(KubeletChange.MACHINE, 1.0), 1.0)
    assert messages.ReadMachine() in observer.handle(messages.Tick(), 1.0)
    observer.handle(messages.MachineRead(plugged.read()), 1.1)
    assert gib(observer.reading) == {0: (32, 32), 1: (31, 31), 2: (1, 1)}


def look(plugged: Plugged, epoch: str, previous: NodeState | None = None) -> NodeReading:
    """What a kubelet with static CPUs has on this machine, in that start of it."""
    machine = plugged.read()
    view = KubeletView(
        config=KubeletConfig(cpu_policy="static", reserved_cpus=1),
        version="v1.37.0",
        epoch=epoch,
        cpu=CPUManagerState(policy="static", default=machine.online),
    )
    options = accounting.ReadingOptions(previous=previous)
    return accounting.build_reading("n0", machine, view, [], options)


def test_a_kubelet_goes_by_the_memory_of_its_start_until_it_starts_again(plugged: Plugged) -> None:
    before = look(plugged, "one")
    assert before.disagreements == ()
    plugged.on(1, 64)
    plugged.on(2, 65)
    after = look(plugged, "one", before.state)
    assert after.state == before.state
    assert gib(after)[1] == (32, 31)  # a half is huge pages
    assert gib(after)[2] == (1, 0)
    assert [line for line in after.disagreements if "zone 1 changed" in line]
    again = look(plugged, "two", after.state)
    assert again.disagreements == ()
    assert gib(again) == {0: (32, 26), 1: (33, 32), 2: (1, 1)}


def test_memory_that_has_gone_is_offered_until_the_kubelet_knows_as_the_kubelet_does(
    plugged: Plugged,
) -> None:
    before = look(plugged, "one")
    for number in range(48, 64):
        plugged.off(number)
    after = look(plugged, "one", before.state)
    assert gib(after)[1] == (32, 31)
    assert [line for line in after.disagreements if "restart it" in line]
    assert gib(look(plugged, "two", after.state))[1] == (16, 15)
