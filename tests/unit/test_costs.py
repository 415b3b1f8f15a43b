"""What machines of many NUMA zones, and pods of many containers, cost whoever asks about them."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from rte import accounting, nrt, placement
from rte.kubelet import config as kubelet_config
from rte.model.kubelet import Allocatable, AllocatedPods, CPUManagerState, KubeletView
from rte.nrt import group_inventory
from rte.placement.explain import explain
from rte.placement.foreign import zone_scores, zones
from rte.placement.groups import place
from rte.placement.groups.parsing import parse_request
from rte.placement.joint import fit, gang
from rte.placement.joint.node import JointNode, Member
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import objects
from rte.scheduler.framework.node import Report
from rte.scheduler.front import answers
from rte.scheduler.loop.cycle import Cycle
from rte.sim import machines, offline
from rte.sim.kubelet_document import kubelet_document
from rte.view import model
from tests.unit.placement import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.model.machine import Machine
    from rte.model.node import NodeReading, NodeState

MIB = 1 << 20
#: More than the same question costs on a machine of two zones.
MORE_SECONDS, MORE_BYTES = 0.02, 50 * MIB
#: Of 144 CPUs, so that zones make the difference.
FEW = "2x72,threads=1"
MANY = {"2-of-64": "2x72,threads=1,memory-zones=62x1Gi", "24-of-64": "24x6,memory-zones=40x1Gi"}
POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


@pytest.fixture(scope="module")
def hardware(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Machine]:
    known: dict[str, Machine] = {}

    def made(shape: str) -> Machine:
        if shape not in known:
            known[shape] = machines.make(shape, tmp_path_factory.mktemp("machine") / "m")
        return known[shape]

    return made


def state_on(machine: Machine, policy: str, **options: Any) -> NodeState:
    document = kubelet_document(machine, policy=policy, **options)
    config = kubelet_config.effective(document, memory_bytes=machine.memory_bytes, where="")
    topology = accounting.kubelet_topology(machine)
    return placement.initial_state(topology, config, {}, "v1.37.1")


def pod_object(name: str) -> dict[str, Any]:
    limits = {"cpu": "4", "memory": "1Gi"}
    container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulerName": "rte-scheduler", "containers": [container]},
        "status": {},
    }


def cluster_of(state: NodeState) -> Cluster:
    cluster = Cluster()
    cluster.set_node(
        objects.NodeInfo(
            name="n",
            uid="",
            labels={},
            taints=(),
            unschedulable=False,
            allocatable={"cpu": 140_000, "memory": 100 << 30, "pods": 250},
        )
    )
    cluster.set_report("n", Report(state=state), 0.0)
    return cluster


def view_of(state: NodeState) -> KubeletView:
    """What the kubelet's files and socket tell of an idle node."""
    return KubeletView(
        config=state.config,
        version=state.kubelet_version,
        epoch="1",
        cpu=CPUManagerState("static", state.shared, {}),
        allocated=AllocatedPods({}),
        pods=(),
        allocatable=Allocatable(cpus=state.topology.all_cpus & ~state.reserved),
    )


def reading_of(machine: Machine, state: NodeState) -> NodeReading:
    return accounting.build_reading("n", machine, view_of(state))


def admit(_: Machine, state: NodeState) -> object:
    return placement.admit(state, build.simple("a", 4))


def explain_why(_: Machine, state: NodeState) -> object:
    return explain(state, build.simple("a", 4)), explain(state, build.simple("b", 200))


def how_many_fit(_: Machine, state: NodeState) -> object:
    node = JointNode(
        name="n", state=state, allocatable={"cpu": 140_000, "memory": 100 << 30, "pods": 9}
    )
    return fit.FitTable([node]).count(Member(pod=build.simple("a", 4)))


def place_a_gang(_: Machine, state: NodeState) -> object:
    room = {"cpu": 140_000, "memory": 100 << 30, "pods": 9}
    nodes = [JointNode(name=name, state=state, allocatable=room) for name in ("n", "m")]
    return gang.place_together(nodes, [Member(pod=build.simple(f"a{n}", 4)) for n in range(4)])


def simulate(_: Machine, state: NodeState) -> object:
    cluster = cluster_of(state)
    return offline.simulate(cluster, [objects.read_pod(pod_object("a"), cluster.shapes)])


def decide(_: Machine, state: NodeState) -> object:
    cluster = cluster_of(state)
    cycle = Cycle(cluster)
    pod = objects.read_pod(pod_object("a"), cluster.shapes)
    cluster.set_pod(pod, 0.0)
    return cycle.decide(pod), cycle.why(pod)


def explain_to_users(_: Machine, state: NodeState) -> object:
    cluster = cluster_of(state)
    pod = objects.read_pod(pod_object("a"), cluster.shapes)
    return answers.explain_pod(cluster, Cycle(cluster), pod)


def place_groups(machine: Machine, state: NodeState) -> object:
    inventory = group_inventory.published(reading_of(machine, state)).inventory
    request = {"version": 1, "groups": [{"name": name, "workers": 4} for name in "abc"]}
    found = place.place(parse_request(json.dumps(request)), inventory)
    assert found.allocation
    return found


def show(_: Machine, state: NodeState) -> object:
    (entry,) = cluster_of(state).nodes.values()
    return model.node(entry), model.machine(state.topology)


def report(machine: Machine, state: NodeState) -> object:
    return nrt.encode(reading_of(machine, state))


def filter_foreign_zones(machine: Machine, state: NodeState) -> object:
    """As of a report of another exporter; of a machine without a policy it asks for nothing."""
    table = zones.ZoneTable(
        zones=tuple(
            zones.ZoneEntry(
                id=zone.id,
                available={"cpu": 1000 * zone.cpus.bit_count(), "memory": zone.memory_bytes},
                total={"cpu": 1000 * zone.cpus.bit_count(), "memory": zone.memory_bytes},
                costs=zone.distances,
            )
            for zone in machine.zones
        ),
        policy=state.config.topology_policy,
        max_zones=64,
    )
    asked = build.simple("a", 30, 30)
    return (
        zones.filter_zones(table, asked, ("cpu", "memory")),
        zone_scores.score_zones(table, asked, "LeastNUMANodes"),
    )


SURFACES = [
    admit,
    explain_why,
    how_many_fit,
    place_a_gang,
    simulate,
    decide,
    explain_to_users,
    place_groups,
    show,
    report,
    filter_foreign_zones,
]


def cost(ask: Callable[[], object]) -> tuple[float, int]:
    """CPU seconds of the quickest of five answers, and bytes at the peak of one."""
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        ask()
        seconds.append(time.process_time() - begin)
    tracemalloc.start()
    try:
        ask()
        return min(seconds), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("memory_policy", ["None", "Static"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", MANY.values(), ids=MANY)
def test_one_answer_about_many_zones_costs_little_more_than_about_two(
    hardware: Callable[[str], Machine], shape: str, policy: str, memory_policy: str
) -> None:
    for ask in SURFACES:
        seconds, peak = [], []
        for each in (FEW, shape):
            machine = hardware(each)
            state = state_on(machine, policy, memory_policy=memory_policy)
            took, held = cost(lambda: ask(machine, state))  # noqa: B023 - called at once
            seconds.append(took)
            peak.append(held)
        assert seconds[1] - seconds[0] <= MORE_SECONDS, (ask.__name__, seconds)
        assert peak[1] - peak[0] <= MORE_BYTES, (ask.__name__, peak)


@pytest.mark.parametrize("shape", MANY.values(), ids=MANY)
def test_nobody_says_that_a_pod_fits_whose_zones_nobody_follows(
    hardware: Callable[[str], Machine], shape: str
) -> None:
    machine = hardware(shape)
    for policy in POLICIES:
        for memory_policy in ("None", "Static"):
            state = state_on(machine, policy, memory_policy=memory_policy)
            known = placement.admit(state, build.simple("a", 4)).admitted
            assert known == (memory_policy == "None" and (policy == "none" or shape[0:2] == "2x"))
            fits = how_many_fit(machine, state)
            assert isinstance(fits, fit.Fit)
            assert (fits.total > 0, fits.unsure == {"n"}) == (known, not known)
            together = place_a_gang(machine, state)
            assert isinstance(together, gang.Answer)
            assert (together.verdict is gang.GangVerdict.FITS) == known
            placed = simulate(machine, state)
            assert isinstance(placed, offline.SimulationOutcome)
            assert bool(placed.placed) == known
            cluster = cluster_of(state)
            pod = objects.read_pod(pod_object("a"), cluster.shapes)
            cluster.set_pod(pod, 0.0)
            assert Cycle(cluster).decide(pod).node == ("n" if known else None)


SIXTEEN = "16x32,memory=512Gi"


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_of_a_hundred_containers_on_sixteen_zones(
    hardware: Callable[[str], Machine], policy: str, scope: str
) -> None:
    state = state_on(hardware(SIXTEEN), policy, scope=scope)
    assert state.config.memory_policy == "Static"
    uneven = [build.container(f"c{n}", cpus=1 + n % 7, memory=1 + n % 5) for n in range(100)]
    again = [build.container(f"i{n}", "init", cpus=200 + n, memory=n) for n in range(99)]
    pods = [
        build.pod("even", *[build.container(f"c{n}", cpus=2, memory=1) for n in range(100)]),
        build.pod("uneven", *uneven),
        build.pod("again", *again, build.container(cpus=300, memory=1)),
    ]
    for pod in pods:
        assert placement.admit(state, pod).verdict != "uncertain"
        for ask in (placement.admit, explain):
            seconds, peak = cost(lambda: ask(state, pod))  # noqa: B023 - called at once
            assert seconds <= 0.1, (ask.__name__, pod.uid, seconds)
            assert peak <= 100 * MIB, (ask.__name__, pod.uid, peak)
