"""What a node has, what is held of it, and the policy in force, as the allocator reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from rte.model.bits import CPUSet

#: Page size in Kubernetes' text (``1Gi``) -> number of pages.
Pages: TypeAlias = "Mapping[str, int]"


@dataclass(frozen=True, kw_only=True, slots=True)
class PCIFunction:
    """A PCI function.

    Attributes:
        address: ``domain:bus:device.function``.
        zone: its NUMA zone, None where the platform does not say.
        path: the bridges above it, root port first.
    """

    address: str
    zone: int | None = None
    path: tuple[str, ...] = ()

    def domain(self, scope: str) -> str:
        """Its PCIe domain: the switch nearest to the root, or with scope ``root`` the root bus."""
        if scope == "switch" and len(self.path) >= 2:
            return self.path[1]
        return (self.path[0] if self.path else self.address).rpartition(":")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class GPU(PCIFunction):
    """A GPU that the driver can use; model ``""``, memory 0, index None = not told."""

    model: str = ""
    memory_gib: int = 0
    uuid: str = ""
    index: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NIC(PCIFunction):
    """A network function.

    Attributes:
        mbps: its speed, None where it is unknown.
        link: ``up``, ``down`` or ``""`` (not told).
        pf: address of the physical function that it is a VF of.
        rdma: it has an RDMA device (``rdma_device`` its name).
    """

    name: str = ""
    mbps: int | None = None
    link: str = ""
    pf: str | None = None
    rdma: bool = False
    rdma_device: str = ""
    mac: str = ""


@dataclass(frozen=True, slots=True)
class Core:
    """The on-line CPUs that are siblings, ascending."""

    cpus: tuple[int, ...]
    zone: int


@dataclass(frozen=True, kw_only=True)
class GroupInventory:
    """The hardware of a node for processing groups.

    Attributes:
        pages: zone -> its pool of huge pages; every zone is a key.
        cores: by ascending lowest CPU.
        gpus, nics: by ascending address.
        reserved_cpus: CPUs that groups may not use.
        reserved_pages: pages of the whole node that groups may not use.
        generation: changes whenever the hardware does.
    """

    pages: Mapping[int, Pages]
    cores: tuple[Core, ...] = ()
    gpus: tuple[GPU, ...] = ()
    nics: tuple[NIC, ...] = ()
    reserved_cpus: CPUSet = 0
    reserved_pages: Pages = field(default_factory=dict)
    generation: str = ""

    @cached_property
    def nic_by_address(self) -> Mapping[str, NIC]:
        """NICs by address."""
        return {nic.address: nic for nic in self.nics}

    @cached_property
    def parents(self) -> frozenset[str]:
        """Addresses that some VF of the inventory has as its PF."""
        return frozenset(nic.pf for nic in self.nics if nic.pf is not None)

    @cached_property
    def core_masks(self) -> tuple[CPUSet, ...]:
        """The CPUs of each core."""
        return tuple(bits.of(core.cpus) for core in self.cores)

    @cached_property
    def shape(self) -> Hashable:
        """All that a decision depends on, so no UUIDs and MACs: nodes of one shape answer alike."""
        return (
            tuple((zone, _key(pages)) for zone, pages in sorted(self.pages.items())),
            self.cores,
            tuple((it.address, it.zone, it.path, it.model, it.memory_gib) for it in self.gpus),
            tuple(
                (it.address, it.zone, it.path, it.mbps, it.link, it.pf, it.rdma) for it in self.nics
            ),
            self.reserved_cpus,
            _key(self.reserved_pages),
        )

    def port(self, nic: NIC) -> NIC:
        """The PF of a VF, or the function itself where that is not in the inventory."""
        return self.nic_by_address.get(nic.pf, nic) if nic.pf is not None else nic

    def zone_of(self, device: PCIFunction) -> int | None:
        """The zone of a device; on a node of one zone every device without one is in it."""
        if device.zone is None and len(self.pages) == 1:
            return next(iter(self.pages))
        return device.zone


def _key(pages: Pages) -> Hashable:
    return tuple(sorted(pages.items()))


def card(address: str) -> str:
    """``domain:bus:device`` of a port."""
    return address.rpartition(".")[0]


@dataclass(frozen=True, slots=True, order=True)
class NICUse:
    """What pods hold of a function, in Mb/s; ``exclusive``: one of them shares it with nobody."""

    rx: int = 0
    tx: int = 0
    exclusive: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """What other pods hold.

    Attributes:
        nics: held functions by address, even where they hold no bandwidth.
        pages: zone -> pages held there.
        pages_anywhere: pages held at no known zone.
    """

    cpus: CPUSet = 0
    gpus: frozenset[str] = frozenset()
    nics: Mapping[str, NICUse] = field(default_factory=dict)
    pages: Mapping[int, Pages] = field(default_factory=dict)
    pages_anywhere: Pages = field(default_factory=dict)

    @property
    def key(self) -> Hashable:
        """Equal for equal holdings."""
        return (
            self.cpus,
            self.gpus,
            tuple(sorted(self.nics.items())),
            tuple((zone, _key(pages)) for zone, pages in sorted(self.pages.items())),
            _key(self.pages_anywhere),
        )


NOTHING_USED = Used()


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The rules of a class of nodes.

    Attributes:
        nic_headroom_percent: how much of a NIC's speed may be given away.
        nic_min_mbps: slower functions are not used.
        nic_sharing: ``exclusive``: a function serves one pod; ``bandwidth``: several, by rate.
        settle_seconds: how long a node rests after a pod with groups started or stopped.
        settle_for: pods that the rest is for: ``gpu`` (pods with GPUs), ``all``.
        strategy: ``pack``: few zones; ``spread``: many.
        max_steps: budget of the search for a place on one node.
        max_improvement_steps: budget for a better place once there is one.
        networks: template of a network selection for each NIC function given (``networks.py``);
            empty: pods attach their NICs themselves.
    """

    nic_headroom_percent: int = 90
    nic_min_mbps: int = 11_000
    nic_sharing: Literal["exclusive", "bandwidth"] = "exclusive"
    settle_seconds: float = 30
    settle_for: tuple[Literal["gpu", "all"], ...] = ("gpu",)
    strategy: Literal["pack", "spread"] = "pack"
    max_steps: int = 30_000
    max_improvement_steps: int = 3_000
    networks: str = ""


DEFAULT_POLICY = Policy()


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupNodeFacts:
    """What is said about the node beside its hardware.

    Attributes:
        groups: its node groups; none = ``default``.
        seconds_since_change: since the last start or stop of a pod with groups, None = unknown.
    """

    cordoned: bool = False
    maintenance: bool = False
    groups: tuple[str, ...] = ("default",)
    cpu_arch: str = ""
    seconds_since_change: float | None = None
