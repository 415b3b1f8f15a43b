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
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
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
    from collections.abc import Mapping, Sequence

    from rte.model.bits import Mask, ZoneSet

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


# The document's schema; what a later release adds is passed over.

#: What other programs keep in a machine word must fit into one.
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Config(msgspec.Struct, rename="camel"):
    topology_manager_policy: str
    topology_manager_scope: str
    topology_manager_policy_options: dict[str, str]
    cpu_manager_policy: str
    cpu_manager_policy_options: dict[str, str]
    cpu_reservation_milli: _Int
    memory_manager_policy: str
    node_reserved: dict[str, _Int]
    feature_gates: dict[str, bool]
    max_pods: _Int
    reserved_memory: dict[str, dict[str, _Int]]
    reserved_cpus: str | None = msgspec.field(name="reservedCPUs")
    source: str = ""


class _Zone(msgspec.Struct):
    id: _Int
    memory: _Int
    hugepages: dict[str, _Int]
    distances: str


class _Topology(msgspec.Struct, rename="camel"):
    cpu: str
    core: str
    socket: str
    zone: str
    uncore: str
    zones: list[_Zone]
    sockets: _Int
    uncore_reported: bool


class _Row(msgspec.Struct):
    assignments: _Int
    group: str
    amounts: dict[str, tuple[_Int, _Int, _Int, _Int, _Int]]


class _Class(msgspec.Struct):
    zones: str | None
    total: _Int
    healthy: _Int
    unhealthy: str = ""


class _Pool(msgspec.Struct):
    complete: bool
    classes: list[_Class]


class _Held(msgspec.Struct):
    cpus: str = ""
    memory: list[tuple[str, str, _Int]] = []
    devices: dict[str, list[tuple[_Int, str]]] = {}


class _Versioned(msgspec.Struct):
    version: _Int


class _Document(_Versioned, rename="camel"):
    kubelet: str
    epoch: str
    synced: bool
    config: msgspec.Raw
    topology: msgspec.Raw
    reserved: str
    shared: str
    memory: dict[str, _Row]
    devices: dict[str, _Pool]
    admitted: list[str]
    holdings: dict[str, dict[str, _Held]]
    pod_holdings: dict[str, _Held] = {}


_DECODER = msgspec.json.Decoder(_Document)
_CONFIG_DECODER = msgspec.json.Decoder(_Config)
_TOPOLOGY_DECODER = msgspec.json.Decoder(_Topology)
_VERSION_DECODER = msgspec.json.Decoder(_Versioned)


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
    document = _read(text)
    topology = _topology(bytes(document.topology))
    pools = {name: _decode_pool(pool, name) for name, pool in document.devices.items()}
    cpus = topology.all_cpus
    return NodeState(
        topology=topology,
        config=_config(bytes(document.config)),
        kubelet_version=document.kubelet,
        epoch=document.epoch,
        synced=document.synced,
        reserved=_subset(document.reserved, cpus, "reserved"),
        shared=_subset(document.shared, cpus, "shared"),
        memory={
            _zone_id(name, topology): _decode_row(row, topology)
            for name, row in document.memory.items()
        },
        devices={name: pool for name, (pool, _) in pools.items()},
        admitted=frozenset(document.admitted),
        holdings={
            uid: {name: _decode_holding(held, topology, pools) for name, held in containers.items()}
            for uid, containers in document.holdings.items()
        },
        pod_holdings={
            uid: _decode_holding(held, topology, pools)
            for uid, held in document.pod_holdings.items()
        },
    )


_NOT_READ = (msgspec.DecodeError, TypeError, UnicodeEncodeError, RecursionError)


def _read(text: str) -> _Document:
    try:
        document = _DECODER.decode(text)
    except _NOT_READ as error:
        _check_version(text)  # another one may be of any other shape
        raise errors.ParseError("node-state", text, str(error)) from error
    _check_version(text, document.version)
    return document


def _check_version(text: str, version: int | None = None) -> None:
    if version is None:
        try:
            version = _VERSION_DECODER.decode(text).version
        except _NOT_READ:
            return
    if version != VERSION:
        raise errors.ParseError(
            "node-state", version, f"this program reads version {VERSION}; use the same release"
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
    try:
        document = _CONFIG_DECODER.decode(text)
    except _NOT_READ as error:
        raise errors.ParseError("node-state config", text, str(error)) from error
    explicit = document.reserved_cpus
    return KubeletConfig(
        topology_policy=document.topology_manager_policy,
        topology_scope=document.topology_manager_scope,
        topology_options=document.topology_manager_policy_options,
        cpu_policy=document.cpu_manager_policy,
        cpu_options=document.cpu_manager_policy_options,
        reserved_cpus=None if explicit is None else _parse_set(explicit),
        cpu_reservation_milli=document.cpu_reservation_milli,
        memory_policy=document.memory_manager_policy,
        reserved_memory={
            _number(zone, "zone id"): amounts for zone, amounts in document.reserved_memory.items()
        },
        node_reserved=document.node_reserved,
        feature_gates=document.feature_gates,
        max_pods=document.max_pods,
        source=_decode_source(document.source),
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
    try:
        document = _TOPOLOGY_DECODER.decode(text)
    except _NOT_READ as error:
        raise errors.ParseError("node-state topology", text, str(error)) from error
    return Topology(
        cpus=_decode_cpus(*(getattr(document, name) for name in _COLUMNS)),
        zones=tuple(map(_decode_zone, document.zones)),
        sockets=document.sockets,
        uncore_reported=document.uncore_reported,
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


def _decode_zone(document: _Zone) -> ZoneInfo:
    if not 0 <= document.id <= bits.MAX_ID:
        raise errors.ParseError("node-state topology", document.id, "zone id out of range")
    return ZoneInfo(
        id=document.id,
        memory_bytes=document.memory,
        hugepages={
            _number(size, "page size"): number for size, number in document.hugepages.items()
        },
        distances=_decode_runs(document.distances),
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


def _decode_row(document: _Row, topology: Topology) -> ZoneMemory:
    return ZoneMemory(
        assignments=document.assignments,
        group=_subset(document.group, topology.zone_mask, "group"),
        amounts={name: MemoryAmounts(*numbers) for name, numbers in document.amounts.items()},
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


def _decode_pool(document: _Pool, resource: str) -> tuple[DevicePool, list[list[int]]]:
    """A pool with made-up names, and per class the positions of its devices."""
    devices: list[tuple[str, ZoneSet | None, bool, int, int]] = []
    what = f"node-state devices of {resource}"
    for index, row in enumerate(document.classes):
        zones = None if row.zones is None else _parse_set(row.zones)
        if not 0 <= row.total <= bits.MAX_ID:
            raise errors.ParseError(what, row.total, "out of range")
        unhealthy = _subset(row.unhealthy, (1 << row.total) - 1, "unhealthy")
        if row.total - unhealthy.bit_count() != row.healthy:
            raise errors.ParseError(what, row.healthy, "healthy count")
        label = "any" if zones is None else bits.format_list(zones) or "none"
        devices += [
            (f"{label}-{number:05d}", zones, not unhealthy >> number & 1, index, number)
            for number in range(row.total)
        ]
    if len({row[0] for row in devices}) != len(devices):
        raise errors.ParseError(what, document.classes[0].zones, "class twice")
    devices.sort()
    positions: list[list[int]] = [[] for _ in document.classes]
    healthy = 0
    for position, (_, _, well, index, _) in enumerate(devices):
        positions[index].append(position)
        healthy |= well << position
    pool = DevicePool(
        ids=tuple(device[0] for device in devices),
        zones=tuple(device[1] for device in devices),
        healthy=healthy,
        complete=document.complete,
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
    document: _Held,
    topology: Topology,
    pools: Mapping[str, tuple[DevicePool, list[list[int]]]],
) -> Holding:
    devices: dict[str, Mask] = {}
    for name, rows in document.devices.items():
        if name not in pools:
            raise errors.ParseError("node-state holdings", name, "no such device resource")
        classes = pools[name][1]
        devices[name] = 0
        for index, numbers in rows:
            if not 0 <= index < len(classes):
                raise errors.ParseError("node-state holdings", index, "no such device class")
            positions = classes[index]
            for number in bits.members(_subset(numbers, (1 << len(positions)) - 1, "devices")):
                devices[name] |= 1 << positions[number]
    return Holding(
        cpus=_subset(document.cpus, topology.all_cpus, "cpus"),
        memory=tuple(
            MemoryBlock(resource, _subset(zones, topology.zone_mask, "memory"), size)
            for resource, zones, size in document.memory
        ),
        devices=devices,
    )


@lru_cache(maxsize=4096)
def _parse_set(text: str) -> Mask:
    """Few texts name most sets: zones, and the CPUs of a core."""
    return bits.parse_list(text, "node-state set")


def _subset(text: str, whole: Mask, what: str) -> Mask:
    """A set of which each member is known."""
    mask = _parse_set(text)
    if mask & ~whole:
        unknown = bits.format_list(mask & ~whole)
        raise errors.ParseError(f"node-state {what}", text, f"{unknown} not part of this node")
    return mask


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise errors.ParseError(f"node-state {what}", text, "expected digits")
    return int(text)
