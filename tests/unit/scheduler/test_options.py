"""What is off unless asked for: a bound on sharing, and Koordinator's resource-status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rte.k8s.selectors import NodeTerm
from rte.scheduler.settings import SchedulerSettings
from tests.unit.scheduler.build import World, machine, pod_object, state

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView

LSR = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA = "scheduling.koordinator.sh/numa-topology-spec"


def unmanaged() -> World:
    world = World(resource_status=True)
    none = {"cpu_policy": "none", "memory_policy": "None", "reserved_memory": {}}
    world.node("n", state(machine(), policy="none", **none))
    return world


def test_sharing_pods_are_bounded_by_the_limits_that_the_pool_can_bear() -> None:
    world = World(shared_limit=1.0)
    world.node("n")
    small = {"guaranteed": False, "cpu": "500m", "mem": "64Mi"}
    assert world.place(world.pod(cpu="7")) == "n"  # leaves 9 shared CPUs
    placed = [world.place(world.pod(**small)) for _ in range(19)]
    assert placed.count("n") == 16  # node totals: 15 CPUs less 7
    world = World(shared_limit=0.5)
    world.node("n")
    assert world.place(world.pod(cpu="7")) == "n"
    placed = [world.place(world.pod(**small)) for _ in range(19)]
    assert placed.count("n") == 9
    # What is pinned makes the pool smaller.
    pinned = world.pod(cpu="2")
    assert world.why(pinned) == {"node(s) whose shared CPUs would be crowded": 1}


def test_cpus_are_given_where_no_cpu_manager_gives_them() -> None:
    world = unmanaged()
    taken = set()
    for _ in range(3):
        pod = world.pod(cpu="4", labels=LSR)
        decision = world.cycle.decide(pod)
        assert decision.node == "n"
        written = json.loads(decision.status.resource_status)
        assert written["cpuset"] not in taken
        taken.add(written["cpuset"])
        world.place(pod)
    last = world.pod(cpu="4", labels=LSR)
    assert world.place(last) is None
    assert next(iter(world.why(last))).startswith(("not enough cpus", "Insufficient cpu"))


def test_a_numa_policy_of_the_pod_is_honoured() -> None:
    world = unmanaged()
    annotations = {NUMA: json.dumps({"numaTopologyPolicy": "SingleNUMANode"})}
    pod = world.pod(cpu="6", labels=LSR, annotations=annotations)
    written = json.loads(world.cycle.decide(pod).status.resource_status)
    assert len(written["numaNodeResources"]) == 1
    assert world.place(world.pod(cpu="10", labels=LSR, annotations=annotations)) is None


def burstable(world: World, limit: str, **annotations: str) -> PodView:
    """A pod that may burst to the limit, with a resource-spec."""
    obj = pod_object(cpu="1", guaranteed=False, annotations={SPEC: json.dumps(annotations)})
    obj["spec"]["containers"][0]["resources"]["limits"] = {"cpu": limit}
    return world.pod(obj)


def test_a_constrained_burst_stays_in_the_largest_shared_pool_that_holds_its_limit() -> None:
    world = unmanaged()
    # The pools are of 7 and 8 CPUs: CPU 0 is reserved.
    pod = burstable(world, "6", requiredCPUBindPolicy="ConstrainedBurst")
    written = json.loads(world.cycle.decide(pod).status.resource_status)
    assert "cpuset" not in written
    assert written["numaNodeResources"] == [
        {"node": 1, "resources": {"cpu": "1000m", "memory": str(1 << 30)}}
    ]


def test_a_burst_that_no_pool_holds_is_refused_only_when_it_is_a_must() -> None:
    world = unmanaged()
    must = burstable(world, "9", requiredCPUBindPolicy="ConstrainedBurst")
    assert world.why(must) == {"no zone's shared pool holds the pod's CPU limit": 1}
    may = burstable(world, "9", preferredCPUBindPolicy="ConstrainedBurst")
    decision = world.cycle.decide(may)
    assert (decision.node, decision.status.resource_status) == ("n", "")


def test_nothing_is_written_where_the_kubelet_assigns_cpus_or_nobody_asked() -> None:
    world = World(resource_status=True)
    world.node("n")
    assert world.cycle.decide(world.pod(cpu="2", labels=LSR)).status.resource_status == ""
    world = unmanaged()
    assert world.cycle.decide(world.pod(cpu="2")).status.resource_status == ""


def test_a_malformed_annotation_is_named() -> None:
    world = unmanaged()
    pod = world.pod(cpu="2", labels=LSR, annotations={SPEC: "{"})
    assert world.why(pod) == {"malformed Koordinator annotation": 1}


def test_schedulers_of_pools_have_leases_of_their_own_and_others_take_turns() -> None:
    """A replica of an older release holds ``rte-scheduler``, whatever its scheduler's name."""
    assert SchedulerSettings(scheduler_name="mine").lease == "rte-scheduler"
    pool = NodeTerm(expressions=(), fields=())
    assert SchedulerSettings(scheduler_name="mine", nodes=pool).lease == "mine"
    assert SchedulerSettings(scheduler_name="mine", nodes=pool, lease_name="l").lease == "l"
