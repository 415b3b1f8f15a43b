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
from typing import TYPE_CHECKING, Any

from bench.scheduler_scale import machine as hardware
from bench.scheduler_scale import pod_object, topology
from rte import nrt, placement
from rte.model.node import KubeletConfig, NodeReading
from rte.nrt import group_inventory
from rte.placement.groups.allocation import (
    GivenNIC,
    GroupAllocation,
    GroupCPUs,
    GroupsAllocation,
    Record,
)
from rte.placement.groups.cluster import GroupNodes
from rte.placement.groups.inventory import (
    DEFAULT_POLICY,
    NIC,
    Core,
    GroupInventory,
    GroupNodeFacts,
    Policy,
)
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.request import ANNOTATION
from rte.placement.groups.search.supply import GroupSupply
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.loop.messages import Bind, Bound, Gone, Leading, Outcome, Seen, Turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.placement.groups.request import GroupsRequest

ZONES, CORES, VFS = 2, 64, 16
POLICY = Policy(nic_sharing="bandwidth")


def inventory(vfs: int = VFS, cores: int = CORES) -> GroupInventory:
    """Two zones, a 100 Gb/s port in each, its VFs; cores of two threads."""
    nics = []
    for zone in range(ZONES):
        pf = f"0000:{0x20 + zone:02x}:00.0"
        nics.append(NIC(address=pf, zone=zone, mbps=100_000, link="up", name=f"p{zone}"))
        for number in range(vfs // ZONES):
            address = f"0000:{0x20 + zone:02x}:{1 + number // 8:02x}.{number % 8}"
            nics.append(NIC(address=address, zone=zone, pf=pf, name=f"p{zone}v{number}"))
    half = cores // ZONES
    return GroupInventory(
        pages={zone: {"1Gi": 64} for zone in range(ZONES)},
        cores=tuple(Core((i, i + cores), i // half) for i in range(cores)),
        nics=tuple(sorted(nics, key=lambda nic: nic.address)),
    )


def text(*gbps: float, workers: int = 2) -> str:
    """A request with a group for each rate."""
    return json.dumps(
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


def request(*gbps: float, workers: int = 2) -> GroupsRequest:
    """The same, parsed."""
    return parse_request(text(*gbps, workers=workers))


#: What the pods of a stream ask for: rates of the groups, workers of each.
KINDS: tuple[tuple[tuple[float, ...], int], ...] = (
    ((10,), 2),
    ((20, 25), 4),
    ((10, 11, 12, 13), 2),
    ((5, 5, 6, 6, 7, 7, 8, 8), 1),
)


def shapes() -> list[GroupInventory]:
    """Four shapes of nodes."""
    return [inventory(8), inventory(16), inventory(16, 128), inventory(32, 96)]


@dataclass
class Plain:
    """The baseline's search on one node."""

    request: GroupsRequest
    supply: GroupSupply
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


def plain_choice(
    wanted: GroupsRequest, cluster: GroupNodes, names: list[str], machine: GroupInventory
) -> float:
    """Seconds that the baseline takes for one decision, node by node until one fits."""
    started = time.process_time()
    for name in names:
        supply = GroupSupply(machine, cluster.used(name), POLICY)
        if Plain(wanted, supply, 20_000).fits():
            break
    return time.process_time() - started


def hold_some(cluster: GroupNodes, name: str, seed: int, gbps: int) -> None:
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
                name=f"z{zone}",
                zone=zone,
                cpus=GroupCPUs(workers=cpus),
                nics=(GivenNIC(address, rate, rate),),
            )
        )
    allocation = GroupsAllocation(groups=tuple(groups))
    cluster.hold(f"{name}-old", name, Record(pod=f"{name}-old", node=name, allocation=allocation))


def decisions(nodes: int, gbps_held: int, wanted: GroupsRequest) -> dict[str, float | str]:
    """One decision over nodes that all differ (where something is held of them)."""
    machine, cluster = inventory(), GroupNodes()
    names = [f"n{i:04d}" for i in range(nodes)]
    for seed, name in enumerate(names):
        cluster.set_node(name, machine, GroupNodeFacts(), POLICY)
        if gbps_held:
            hold_some(cluster, name, seed, gbps_held)
    started, began = time.process_time(), time.perf_counter()
    choice = cluster.choose(wanted, 0.0)
    ours, wall = time.process_time() - started, time.perf_counter() - began
    plain = plain_choice(wanted, cluster, names, machine)
    return {
        "placed": choice.node or "nowhere",
        "ms": round(ours * 1000, 1),
        "wall_ms": round(wall * 1000, 1),
        "baseline_ms": round(plain * 1000, 1),
        "ratio": round(ours / plain, 3),
    }


def stream(nodes: int, pods: int, seed: int) -> dict[str, float]:
    """Pods of a few kinds come and go on nodes of four shapes."""
    chance = random.Random(seed)
    machines = shapes()
    cluster = GroupNodes()
    names = [f"n{i:04d}" for i in range(nodes)]
    for i, name in enumerate(names):
        cluster.set_node(name, machines[i % 4], GroupNodeFacts(), DEFAULT_POLICY)
    kinds = [request(*rates, workers=workers) for rates, workers in KINDS]
    here: list[str] = []
    placed = 0
    spent = 0.0
    for number in range(pods):
        wanted = chance.choice(kinds)
        started = time.process_time()
        choice = cluster.choose(wanted, 0.0)
        spent += time.process_time() - started
        if choice.node is not None and choice.decision and choice.decision.allocation:
            placed += 1
            uid = f"u{number}"
            record = Record(pod=uid, node=choice.node, allocation=choice.decision.allocation)
            started = time.process_time()
            cluster.hold(uid, choice.node, record)
            spent += time.process_time() - started
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


def through_the_scheduler(nodes: int, pods: int, seed: int) -> dict[str, float]:
    """The same stream through the whole scheduler: objects of the API in, binds out.

    Time counts from the pod that is seen until its bound object has been seen.
    """
    chance = random.Random(seed)
    scheduler = SchedulerMachine("rte-scheduler")
    for i in range(nodes):
        for collection, obj in node_objects(f"n{i:04d}", shapes()[i % 4]):
            scheduler.handle(Seen(collection, obj), 0.0)
    scheduler.handle(Leading(active=True), 0.0)
    here: list[str] = []
    placed, spent, wall = 0, 0.0, 0.0
    for number in range(pods):
        rates, workers = chance.choice(KINDS)
        pod = pod_object(number, [(0, 0)])
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        pod["metadata"]["annotations"] = {ANNOTATION: text(*rates, workers=workers)}
        started, began = time.process_time(), time.perf_counter()
        effects = scheduler.handle(Seen("pods", pod), 0.0)
        while scheduler.has_work():
            effects += scheduler.handle(Turn(), 0.0)
        for bind in (effect for effect in effects if isinstance(effect, Bind)):
            placed += 1
            metadata = {**pod["metadata"], "annotations": dict(bind.annotations)}
            bound = {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": bind.node}}
            scheduler.handle(Bound(bind.pod.uid, Outcome.BOUND), 0.0)
            scheduler.handle(Seen("pods", bound), 0.0)
            here.append(bind.pod.uid)
        spent += time.process_time() - started
        wall += time.perf_counter() - began
        if here and chance.random() < 0.3:
            scheduler.handle(Gone("pods", here.pop(chance.randrange(len(here)))), 0.0)
    return {
        "placed": placed,
        "decisions_per_s": round(pods / spent, 1),
        "wall_decisions_per_s": round(pods / wall, 1),
    }


def node_objects(name: str, machine: GroupInventory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The Node and its report, with a kubelet that assigns no CPUs."""
    shape = topology(ZONES, len(machine.cores) * 2 // ZONES)
    config = KubeletConfig(topology_policy="none", topology_scope="container", cpu_policy="none")
    state = placement.initial_state(shape, config, {}, "v1.35.4")
    reading = NodeReading(node_name=name, machine=hardware(shape), state=state)
    report = nrt.encode(reading)
    published = group_inventory.encode(group_inventory.PublishedInventory(inventory=machine))
    report["metadata"]["annotations"][group_inventory.ANNOTATION] = published
    amounts = {"cpu": "128", "memory": "512Gi", "pods": "110"}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}}
    yield "nodes", {"metadata": metadata, "status": {"allocatable": amounts}}
    yield "reports", report


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
    row = through_the_scheduler(args.fleet, args.pods, args.seed)
    print(json.dumps({"subject": f"the same through the scheduler, {args.fleet} nodes", **row}))


if __name__ == "__main__":
    main()
