"""What a node has to give, as small integers: the half of a search that no request changes.

Zones, GPU types and NIC functions are numbered. Things that no rule tells apart (cores of a zone,
GPUs of equal domain, model and memory, functions of equal port, speed and use) share one number or
one class, so that the search never tries the same thing twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.groups import inventory as hardware
from rte.placement.groups.request import matches, words
from rte.placement.groups.search.cores import Cores, Stock

if TYPE_CHECKING:
    from rte.placement.groups.request import GPUWish, NICWish

#: How many NIC wishes a supply remembers the functions of.
MAX_REMEMBERED = 1024
#: More than any rate: the capacity of a port whose speed is not known.
UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class GPUType:
    """Free GPUs that no rule tells apart.

    Attributes:
        zone: number of the zone, None where they have none.
        domains: PCIe domain by scope.
        gpus: indexes in the inventory, ascending.
    """

    zone: int | None
    domains: dict[str, str]
    model: str
    memory_gib: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NICFunction:
    """A NIC function that may be given.

    Attributes:
        nic: the inventory's entry.
        zone: number of the zone, None where it has none.
        domains: PCIe domain by scope.
        port, card: their numbers.
        make: functions of one make differ in nothing but their address.
        mbps: its speed.
        rx, tx: what is free of it, in Mb/s.
        use: what pods hold of it, None where no pod does.
    """

    nic: hardware.NIC
    zone: int | None
    domains: dict[str, str]
    port: int
    card: int
    make: int
    mbps: int
    rx: int
    tx: int
    use: hardware.NICUse | None


class GroupSupply:
    """What a node has to give.

    Attributes:
        zones: zone ids, ascending; elsewhere here zones go by their position.
        threads: thread count of all free cores, 0 where they differ.
        arithmetic: for cores of different thread counts.
        free_cores: zone -> free cores by lowest CPU.
        stocks: zone -> how many by thread count.
        types: GPUs, by the address of the first of each type.
        functions: in address order.
        port_rx, port_tx: what is free of each port, in Mb/s.
        port_make: ports of one number have the same to offer in the same places.
    """

    def __init__(
        self, inventory: hardware.GroupInventory, used: hardware.Used, policy: hardware.Policy
    ) -> None:
        self.inventory = inventory
        self.used = used
        self.policy = policy
        self.zones = tuple(sorted(inventory.pages))
        self._number = {zone: i for i, zone in enumerate(self.zones)}
        self._serving: dict[NICWish, list[int]] = {}
        self._count_cores()
        self._sort_gpus()
        self._read_functions()

    def pages(self, size: str) -> list[int]:
        """Zone -> free pages of a size."""
        used = self.used.pages
        return [
            self.inventory.pages[zone].get(size, 0) - used.get(zone, {}).get(size, 0)
            for zone in self.zones
        ]

    def node_pages(self, size: str) -> int:
        """Free pages of a size on the node as a whole."""
        withheld = self.inventory.reserved_pages.get(size, 0)
        return sum(self.pages(size)) - withheld - self.used.pages_anywhere.get(size, 0)

    def serving(self, wish: NICWish) -> list[int]:
        """The functions that a NIC wish may have, in address order."""
        known = self._serving.get(wish)
        if known is None:
            if len(self._serving) >= MAX_REMEMBERED:
                self._serving.clear()
            functions = enumerate(self.functions)
            known = self._serving[wish] = [i for i, it in functions if self._serves(it, wish)]
        return known

    def suiting(self, wish: GPUWish) -> list[int]:
        """The GPU types that a GPU wish may have."""
        return [
            i
            for i, kind in enumerate(self.types)
            if kind.memory_gib >= wish.memory_gib and matches(wish.models, kind.model)
        ]

    def _serves(self, function: NICFunction, wish: NICWish) -> bool:
        return (
            function.rx >= wish.rx
            and function.tx >= wish.tx
            and function.mbps >= wish.min_mbps
            and (function.nic.rdma or not wish.rdma)
            and (wish.kind == "any" or (wish.kind == "vf") == (function.nic.pf is not None))
            and self.may_share(function, exclusive=wish.exclusive)
        )

    def may_share(self, function: NICFunction, *, exclusive: bool) -> bool:
        """Whether what other pods hold of a function leaves it to a pod of ours."""
        use = function.use
        if use is None:
            return True
        return self.policy.nic_sharing == "bandwidth" and not (use.exclusive or exclusive)

    def _count_cores(self) -> None:
        taken = self.inventory.reserved_cpus | self.used.cpus
        self.free_cores: list[list[hardware.Core]] = [[] for _ in self.zones]
        for core in self.inventory.cores:
            number = self._number.get(core.zone)
            if number is not None and not bits.of(core.cpus) & taken:
                self.free_cores[number].append(core)
        counts = [Counter(len(core.cpus) for core in cores) for cores in self.free_cores]
        threads = tuple(sorted({thread for count in counts for thread in count})) or (1,)
        self.threads = threads[0] if len(threads) == 1 else 0
        self.arithmetic = Cores(threads)
        self.stocks: list[Stock] = [tuple(count[t] for t in threads) for count in counts]

    def _sort_gpus(self) -> None:
        kinds: dict[tuple[object, ...], GPUType] = {}
        for i, gpu in enumerate(self.inventory.gpus):
            if gpu.address in self.used.gpus:
                continue
            zone, domains = self._zone(gpu), _domains(gpu)
            key = zone, *domains.values(), words(gpu.model), gpu.memory_gib
            known = kinds.get(key)
            gpus = (*known.gpus, i) if known else (i,)
            kinds[key] = GPUType(zone, domains, gpu.model, gpu.memory_gib, gpus)
        self.types = tuple(kinds.values())

    def _read_functions(self) -> None:
        inventory = self.inventory
        ports: dict[str, int] = {}
        cards: dict[str, int] = {}
        makes: dict[tuple[object, ...], int] = {}
        self.port_rx: list[int] = []
        self.port_tx: list[int] = []
        functions: list[NICFunction] = []
        for nic in inventory.nics:
            port = inventory.port(nic)
            if port.address not in ports:
                ports[port.address] = len(ports)
                limit = UNLIMITED if port.mbps is None else self._capacity(port.mbps)
                self.port_rx.append(limit)
                self.port_tx.append(limit)
            number = ports[port.address]
            use = self.used.nics.get(nic.address)
            held = use or hardware.NICUse()
            self.port_rx[number] -= held.rx
            self.port_tx[number] -= held.tx
            speed = nic.mbps if nic.mbps is not None else port.mbps
            if (
                speed is None
                or speed < self.policy.nic_min_mbps
                or port.link == "down"
                or nic.address in inventory.parents
            ):
                continue
            zone, domains = self._zone(nic), _domains(nic)
            make = zone, *domains.values(), speed, nic.pf is None, nic.rdma, use
            functions.append(
                NICFunction(
                    nic=nic,
                    zone=zone,
                    domains=domains,
                    port=number,
                    card=cards.setdefault(hardware.card(port.address), len(cards)),
                    make=makes.setdefault(make, len(makes)),
                    mbps=speed,
                    rx=self._capacity(speed) - held.rx,
                    tx=self._capacity(speed) - held.tx,
                    use=use,
                )
            )
        self.functions = tuple(functions)
        self.port_make = self._compare_ports()

    def _compare_ports(self) -> list[int]:
        offers: list[list[int]] = [[] for _ in self.port_rx]
        for function in self.functions:
            offers[function.port].append(function.make)
        makes: dict[tuple[object, ...], int] = {}
        return [
            makes.setdefault((rx, tx, *sorted(offer)), len(makes))
            for rx, tx, offer in zip(self.port_rx, self.port_tx, offers, strict=True)
        ]

    def _capacity(self, mbps: int) -> int:
        return mbps * self.policy.nic_headroom_percent // 100

    def _zone(self, device: hardware.PCIFunction) -> int | None:
        zone = self.inventory.zone_of(device)
        return None if zone is None else self._number.get(zone)


def _domains(device: hardware.PCIFunction) -> dict[str, str]:
    return {scope: device.domain(scope) for scope in ("switch", "root")}
