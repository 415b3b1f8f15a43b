"""The document in ``topology.rte.dev/node-state``; what a later release adds is passed over."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rte.model import bits
from rte.reader.jsontext import Int64

#: Linux has no more CPUs (NR_CPUS), and no more zones (MAX_NUMNODES).
MOST_CPUS = 8192
MOST_ZONES = 1024


class ConfigDocument(msgspec.Struct):
    """Fields are named as those of KubeletConfig."""

    topology_policy: str = msgspec.field(name="topologyManagerPolicy")
    topology_scope: str = msgspec.field(name="topologyManagerScope")
    topology_options: dict[str, str] = msgspec.field(name="topologyManagerPolicyOptions")
    cpu_policy: str = msgspec.field(name="cpuManagerPolicy")
    cpu_options: dict[str, str] = msgspec.field(name="cpuManagerPolicyOptions")
    reserved_cpus: str | None = msgspec.field(name="reservedCPUs")
    cpu_reservation_milli: Int64 = msgspec.field(name="cpuReservationMilli")
    memory_policy: str = msgspec.field(name="memoryManagerPolicy")
    reserved_memory: dict[str, dict[str, Int64]] = msgspec.field(name="reservedMemory")
    node_reserved: dict[str, Int64] = msgspec.field(name="nodeReserved")
    feature_gates: dict[str, bool] = msgspec.field(name="featureGates")
    max_pods: Int64 = msgspec.field(name="maxPods")
    source: str = ""


class ZoneDocument(msgspec.Struct):
    """A zone; ``distances`` are runs."""

    id: bits.Id
    memory: Int64
    hugepages: dict[str, Int64]
    distances: str


class TopologyDocument(msgspec.Struct, rename="camel"):
    """Columns of the CPU table as runs, and the zones."""

    cpu: str
    core: str
    socket: str
    zone: str
    uncore: str
    zones: Annotated[list[ZoneDocument], msgspec.Meta(max_length=MOST_ZONES)]
    sockets: Int64
    uncore_reported: bool


class RowDocument(msgspec.Struct):
    """A zone's row of the memory manager; an amount is as in MemoryAmounts."""

    assignments: Int64
    group: str
    amounts: dict[str, tuple[Int64, Int64, Int64, Int64, Int64]]


class ClassDocument(msgspec.Struct, omit_defaults=True):
    """``free`` is for people and other programs: holdings say it too."""

    zones: str | None
    total: bits.Id
    healthy: Int64
    free: Int64 | None = None
    unhealthy: str = ""


class PoolDocument(msgspec.Struct):
    """Devices of one resource."""

    complete: bool
    classes: list[ClassDocument]


class HeldDocument(msgspec.Struct, omit_defaults=True):
    """What a container, or a pod as a whole, holds: memory as (type, zones, bytes), devices as
    (class, numbers).
    """

    cpus: str = ""
    memory: list[tuple[str, str, Int64]] = []
    devices: dict[str, list[tuple[Int64, str]]] = {}


class VersionedDocument(msgspec.Struct, kw_only=True):
    """What every version has."""

    version: Int64


class StateDocument(VersionedDocument, rename="camel", omit_defaults=True, kw_only=True):
    """The whole."""

    kubelet: str
    epoch: str
    synced: bool
    config: msgspec.Raw
    topology: msgspec.Raw
    reserved: str
    shared: str
    memory: dict[str, RowDocument]
    devices: dict[str, PoolDocument]
    admitted: list[str]
    holdings: dict[str, dict[str, HeldDocument]]
    pod_holdings: dict[str, HeldDocument] = {}
    names: list[str] = []
