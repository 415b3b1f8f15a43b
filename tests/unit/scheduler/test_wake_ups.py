"""A pod that waits is looked at again when, and only when, something may have ended its refusal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte.scheduler.framework.events import ClusterEvent, Kind
from rte.scheduler.loop import messages
from rte.scheduler.loop.cycle import Decision
from rte.scheduler.plugins.node_resource_topology import NodeResourceTopology
from rte.scheduler.plugins.node_resources_fit import NodeResourcesFit
from rte.telemetry.effects import Measured
from tests.depth import scaled
from tests.unit.scheduler.build import World, machine, promise, state
from tests.unit.scheduler.desk import Desk

SOME: dict[str, Any] = {"guaranteed": False, "cpu": "100m"}
HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def near(**labels: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "zone"}
    return {"podAffinity": {HARD: [term]}}


def apart(**labels: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "zone"}
    return {"podAntiAffinity": {HARD: [term]}}


def spread(**more: Any) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "x"}}
    rule = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector}
    return [{**rule, "nodeAffinityPolicy": "Ignore", **more}]


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    for name in "ab":
        made.node(name, bare=True, labels={"zone": name})
    return made


def attempts(desk: Desk) -> int:
    return sum(1 for e in desk.told(Measured) if e.metric == "attempts")


def test_a_pod_that_wants_company_wakes_when_its_partner_is_placed(desk: Desk) -> None:
    web = desk.pod("web", affinity=near(app="cache"), **SOME)
    assert desk.where(web) == ""
    stranger = desk.pod("stranger", labels={"app": "other"}, **SOME)
    assert desk.where(stranger) != ""
    assert desk.where(web) == ""
    cache = desk.pod("cache", labels={"app": "cache"}, **SOME)
    assert desk.where(web) == desk.where(cache) != ""


def test_a_pod_that_was_bound_by_somebody_else_is_company_too(desk: Desk) -> None:
    web = desk.pod("web", affinity=near(app="cache"), **SOME)
    desk.pod("cache", labels={"app": "cache"}, schedulerName="other", node_name="b", **SOME)
    assert desk.where(web) == "b"


def test_a_pod_that_gets_the_label_is_company_too(desk: Desk) -> None:
    web = desk.pod("web", affinity=near(app="cache"), **SOME)
    cache = desk.pod("cache", node_name="a", **SOME)
    assert desk.where(web) == ""
    obj = desk.objects["pods", cache]
    desk.put("pods", cache, {**obj, "metadata": {**obj["metadata"], "labels": {"app": "cache"}}})
    assert desk.where(web) == "a"


def test_the_end_of_the_last_enemy_wakes_those_on_other_nodes_of_the_domain() -> None:
    desk = Desk()
    for name in "ab":
        desk.node(name, bare=True, labels={"zone": "1"})
    enemy = desk.pod("enemy", labels={"app": "x"}, node_name="a", **SOME)
    shy = desk.pod(
        "shy", affinity=apart(app="x"), nodeSelector={"kubernetes.io/hostname": "b"}, **SOME
    )
    assert desk.where(shy) == ""
    desk.end(enemy)
    assert desk.where(shy) == "b"


def test_a_refused_stranger_wakes_when_the_pod_that_refuses_company_ends(desk: Desk) -> None:
    lonely = [desk.pod(n, affinity=apart(app="x"), node_name=n, **SOME) for n in "ab"]
    shunned = desk.pod("shunned", labels={"app": "x"}, **SOME)
    assert desk.where(shunned) == ""
    desk.end(lonely[1])
    assert desk.where(shunned) == "b"


def test_spread_pods_wake_when_the_minimum_rises(desk: Desk) -> None:
    rules = {"labels": {"app": "x"}, "topologySpreadConstraints": spread()}
    desk.pod("one", node_name="a", **rules, **SOME)
    pinned = desk.pod("two", nodeSelector={"zone": "a"}, **SOME, **rules)
    assert desk.where(pinned) == ""
    # Placed by us elsewhere: that takes room, and gives the other leave.
    third = desk.pod("three", labels={"app": "x"}, nodeSelector={"zone": "b"}, **SOME)
    assert desk.where(third) == "b"
    assert desk.where(pinned) == "a"


def test_a_pod_that_was_woken_for_one_node_hears_what_happens_before_its_turn() -> None:
    desk = Desk()
    for name in "ab":
        desk.node(name, bare=True, labels={"zone": name}, allocatable={"cpu": "6"})
    some = {"labels": {"app": "x"}, "topologySpreadConstraints": spread(), "guaranteed": False}
    full = desk.pod("full", "6", node_name="a")
    first = desk.pod("first", "1", **some)
    assert desk.where(first) == "b"
    large = desk.pod("large", "5", priority=10, preemptionPolicy="Never", **some)
    small = desk.pod("small", "2", **some)
    assert desk.where(large) == desk.where(small) == ""
    # Both are woken for the node that becomes empty; the first of them raises the minimum.
    desk.end(full)
    assert (desk.where(large), desk.where(small)) == ("a", "b")


def test_spread_pods_wake_when_a_counted_pod_begins_to_end(desk: Desk) -> None:
    rules = {"labels": {"app": "x"}, "topologySpreadConstraints": spread()}
    counted = desk.pod("one", node_name="a", **rules, **SOME)
    pinned = desk.pod("two", nodeSelector={"zone": "a"}, **SOME, **rules)
    assert desk.where(pinned) == ""
    desk.begin_to_end(counted)
    assert desk.where(pinned) == "a"


def test_spread_pods_wake_when_a_taint_takes_a_node_out_of_the_count() -> None:
    """With taints honoured, zone b counts, empty, only while its node may be used."""
    desk = Desk()
    desk.node("a", bare=True, labels={"zone": "a"})
    desk.node("b", bare=True, labels={"zone": "b"}, allocatable={"cpu": "0"})
    rules = {
        "labels": {"app": "x"},
        "topologySpreadConstraints": spread(nodeTaintsPolicy="Honor"),
    }
    desk.pod("one", node_name="a", **rules, **SOME)
    waiting = desk.pod("two", **rules, **SOME)
    assert desk.where(waiting) == ""
    obj = desk.objects["nodes", "b"]
    taint = {"key": "k", "effect": "NoSchedule"}
    desk.put("nodes", "b", {**obj, "spec": {"taints": [taint]}})
    assert desk.where(waiting) == "a"


def test_a_node_that_vanishes_takes_its_domain_out_of_the_minimum() -> None:
    desk = Desk()
    desk.node("a", bare=True, labels={"zone": "a"})
    desk.node("b", bare=True, labels={"zone": "b"}, allocatable={"cpu": "0"})
    rules = {"labels": {"app": "x"}, "topologySpreadConstraints": spread()}
    desk.pod("one", node_name="a", **rules, **SOME)
    waiting = desk.pod("two", **rules, **SOME)
    assert desk.where(waiting) == ""
    desk.delete("nodes", "b")
    assert desk.where(waiting) == "a"


def test_a_new_label_of_a_namespace_counts_for_its_selector(desk: Desk) -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "cache"}},
        "namespaceSelector": {"matchLabels": {"team": "red"}},
        "topologyKey": "zone",
    }
    desk.pod("cache", labels={"app": "cache"}, node_name="b", **SOME)
    web = desk.pod("web", affinity={"podAffinity": {HARD: [term]}}, **SOME)
    assert desk.where(web) == ""
    metadata = {"name": "default", "labels": {"team": "red"}}
    desk.put("namespaces", "default", {"metadata": metadata})
    assert desk.where(web) == "b"


def test_what_cannot_help_wakes_nobody() -> None:
    desk = Desk()
    desk.node("a", state(machine(zones=1)))
    held = desk.pod("held", "6")
    desk.run_all()
    small = desk.pod("small", node_name="a", guaranteed=False, cpu="1m", mem="1Mi")
    waiting = desk.pod("waiting", "5")
    assert desk.where(waiting) == ""
    before = attempts(desk)
    desk.label("a", unrelated="yes")
    desk.end(small)
    desk.put("namespaces", "other", {"metadata": {"name": "other", "labels": {"x": "y"}}})
    desk.report("a")
    assert attempts(desk) == before
    desk.end(held)
    assert desk.where(waiting) == "a"


def test_a_node_that_holds_more_than_it_has_takes_who_asks_for_nothing_of_that() -> None:
    """Somebody was bound there by his spec; the memory is gone, CPUs are not."""
    desk = Desk()
    desk.node("n", bare=True, allocatable={"cpu": "2", "memory": "1Gi"})
    desk.pod("heavy", "100m", mem="2Gi", guaranteed=False, node_name="n")
    busy = desk.pod("busy", "1500m", mem="0", guaranteed=False, node_name="n")
    waits = desk.pod("waits", "1", mem="0", guaranteed=False)
    assert desk.where(waits) == ""
    desk.end(busy)
    assert desk.where(waits) == "n"


def test_a_claim_that_appears_wakes_its_pod() -> None:
    desk = Desk()
    desk.node("a", bare=True)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod = desk.pod("p", volumes=volumes, **SOME)
    assert desk.where(pod) == ""
    volume = {"metadata": {"name": "pv"}, "spec": {}, "status": {"phase": "Bound"}}
    desk.put("volumes", "pv", volume)
    claim = {
        "metadata": {
            "namespace": "default",
            "name": "c",
            "uid": "u",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    desk.put("claims", "default/c", claim)
    assert desk.where(pod) == "a"


@settings(max_examples=scaled(40), deadline=None)
@given(
    policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    held=st.lists(st.sampled_from(["1", "2", "500m"]), max_size=4),
    asked=st.lists(st.sampled_from(["1", "2", "3", "500m", "1500m"]), min_size=1, max_size=3),
    memory=st.sampled_from(["1Gi", "6Gi", "40Gi"]),
)
def test_who_is_not_asked_could_not_have_been_helped(policy, held, asked, memory) -> None:
    world = World()
    world.node("n", state(machine(zones=2, cpus=4), policy=policy))
    for cpu in held:
        world.place(world.pod(cpu=cpu))
    pod = world.pod(cpu=asked, memory=memory)
    plugins = frozenset({NodeResourceTopology.name, NodeResourcesFit.name})
    for kind in (Kind.REPORT, Kind.POD_GONE, Kind.NODE_ALLOCATABLE):
        event = ClusterEvent(kind, "n")
        for names in (plugins, *(frozenset({name}) for name in plugins)):
            rooms = world.cycle.rooms(event, names)
            assert rooms is not None
            if world.cycle.profile.helps(event, pod, names, world.cluster):
                assert all(room.holds(pod.shape.needs) for room in rooms)


def test_a_report_wakes_only_those_whom_its_node_can_hold() -> None:
    desk = Desk()
    desk.node("n", state(machine(zones=2, cpus=4)))
    desk.node("m", state(machine(zones=2, cpus=4)))
    held = [desk.pod(f"held{number}", cpu="3", node_name="n") for number in range(2)]
    held += [desk.pod(f"more{number}", cpu="3", node_name="m") for number in range(2)]
    desk.run_all()
    large, small = desk.pod("large", cpu="6"), desk.pod("small", cpu="3")
    before = attempts(desk)
    desk.end(held[0])
    assert desk.where(small) == "n"
    assert desk.where(large) == ""
    assert attempts(desk) == before + 1


@pytest.mark.parametrize("count", [4, 12])
def test_of_the_nodes_that_have_changed_those_without_room_are_passed_over(count: int) -> None:
    world = World()
    # Zones of 5 (one CPU is reserved) and 6 CPUs.
    for number in range(count):
        world.node(f"n{number}", state(machine(zones=2, cpus=6)))
        for cpu in {0: ("5", "6"), 1: ("4",)}.get(number, ("4", "2")):
            held = world.pod(cpu=cpu)
            world.cluster.assume(held.uid, f"n{number}")
            assert world.admit(held, f"n{number}").admitted
        world.report(f"n{number}")
    pod, seen = world.pod(cpu="5"), world.cluster.sequence
    assert world.cycle.decide(pod, seen) == Decision()
    for number in range(count):
        world.report(f"n{number}")
    assert world.cycle.decide(pod, seen).node == "n1"
    world.cluster.assume(world.pod(cpu="5").uid, "n1")
    decision = world.cycle.decide(pod, seen)
    assert (decision.node, decision.refused_by) == (
        None,
        {NodeResourcesFit.name, NodeResourceTopology.name},
    )


def test_who_deletes_the_lease_of_a_dead_agent_does_not_make_it_trusted() -> None:
    desk = Desk()
    desk.node("n", state(machine(cpus=4)))
    lease = {"holderIdentity": "agent", "renewTime": "2026-01-01T00:00:00Z"}
    desk.handle(messages.Seen("leases", {"metadata": {"name": "n"}, "spec": lease}))
    desk.handle(messages.Gone("leases", "n"))
    assert "not alive" in desk.machine.cluster.nodes["n"].distrust()
    desk.report("n")
    assert not desk.machine.cluster.nodes["n"].distrust()


def test_a_node_whose_managers_give_nothing_out_wakes_pods_though_its_agent_is_dead() -> None:
    desk = Desk()
    desk.node("static", state(machine(cpus=4)))
    plain = {"cpu_policy": "none", "memory_policy": "None", "reserved_memory": {}}
    desk.node("plain", state(policy="none", **plain))
    lease = {"holderIdentity": "agent", "renewTime": "2026-01-01T00:00:00Z"}
    desk.handle(messages.Seen("leases", {"metadata": {"name": "plain"}, "spec": lease}))
    filler = desk.pod("filler", "12", node_name="plain", guaranteed=False)
    desk.pass_time(60.0)
    assert desk.machine.cluster.nodes["plain"].distrust()
    waits = desk.pod("waits", "6")
    assert desk.where(waits) == ""
    desk.end(filler)
    assert desk.where(waits) == "plain"


def test_a_pod_may_have_been_refused_for_room_that_is_promised_to_another() -> None:
    world, rule = World(), NodeResourcesFit()
    world.node("a")
    pod, other = world.pod(name="pod"), world.pod(name="other")
    gone = ClusterEvent(Kind.POD_GONE, "a", used={})
    assert not rule.may_have_refused(gone, pod, world.cluster)
    world.cluster.nominate(promise(other.uid, "a"), (other.uid,))
    assert rule.may_have_refused(gone, pod, world.cluster)
