"""The annotation ``topology.rte.dev/node-state``: a NodeState as compact, versioned JSON.

It holds all that prediction needs and nothing else says (design: docs/nrt.md shows every key).
Sets of CPUs and zones are kernel lists (``0-3,8``); the columns of the CPU table are runs
(``0-31,0-31`` counts up twice, ``0x16,1x16`` repeats). A device has no name here, because which
device of a class a pod gets cannot be known before: it is a number within its class, that is,
among the devices of one resource with the same zone set.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from msgspec import structs

from rte import errors
from rte.model import bits
from rte.model.node import (
    ConfigSource,
    CPUInfo,
    DevicePool,
    Holding,
    KubeletConfig,
    MemoryAmounts,
    MemoryBlock,
    NodeState,
    Topology,
    ZoneInfo,
    ZoneMemory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rte.model.bits import CPUSet, Mask, ZoneSet

_T = TypeVar("_T")

ANNOTATION = "topology.rte.dev/node-state"
VERSION = 1

#: Keys of the columns of the CPU table, in the order of CPUInfo.
_COLUMNS = ("cpu", "core", "socket", "zone", "uncore")
_RUN = re.compile(r"(-?\d{1,9})(?:-(\d{1,9})|x(\d{1,9}))?", re.ASCII)
#: Attributes of KubeletConfig that are plain values, by JSON key.
_CONFIG_KEYS = {
    "topologyManagerPolicy": "topology_policy",
    "topologyManagerScope": "topology_scope",
    "topologyManagerPolicyOptions": "topology_options",
    "cpuManagerPolicy": "cpu_policy",
    "cpuManagerPolicyOptions": "cpu_options",
    "cpuReservationMilli": "cpu_reservation_milli",
    "memoryManagerPolicy": "memory_policy",
    "nodeReserved": "node_reserved",
    "featureGates": "feature_gates",
    "maxPods": "max_pods",
    "source": "source",
}


def encode(state: NodeState) -> str:
    """The annotation's text; equal states give equal text.

    Raises:
        errors.InconsistentStateError: a container holds devices that their pool does not have.
    """
    classes = {name: _device_classes(pool) for name, pool in state.devices.items()}
    places = {name: _device_places(groups) for name, groups in classes.items()}
    document = {
        "version": VERSION,
        "kubelet": state.kubelet_version,
        "epoch": state.epoch,
        "synced": state.synced,
        "config": _encode_config(state.config),
        "topology": _encode_topology(state.topology),
        "reserved": bits.format_list(state.reserved),
        "shared": bits.format_list(state.shared),
        "memory": {str(zone): _encode_row(row) for zone, row in state.memory.items()},
        "devices": _encode_devices(state, classes),
        "admitted": sorted(state.admitted),
        "holdings": {
            uid: {name: _encode_holding(held, places) for name, held in containers.items()}
            for uid, containers in state.holdings.items()
        },
    }
    if state.pod_holdings:
        document["podHoldings"] = {
            uid: _encode_holding(held, places) for uid, held in state.pod_holdings.items()
        }
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def decode(text: str) -> NodeState:
    """The state; devices are called ``<zone set>-<number>``, so that counts per class are exact.

    Raises:
        errors.ParseError: not this format, another version, or a reference to something unknown.
    """
    try:
        document = _Node(orjson.loads(text), "node-state")
    except orjson.JSONDecodeError as error:
        raise errors.ParseError("node-state", text, f"not JSON: {error}") from error
    if (version := document["version"].integer()) != VERSION:
        raise errors.ParseError(
            "node-state", version, f"this program reads version {VERSION}; use the same release"
        )
    topology = _topology(document["topology"].as_json())
    pools = {
        name: _decode_pool(entry, name) for name, entry in document["devices"].entries().items()
    }
    cpus = topology.all_cpus
    return NodeState(
        topology=topology,
        config=_config(document["config"].as_json()),
        kubelet_version=document["kubelet"].text(),
        epoch=document["epoch"].text(),
        synced=document["synced"].flag(),
        reserved=document["reserved"].subset(cpus),
        shared=document["shared"].subset(cpus),
        memory={
            _zone_id(name, topology): _decode_row(row, topology)
            for name, row in document["memory"].entries().items()
        },
        devices={name: pool for name, (pool, _) in pools.items()},
        admitted=frozenset(item.text() for item in document["admitted"].items()),
        holdings={
            uid: {
                name: _decode_holding(held, topology, pools)
                for name, held in containers.entries().items()
            }
            for uid, containers in document["holdings"].entries().items()
        },
        pod_holdings={
            uid: _decode_holding(held, topology, pools)
            for uid, held in document["podHoldings"].entries().items()
        }
        if "podHoldings" in document
        else {},
    )


# Configuration


def _encode_config(config: KubeletConfig) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, attribute in _CONFIG_KEYS.items():
        value = getattr(config, attribute)
        document[key] = value if isinstance(value, str | int) else dict(value)
    explicit = config.reserved_cpus
    document["reservedCPUs"] = None if explicit is None else bits.format_list(explicit)
    document["reservedMemory"] = {
        str(zone): dict(amounts) for zone, amounts in config.reserved_memory.items()
    }
    return document


@lru_cache(maxsize=256)
def _config(text: bytes) -> KubeletConfig:
    """Shared by all nodes that are configured alike."""
    return _decode_config(_Node(orjson.loads(text), "node-state.config"))


def _decode_config(document: _Node) -> KubeletConfig:
    explicit = document["reservedCPUs"]
    return KubeletConfig(
        topology_policy=document["topologyManagerPolicy"].text(),
        topology_scope=document["topologyManagerScope"].text(),
        topology_options=document["topologyManagerPolicyOptions"].table(_Node.text),
        cpu_policy=document["cpuManagerPolicy"].text(),
        cpu_options=document["cpuManagerPolicyOptions"].table(_Node.text),
        reserved_cpus=None if explicit.value is None else explicit.mask(),
        cpu_reservation_milli=document["cpuReservationMilli"].integer(),
        memory_policy=document["memoryManagerPolicy"].text(),
        reserved_memory={
            _Node(zone, "zone id").number(): amounts.table(_Node.integer)
            for zone, amounts in document["reservedMemory"].entries().items()
        },
        node_reserved=document["nodeReserved"].table(_Node.integer),
        feature_gates=document["featureGates"].table(_Node.flag),
        max_pods=document["maxPods"].integer(),
        source=_decode_source(document["source"].text() if "source" in document else ""),
    )


def _decode_source(text: str) -> ConfigSource:
    """One that this release does not know is as good as one that nobody tells."""
    try:
        return ConfigSource(text)
    except ValueError:
        return ConfigSource.UNKNOWN


# Topology


def _encode_topology(topology: Topology) -> dict[str, Any]:
    rows = map(structs.astuple, topology.cpus)
    columns = zip(*rows, strict=True) if topology.cpus else [()] * len(_COLUMNS)
    return {
        **dict(zip(_COLUMNS, map(_encode_runs, columns), strict=True)),
        "sockets": topology.sockets,
        "uncoreReported": topology.uncore_reported,
        "zones": [
            {
                "id": zone.id,
                "memory": zone.memory_bytes,
                "hugepages": {str(size): number for size, number in zone.hugepages.items()},
                "distances": _encode_runs(zone.distances),
            }
            for zone in topology.zones
        ],
    }


@lru_cache(maxsize=256)
def _topology(text: bytes) -> Topology:
    """Shared by all nodes of one hardware type, which a scheduler has many of."""
    return _decode_topology(_Node(orjson.loads(text), "node-state.topology"))


def _decode_topology(document: _Node) -> Topology:
    columns = [document[name].text() for name in _COLUMNS]
    return Topology(
        cpus=_decode_cpus(*columns),
        zones=tuple(_decode_zone(zone) for zone in document["zones"].items()),
        sockets=document["sockets"].integer(),
        uncore_reported=document["uncoreReported"].flag(),
    )


@lru_cache(maxsize=256)
def _decode_cpus(*columns: str) -> tuple[CPUInfo, ...]:
    """Shared by all nodes of one hardware type, which a scheduler has many of."""
    numbers = [_decode_runs(column) for column in columns]
    if len({len(column) for column in numbers}) != 1:
        raise errors.ParseError("node-state topology", columns[0], "columns of different length")
    if any(cpu < 0 for cpu in numbers[0]) or list(numbers[0]) != sorted(set(numbers[0])):
        raise errors.ParseError("node-state topology", columns[0], "CPU ids do not ascend")
    return tuple(map(CPUInfo, *numbers))


def _decode_zone(document: _Node) -> ZoneInfo:
    zone = document["id"].integer()
    if not 0 <= zone <= bits.MAX_ID:
        raise errors.ParseError("node-state topology", zone, "zone id out of range")
    return ZoneInfo(
        id=zone,
        memory_bytes=document["memory"].integer(),
        hugepages={
            _Node(size, "page size").number(): number.integer()
            for size, number in document["hugepages"].entries().items()
        },
        distances=_decode_runs(document["distances"].text()),
    )


@lru_cache(maxsize=1024)
def _encode_runs(values: tuple[int, ...]) -> str:
    parts: list[str] = []
    ends = (*values[1:], None, None)
    first = 0
    while first < len(values):
        value = values[first]
        last = first
        if ends[first] == value:
            while ends[last] == value:
                last += 1
            parts.append(f"{value}x{last - first + 1}")
        else:
            # Up to the number before one that repeats.
            while value >= 0 and ends[last] == values[last] + 1 != ends[last + 1]:
                last += 1
            parts.append(str(value) if last == first else f"{value}-{values[last]}")
        first = last + 1
    return ",".join(parts)


@lru_cache(maxsize=1024)
def _decode_runs(text: str) -> tuple[int, ...]:
    values: list[int] = []
    for part in text.split(",") if text else ():
        match = _RUN.fullmatch(part)
        if match is None:
            raise errors.ParseError("node-state runs", text)
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        count = int(match[3]) if match[3] else 1
        if last < first or last - first > bits.MAX_ID or count > bits.MAX_ID + 1:
            raise errors.ParseError("node-state runs", text, "run out of range")
        values += [first] * count if match[3] else range(first, last + 1)
        if len(values) > bits.MAX_ID + 1:
            raise errors.ParseError("node-state runs", text, "too many values")
    return tuple(values)


# Memory


def _encode_row(row: ZoneMemory) -> dict[str, Any]:
    return {
        "assignments": row.assignments,
        "group": bits.format_list(row.group),
        "amounts": {
            name: [a.total, a.system_reserved, a.allocatable, a.reserved, a.free]
            for name, a in row.amounts.items()
        },
    }


def _decode_row(document: _Node, topology: Topology) -> ZoneMemory:
    return ZoneMemory(
        assignments=document["assignments"].integer(),
        group=document["group"].subset(topology.zone_mask),
        amounts={
            name: MemoryAmounts(*(number.integer() for number in numbers.items(5)))
            for name, numbers in document["amounts"].entries().items()
        },
    )


def _zone_id(text: str, topology: Topology) -> int:
    zones = bits.parse_list(text, "zone id")
    if zones.bit_count() != 1 or zones & ~topology.zone_mask:
        raise errors.ParseError("node-state memory", text, "no such zone")
    return bits.lowest(zones)


# Devices: a class is a zone set; its devices are numbered in the pool's order

_Classes = dict["ZoneSet | None", list[int]]
#: Position in the pool -> index of the class, number within it.
_Places = dict[int, tuple[int, int]]


def _device_classes(pool: DevicePool) -> _Classes:
    """Zone set -> positions in the pool."""
    classes: _Classes = {}
    for position, zones in enumerate(pool.zones):
        classes.setdefault(zones, []).append(position)
    order = sorted(classes, key=lambda zones: -1 if zones is None else zones)
    return {zones: classes[zones] for zones in order}


def _device_places(classes: _Classes) -> _Places:
    return {
        position: (index, number)
        for index, positions in enumerate(classes.values())
        for number, position in enumerate(positions)
    }


def _encode_devices(state: NodeState, classes: Mapping[str, _Classes]) -> dict[str, Any]:
    held: dict[str, Mask] = {}
    for containers in state.holdings.values():
        for holding in containers.values():
            for name, mask in holding.devices.items():
                held[name] = held.get(name, 0) | mask
    document: dict[str, Any] = {}
    for name, pool in state.devices.items():
        free = pool.healthy & ~held.get(name, 0)
        rows: list[dict[str, Any]] = []
        for zones, positions in classes[name].items():
            row: dict[str, Any] = {
                "zones": None if zones is None else bits.format_list(zones),
                "total": len(positions),
                "healthy": sum(pool.healthy >> position & 1 for position in positions),
                "free": sum(free >> position & 1 for position in positions),
            }
            if row["healthy"] != row["total"]:
                row["unhealthy"] = _numbers(~pool.healthy, positions)
            rows.append(row)
        document[name] = {"complete": pool.complete, "classes": rows}
    return document


def _numbers(mask: Mask, positions: Sequence[int]) -> str:
    """Those devices of a class that the mask over the pool names, as a list of their numbers."""
    return bits.format_list(
        bits.of(number for number, position in enumerate(positions) if mask >> position & 1)
    )


def _decode_pool(document: _Node, resource: str) -> tuple[DevicePool, list[list[int]]]:
    """A pool with made-up names, and per class the positions of its devices."""
    devices: list[tuple[str, ZoneSet | None, bool, int, int]] = []
    rows = document["classes"].items()
    for index, row in enumerate(rows):
        zones = None if row["zones"].value is None else row["zones"].mask()
        total = row["total"].integer()
        if not 0 <= total <= bits.MAX_ID:
            raise errors.ParseError(f"node-state devices of {resource}", total, "out of range")
        unhealthy = row["unhealthy"].subset((1 << total) - 1) if "unhealthy" in row else 0
        if total - unhealthy.bit_count() != row["healthy"].integer():
            raise errors.ParseError(f"node-state devices of {resource}", row.value, "healthy count")
        label = "any" if zones is None else bits.format_list(zones) or "none"
        devices += [
            (f"{label}-{number:05d}", zones, not unhealthy >> number & 1, index, number)
            for number in range(total)
        ]
    if len({row[0] for row in devices}) != len(devices):
        raise errors.ParseError(f"node-state devices of {resource}", rows[0].value, "class twice")
    devices.sort()
    positions: list[list[int]] = [[] for _ in rows]
    healthy = 0
    for position, (_, _, well, index, _) in enumerate(devices):
        positions[index].append(position)
        healthy |= well << position
    pool = DevicePool(
        ids=tuple(device[0] for device in devices),
        zones=tuple(device[1] for device in devices),
        healthy=healthy,
        complete=document["complete"].flag(),
    )
    return pool, positions


# Holdings


def _encode_holding(holding: Holding, places: Mapping[str, _Places]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if holding.cpus:
        document["cpus"] = bits.format_list(holding.cpus)
    if holding.memory:
        document["memory"] = [
            [block.resource, bits.format_list(block.zones), block.size] for block in holding.memory
        ]
    if holding.devices:
        document["devices"] = {
            name: _encode_held(name, mask, places) for name, mask in holding.devices.items()
        }
    return document


def _encode_held(name: str, mask: Mask, places: Mapping[str, _Places]) -> list[list[Any]]:
    """Rows of class index and numbers within the class."""
    known = places.get(name, {})
    if mask >> len(known):
        raise errors.InconsistentStateError(
            f"a container holds devices of {name} that the node does not list; read again"
        )
    numbers: dict[int, Mask] = {}
    for position in bits.members(mask):
        index, number = known[position]
        numbers[index] = numbers.get(index, 0) | 1 << number
    return [[index, bits.format_list(numbers[index])] for index in sorted(numbers)]


def _decode_holding(
    document: _Node,
    topology: Topology,
    pools: Mapping[str, tuple[DevicePool, list[list[int]]]],
) -> Holding:
    blocks: list[MemoryBlock] = []
    for block in document["memory"].items() if "memory" in document else ():
        resource, zones, size = block.items(3)
        blocks.append(
            MemoryBlock(resource.text(), zones.subset(topology.zone_mask), size.integer())
        )
    devices: dict[str, Mask] = {}
    for name, rows in document["devices"].entries().items() if "devices" in document else ():
        if name not in pools:
            raise errors.ParseError("node-state holdings", name, "no such device resource")
        classes = pools[name][1]
        devices[name] = 0
        for row in rows.items():
            index, numbers = row.items(2)
            if not 0 <= index.integer() < len(classes):
                raise errors.ParseError("node-state holdings", row.value, "no such device class")
            positions = classes[index.integer()]
            for number in bits.members(numbers.subset((1 << len(positions)) - 1)):
                devices[name] |= 1 << positions[number]
    return Holding(
        cpus=document["cpus"].subset(topology.all_cpus) if "cpus" in document else 0,
        memory=tuple(blocks),
        devices=devices,
    )


@lru_cache(maxsize=4096)
def _parse_set(text: str) -> Mask:
    """Few texts name most sets: zones, and the CPUs of a core."""
    return bits.parse_list(text, "node-state set")


class _Node:
    """A JSON value that is read with its type checked; errors name where it stands."""

    __slots__ = ("path", "value")

    def __init__(self, value: object, path: str) -> None:
        self.value = value
        self.path = path

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __getitem__(self, key: str) -> _Node:
        if not isinstance(self.value, dict):
            raise self._refuse("expected an object")
        if key not in self.value:
            raise self._refuse(f"no key {key!r}")
        return _Node(self.value[key], f"{self.path}.{key}")

    def entries(self) -> dict[str, _Node]:
        if not isinstance(self.value, dict):
            raise self._refuse("expected an object")
        return {key: _Node(value, f"{self.path}.{key}") for key, value in self.value.items()}

    def table(self, read: Callable[[_Node], _T]) -> dict[str, _T]:
        return {key: read(value) for key, value in self.entries().items()}

    def items(self, length: int | None = None) -> list[_Node]:
        if not isinstance(self.value, list) or length not in (None, len(self.value)):
            raise self._refuse("expected a list" + (f" of {length}" if length else ""))
        return [_Node(value, self.path) for value in self.value]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self._refuse("expected text")
        return self.value

    def integer(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self._refuse("expected an integer")
        return self.value

    def number(self) -> int:
        text = self.text()
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise self._refuse("expected digits")
        return int(text)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self._refuse("expected true or false")
        return self.value

    def mask(self) -> Mask:
        return _parse_set(self.text())

    def subset(self, whole: Mask) -> CPUSet:
        mask = self.mask()
        if mask & ~whole:
            raise self._refuse(f"{bits.format_list(mask & ~whole)} not part of this node")
        return mask

    def as_json(self) -> bytes:
        try:
            return orjson.dumps(self.value)
        except TypeError as error:
            raise self._refuse(str(error)) from None

    def _refuse(self, why: str) -> errors.ParseError:
        return errors.ParseError(self.path, self.value, why)
