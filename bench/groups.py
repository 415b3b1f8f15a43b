"""Processing groups: a decision over many nodes, against a plain search in the same run.

The baseline takes group by group (most bandwidth first), tries every zone and every function, goes
back when nothing fits, and knows neither things that are alike nor answers that it gave before.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.groups.allocation import Allocation, GivenNIC, GroupAllocation
from rte.placement.groups.cluster import Cluster
from rte.placement.groups.inventory import (
    DEFAULT_POLICY,
    NIC,
    Core,
    Inventory,
    NodeFacts,
    Policy,
)
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.record import Record
from rte.placement.groups.search.supply import Supply

if TYPE_CHECKING:
    from rte.placement.groups.request import Request

ZONES, CORES, VFS = 2, 64, 16
POLICY = Policy(nic_sharing="bandwidth")


def inventory(vfs: int = VFS, cores: int = CORES) -> Inventory:
    """Two zones, a 100 Gb/s port in each, its VFs; cores of two threads."""
    nics = []
    for zone in range(ZONES):
        pf = f"0000:{0x20 + zone:02x}:00.0"
        nics.append(NIC(address=pf, zone=zone, mbps=100_000, link="up", name=f"p{zone}"))
        for number in range(vfs // ZONES):
            address = f"0000:{0x20 + zone:02x}:{1 + number // 8:02x}.{number % 8}"
            nics.append(NIC(address=address, zone=zone, pf=pf, name=f"p{zone}v{number}"))
    half = cores // ZONES
    return Inventory(
        pages={zone: {"1Gi": 64} for zone in range(ZONES)},
        cores=tuple(Core((i, i + cores), i // half) for i in range(cores)),
        nics=tuple(sorted(nics, key=lambda nic: nic.address)),
    )


def request(*gbps: float, workers: int = 2) -> Request:
    """A group for each rate."""
    return parse_request(
        json.dumps(
            {
                "version": 1,
                "groups": [
                    {
                        "name": f"g{i}",
                        "queues": [{"rx": rate, "tx": rate / 2}],
                        "nics": [{"kind": "vf"}],
                        "workers": workers,
                    }
                    for i, rate in enumerate(gbps)
                ],
            }
        )
    )


@dataclass
class Plain:
    """The baseline's search on one node."""

    request: Request
    supply: Supply
    max_steps: int

    def fits(self) -> bool | None:
        """Whether there is a place; None = given up."""
        self.cores = [len(cores) for cores in self.supply.free_cores]
        self.rx = [function.rx for function in self.supply.functions]
        self.tx = [function.tx for function in self.supply.functions]
        self.port_rx, self.port_tx = list(self.supply.port_rx), list(self.supply.port_tx)
        self.groups = sorted(self.request.groups, key=lambda group: -group.nics[0].rx)
        self.steps = 0
        return self.place(0)

    def place(self, number: int) -> bool | None:
        if number == len(self.groups):
            return True
        group = self.groups[number]
        need = -(-group.cpu_count() // 2)
        for zone in range(len(self.cores)):
            if self.cores[zone] < need:
                continue
            self.cores[zone] -= need
            for i, function in enumerate(self.supply.functions):
                self.steps += 1
                if self.steps > self.max_steps:
                    return None
                wish, port = group.nics[0], function.port
                if function.zone != zone or min(self.rx[i], self.port_rx[port]) < wish.rx:
                    continue
                if min(self.tx[i], self.port_tx[port]) < wish.tx:
                    continue
                self.move(i, wish.rx, wish.tx, -1)
                found = self.place(number + 1)
                self.move(i, wish.rx, wish.tx, 1)
                if found is not False:
                    return found
            self.cores[zone] += need
        return False

    def move(self, function: int, rx: int, tx: int, sign: int) -> None:
        port = self.supply.functions[function].port
        self.rx[function] += sign * rx
        self.tx[function] += sign * tx
        self.port_rx[port] += sign * rx
        self.port_tx[port] += sign * tx


def plain_choice(wanted: Request, cluster: Cluster, names: list[str], machine: Inventory) -> float:
    """Seconds that the baseline takes for one decision, node by node until one fits."""
    started = time.perf_counter()
    for name in names:
        supply = Supply(machine, cluster.used(name), POLICY)
        if Plain(wanted, supply, 20_000).fits():
            break
    return time.perf_counter() - started


def hold_some(cluster: Cluster, name: str, seed: int, gbps: int) -> None:
    """A pod that holds one function of each zone and some cores, as many as the seed says."""
    chance = random.Random(seed)
    groups = []
    for zone in range(ZONES):
        address = f"0000:{0x20 + zone:02x}:01.{chance.randrange(8)}"
        count = chance.randrange(4, 12)
        first = zone * CORES // ZONES
        cpus = tuple(range(first, first + count))
        rate = gbps * 1000 + chance.randrange(2000)
        groups.append(
            GroupAllocation(
                name=f"z{zone}", zone=zone, workers=cpus, nics=(GivenNIC(address, rate, rate),)
            )
        )
    allocation = Allocation(groups=tuple(groups))
    cluster.hold(f"{name}-old", name, Record(pod=f"{name}-old", node=name, allocation=allocation))


def decisions(nodes: int, gbps_held: int, wanted: Request) -> dict[str, float | str]:
    """One decision over nodes that all differ (where something is held of them)."""
    machine, cluster = inventory(), Cluster()
    names = [f"n{i:04d}" for i in range(nodes)]
    for seed, name in enumerate(names):
        cluster.set_node(name, machine, NodeFacts(), POLICY)
        if gbps_held:
            hold_some(cluster, name, seed, gbps_held)
    started = time.perf_counter()
    choice = cluster.choose(wanted, 0.0)
    ours = time.perf_counter() - started
    plain = plain_choice(wanted, cluster, names, machine)
    return {
        "placed": choice.node or "nowhere",
        "ms": round(ours * 1000, 1),
        "baseline_ms": round(plain * 1000, 1),
        "ratio": round(ours / plain, 3),
    }


def stream(nodes: int, pods: int, seed: int) -> dict[str, float]:
    """Pods of a few kinds come and go on nodes of four shapes."""
    chance = random.Random(seed)
    machines = [inventory(8), inventory(16), inventory(16, 128), inventory(32, 96)]
    cluster = Cluster()
    names = [f"n{i:04d}" for i in range(nodes)]
    for i, name in enumerate(names):
        cluster.set_node(name, machines[i % 4], NodeFacts(), DEFAULT_POLICY)
    kinds = [
        request(10),
        request(20, 25, workers=4),
        request(10, 11, 12, 13),
        request(5, 5, 6, 6, 7, 7, 8, 8, workers=1),
    ]
    here: list[str] = []
    placed = 0
    spent = 0.0
    for number in range(pods):
        wanted = chance.choice(kinds)
        started = time.perf_counter()
        choice = cluster.choose(wanted, 0.0)
        spent += time.perf_counter() - started
        if choice.node is not None and choice.decision and choice.decision.allocation:
            placed += 1
            uid = f"u{number}"
            record = Record(pod=uid, node=choice.node, allocation=choice.decision.allocation)
            started = time.perf_counter()
            cluster.hold(uid, choice.node, record)
            spent += time.perf_counter() - started
            here.append(uid)
        if here and chance.random() < 0.3:
            cluster.release(here.pop(chance.randrange(len(here))))
    sample = chance.sample(range(len(names)), 5)
    plain = [
        plain_choice(kinds[i % 4], cluster, names[start:] + names[:start], machines[start % 4])
        for i, start in enumerate(sample)
    ]
    per_second = pods / spent
    return {
        "placed": placed,
        "decisions_per_s": round(per_second, 1),
        "baseline_decisions_per_s": round(len(plain) / sum(plain), 1),
        "ratio": round(per_second * sum(plain) / len(plain), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100, help="nodes of the single decisions")
    parser.add_argument("--fleet", type=int, default=1000, help="nodes of the stream of pods")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mixed = [12 + rate for rate in range(8)]
    cases = {
        "empty": (0, mixed),
        "in use": (20, mixed),
        "too much": (60, [17 + rate for rate in range(8)]),
        "three of five too many": (1, [31, 31, 31, 31, 31, 2, 1, 1]),
    }
    for name, (held, rates) in cases.items():
        row = decisions(args.nodes, held, request(*rates))
        print(json.dumps({"subject": f"8 groups x 16 VFs x {args.nodes} nodes, {name}", **row}))
    row = stream(args.fleet, args.pods, args.seed)
    print(json.dumps({"subject": f"pods on {args.fleet} nodes of 4 shapes", **row}))


if __name__ == "__main__":
    main()
