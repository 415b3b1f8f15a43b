"""PCI functions that matter to placement: GPUs and accelerators, NICs, NVMe drives; all zones.

A GPU is a 3D controller, a processing accelerator, or whatever a GPU's driver is bound to: the VGA
controller of a board's management processor is none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from rte.model import bits, machine
from rte.sysfs import cpus, gpus
from rte.sysfs.tree import parse, parse_int, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rte.sysfs.tree import Notes, Tree

#: The name of a PCI function: domain:bus:device.function.
ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
#: PCI class (base and sub-class, else base alone) -> kind. 12: processing accelerators.
_KINDS = {"0302": "gpu", "12": "gpu", "02": "nic", "0108": "nvme"}
#: Display controllers, which are GPUs if one of their drivers is bound to them.
_DISPLAY = "03"
#: Where every PCI function has a link.
BUS = "bus/pci/devices"
#: While the link is down the kernel answers an error or -1, once as a number of 16 or 32 bits.
_SPEEDS_UNKNOWN = {0xFFFF, 0xFFFFFFFF}


def read_devices(
    sys: Tree, proc: Tree, zones: Sequence[machine.Zone], notes: Notes
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
        interfaces = tuple(read_interfaces(sys, place)) if kind == "nic" else ()
        rdma = tuple(sys.names(f"{place}/infiniband")) if kind == "nic" else ()
        details = dict(_details(sys, place, kind)) | _first(interfaces, rdma)
        if kind == "gpu":
            details |= gpus.read_facts(sys, proc, place, details.get("driver", ""))
        devices.append(
            machine.PCIDevice(
                address=address,
                kind=kind,
                vendor=_id(sys, place, "vendor"),
                device=_id(sys, place, "device"),
                zone=zone,
                path=tuple(part for part in place.split("/")[:-1] if ADDRESS.match(part)),
                details=dict(sorted(details.items())),
                interfaces=interfaces,
                rdma=rdma,
            )
        )
    return tuple(devices)


def kind_of(sys: Tree, place: str) -> str | None:
    """The kind of a device by its class, ``""`` if it does not matter, None if it is not told."""
    pci_class = _hex_id(sys.read(f"{place}/class"), 6)
    if pci_class is None:
        return None
    if pci_class.startswith(_DISPLAY) and gpus.is_driver(_driver(sys, place)):
        return "gpu"
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


def _driver(sys: Tree, place: str) -> str:
    return (sys.link(f"{place}/driver") or "").rpartition("/")[2]


def _details(sys: Tree, place: str, kind: str) -> Iterator[tuple[str, str]]:
    if driver := _driver(sys, place):
        yield "driver", driver
    if physical := (sys.link(f"{place}/physfn") or "").rpartition("/")[2]:
        yield "pf", physical
        yield from _vf_number(sys, place)
    names = sys.names(place)
    virtual = [(sys.link(f"{place}/{n}") or "").rpartition("/")[2] for n in _virtual(names)]
    if any(virtual):
        yield "vfs", ",".join(filter(None, virtual))
    elif parse(sys.read(f"{place}/sriov_totalvfs"), parse_int):
        yield "vfs", ""
    if kind == "nvme":
        for controller in filter(re.compile(r"nvme\d+$").match, sys.names(f"{place}/nvme")):
            yield "controller", controller
            if model := text_of(sys, f"{place}/nvme/{controller}/model"):
                yield "model", model


def _vf_number(sys: Tree, place: str) -> Iterator[tuple[str, str]]:
    """Its number among the VFs of its PF."""
    address = place.rpartition("/")[2]
    for name in _virtual(sys.names(f"{place}/physfn")):
        if (sys.link(f"{place}/physfn/{name}") or "").rpartition("/")[2] == address:
            yield "vf", name.removeprefix("virtfn")


def _first(interfaces: Sequence[machine.Interface], rdma: Sequence[str]) -> dict[str, str]:
    """The first interface and the first RDMA device of a NIC."""
    details: dict[str, str] = {}
    for interface in interfaces[:1]:
        told = {
            "interface": interface.name,
            "mac": interface.mac,
            "speed_mbps": "" if interface.mbps is None else str(interface.mbps),
            "link": interface.link,
        }
        details |= {key: value for key, value in told.items() if value}
    return details | ({"rdma": rdma[0]} if rdma else {})


def _virtual(names: Sequence[str]) -> list[str]:
    numbers = cpus.numbered(names, "virtfn")
    return [f"virtfn{number}" for number in bits.members(numbers)]


# Network interfaces of a function


def read_interfaces(sys: Tree, place: str) -> Iterator[machine.Interface]:
    """All interfaces, by name; virtio puts a device of its own between function and interface."""
    between = [name for name in sys.names(place) if name.startswith("virtio")]
    parents = [place, *(f"{place}/{name}" for name in between)]
    found = [
        (name, f"{parent}/net/{name}") for parent in parents for name in sys.names(f"{parent}/net")
    ]
    for name, path in sorted(found):
        port = parse(sys.read(f"{path}/dev_port"), parse_int)
        yield machine.Interface(
            name=name,
            mac=text_of(sys, f"{path}/address"),
            mbps=_speed(sys, path),
            link=text_of(sys, f"{path}/operstate"),
            port=port if port is not None and port >= 0 else None,
            port_name=text_of(sys, f"{path}/phys_port_name"),
            bond=(sys.link(f"{path}/master") or "").rpartition("/")[2],
        )


def _speed(sys: Tree, path: str) -> int | None:
    speed = parse(sys.read(f"{path}/speed"), parse_int) or 0
    return speed if speed > 0 and speed not in _SPEEDS_UNKNOWN else None


# The zones of all functions: what DRA devices are placed by


def read_pci_zones(sys: Tree, zones: Sequence[machine.Zone], notes: Notes) -> machine.PCIZones:
    """Zones of roots and functions as the platform tells them."""
    members = {zone.cpus: zone.id for zone in zones if zone.cpus}
    known = {zone.id for zone in zones}
    found = []
    for address, place in sorted(find_devices(sys, notes).items()):
        zone = zone_of(sys, place, members)
        found.append((address, _root_of(place), zone if zone in known else None))
    return summarize(found)


def summarize(found: Iterable[tuple[str, str, int | None]]) -> machine.PCIZones:
    """The zones of functions (address, root or "", zone), by root where a root has one zone."""
    rows = list(found)
    members: dict[str, set[int]] = defaultdict(set)
    for _, root, zone in rows:
        if root:
            members[root].update(() if zone is None else (zone,))
    roots = {root: zones.pop() if len(zones) == 1 else None for root, zones in members.items()}
    return machine.PCIZones(
        roots=dict(sorted(roots.items())),
        functions={
            address: zone
            for address, root, zone in sorted(rows)
            # Behind a controller that makes a domain of its own, buses do not tell the root.
            if zone is not None
            and (roots.get(root) is None or root[3:-3] != address.partition(":")[0])
        },
    )


def _root_of(place: str) -> str:
    """The root in a path ``devices/pci0000:17/...``; empty where the path does not tell."""
    first, _, rest = place.partition("/")
    root = rest.partition("/")[0]
    return root if first == "devices" and root.startswith("pci") else ""
