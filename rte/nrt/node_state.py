"""The annotation ``topology.rte.dev/node-state``: a NodeState as compact, versioned JSON.

It holds all that prediction needs and nothing else says (design: docs/nrt.md shows every key).
Sets of CPUs and zones are kernel lists (``0-3,8``); the columns of the CPU table are runs
(``0-31,0-31`` counts up twice, ``0x16,1x16`` repeats). A device has no name here, because which
device of a class a pod gets cannot be known before: it is a number within its class, that is,
among the devices of one resource with the same zone set.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
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
from rte.nrt import runs, schema
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rte.model.bits import Mask, ZoneSet
    from rte.reader.json import JsonObject

ANNOTATION = "topology.rte.dev/node-state"
VERSION = 1

#: Keys of the columns of the CPU table, in the order of CPUInfo.
_COLUMNS = ("cpu", "core", "socket", "zone", "uncore")
#: Devices of a node, and how often its containers hold one (init containers share theirs).
_MOST_DEVICES, _MOST_HELD = bits.MAX_ID, 4 * bits.MAX_ID
#: In front of the number of a name in ``names``.
_NUMBERED = "#"


def encode(state: NodeState, *, short: bool = False) -> str:
    """The annotation's text; equal states give equal text.

    Args:
        state: of the node.
        short: what containers hold names a resource by its number (``#3``) in the list ``names``.
            Releases without that list refuse such a text, so it is for what is too long otherwise.

    Raises:
        errors.InconsistentStateError: a container holds devices that their pool does not have.
    """
    classes = {name: _device_classes(pool) for name, pool in state.devices.items()}
    names = sorted(state.devices) if short else []
    keys = {name: f"{_NUMBERED}{number}" for number, name in enumerate(names)}
    places = {
        name: (keys.get(name, name), _device_places(groups)) for name, groups in classes.items()
    }
    document = schema.StateDocument(
        version=VERSION,
        kubelet=state.kubelet_version,
        epoch=state.epoch,
        synced=state.synced,
        config=_dump(_encode_config(state.config)),
        topology=_dump(_encode_topology(state.topology)),
        reserved=bits.format_list(state.reserved),
        shared=bits.format_list(state.shared),
        memory={str(zone): _encode_row(row) for zone, row in state.memory.items()},
        devices=_encode_devices(state, classes),
        admitted=sorted(state.admitted),
        holdings={
            uid: {name: _encode_holding(held, places) for name, held in containers.items()}
            for uid, containers in state.holdings.items()
        },
        pod_holdings={
            uid: _encode_holding(held, places) for uid, held in state.pod_holdings.items()
        },
        names=names,
    )
    return bytes(_dump(document)).decode()


def _dump(document: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(document, order="sorted"))


def decode(text: str) -> NodeState:
    """The state; devices are called ``<zone set>:<number>``, so that counts per class are exact.

    Raises:
        errors.ParseError: not this format, another version, or a reference to something unknown.
    """
    document = _read(text)
    topology = _topology(bytes(document.topology))
    total = sum(row.total for pool in document.devices.values() for row in pool.classes)
    if total > _MOST_DEVICES:
        limit = f"{_MOST_DEVICES} devices"
        raise errors.MalformedError("node-state devices", total, f"more than {limit}", limit=limit)
    holder = _Holder(
        topology,
        {name: _decode_pool(pool, name) for name, pool in document.devices.items()},
        document.names,
    )
    cpus, config = topology.all_cpus, _config(bytes(document.config))
    return NodeState(
        topology=topology,
        config=config,
        kubelet_version=document.kubelet,
        epoch=document.epoch,
        synced=document.synced,
        reserved=_subset(document.reserved, cpus, "reserved"),
        shared=_subset(document.shared, cpus, "shared"),
        memory=_decode_memory(document.memory, topology, config.memory_policy),
        devices={name: pool for name, (pool, _) in holder.pools.items()},
        admitted=frozenset(document.admitted),
        holdings={
            uid: {name: holder.decode(held) for name, held in containers.items()}
            for uid, containers in document.holdings.items()
        },
        pod_holdings={uid: holder.decode(held) for uid, held in document.pod_holdings.items()},
    )


def _read(text: str) -> schema.StateDocument:
    try:
        document = jsontext.decode(text, schema.StateDocument, "node-state")
    except errors.MalformedError:
        with suppress(errors.MalformedError):  # another version may be of any other shape
            _check_version(jsontext.decode(text, schema.VersionedDocument, "node-state").version)
        raise
    _check_version(document.version)
    return document


def _check_version(version: int) -> None:
    if version != VERSION:
        raise errors.ParseError(
            "node-state", version, f"this program reads version {VERSION}; use the same release"
        )


# Configuration


def _encode_config(config: KubeletConfig) -> schema.ConfigDocument:
    plain: JsonObject = {
        name: getattr(config, name) for name in schema.ConfigDocument.__struct_fields__
    }
    explicit = config.reserved_cpus
    fields: JsonObject = {
        key: dict(it) if isinstance(it, Mapping) else it for key, it in plain.items()
    }
    fields["reserved_cpus"] = None if explicit is None else bits.format_list(explicit)
    fields["reserved_memory"] = {str(zone): dict(it) for zone, it in config.reserved_memory.items()}
    fields["source"] = str(config.source)
    return schema.ConfigDocument(**fields)


@lru_cache(maxsize=256)
def _config(text: bytes) -> KubeletConfig:
    """Shared by all nodes that are configured alike."""
    document = jsontext.decode(text, schema.ConfigDocument, "node-state config")
    explicit = document.reserved_cpus
    memory = document.reserved_memory.items()
    return KubeletConfig(
        **structs.asdict(document)
        | {
            "reserved_cpus": None if explicit is None else _parse_set(explicit),
            "reserved_memory": {_number(zone, "zone id"): amounts for zone, amounts in memory},
            "source": _decode_source(document.source),
        }
    )


def _decode_source(text: str) -> ConfigSource:
    """One that this release does not know is as good as one that nobody tells."""
    try:
        return ConfigSource(text)
    except ValueError:
        return ConfigSource.UNKNOWN


# Topology


def _encode_topology(topology: Topology) -> schema.TopologyDocument:
    rows = map(structs.astuple, topology.cpus)
    columns = zip(*rows, strict=True) if topology.cpus else [()] * len(_COLUMNS)
    texts: JsonObject = dict(zip(_COLUMNS, map(runs.encode, columns), strict=True))
    return schema.TopologyDocument(
        **texts,
        zones=[
            schema.ZoneDocument(
                id=zone.id,
                memory=zone.memory_bytes,
                hugepages={str(size): number for size, number in zone.hugepages.items()},
                distances=runs.encode(zone.distances),
            )
            for zone in topology.zones
        ],
        sockets=topology.sockets,
        uncore_reported=topology.uncore_reported,
    )


@lru_cache(maxsize=256)
def _topology(text: bytes) -> Topology:
    """Shared by all nodes of one hardware type, which a scheduler has many of."""
    document = jsontext.decode(text, schema.TopologyDocument, "node-state topology")
    return Topology(
        cpus=_decode_cpus(*(getattr(document, name) for name in _COLUMNS)),
        zones=tuple(map(_decode_zone, document.zones)),
        sockets=document.sockets,
        uncore_reported=document.uncore_reported,
    )


@lru_cache(maxsize=256)
def _decode_cpus(*columns: str) -> tuple[CPUInfo, ...]:
    """Shared by all nodes of one hardware type, which a scheduler has many of."""
    numbers = [runs.decode(column, schema.MOST_CPUS) for column in columns]
    if len({len(column) for column in numbers}) != 1:
        raise errors.ParseError("node-state topology", columns[0], "columns of different length")
    if any(not 0 <= cpu <= bits.MAX_ID for cpu in numbers[0]) or list(numbers[0]) != sorted(
        set(numbers[0])
    ):
        raise errors.ParseError("node-state topology", columns[0], "CPU ids do not ascend")
    return tuple(map(CPUInfo, *numbers))


def _decode_zone(document: schema.ZoneDocument) -> ZoneInfo:
    return ZoneInfo(
        id=document.id,
        memory_bytes=document.memory,
        hugepages={
            _number(size, "page size"): number for size, number in document.hugepages.items()
        },
        distances=runs.decode(document.distances, schema.MOST_ZONES),
    )


# Memory


def _encode_row(row: ZoneMemory) -> schema.RowDocument:
    return schema.RowDocument(
        row.assignments,
        bits.format_list(row.group),
        {
            name: (a.total, a.system_reserved, a.allocatable, a.reserved, a.free)
            for name, a in row.amounts.items()
        },
    )


def _decode_memory(
    documents: Mapping[str, schema.RowDocument], topology: Topology, policy: str
) -> dict[int, ZoneMemory]:
    """The memory manager's rows: of each zone that it has, or it has none of its own."""
    rows = {_zone_id(name, topology): _decode_row(row, topology) for name, row in documents.items()}
    if (rows or policy == "Static") and rows.keys() != {zone.id for zone in topology.zones}:
        raise errors.ParseError("node-state memory", list(documents), "not a row for each zone")
    return rows


def _decode_row(document: schema.RowDocument, topology: Topology) -> ZoneMemory:
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


def _encode_devices(
    state: NodeState, classes: Mapping[str, _Classes]
) -> dict[str, schema.PoolDocument]:
    held: dict[str, Mask] = {}
    for containers in state.holdings.values():
        for holding in containers.values():
            for name, mask in holding.devices.items():
                held[name] = held.get(name, 0) | mask
    return {
        name: schema.PoolDocument(
            pool.complete,
            [
                _encode_class(zones, positions, pool.healthy, held.get(name, 0))
                for zones, positions in classes[name].items()
            ],
        )
        for name, pool in state.devices.items()
    }


def _encode_class(
    zones: ZoneSet | None, positions: Sequence[int], healthy: Mask, held: Mask
) -> schema.ClassDocument:
    members = bits.of(positions)
    well = (healthy & members).bit_count()
    return schema.ClassDocument(
        zones=None if zones is None else bits.format_list(zones),
        total=len(positions),
        healthy=well,
        free=(healthy & members & ~held).bit_count(),
        unhealthy="" if well == len(positions) else _numbers(~healthy, positions),
    )


def _numbers(mask: Mask, positions: Sequence[int]) -> str:
    """Those devices of a class that the mask over the pool names, as a list of their numbers."""
    return bits.format_list(
        bits.of(number for number, position in enumerate(positions) if mask >> position & 1)
    )


def _decode_pool(document: schema.PoolDocument, resource: str) -> tuple[DevicePool, list[range]]:
    """A pool with made-up names, and per class the positions of its devices."""
    classes: dict[str, tuple[int, schema.ClassDocument]] = {}
    what = f"node-state devices of {resource}"
    for index, row in enumerate(document.classes):
        label = "any" if row.zones is None else bits.format_list(_parse_set(row.zones)) or "none"
        if label in classes:
            raise errors.ParseError(what, row.zones, "class twice")
        classes[label] = index, row
    ids: list[str] = []
    homes: list[ZoneSet | None] = []
    healthy = 0
    positions = [range(0)] * len(classes)
    # A colon is behind all that sets are made of, so the devices of a class lie side by side.
    for label, (index, row) in sorted((f"{name}:", row) for name, row in classes.items()):
        unhealthy = _subset(row.unhealthy, (1 << row.total) - 1, "unhealthy")
        if row.total - unhealthy.bit_count() != row.healthy:
            raise errors.ParseError(what, row.healthy, "healthy count")
        healthy |= ((1 << row.total) - 1 & ~unhealthy) << len(ids)
        positions[index] = range(len(ids), len(ids) + row.total)
        ids += [f"{label}{number:05d}" for number in range(row.total)]
        homes += [None if row.zones is None else _parse_set(row.zones)] * row.total
    pool = DevicePool(
        ids=tuple(ids), zones=tuple(homes), healthy=healthy, complete=document.complete
    )
    return pool, positions


# Holdings


def _encode_holding(
    holding: Holding, places: Mapping[str, tuple[str, _Places]]
) -> schema.HeldDocument:
    return schema.HeldDocument(
        cpus=bits.format_list(holding.cpus),
        memory=[
            (block.resource, bits.format_list(block.zones), block.size) for block in holding.memory
        ],
        devices=dict(_encode_held(name, mask, places) for name, mask in holding.devices.items()),
    )


def _encode_held(
    name: str, mask: Mask, places: Mapping[str, tuple[str, _Places]]
) -> tuple[str, list[tuple[int, str]]]:
    """What stands for the resource; rows of class index and numbers within the class."""
    key, known = places.get(name, (name, {}))
    if mask >> len(known):
        raise errors.InconsistentStateError(
            f"a container holds devices of {name} that the node does not list; read again"
        )
    numbers: dict[int, Mask] = {}
    for position in bits.members(mask):
        index, number = known[position]
        numbers[index] = numbers.get(index, 0) | 1 << number
    return key, [(index, bits.format_list(numbers[index])) for index in sorted(numbers)]


class _Holder:
    """Reads what containers hold of a node."""

    def __init__(
        self,
        topology: Topology,
        pools: Mapping[str, tuple[DevicePool, list[range]]],
        names: Sequence[str],
    ) -> None:
        self.pools = pools
        self._topology = topology
        self._names = {f"{_NUMBERED}{number}": name for number, name in enumerate(names)}
        self._held = 0

    def decode(self, document: schema.HeldDocument) -> Holding:
        """What one container holds."""
        return Holding(
            cpus=_subset(document.cpus, self._topology.all_cpus, "cpus"),
            memory=tuple(
                MemoryBlock(resource, _subset(zones, self._topology.zone_mask, "memory"), size)
                for resource, zones, size in document.memory
            ),
            devices=dict(self._devices(key, rows) for key, rows in document.devices.items()),
        )

    def _devices(self, key: str, rows: Iterable[tuple[int, str]]) -> tuple[str, Mask]:
        name = self._names.get(key, key)
        if name not in self.pools:
            raise errors.ParseError("node-state holdings", name, "no such device resource")
        classes = self.pools[name][1]
        held = 0
        for index, numbers in rows:
            if not 0 <= index < len(classes):
                raise errors.ParseError("node-state holdings", index, "no such device class")
            positions = classes[index]
            mask = _subset(numbers, (1 << len(positions)) - 1, "devices")
            self._held += mask.bit_count()
            if self._held > _MOST_HELD:
                limit = f"{_MOST_HELD} devices"
                raise errors.MalformedError(
                    "node-state holdings", name, f"more than {limit}", limit=limit
                )
            held |= mask << positions.start
        return name, held


@lru_cache(maxsize=4096)
def _short_set(text: str) -> Mask:
    return bits.parse_list(text, "node-state set")


def _parse_set(text: str) -> Mask:
    """Few texts name most sets: zones, and the CPUs of a core."""
    return _short_set(text) if len(text) < 256 else bits.parse_list(text, "node-state set")


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
