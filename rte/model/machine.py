"""The hardware of a node as sysfs and procfs describe it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from rte.model.bits import CPUSet

if TYPE_CHECKING:
    from collections.abc import Mapping


class CPU(Struct, frozen=True):
    """One logical CPU. Ids are the kernel's; they may have holes and are unique only where said.

    Attributes:
        id: logical CPU number, unique.
        core: ``core_id``, unique within (zone, socket, die).
        die: ``die_id``.
        socket: ``physical_package_id``, or a number of ours where those repeat or are not told.
        zone: NUMA zone.
        l3: id of the level-3 cache group (unique over the machine), None where sysfs tells none.
        siblings: CPUs of the same core, itself included; only itself where SMT is off.
        online: False for a CPU that is present but off-line (its other ids may be unknown: -1).
        kind: ``performance``, ``efficiency`` or ``low-power`` on hybrid machines, else ``""``.
        core_id: what the kernel says, if that is not ``core``; it may repeat within a socket.
        package_id: what the kernel says, if that is not ``socket``; it may be -1 (not told) or
            repeat. cAdvisor, thus the kubelet, goes by these two.
    """

    id: int
    core: int
    die: int
    socket: int
    zone: int
    l3: int | None = None
    siblings: CPUSet = 0
    online: bool = True
    kind: str = ""
    core_id: int | None = None
    package_id: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Zone:
    """One NUMA zone (every one that is on-line, with or without CPUs or memory).

    Attributes:
        id: the kernel's node number; may have holes.
        cpus: on-line CPUs.
        memory_bytes: MemTotal of the zone, huge pages included.
        hugepages: page size in bytes -> number of pages in the pool.
        free_hugepages: how many of them nobody uses at the moment; two readings that differ in
            nothing else are equal.
        distances: zone id -> ACPI SLIT distance (10 = local).
    """

    id: int
    cpus: CPUSet
    memory_bytes: int
    hugepages: Mapping[int, int] = field(default_factory=dict)
    free_hugepages: Mapping[int, int] = field(default_factory=dict, compare=False)
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """A network interface of a PCI function; one function may have several.

    Attributes:
        mbps: speed, None while the link is down or where the driver does not tell.
        link: ``operstate``, ``""`` where it is not told.
        port: ``dev_port``: which port of the function it is.
        port_name: ``phys_port_name``, e.g. ``p0`` or ``pf0vf3``.
        bond: the bond that it belongs to.
    """

    name: str
    mac: str = ""
    mbps: int | None = None
    link: str = ""
    port: int | None = None
    port_name: str = ""
    bond: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PCIDevice:
    """A PCI function that matters to placement: GPU, NIC or NVMe drive.

    Attributes:
        address: domain:bus:device.function.
        kind: ``gpu``, ``nic`` or ``nvme``.
        vendor: vendor id, e.g. ``0x10de``.
        device: device id.
        zone: NUMA zone, None where the platform does not say (-1).
        path: addresses of the bridges above it, root port first; devices under one switch share a
            prefix of length two or more.
        details: where known, as text: ``driver``; of a NIC its first interface (``interface``,
            ``mac``, ``speed_mbps``, ``link``), ``pf`` and ``vf`` (its number) of a VF, ``vfs`` of a
            PF; of a GPU ``model``, ``uuid``, ``memory_bytes``, ``index``, ``health``.
        interfaces: all network interfaces, by name.
        rdma: all RDMA devices.
    """

    address: str
    kind: str
    vendor: str
    device: str
    zone: int | None
    path: tuple[str, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)
    interfaces: tuple[Interface, ...] = ()
    rdma: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PCIZones:
    """Which zone a PCI function is in, for every function of the machine, told in few words.

    Attributes:
        roots: root, as DRA drivers name it in ``pcieRoot`` (``pci0000:17``) -> zone of all its
            functions whose zone is known; None where they have several, or none is known.
        functions: address -> zone of the functions that their root does not tell.
    """

    roots: Mapping[str, int | None] = field(default_factory=dict)
    functions: Mapping[str, int] = field(default_factory=dict)

    def of_root(self, root: str) -> int | None:
        """The zone of a root, None where it is not known or not one."""
        return self.roots.get(root)

    def of_function(self, address: str) -> int | None:
        """The zone of a function (``0000:17:00.0``), None where it is not known."""
        if address in self.functions:
            return self.functions[address]
        root = self.root_of(address)
        return None if root is None else self.roots[root]

    def root_of(self, address: str) -> str | None:
        """The root of a function, None where it is not known.

        The buses of a root go on from its own number to the next root's.
        """
        domain, _, rest = address.partition(":")
        bus = rest.partition(":")[0]
        above = [root for root in self.roots if root[3:-3] == domain and root[-2:] <= bus]
        return max(above) if bus and above else None


@dataclass(frozen=True, kw_only=True)
class CPUBasics:
    """What Koordinator compares nodes by; not known: ``unknown``, False, empty.

    Attributes:
        name, vendor: the lines ``model name`` and ``vendor_id`` of /proc/cpuinfo.
        turbo: Intel's is there and not switched off.
        l3_ways: mask of the ways of an L3 cache, where resctrl is mounted.
    """

    name: str = "unknown"
    vendor: str = "unknown"
    turbo: bool = False
    l3_ways: str = ""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """All that the agent knows of the hardware. ``cpus`` and ``zones`` ascend by id.

    Attributes:
        sockets: how many the platform reports (cadvisor counts the different ``physical id`` lines
            of /proc/cpuinfo, which on simulated hardware are the real machine's); 0 = count them.
        l3_ids_told: whether the kernel gives L3 caches ids; else ``CPU.l3`` are numbers of ours.
        isolated, nohz_full: CPUs that the kernel keeps free of its scheduler, and of its tick.
        l3_bytes: L3 group (``CPU.l3``) -> its size, where the kernel tells it.
        core_caches: kind of core (``CPU.kind``) -> name (``L1d``, ``L1i``, ``L2``) -> bytes of the
            caches below L3, by its first core; both are shown, nothing is placed by them.
        cpu_arch: the microarchitecture by the compilers' name (``icelake``), ``""`` if not known.
        basics: of the CPUs, in Koordinator's words.
        pci_zones: zones of all PCI functions, those too that ``pci`` leaves out.
        warnings: one line for each file that was missing or unreadable and what stood in for it.
    """

    cpus: tuple[CPU, ...]
    zones: tuple[Zone, ...]
    memory_bytes: int = 0
    sockets: int = 0
    l3_ids_told: bool = True
    l3_bytes: Mapping[int, int] = field(default_factory=dict, compare=False)
    core_caches: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False)
    pci: tuple[PCIDevice, ...] = ()
    pci_zones: PCIZones = PCIZones()
    vendor: str = ""
    model: str = ""
    cpu_arch: str = ""
    basics: CPUBasics = CPUBasics()
    isolated: CPUSet = 0
    nohz_full: CPUSet = 0
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def online(self) -> CPUSet:
        """All on-line CPUs."""
        mask = 0
        for cpu in self.cpus:
            if cpu.online:
                mask |= 1 << cpu.id
        return mask
