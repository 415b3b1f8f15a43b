"""Several pods at once: ``python -m bench.joint [--gangs 500] [--nodes 5000]``.

Prints one JSON line for each question. Gangs are 64 pods on 500 nodes, feasible by construction:
nodes of mixed machines and policies are filled up with other pods, but for the places of some of
the gang on each of its hosts (which every order admits). The baseline of the same run is greedy:
each pod to the first node that admits it then. Copies are counted on 5,000 nodes, none like
another; the baseline predicts one after the other. Seconds are those of the processor; ``wall``
ones stand beside them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.placement_lib import GIB, topology
from rte import placement
from rte.model.node import DevicePool, KubeletConfig, NodeState
from rte.model.pod import QOS, Container, Pod
from rte.model.totals import totals_of
from rte.placement.fleet.places import shape_key
from rte.placement.inflight.orders import Bundle, StepBudget, plus
from rte.placement.joint import fit, gang
from rte.placement.joint.node import JointNode, Member, Site, kinds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

GPU = "example.com/gpu"
PODS, NODES = 64, 500
MACHINES = ((2, 1, 16), (2, 2, 8), (1, 1, 16), (2, 4, 6))
POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort")


def machine(rng: random.Random, policies: Sequence[str] = POLICIES) -> NodeState:
    shape = rng.choice(MACHINES)
    zones = shape[0] * shape[1]
    places = tuple(1 << zone for zone in range(zones) for _ in range(2))
    pool = DevicePool(
        ids=tuple(f"gpu-{place}" for place in range(len(places))),
        zones=places,
        healthy=(1 << len(places)) - 1,
    )
    return placement.initial_state(
        topology(*shape),
        KubeletConfig(
            topology_policy=rng.choice(policies),
            topology_scope=rng.choice(("container", "pod")),
            cpu_policy="static",
            cpu_reservation_milli=2000,
            memory_policy="Static",
            reserved_memory={0: {"memory": GIB}},
        ),
        {GPU: pool} if rng.random() < 0.5 else {},
        "v1.35.4",
    )


def container(rng: random.Random, name: str) -> Container:
    cpus = 1000 * rng.choice((1, 2, 2, 3, 4, 6, 8, 12))
    amounts = {"cpu": cpus, "memory": rng.randint(1, 24) * GIB}
    if rng.random() < 0.25:
        amounts[GPU] = rng.choice((1, 1, 2))
    return Container(name=name, requests=amounts, limits=amounts)


def kind(rng: random.Random, uid: str) -> Pod:
    names = ("main", "side") if rng.random() < 0.2 else ("main",)
    return Pod(uid=uid, qos=QOS.GUARANTEED, containers=tuple(container(rng, n) for n in names))


class World:
    """What all cases draw from: kinds of pods, empty machines, nodes with and without room."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        drawn = {shape_key(each): each for each in (kind(rng, "") for _ in range(96))}
        self.kinds = list(drawn.values())
        self.empty = [machine(rng) for _ in range(16)]
        self.roomy = [fill(rng, rng.choice(self.empty), self.kinds, 20) for _ in range(40)]
        self.full = [fill(rng, state, self.kinds, 100) for state in self.roomy]

    def case(self, seed: int) -> tuple[list[JointNode], list[Pod]]:
        """A snapshot and a gang of some kinds that has places on it, few of them elsewhere."""
        rng = random.Random(seed)
        kinds = rng.sample(self.kinds, rng.choice((1, 4, 8, 16, 64)))
        share = rng.choice((0.0, 0.0, 0.02))
        pods: list[Pod] = []
        states: list[NodeState] = []
        while len(pods) < PODS:
            state, bundle = self.host(rng, kinds, min(PODS - len(pods), rng.choice((1, 2, 3, 4))))
            pods += [replace(kinds[which], uid="") for which in bundle]
            states.append(state)
        full = [saturated(state, kinds) for state in rng.sample(self.full, 20)]
        while len(states) < NODES:
            states.append(rng.choice(self.roomy if rng.random() < share else full))
        rng.shuffle(states)
        rng.shuffle(pods)
        return (
            [node_of(f"node-{number}", state) for number, state in enumerate(states)],
            [replace(pod, uid=f"pod-{number}") for number, pod in enumerate(pods)],
        )

    def host(self, rng: random.Random, kinds: list[Pod], count: int) -> tuple[NodeState, Bundle]:
        """A node that is full but for the places of some pods, and these."""
        state = fill(rng, rng.choice(self.empty), self.kinds, rng.choice((0, 4, 12)))
        guests: dict[str, int] = {}
        for number in range(4 * count):
            which = rng.randrange(len(kinds))
            answer = placement.execute(state, replace(kinds[which], uid=f"guest-{number}"))
            if answer.admitted and len(guests) < count:
                guests[f"guest-{number}"] = which
                state = answer.state
        state = saturated(fill(rng, state, self.kinds, 60), kinds)
        bundle: Bundle = ()
        known = kinds_of(map(member, kinds))
        for uid, which in guests.items():
            # Who cannot come in every order stays where it is.
            without = placement.remove(state, uid)
            site = Site(node_of("", without), known, StepBudget(1 << 30))
            if site.takes(plus(bundle, which)):
                state, bundle = without, plus(bundle, which)
        return state, bundle


def member(pod: Pod) -> Member:
    return Member(pod=pod)


def saturated(state: NodeState, kinds: list[Pod]) -> NodeState:
    """The node with so many of these pods that it takes no more of any, the largest first."""
    ordered = sorted(kinds, key=lambda each: -totals_of(each)["cpu"])
    for which, each in enumerate(ordered):
        for number in range(64):
            answer = placement.execute(state, replace(each, uid=f"saturates-{which}-{number}"))
            if not answer.admitted:
                break
            state = answer.state
    return state


def fill(rng: random.Random, state: NodeState, kinds: list[Pod], tries: int) -> NodeState:
    """The node after so many pods have tried to get on it."""
    before = len(state.admitted)
    for number in range(before, before + tries):
        answer = placement.execute(state, replace(rng.choice(kinds), uid=f"held-{number}"))
        if answer.admitted:
            state = answer.state
    return state


def node_of(name: str, state: NodeState) -> JointNode:
    """Totals as the kubelet counts them; what is held stands for what was asked."""
    used: Counter[str] = Counter()
    for containers in state.holdings.values():
        used["pods"] += 1
        for holding in containers.values():
            used["cpu"] += 1000 * holding.cpus.bit_count()
            used["memory"] += sum(block.size for block in holding.memory)
            used.update({name: mask.bit_count() for name, mask in holding.devices.items()})
    allocatable = {
        "cpu": 1000 * (state.topology.all_cpus & ~state.reserved).bit_count(),
        "memory": sum(row.amounts["memory"].allocatable for row in state.memory.values()),
        "pods": 110,
        **{name: pool.healthy.bit_count() for name, pool in state.devices.items()},
    }
    return JointNode(name=name, state=state, allocatable=allocatable, used=used)


def greedy(nodes: list[JointNode], pods: list[Pod]) -> int:
    """Pods that find a node when each in turn goes to the first one that admits it then."""
    states = {node.name: node.state for node in nodes}
    used = {node.name: Counter(node.used) for node in nodes}
    placed = 0
    for pod in pods:
        for node in nodes:
            after = used[node.name] + Counter(totals_of(pod))
            if any(after[name] > node.allocatable.get(name, 0) for name in totals_of(pod)):
                continue
            answer = placement.execute(states[node.name], pod)
            if answer.admitted:
                states[node.name], used[node.name] = answer.state, after
                placed += 1
                break
    return placed


def gangs(count: int) -> None:
    verdicts: Counter[str] = Counter()
    seconds, wall, steps, lucky = [], [], [], 0
    world = World(0)
    for seed in range(count):
        nodes, pods = world.case(seed)
        begin, wall_begin = time.process_time(), time.perf_counter()
        answer = gang.place_together(nodes, [member(pod) for pod in pods])
        seconds.append(time.process_time() - begin)
        wall.append(time.perf_counter() - wall_begin)
        verdicts[answer.verdict] += 1
        steps.append(answer.steps)
        if seed < 20:
            lucky += greedy(nodes, pods) == len(pods)
    print(
        json.dumps(
            {
                "what": f"gangs of {PODS} pods on {NODES} nodes, feasible by construction",
                **verdicts,
                "median_s": round(statistics.median(seconds), 3),
                "max_s": round(max(seconds), 3),
                "max_wall_s": round(max(wall), 3),
                "most_steps": max(steps),
                "greedy_solves_of_20": lucky,
            }
        )
    )


def fits(count: int, policies: Sequence[str]) -> None:
    """How many of a pod fit on nodes of which none is like another, against one by one."""
    rng = random.Random(1)
    kinds = [kind(rng, "") for _ in range(40)]
    empty = [machine(rng, policies) for _ in range(16)]
    nodes = [
        node_of(f"node-{n}", fill(rng, rng.choice(empty), kinds, rng.randint(2, 12)))
        for n in range(count)
    ]
    begin = time.process_time()
    table = fit.FitTable(nodes)
    build = time.process_time() - begin
    seconds, unsure = [], 0
    for pod in kinds[:20]:
        begin = time.process_time()
        answer = table.count(member(pod))
        seconds.append(time.process_time() - begin)
        unsure += len(answer.unsure)
    sample = nodes[: max(1, count // 50)]
    begin = time.process_time()
    for pod in kinds[:20]:
        for node in sample:
            one_by_one(node, pod)
    baseline = (time.process_time() - begin) / 20 * count / len(sample)
    print(
        json.dumps(
            {
                "what": f"copies that fit on {count} nodes, a shape not asked for before",
                "policies": sorted(set(policies)),
                "median_ms": round(1000 * statistics.median(seconds)),
                "max_ms": round(1000 * max(seconds)),
                "bar_ms": 200,
                "build_ms": round(1000 * build),
                "unsure_nodes": unsure,
                "one_by_one_ms": round(1000 * baseline),
                "ratio": round(baseline / statistics.median(seconds), 1),
            }
        )
    )


def one_by_one(node: JointNode, pod: Pod) -> int:
    """The baseline: predict copy after copy."""
    state, room, wanted = node.state, node.room, totals_of(pod)
    for number in range(110):
        if any((number + 1) * amount > room.get(name, 0) for name, amount in wanted.items()):
            return number
        answer = placement.execute(state, replace(pod, uid=f"copy-{number}"))
        if not answer.admitted:
            return number
        state = answer.state
    return 110


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=5000, help="of the question how many fit")
    args = parser.parse_args()
    fits(args.nodes, ("single-numa-node", "restricted"))
    # best-effort with the memory manager has to be predicted, within a budget.
    fits(args.nodes, POLICIES)
    gangs(args.gangs)


if __name__ == "__main__":
    main()
