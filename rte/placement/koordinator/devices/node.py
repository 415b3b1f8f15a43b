"""The devices of a node as Koordinator's Device object and its pods' annotations tell them.

Source: Koordinator ``pkg/scheduler/plugins/deviceshare/device_cache.go``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rte.model import quantity
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.placement.koordinator.devices.request import Amounts
    from rte.reader.json import Json

GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
GPU_MODEL = "node.koordinator.sh/gpu-model"

#: Models whose partitions Koordinator knows without being told.
_HOPPER = ("H100", "H800", "H20")

#: Minor -> resources.
Minors: TypeAlias = "dict[int, dict[str, int]]"


@dataclass(frozen=True, kw_only=True, slots=True)
class VirtualFunction:
    """A VF of an RDMA NIC, with the labels of its group."""

    minor: int
    bus_id: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """One device; ``pcie`` and ``zone`` are None where its place is not told."""

    minor: int
    zone: int | None
    pcie: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    vfs: tuple[VirtualFunction, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """GPUs that are linked to each other."""

    minors: frozenset[int]
    order: tuple[int, ...]
    score: int
    ring_bus_bandwidth: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedDevices:
    """What a node has of each device type, and what is held.

    Attributes:
        total: type -> minor -> resources; none for an unhealthy device.
        used: likewise; minors that hold something.
        infos: type -> devices.
        held_vfs: type -> minor -> VFs that are held.
        partitions: number of GPUs -> partitions in the order of their score, in the order told;
            None where the node has none.
        honours_partitions: GPUs may be given by partition only.
    """

    total: Mapping[str, Minors]
    used: Mapping[str, Minors]
    infos: Mapping[str, tuple[DeviceInfo, ...]]
    held_vfs: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)
    partitions: Mapping[int, tuple[tuple[Partition, ...], ...]] | None = None
    honours_partitions: bool = False

    def free(self, kind: str) -> Minors:
        """Minor -> what is left of its resources, never below zero."""
        total, used = self.total.get(kind, {}), self.used.get(kind, {})
        return {
            minor: subtract(total.get(minor, {}), used.get(minor, {})) for minor in total | used
        }


def subtract(total: dict[str, int], used: dict[str, int]) -> dict[str, int]:
    """What is left, never below zero; resources that only ``used`` names are zero."""
    return {name: max(total.get(name, 0) - used.get(name, 0), 0) for name in total | used}


def fits(wanted: Amounts, free: Amounts) -> bool:
    """Whether all that both name suffices; what only one names is not compared."""
    return all(amount <= free[name] for name, amount in wanted.items() if name in free)


def read_node_devices(
    device: Json,
    held: Iterable[Json] = (),
    node_labels: Mapping[str, str] | None = None,
) -> SharedDevices:
    """The devices of a node.

    Args:
        device: the Device object.
        held: the ``device-allocated`` annotations of the node's pods, parsed.
        node_labels: labels of the Node.
    """
    total: dict[str, Minors] = {}
    infos: dict[str, list[DeviceInfo]] = {}
    for told in device.get("spec", {}).get("devices") or ():
        kind, minor = told["type"], told.get("minor", 0)
        healthy = told.get("health", False)
        total.setdefault(kind, {})[minor] = _amounts(told.get("resources")) if healthy else {}
        infos.setdefault(kind, []).append(_info(minor, told))
    used: dict[str, Minors] = {}
    vfs: dict[str, dict[int, frozenset[str]]] = {}
    for allocations in held:
        for kind, records in allocations.items():
            for record in records:
                _hold(record, used.setdefault(kind, {}), vfs.setdefault(kind, {}))
    partitions, honours = _partitions(device, node_labels or {})
    return SharedDevices(
        total=total,
        used=used,
        infos={kind: tuple(of_kind) for kind, of_kind in infos.items()},
        held_vfs=vfs,
        partitions=partitions,
        honours_partitions=honours,
    )


def _amounts(resources: Json | None) -> dict[str, int]:
    return {name: quantity.parse(amount) for name, amount in (resources or {}).items()}


def _info(minor: int, told: Json) -> DeviceInfo:
    topology = told.get("topology")
    return DeviceInfo(
        minor=minor,
        zone=None if topology is None else topology.get("nodeID", 0),
        pcie=None if topology is None else topology.get("pcieID", ""),
        labels=told.get("labels") or {},
        vfs=tuple(
            VirtualFunction(
                minor=vf.get("minor", 0),
                bus_id=vf.get("busID", ""),
                labels=group.get("labels") or {},
            )
            for group in told.get("vfGroups") or ()
            for vf in group.get("vfs") or ()
        ),
    )


def _hold(record: Json, used: Minors, vfs: dict[int, frozenset[str]]) -> None:
    minor = record.get("minor", 0)
    before, more = used.get(minor, {}), _amounts(record.get("resources"))
    used[minor] = {name: before.get(name, 0) + more.get(name, 0) for name in before | more}
    extension = record.get("extension") or {}
    held = {vf.get("busID", "") for vf in extension.get("vfs") or ()}
    if held:
        vfs[minor] = vfs.get(minor, frozenset()) | held


def _partitions(
    device: Json, node_labels: Mapping[str, str]
) -> tuple[Mapping[int, tuple[tuple[Partition, ...], ...]] | None, bool]:
    metadata = device.get("metadata", {})
    text = (metadata.get("annotations") or {}).get(GPU_PARTITIONS)
    if text:
        honours = (metadata.get("labels") or {}).get(PARTITION_POLICY) == "Honor"
        return _read_table(text), honours
    honours = node_labels.get(PARTITION_POLICY) == "Honor"
    vendor, model = node_labels.get(GPU_VENDOR, ""), node_labels.get(GPU_MODEL, "")
    if vendor in {"", "nvidia"} and model in _HOPPER:
        return _hopper_table(), honours
    return None, honours


def _read_table(text: str) -> Mapping[int, tuple[tuple[Partition, ...], ...]] | None:
    """The table of partitions; None for one that cannot be read, as Koordinator has it."""
    try:
        table = jsontext.load(text, GPU_PARTITIONS)
        return {
            int(count): _by_score(
                Partition(
                    minors=frozenset(told["minors"]),
                    order=tuple(told["minors"]),
                    score=told.get("allocationScore", 0),
                    ring_bus_bandwidth=quantity.parse(told["ringBusBandwidth"])
                    if told.get("ringBusBandwidth") is not None
                    else None,
                )
                for told in partitions
            )
            for count, partitions in table.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _by_score(partitions: Iterable[Partition]) -> tuple[tuple[Partition, ...], ...]:
    by_score: dict[int, list[Partition]] = {}
    for partition in partitions:
        by_score.setdefault(partition.score, []).append(partition)
    return tuple(tuple(by_score[score]) for score in sorted(by_score))


def _hopper_table() -> Mapping[int, tuple[tuple[Partition, ...], ...]]:
    """Pairs, fours and all of eight GPUs, one score for all."""
    return {
        count: (
            tuple(
                Partition(
                    minors=frozenset(range(first, first + count)),
                    order=tuple(range(first, first + count)),
                    score=1,
                )
                for first in range(0, 8, count)
            ),
        )
        for count in (1, 2, 4, 8)
    }
