"""The simulated kubelet treats pods as a real one does on the same hardware: the same verdicts,
reasons, CPU sets and memory blocks, while pods come and go.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import sysfs
from rte.kubelet import statefiles
from rte.model.node import DevicePool
from rte.sim.apiserver import API
from rte.sim.kubelet import Kubelet
from tests.cluster import pods

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

Object = dict[str, Any]
SEED = int(os.environ.get("RTE_SEED", "1"))
ROUNDS = int(os.environ.get("RTE_ROUNDS", "50"))
GPU = "example.com/gpu"
SHAPE = "2x12,memory=8Gi,hugepages-2Mi=256"
#: Devices that a pod could get are alike within a zone: which one the kubelet picks is random.
DEVICES = {GPU: [[0], [0], [1], [1]]}
CONFIGURATIONS: tuple[Object, ...] = (
    {"policy": "single-numa-node"},
    {"policy": "restricted", "scope": "pod", "cpu_options": {"full-pcpus-only": "true"}},
    {"policy": "best-effort", "reserved_cpus": "0-1"},
    {"policy": "none", "cpu_options": {"distribute-cpus-across-numa": "true"}},
)


@dataclass
class Pair:
    """A real node and its double, and the pods that both have."""

    real: Node
    double: Kubelet
    alive: dict[str, Object] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def draw(chooser: random.Random, name: str, node: str) -> Object:
    """A pod of one of the kinds that the managers tell apart."""
    size, memory = chooser.choice((1, 2, 2, 3, 4, 6)), chooser.choice(("64Mi", "512Mi", "1Gi"))
    make = pods.container
    match chooser.randrange(10):
        case 0:
            containers, init = [make("700m", memory)], []
        case 1:
            containers, init = [make(size, memory, limits={})], []
        case 2:
            containers, init = [make()], []
        case 3:
            containers, init = [make(size, memory), make(1, "64Mi")], []
        case 4:
            containers, init = [make(1, memory)], [make(size, "64Mi", command=["true"])]
        case 5:
            containers, init = [make(1, memory)], [make(1, "64Mi", sidecar=True)]
        case 6:
            containers, init = (
                [make(1, memory, hugepages_2Mi=chooser.choice(("64Mi", "256Mi")))],
                [],
            )
        case 7:
            containers, init = [make(size, memory, **{GPU: chooser.choice((1, 1, 2))})], []
        case 8:
            containers, init = [make(chooser.choice((10, 14)), chooser.choice(("2Gi", "9Gi")))], []
        case _:
            containers, init = [make(size, memory)], []
    return pods.pod(*containers, init=init, node=node, name=name, terminationGracePeriodSeconds=1)


def told(pod: Object | None) -> bool:
    """Whether a kubelet has said yes or no to a pod."""
    return pod is not None and "startTime" in pod["status"]


def verdict(pod: Object) -> tuple[str, str, str]:
    """Admitted or refused, reason and text."""
    shown = pod["status"]
    refused = shown.get("reason", "") if shown.get("phase") == "Failed" else ""
    return "refused" if refused else "admitted", refused, shown.get("message", "") * bool(refused)


async def settle(api: API, name: str, done: Callable[[Object | None], bool]) -> None:
    """Let the double work until a pod is as wanted."""
    async with asyncio.timeout(5):
        while not done(api.store.get("pods", ("default", name))):
            await asyncio.sleep(0)


def holdings(pair: Pair) -> tuple[Object, Object]:
    """By pod name and container: CPUs and memory blocks, of the real kubelet and of the double."""
    cpu = statefiles.parse_cpu_state((pair.real.root / "cpu_manager_state").read_bytes())
    memory = statefiles.parse_memory_state((pair.real.root / "memory_manager_state").read_bytes())
    real: Object = {}
    double: Object = {}
    for name, obj in pair.alive.items():
        uid = obj["metadata"]["uid"]
        held: Object = {c: {"cpus": cpus} for c, cpus in cpu.entries.get(uid, {}).items()}
        for container, blocks in memory.entries.get(uid, {}).items():
            # The kubelet walks a Go map: the order of a container's blocks means nothing.
            held.setdefault(container, {})["memory"] = sorted(blocks, key=str)
        real[name] = held
        mine = pair.double._api.store.get("pods", ("default", name))
        assert mine is not None
        double[name] = {
            container: {
                **({"cpus": holding.cpus} if holding.cpus else {}),
                **({"memory": sorted(holding.memory, key=str)} if holding.memory else {}),
            }
            for container, holding in pair.double.state.holdings.get(
                mine["metadata"]["uid"], {}
            ).items()
            if holding.cpus or holding.memory
        }
    return real, double


def test_both_kubelets_agree_on_every_pod(
    cluster: Cluster, fresh_nodes: Callable[[Sequence[Object]], list[Node]]
) -> None:
    chooser = random.Random(SEED)
    nodes = fresh_nodes(
        [{"shape": SHAPE, "devices": DEVICES, "kubelet": config} for config in CONFIGURATIONS]
    )
    api = API()
    with asyncio.Runner() as runner:
        pairs = []
        for node in nodes:
            machine = sysfs.read_machine(node.machine / "sys", node.machine / "proc")
            zones = [zones[0] for zones in DEVICES[GPU]]
            pool = DevicePool(
                ids=tuple(f"gpu{number}" for number in range(len(zones))),
                zones=tuple(1 << zone for zone in zones),
                healthy=(1 << len(zones)) - 1,
            )
            double = Kubelet(
                api, node.name, machine, node.config,
                devices={GPU: pool}, version=f"v{cluster.version}",
            )  # fmt: skip
            runner.run(double.start())
            pairs.append(Pair(node, double))
        try:
            for number in range(ROUNDS):
                _round(number, chooser, cluster, api, runner, pairs)
        finally:
            for pair in pairs:
                runner.run(pair.double.stop())
    found = [line for pair in pairs for line in pair.differences]
    refused = sum(len(pair.double.refusals) for pair in pairs)
    assert not found, f"{len(found)} differences:\n" + "\n".join(found)
    assert 0.1 < refused / (ROUNDS * len(pairs)) < 0.7, "the pods do not probe the limits"


def _round(
    number: int,
    chooser: random.Random,
    cluster: Cluster,
    api: API,
    runner: asyncio.Runner,
    pairs: Sequence[Pair],
) -> None:
    """One more pod for each node, after some others have gone."""
    leaving = [
        (pair, pair.alive.pop(chooser.choice(sorted(pair.alive))))
        for pair in pairs
        if len(pair.alive) > 4 and chooser.random() < 0.6
    ]
    for _, pod in leaving:
        cluster.api.delete(pods.path(pod))
        api.delete("pods", pod["metadata"]["name"], "default")
    for _, pod in leaving:
        cluster.wait_pod(pod, lambda p: p is None)
        runner.run(settle(api, pod["metadata"]["name"], lambda p: p is None))
    made = []
    for pair in pairs:
        pod = draw(chooser, f"{pair.real.name}-p{number}", pair.real.name)
        api.create("pods", pod, "default")
        made.append((pair, cluster.create_pod(pod)))
    for pair, pod in made:
        name = pod["metadata"]["name"]
        real = cluster.wait_pod(pod, told)
        runner.run(settle(api, name, told))
        double = api.get("pods", name, "default")
        if verdict(real) != verdict(double):
            pair.differences.append(f"{name}: real {verdict(real)}, double {verdict(double)}")
        elif verdict(real)[0] == "admitted":
            pair.alive[name] = cluster.wait_pod(pod, "Running")
            runner.run(settle(api, name, lambda p: bool(p) and p["status"]["phase"] == "Running"))
    for pair, _ in made:
        real_holdings, double_holdings = holdings(pair)
        pair.differences += [
            f"{pair.real.name} after {number}: {name}: real {real_holdings[name]}, "
            f"double {double_holdings[name]}"
            for name in real_holdings
            if real_holdings[name] != double_holdings[name]
        ]
