"""NodeReading to NodeResourceTopology (v1alpha2): zones, attributes, annotations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.accounting import globs, zone_resources
from rte.model import bits
from rte.model.node import KubeletConfig
from rte.nrt import (
    attributes,
    device_zones,
    group_inventory,
    koordinator,
    node_state,
    numaplacement,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.accounting import ZoneResources
    from rte.model.node import Amounts, Holding, NodeReading, NodeState
    from rte.reader.json import JsonObject

GROUP = "topology.node.k8s.io"
API_VERSION = f"{GROUP}/v1alpha2"
KIND = "NodeResourceTopology"

#: Attribute for the printer column: free whole CPUs per zone, ``node-0:12 node-1:30``.
FREE_CPUS_ATTRIBUTE = "freeCPUs"
#: Where the kubelet's configuration was learnt (:class:`rte.model.node.ConfigSource`).
CONFIG_SOURCE_ATTRIBUTE = "kubeletConfigSource"
#: Kind of core (``CPU.kind``) -> where its on-line CPUs are listed.
KIND_ATTRIBUTES = {
    "performance": "performanceCPUs",
    "efficiency": "efficiencyCPUs",
    "low-power": "lowPowerCPUs",
}

#: Annotations that an rte object carries (some of them not always); all others are foreign.
ANNOTATIONS = (
    node_state.ANNOTATION,
    device_zones.ANNOTATION,
    group_inventory.ANNOTATION,
    *koordinator.ANNOTATIONS,
)
#: What stays first when the annotations would be too large: prediction's own.
_ORDER = (
    koordinator.CPU_MANAGER_POLICY,
    node_state.ANNOTATION,
    device_zones.ANNOTATION,
    group_inventory.ANNOTATION,
    koordinator.CPU_BASIC_INFO,
    *koordinator.COPIED,
    koordinator.CPU_SHARED_POOLS,
    koordinator.BE_CPU_SHARED_POOLS,
    koordinator.CPU_TOPOLOGY,
    koordinator.POD_CPU_ALLOCS,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriterOptions:
    """What to publish besides zones and settings.

    Attributes:
        owner_uid: UID of the Node object, which then owns the NRT; empty: no owner.
        fingerprint: which pods the fingerprint covers; None leaves it out.
        koordinator: write the annotations of Koordinator.
        numaplacement: write placement data under policy single-numa-node.
        legacy_policies: write ``topologyPolicies``, for consumers that know no attributes.
        groups: write the inventory for processing groups.
        nic_speeds: interface -> Mb/s, where its driver tells none while the link is down.
        exclude_resources: globs of resource names that no zone shows; ``*`` stops at a slash.
        max_annotation_bytes: bound of all annotations together, keys included.
    """

    owner_uid: str = ""
    fingerprint: attributes.Method | None = attributes.Method.EXCLUSIVE
    koordinator: bool = True
    numaplacement: bool = True
    legacy_policies: bool = True
    groups: bool = False
    nic_speeds: Mapping[str, int] = field(default_factory=dict)
    exclude_resources: tuple[str, ...] = ()
    max_annotation_bytes: int = 200 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """An NRT object, and which annotations had to be left out for its size."""

    object: JsonObject
    dropped: tuple[str, ...] = ()


def build(reading: NodeReading, options: WriterOptions) -> Encoded:
    """The whole NRT object of a node; equal readings give equal objects.

    Without a kubelet (``reading.state`` is None) it says what CPU manager policy ``none`` would,
    and has neither a fingerprint nor the node-state annotation, because the pods are not known.

    Raises:
        errors.InconsistentStateError: a container holds devices that their pool does not have.
        errors.ParseError: a glob of ``exclude_resources`` is malformed.
    """
    resources = zone_resources(reading)
    payload = _placement(reading, options)
    annotations, dropped = _annotations(reading, options)
    metadata: JsonObject = {"name": reading.node_name}
    if annotations:
        metadata["annotations"] = annotations
    if options.owner_uid:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": reading.node_name,
                "uid": options.owner_uid,
            }
        ]
    document: JsonObject = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
    if options.legacy_policies:
        config = reading.state.config if reading.state else KubeletConfig()
        legacy = attributes.legacy(config.topology_policy, config.topology_scope)
        document["topologyPolicies"] = [legacy]
    document |= {
        "attributes": _attributes(reading, options, resources, payload),
        "zones": _zones(reading, options, resources, payload),
    }
    return Encoded(object=document, dropped=dropped)


def encode(reading: NodeReading, options: WriterOptions | None = None) -> JsonObject:
    """The object of :func:`build`."""
    return build(reading, options or WriterOptions()).object


def zone_name(zone: int) -> str:
    """The name that every consumer expects of a NUMA zone."""
    return f"node-{zone}"


def _zones(
    reading: NodeReading,
    options: WriterOptions,
    resources: ZoneResources,
    payload: numaplacement.Payload | None,
) -> list[JsonObject]:
    costs = _costs(reading)
    vectors = payload.vectors if payload else {}
    zones: list[JsonObject] = []
    for zone, amounts in resources.items():
        document: JsonObject = {
            "name": zone_name(zone),
            "type": "Node",
            "costs": [
                {"name": zone_name(other), "value": distance}
                for other, distance in sorted(costs.get(zone, {}).items())
            ],
            "resources": [
                _resource(name, amount)
                for name, amount in amounts.items()
                if not any(globs.matches(glob, name) for glob in options.exclude_resources)
            ],
        }
        if zone in vectors:
            document["attributes"] = [_pair(numaplacement.VECTOR_ATTRIBUTE, vectors[zone])]
        zones.append(document)
    return zones


def _resource(name: str, amounts: Amounts) -> dict[str, str]:
    unit = 1000 if name == "cpu" else 1
    return {
        "name": name,
        "capacity": str(amounts.capacity // unit),
        "allocatable": str(amounts.allocatable // unit),
        "available": str(amounts.available // unit),
    }


def _costs(reading: NodeReading) -> dict[int, Mapping[int, int]]:
    """Distances by zone id: sysfs now, and the kubelet's reading for zones gone since."""
    costs: dict[int, Mapping[int, int]] = {}
    if reading.state is not None:
        zones = reading.state.topology.zones
        ids = [zone.id for zone in zones]
        costs = {zone.id: dict(zip(ids, zone.distances, strict=False)) for zone in zones}
    return costs | {zone.id: zone.distances for zone in reading.machine.zones}


def _attributes(
    reading: NodeReading,
    options: WriterOptions,
    resources: ZoneResources,
    payload: numaplacement.Payload | None,
) -> list[dict[str, str]]:
    values = {
        attributes.POLICY_ATTRIBUTE: "none",
        attributes.SCOPE_ATTRIBUTE: "container",
        FREE_CPUS_ATTRIBUTE: " ".join(
            f"{zone_name(zone)}:{amounts['cpu'].available // 1000}"
            for zone, amounts in resources.items()
            if "cpu" in amounts
        ),
    }
    for kind, name in KIND_ATTRIBUTES.items():
        cpus = bits.of(cpu.id for cpu in reading.machine.cpus if cpu.online and cpu.kind == kind)
        if cpus:
            values[name] = bits.format_list(cpus)
    if reading.state is not None:
        config = reading.state.config
        values[attributes.POLICY_ATTRIBUTE] = config.topology_policy
        values[attributes.SCOPE_ATTRIBUTE] = config.topology_scope
        if config.source:
            values[CONFIG_SOURCE_ATTRIBUTE] = config.source
        if attributes.MAX_ZONES_OPTION in config.topology_options:
            most = config.topology_options[attributes.MAX_ZONES_OPTION]
            values[attributes.MAX_ZONES_ATTRIBUTE] = most
        if options.fingerprint is not None:
            values[attributes.ATTRIBUTE] = attributes.sign(
                (pod.namespace, pod.name)
                for pod in reading.pods
                if pod.exclusive or options.fingerprint is attributes.Method.ALL
            )
            values[attributes.METHOD_ATTRIBUTE] = str(options.fingerprint)
    if payload is not None:
        values[numaplacement.METADATA_ATTRIBUTE] = payload.metadata()
    return [_pair(name, values[name]) for name in sorted(values)]


def _pair(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _annotations(
    reading: NodeReading, options: WriterOptions
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The annotations that fit into the bound, and the keys of those that do not."""
    annotations: dict[str, str] = {}
    if options.koordinator:
        annotations |= koordinator.encode(reading)
    if reading.state is not None:
        annotations[node_state.ANNOTATION] = node_state.encode(reading.state)
    if (text := device_zones.encode(reading)) is not None:
        annotations[device_zones.ANNOTATION] = text
    if options.groups:
        inventory = group_inventory.published(reading, options.nic_speeds)
        if (text := group_inventory.encode(inventory)) is not None:
            annotations[group_inventory.ANNOTATION] = text
    if reading.state is not None and _size(annotations) > options.max_annotation_bytes:
        annotations[node_state.ANNOTATION] = node_state.encode(reading.state, short=True)
    fitting: dict[str, str] = {}
    for key in _ORDER:
        if key in annotations:
            more = {key: annotations[key]}
            if _size(fitting) + _size(more) <= options.max_annotation_bytes:
                fitting |= more
    dropped = tuple(key for key in reversed(_ORDER) if key in annotations.keys() - fitting.keys())
    return dict(sorted(fitting.items())), dropped


def _size(annotations: Mapping[str, str]) -> int:
    return sum(len(key) + len(value.encode()) for key, value in annotations.items())


# Placement data of NodeResourceTopologyMatch


def _placement(reading: NodeReading, options: WriterOptions) -> numaplacement.Payload | None:
    """None where it does not apply, or a container spans zones (as upstream: all or nothing)."""
    state = reading.state
    if (
        not options.numaplacement
        or options.fingerprint is None
        or state is None
        or state.config.topology_policy != "single-numa-node"
    ):
        return None
    try:
        return numaplacement.encode(
            max((zone.id for zone in state.topology.zones), default=0) + 1,
            _placements(reading, state),
        )
    except numaplacement.PlacementError:
        return None


def _placements(
    reading: NodeReading, state: NodeState
) -> Iterator[tuple[numaplacement.ContainerId, int]]:
    for pod in reading.pods:
        for container, holding in state.holdings.get(pod.uid, {}).items():
            zones = _zones_of(holding, state)
            if zones:
                single = bits.lowest(zones) if zones.bit_count() == 1 else -1
                yield (pod.namespace, pod.name, container), single


def _zones_of(holding: Holding, state: NodeState) -> int:
    """Zone of the first CPU, or else of the first device with zones, or else of the first block."""
    if holding.cpus:
        first = bits.lowest(holding.cpus)
        for zone, cpus in state.topology.zone_cpus.items():
            if cpus >> first & 1:
                return 1 << zone
    for name, mask in sorted(holding.devices.items()):
        for position in bits.members(mask):
            zones = state.devices[name].zones[position]
            if zones:
                return zones
    return next((block.zones for block in holding.memory if block.zones), 0)
