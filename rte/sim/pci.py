"""PCI devices of made-up machines: GPUs and NICs, spread over the PCIe roots of each zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class SimulatedFunction(NamedTuple):
    """A PCI function below one bridge of a root; ids are those that its files tell."""

    bridge: str
    address: str
    pci_class: str
    vendor: str
    device: str
    zone: int

    @property
    def root(self) -> str:
        """``pci0000:10``."""
        return f"pci{self.bridge.rpartition(':')[0]}"


def functions(zones: int, gpus: int, nics: int) -> Iterator[SimulatedFunction]:
    """``gpus`` and ``nics`` of each zone, in turn below its roots (one a NIC)."""
    roots = max(1, nics)
    for zone in range(zones):
        for kind, count in (("gpu", gpus), ("nic", nics)):
            for number in range(count):
                bus = 0x10 + 0x10 * (zone * roots + number % roots) % 0xF0
                slot = number // roots + (0 if kind == "gpu" else 0x10)
                pci_class, vendor, device = (
                    ("0x030200", "0x10de", "0x2330")
                    if kind == "gpu"
                    else ("0x020000", "0x15b3", "0x1021")
                )
                address = f"0000:{bus + 1:02x}:{slot:02x}.0"
                yield SimulatedFunction(
                    f"0000:{bus:02x}:01.0", address, pci_class, vendor, device, zone
                )
