"""PCI functions that matter to placement: GPUs and accelerators, NICs, NVMe drives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rte.model import bits, machine
from rte.sysfs import cpus
from rte.sysfs.tree import parse, parse_int

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rte.sysfs.tree import Notes, Tree

#: The name of a PCI function: domain:bus:device.function.
ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
#: PCI class (base and sub-class, else base alone) -> kind. 12: processing accelerators.
_KINDS = {"03": "gpu", "12": "gpu", "02": "nic", "0108": "nvme"}
#: While the link is down the kernel answers an error or -1, once as a number of 16 or 32 bits.
_SPEEDS_UNKNOWN = {0xFFFF, 0xFFFFFFFF}
#: Where every PCI function has a link.
BUS = "bus/pci/devices"


def read_devices(
    sys: Tree, zones: Sequence[machine.Zone], notes: Notes
) -> tuple[machine.PCIDevice, ...]:
    """All GPUs, NICs and NVMe drives by address.

    From ``bus/pci/devices``, else from the ``devices/pci*`` trees. A device whose zone the platform
    does not tell (``numa_node`` -1 or missing, nothing told by the bridges above it) has zone None.
    """
    places = find_devices(sys, notes)
    members = {zone.cpus: zone.id for zone in zones if zone.cpus}
    known = {zone.id for zone in zones}
    devices = []
    for address, place in sorted(places.items()):
        kind = kind_of(sys, place)
        if kind is None:
            notes.add(f"{BUS}/*/class", "missing or unreadable; device left out", address)
        if not kind:
            continue
        zone = zone_of(sys, place, members)
        if zone is not None and zone not in known:
            notes.add(f"{BUS}/*/numa_node", "names a zone that is not there; zone unknown", address)
            zone = None
        devices.append(
            machine.PCIDevice(
                address=address,
                kind=kind,
                vendor=_id(sys, place, "vendor"),
                device=_id(sys, place, "device"),
                zone=zone,
                path=tuple(part for part in place.split("/")[:-1] if ADDRESS.match(part)),
                details=dict(sorted(_details(sys, place, kind))),
            )
        )
    return tuple(devices)


def kind_of(sys: Tree, place: str) -> str | None:
    """The kind of a device by its class, ``""`` if it does not matter, None if it is not told."""
    pci_class = _hex_id(sys.read(f"{place}/class"), 6)
    if pci_class is None:
        return None
    return _KINDS.get(pci_class[:4], _KINDS.get(pci_class[:2], ""))


def find_devices(sys: Tree, notes: Notes) -> dict[str, str]:
    """Every PCI function: address -> directory."""
    return _on_bus(sys, notes) or dict(_below_host_bridges(sys))


def _on_bus(sys: Tree, notes: Notes) -> dict[str, str]:
    """Address -> directory, with the path through the bridges where the bus entry is a link."""
    places: dict[str, str] = {}
    below: dict[str, str] | None = None
    for address in filter(ADDRESS.match, sys.names(BUS)):
        entry = f"{BUS}/{address}"
        place = sys.resolve(entry)
        if place is None:
            notes.add(BUS, "link leads to nothing; device left out", address)
            continue
        if place == entry:
            # A capture that follows links has a copy here: its path is in devices/pci*, if at all.
            if below is None:
                below = dict(_below_host_bridges(sys))
            place = below.get(address, place)
        places[address] = place
    return places


def _below_host_bridges(sys: Tree) -> Iterator[tuple[str, str]]:
    todo = [f"devices/{name}" for name in sys.names("devices") if name.startswith("pci")]
    while todo:
        parent = todo.pop()
        for name in filter(ADDRESS.match, sys.names(parent)):
            place = f"{parent}/{name}"
            # Links (of virtual functions, of peers) lead to places that the walk meets anyway.
            if sys.resolve(place) == place:
                yield name, place
                todo.append(place)


def zone_of(sys: Tree, place: str, members: Mapping[int, int]) -> int | None:
    """The zone of the function, or of the nearest bridge above; old kernels tell its CPUs.

    ``members`` maps the CPUs of a zone to its id.
    """
    while ADDRESS.match(place.rpartition("/")[2]):
        zone = parse(sys.read(f"{place}/numa_node"), parse_int)
        if zone is not None and zone >= 0:
            return zone
        if zone is None:
            near = parse(sys.read(f"{place}/local_cpulist"), bits.parse_list)
            if near is None:
                near = parse(sys.read(f"{place}/local_cpus"), bits.parse_hex)
            if near is not None and near in members:
                return members[near]
        place = place.rpartition("/")[0]
    return None


def _hex_id(text: str | None, digits: int) -> str | None:
    bare = (text or "").strip().lower()
    return bare[2:] if re.fullmatch(rf"0x[0-9a-f]{{{digits}}}", bare) else None


def _id(sys: Tree, place: str, file: str) -> str:
    found = _hex_id(sys.read(f"{place}/{file}"), 4)
    return "" if found is None else f"0x{found}"


def _text(sys: Tree, path: str) -> str:
    text = (sys.read(path) or "").strip(" \t\r\n\0")
    return text if text.isprintable() else ""


def _details(sys: Tree, place: str, kind: str) -> Iterator[tuple[str, str]]:
    if driver := (sys.link(f"{place}/driver") or "").rpartition("/")[2]:
        yield "driver", driver
    if physical := (sys.link(f"{place}/physfn") or "").rpartition("/")[2]:
        yield "pf", physical
    names = sys.names(place)
    virtual = [(sys.link(f"{place}/{n}") or "").rpartition("/")[2] for n in _virtual(names)]
    if any(virtual):
        yield "vfs", ",".join(filter(None, virtual))
    elif parse(sys.read(f"{place}/sriov_totalvfs"), parse_int):
        yield "vfs", ""
    if kind == "nic":
        yield from _interface(sys, place, names)
    if kind == "nvme":
        for controller in filter(re.compile(r"nvme\d+$").match, sys.names(f"{place}/nvme")):
            yield "controller", controller
            if model := _text(sys, f"{place}/nvme/{controller}/model"):
                yield "model", model


def _virtual(names: Sequence[str]) -> list[str]:
    numbers = cpus.numbered(names, "virtfn")
    return [f"virtfn{number}" for number in bits.members(numbers)]


def _interface(sys: Tree, place: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    # virtio puts a device of its own between the PCI function and the interface.
    parents = [place, *(f"{place}/{name}" for name in names if name.startswith("virtio"))]
    found = [(f"{parent}/net/{n}", n) for parent in parents for n in sys.names(f"{parent}/net")]
    for path, interface in found[:1]:
        yield "interface", interface
        if mac := _text(sys, f"{path}/address"):
            yield "mac", mac
        speed = parse(sys.read(f"{path}/speed"), parse_int) or 0
        if speed > 0 and speed not in _SPEEDS_UNKNOWN:
            yield "speed_mbps", str(speed)
        if state := _text(sys, f"{path}/operstate"):
            yield "link", state
    for rdma in sys.names(f"{place}/infiniband")[:1]:
        yield "rdma", rdma
