"""The state of a node: what the kubelet read, how it is configured, who holds what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from rte.model import bits
from rte.model.bits import CPUSet, Mask, ZoneSet

if TYPE_CHECKING:
    from rte.model.machine import Machine


class CPUInfo(Struct, frozen=True):
    """One CPU as the kubelet's topology knows it.

    ``core`` is the smallest CPU id among the core's threads (cadvisor's identification), ``uncore``
    the effective L3 group id (the socket id where the machine reports no groups).
    """

    cpu: int
    core: int
    socket: int
    zone: int
    uncore: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneInfo:
    """One NUMA zone as the kubelet read it at its start.

    ``hugepages`` maps page size in **bytes** to a count; ``distances`` follows the order of
    ``Topology.zones`` (the kubelet indexes them by position).
    """

    id: int
    memory_bytes: int
    hugepages: Mapping[int, int] = field(default_factory=dict)
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The machine as the kubelet read it at its start; after hot-plug it differs from sysfs.

    ``cpus`` ascend by id and hold only on-line CPUs, ``zones`` ascend by id and may have no CPUs.
    ``sockets`` is the number that the machine reports. ``uncore_reported`` is False where no L3
    groups are known.
    """

    cpus: tuple[CPUInfo, ...]
    zones: tuple[ZoneInfo, ...]
    sockets: int
    uncore_reported: bool = True

    @cached_property
    def all_cpus(self) -> CPUSet:
        """Every CPU."""
        mask = 0
        for info in self.cpus:
            mask |= 1 << info.cpu
        return mask

    @cached_property
    def zone_cpus(self) -> Mapping[int, CPUSet]:
        """Zone id -> its CPUs (0 for a zone without), in id order."""
        table = {zone.id: 0 for zone in self.zones}
        for info in self.cpus:
            table[info.zone] = table.get(info.zone, 0) | 1 << info.cpu
        return dict(sorted(table.items()))

    @cached_property
    def zone_mask(self) -> ZoneSet:
        """The set of all zone ids."""
        mask = 0
        for zone in self.zones:
            mask |= 1 << zone.id
        return mask


class ConfigSource(StrEnum):
    """Where a kubelet's configuration was learnt, the weakest first.

    Flags of the command line win over files (kubeletConfigFlagPrecedence in cmd/kubelet/app), so
    what the usual file says alone is only assumed to be in force.
    """

    UNKNOWN = ""
    USUAL_FILE = "config.yaml"
    COMMAND_LINE = "command-line"
    CONFIGZ = "configz"
    NAMED_FILE = "named-file"

    @property
    def rank(self) -> int:
        """The higher, the better."""
        return list(ConfigSource).index(self)


@dataclass(frozen=True, kw_only=True)
class KubeletConfig:
    """The effective kubelet configuration, as far as admission depends on it.

    Options keep the kubelet's spelling and text values (``"full-pcpus-only": "true"``).
    ``reserved_cpus`` is the explicit list, or None when only an amount is configured;
    ``cpu_reservation_milli`` is that amount (system + kube reserved), or the size of the list.
    ``reserved_memory`` (of the memory manager) is zone id -> resource -> bytes,
    as configured for the memory manager. ``node_reserved`` is what is taken off node totals:
    system + kube reserved (and hard eviction for memory), milli/bytes. ``source`` is where all this
    was learnt; it is unknown where nobody asked a running kubelet.
    """

    topology_policy: str = "none"
    topology_scope: str = "container"
    topology_options: Mapping[str, str] = field(default_factory=dict)
    cpu_policy: str = "none"
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: CPUSet | None = None
    cpu_reservation_milli: int = 0
    memory_policy: str = "None"
    reserved_memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    node_reserved: Mapping[str, int] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    max_pods: int = 110
    source: ConfigSource = ConfigSource.UNKNOWN

    @property
    def is_assumed(self) -> bool:
        """Whether the running kubelet may go by something else."""
        return self.source is ConfigSource.USUAL_FILE


@dataclass(frozen=True, slots=True)
class MemoryAmounts:
    """Bytes of one memory type in one zone, as in the kubelet's ``memory_manager_state``."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True)
class ZoneMemory:
    """The memory manager's row for one zone.

    ``group`` is the set of zones that the zone is bound to (itself alone: single), ``assignments``
    the kubelet's counter (one per block, zone and resource). ``amounts`` is keyed by ``memory`` and
    ``hugepages-<size>``.
    """

    assignments: int
    group: ZoneSet
    amounts: Mapping[str, MemoryAmounts]


class MemoryBlock(Struct, frozen=True):
    """Memory held by a container: ``size`` bytes of ``resource`` over ``zones`` (counted once)."""

    resource: str
    zones: ZoneSet
    size: int


@dataclass(frozen=True, kw_only=True)
class DevicePool:
    """All devices of one extended resource, ascending by id; a set of them masks positions.

    ``zones[i]``: zone set of device *i*; **None = no topology, 0 = a topology without zones** (the
    kubelet treats them differently). ``healthy`` is the mask of healthy ones. ``complete`` is False
    when unhealthy devices may exist that we cannot see (after our own restart).
    """

    ids: tuple[str, ...]
    zones: tuple[ZoneSet | None, ...]
    healthy: Mask
    complete: bool = True

    @cached_property
    def by_zones(self) -> Mapping[ZoneSet | None, Mask]:
        """Zone set -> its devices, which are alike: what is asked of many is asked of these few."""
        places: dict[ZoneSet | None, list[int]] = {}
        for place, zones in enumerate(self.zones):
            places.setdefault(zones, []).append(place)
        return {zones: bits.of_ascending(members) for zones, members in places.items()}

    def in_zone(self, zone: int) -> Mask:
        """The devices of which the zone is one."""
        mask = 0
        for zones, group in self.by_zones.items():
            if zones and zones >> zone & 1:
                mask |= group
        return mask


class Holding(Struct, frozen=True):
    """What one container holds exclusively. ``devices``: resource -> mask over its DevicePool."""

    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()
    devices: Mapping[str, Mask] = {}


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """All that prediction needs of one node (design §5, §7).

    Attributes:
        topology: machine as the kubelet read it.
        config: effective configuration.
        kubelet_version: e.g. ``v1.35.4``; rules are keyed by its minor version.
        epoch: changes only when the kubelet restarts.
        synced: False from a restart until the kubelet has re-admitted its pods.
        reserved: reserved CPUs as resolved (explicit or picked by the kubelet).
        shared: ``defaultCpuSet``, the shared pool; meaningful under the static CPU policy only.
        memory: zone id -> row; empty under memory policy None.
        devices: resource -> pool.
        admitted: UIDs that passed the whole admission chain.
        holdings: UID -> container name -> holding. May contain UIDs that are not in ``admitted``:
            half-admitted pods, or residues of refused ones.
        pod_holdings: UID -> CPUs and memory that a pod with pod-level resources holds as a whole
            (the managers' ``podEntries``, gate PodLevelResourceManagers). What its containers hold
            are parts of it: count one or the other, never both.
    """

    topology: Topology
    config: KubeletConfig
    kubelet_version: str = ""
    epoch: str = ""
    synced: bool = True
    reserved: CPUSet = 0
    shared: CPUSet = 0
    memory: Mapping[int, ZoneMemory] = field(default_factory=dict)
    devices: Mapping[str, DevicePool] = field(default_factory=dict)
    admitted: frozenset[str] = frozenset()
    holdings: Mapping[str, Mapping[str, Holding]] = field(default_factory=dict)
    pod_holdings: Mapping[str, Holding] = field(default_factory=dict)

    def zones_of(self, holding: Holding) -> ZoneSet:
        """The zones of the CPUs, memory and devices that a container holds."""
        mask = bits.of(z for z, cpus in self.topology.zone_cpus.items() if cpus & holding.cpus)
        for block in holding.memory:
            mask |= block.zones
        for resource, held in holding.devices.items():
            for position in bits.members(held):
                mask |= self.devices[resource].zones[position] or 0
        return mask

    def held_cpus(self, uid: str) -> CPUSet:
        """All CPUs that a pod holds, as a whole or by its containers."""
        whole = self.pod_holdings.get(uid)
        cpus = whole.cpus if whole else 0
        for holding in self.holdings.get(uid, {}).values():
            cpus |= holding.cpus
        return cpus


class Amounts(NamedTuple):
    """One resource of one zone in an NRT (millicores for ``cpu``, base units for all others)."""

    capacity: int
    allocatable: int
    available: int


class PodRef(Struct, frozen=True):
    """A pod on the node: its identity, and whether it holds zone-bound resources (CPUs, memory or
    devices with a zone), which is what the fingerprint method ``with-exclusive-resources`` counts.
    """

    uid: str
    namespace: str
    name: str
    exclusive: bool = False


class KoordletPod(Struct, frozen=True):
    """What Koordinator's label and annotation say of a pod: its QoS class (``LSR``, empty: none),
    and the CPUs that its scheduler gave it (``resource-status``).
    """

    qos: str = ""
    cpus: CPUSet = 0


class KoordletNode(Struct, frozen=True):
    """What koordlet reports from, besides the kubelet: the pods that Koordinator knows, by UID, and
    the Node's annotations.
    """

    pods: Mapping[str, KoordletPod] = {}
    annotations: Mapping[str, str] = {}


class ClaimedDevice(Struct, frozen=True):
    """A device that a resource claim (DRA) gave to a container.

    Attributes:
        namespace: of the claim, which is the pod's.
        claim: name of the ResourceClaim.
        driver: with ``pool`` and ``device``, what names the device; ``device`` may be empty.
        pool: of the driver.
        device: within the pool.
        share: id of a share of a device that several claims may have; empty where it is whole.
        cdi: CDI names (``vendor/class=name``) that put it into the container, as the kubelet lists
            them: with those of the driver's devices before it in the claim (up to 1.37).
    """

    namespace: str
    claim: str
    driver: str
    pool: str
    device: str
    share: str = ""
    cdi: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeReading:
    """One consistent reading of a node: what gets published.

    ``state`` is None when no kubelet was asked (bare machine). ``disagreements`` names sources that
    contradict each other, one line each. ``excluded`` are UIDs whose holdings do not count in the
    zones, by configuration (the state knows them all the same). ``claimed`` are devices of DRA by
    UID and container, ``koordlet`` is for Koordinator's annotations.
    """

    node_name: str
    machine: Machine
    state: NodeState | None = None
    pods: tuple[PodRef, ...] = ()
    disagreements: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()
    claimed: Mapping[str, Mapping[str, tuple[ClaimedDevice, ...]]] = field(default_factory=dict)
    koordlet: KoordletNode = field(default_factory=KoordletNode)
