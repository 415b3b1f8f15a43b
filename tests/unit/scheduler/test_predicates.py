"""Predicates that users expect of a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rte.scheduler.framework.plugin import Candidate
from rte.scheduler.framework.status import SUCCESS
from rte.scheduler.loop.room.plans import plans
from rte.scheduler.plugins.default_preemption import EvictionPlan
from tests.unit.scheduler.build import World, pod_object, state

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView

SOME = {"guaranteed": False, "cpu": "100m"}


def world_of(**nodes: dict[str, Any]) -> World:
    world = World()
    for name, options in nodes.items():
        world.node(name, bare=True, **options)
    return world


def test_totals_count_extended_resources_overhead_and_the_number_of_pods() -> None:
    world = world_of(a={"allocatable": {"x.io/d": "1", "pods": "2", "cpu": "4"}})
    gadget = {"x.io/d": "1"}
    assert world.place(world.pod(extra=gadget, **SOME)) == "a"
    pod = world.pod(extra=gadget, **SOME)
    assert world.place(pod) is None
    assert world.why(pod) == {"Insufficient x.io/d": 1}
    pod = world.pod(guaranteed=False, cpu="3800m", overhead={"cpu": "200m"})
    assert world.why(pod) == {"Insufficient cpu": 1}
    assert world.place(world.pod(guaranteed=False, cpu="3800m")) == "a"
    assert world.why(world.pod(guaranteed=False, cpu="1m", mem="1")) == {"Too many pods": 1}


def test_sidecars_count_beside_containers_and_init_containers_at_their_peak() -> None:
    world = world_of(a={"allocatable": {"cpu": "4"}})

    def box(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = box("s", "1", restartPolicy="Always")
    fits = world.pod(initContainers=[sidecar, box("i", "3")], containers=[box("c", "3")])
    over = world.pod(initContainers=[sidecar, box("i", "3500m")], containers=[box("c", "1")])
    assert world.why(over) == {"Insufficient cpu": 1}
    assert world.place(fits) == "a"


def test_pod_level_resources_are_charged_and_counted_when_room_is_made() -> None:
    """What a preemptor with a stanza asks for is the stanza, and so is what its victims hold."""
    world = world_of(a={"allocatable": {"cpu": "10"}})
    stanza = {"requests": {"cpu": "6"}}
    low = world.pod(guaranteed=False, cpu="1", resources=stanza, node_name="a")
    world.pod(guaranteed=False, cpu="1", node_name="a")
    high = world.pod(guaranteed=False, cpu="1", resources=stanza, priority=10)
    assert world.why(high) == {"Insufficient cpu": 1}
    found = [
        plan for plan in plans(world.cycle, world.cluster, high) if isinstance(plan, EvictionPlan)
    ]
    assert [plan.victims for plan in found] == [(low,)]


def test_an_infeasible_resize_counts_as_if_it_had_not_been_asked_for() -> None:
    world = world_of(a={"allocatable": {"cpu": "8"}})
    obj = pod_object(guaranteed=False, cpu="100", node_name="a")
    held = {"requests": {"cpu": "1"}}
    status = {"name": "c0", "allocatedResources": {"cpu": "1"}, "resources": held}
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    obj["status"] = {
        "phase": "Running",
        "containerStatuses": [status],
        "conditions": [pending],
    }
    world.pod(obj)
    assert world.place(world.pod(guaranteed=False, cpu="7")) == "a"


def test_a_pod_level_stanza_takes_the_place_of_the_sum() -> None:
    world = world_of(a={"allocatable": {"cpu": "4"}})
    pod = world.pod(guaranteed=False, cpu="3", resources={"requests": {"cpu": "5"}})
    assert world.why(pod) == {"Insufficient cpu": 1}


def test_a_pod_that_is_being_resized_counts_with_the_larger_amount() -> None:
    world = world_of(a={"allocatable": {"cpu": "4"}})
    shrinking = pod_object(guaranteed=False, cpu="1", node_name="a")
    held = {"name": "c0", "allocatedResources": {"cpu": "3"}, "resources": {}}
    shrinking["status"] = {"phase": "Running", "containerStatuses": [held]}
    world.pod(shrinking)
    pod = world.pod(guaranteed=False, cpu="2")
    assert world.why(pod) == {"Insufficient cpu": 1}
    done = {**shrinking, "metadata": {**shrinking["metadata"], "resourceVersion": "999999"}}
    done["status"] = {"phase": "Running", "containerStatuses": [{"name": "c0"}]}
    world.pod(done)
    assert world.place(pod) == "a"


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        ({}, False),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "other"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Lt", "value": "5"}, False),
    ],
)
def test_taints_need_a_toleration(toleration: dict[str, str], passes: bool) -> None:
    world = world_of(a={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]})
    pod = world.pod(tolerations=[toleration] if toleration else [], **SOME)
    assert (world.place(pod) == "a") is passes
    if not passes:
        assert world.why(pod) == {"node(s) had untolerated taint(s) k": 1}


def test_a_cordoned_node_takes_nothing() -> None:
    world = world_of(a={"unschedulable": True})
    assert world.why(world.pod(**SOME)) == {"node(s) were unschedulable": 1}


@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        ({"key": "size", "operator": "In", "values": ["8", "9"]}, True),
        ({"key": "size", "operator": "NotIn", "values": ["8"]}, False),
        ({"key": "absent", "operator": "NotIn", "values": ["8"]}, True),
        ({"key": "size", "operator": "Exists"}, True),
        ({"key": "size", "operator": "DoesNotExist"}, False),
        ({"key": "size", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["7"]}, False),
        ({"key": "size", "operator": "Gt", "values": ["x"]}, False),
        ({"key": "size", "operator": "Gt", "values": ["+7"]}, False),
        ({"key": "size", "operator": "Gt", "values": ["-7"]}, False),
    ],
)
def test_required_node_affinity(expression: dict[str, Any], passes: bool) -> None:
    world = world_of(a={"labels": {"size": "8"}})
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert (world.place(world.pod(affinity=affinity, **SOME)) == "a") is passes


@pytest.mark.parametrize(
    ("size", "passes"),
    [
        ("0000000000000000000000008", True),
        ("+8", True),
        ("-8", False),
        ("9223372036854775807", True),
        ("9223372036854775808", False),
        ("8.0", False),
        ("٨", False),
    ],
)
def test_labels_are_compared_as_numbers_of_64_bits(size: str, passes: bool) -> None:
    """As ``strconv.ParseInt`` reads them (apimachinery, labels.Requirement.Matches)."""
    expression = {"key": "size", "operator": "Gt", "values": ["7"]}
    world = world_of(a={"labels": {"size": size}})
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert (world.place(world.pod(affinity=affinity, **SOME)) == "a") is passes


def test_node_selector_and_match_fields() -> None:
    world = world_of(a={"labels": {"disk": "ssd"}}, b={})
    assert world.place(world.pod(nodeSelector={"disk": "ssd"}, **SOME)) == "a"
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    required = {"nodeSelectorTerms": [{}, {"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert world.place(world.pod(affinity=affinity, **SOME)) == "b"


def test_host_ports_collide_by_protocol_port_and_address() -> None:
    world = world_of(a={})

    def asks(port: int, **more: str) -> dict[str, Any]:
        obj = pod_object(**SOME)
        obj["spec"]["containers"][0]["ports"] = [{"hostPort": port, **more}]
        return obj

    assert world.place(world.pod(asks(80, hostIP="10.0.0.1"))) == "a"
    assert world.place(world.pod(asks(80, hostIP="10.0.0.2"))) == "a"
    assert world.place(world.pod(asks(80, protocol="UDP"))) == "a"
    assert world.place(world.pod(asks(81))) == "a"
    assert world.place(world.pod(asks(80))) is None
    assert world.place(world.pod(asks(81, hostIP="10.0.0.1"))) is None


def _term(labels: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": "zone", **more}


def _affinity(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


ZONES = {"a": {"labels": {"zone": "1"}}, "b": {"labels": {"zone": "2"}}}


def test_anti_affinity_keeps_pods_apart_in_both_directions() -> None:
    world = world_of(**ZONES)
    apart = _affinity("podAntiAffinity", _term({"app": "x"}))
    lonely = world.pod(labels={"app": "x"}, affinity=apart, **SOME)
    where = world.place(lonely)
    other = {"a": "b", "b": "a"}[str(where)]
    # The newcomer has no rule of its own; the one that is there has.
    assert world.place(world.pod(labels={"app": "x"}, **SOME)) == other
    second = world.pod(labels={"app": "x"}, affinity=apart, **SOME)
    assert world.place(second) is None
    world.end(lonely)
    assert world.place(second) == where


def test_affinity_joins_and_the_first_of_a_group_may_go_anywhere() -> None:
    world = world_of(**ZONES)
    together = _affinity("podAffinity", _term({"app": "x"}))
    stranger = world.pod(labels={"app": "y"}, affinity=together, **SOME)
    assert world.why(stranger) == {"node(s) didn't match pod affinity rules": 2}
    where = world.place(world.pod(labels={"app": "x"}, affinity=together, **SOME))
    assert where is not None
    assert world.place(stranger) == where


def test_an_affinity_of_several_terms_needs_one_pod_that_matches_all() -> None:
    world = world_of(**ZONES)
    world.pod(labels={"app": "x"}, node_name="a", **SOME)
    world.pod(labels={"tier": "y"}, node_name="a", **SOME)
    both = _affinity("podAffinity", _term({"app": "x"}), _term({"tier": "y"}))
    pod = world.pod(affinity=both, **SOME)
    assert world.why(pod) == {"node(s) didn't match pod affinity rules": 2}
    world.pod(labels={"app": "x", "tier": "y"}, node_name="b", **SOME)
    assert world.place(pod) == "b"


def test_match_label_keys_confine_a_term_to_pods_of_the_same_revision() -> None:
    world = world_of(**ZONES)
    apart = _affinity("podAntiAffinity", _term({"app": "x"}, matchLabelKeys=["rev"]))
    for revision in ("1", "1", "2", "2"):
        pod = world.pod(labels={"app": "x", "rev": revision}, affinity=apart, **SOME)
        assert world.place(pod) is not None
    full = world.pod(labels={"app": "x", "rev": "2"}, affinity=apart, **SOME)
    assert world.place(full) is None


def test_what_the_api_server_wrote_into_a_term_outlives_a_change_of_the_labels() -> None:
    """It merges matchLabelKeys when the pod is created, and nobody does afterwards."""
    world = world_of(**ZONES)
    stored = _term({"app": "x"}, matchLabelKeys=["rev"])
    stored["labelSelector"]["matchExpressions"] = [
        {"key": "rev", "operator": "In", "values": ["1"]}
    ]
    world.pod(labels={"app": "x", "rev": "1"}, node_name="b", **SOME)
    moved = {"app": "x", "rev": "2"}
    pod = world.pod(labels=moved, affinity=_affinity("podAffinity", stored), **SOME)
    assert world.place(pod) == "b"


def test_namespaces_and_their_selector() -> None:
    world = world_of(**ZONES)
    world.cluster.set_namespace("default", {"team": "red"})
    world.pod(labels={"app": "x"}, node_name="a", **SOME)
    red = {"matchLabels": {"team": "red"}}
    near = _affinity("podAffinity", _term({"app": "x"}, namespaceSelector=red))
    far = _affinity("podAffinity", _term({"app": "x"}, namespaces=["elsewhere"]))
    assert world.place(world.pod(affinity=near, **SOME)) == "a"
    assert world.place(world.pod(affinity=far, **SOME)) is None


def _spread(**more: Any) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
            **more,
        }
    ]


def test_hard_spread_keeps_domains_even() -> None:
    world = world_of(**ZONES, c={})
    placed = [
        world.place(world.pod(labels={"app": "x"}, topologySpreadConstraints=_spread(), **SOME))
        for _ in range(6)
    ]
    assert sorted(str(name) for name in placed) == ["a"] * 3 + ["b"] * 3


def test_min_domains_hold_pods_back_until_there_are_enough() -> None:
    world = world_of(**ZONES)
    rules = _spread(minDomains=3)
    pods = [
        world.pod(labels={"app": "x"}, topologySpreadConstraints=rules, **SOME) for _ in range(3)
    ]
    assert [world.place(pod) is None for pod in pods] == [False, False, True]
    world.node("c", bare=True, labels={"zone": "3"})
    assert world.place(pods[2]) == "c"


def test_spread_by_an_empty_selector_counts_nobody() -> None:
    """As kube-scheduler, whatever the API says; only the label has to be there."""
    world = world_of(a={"labels": {"zone": "1"}}, b={"labels": {"zone": "2"}}, c={})
    rules = _spread(labelSelector={}, minDomains=5)
    world.place(world.pod(node_name="a", **SOME))
    pod = world.pod(topologySpreadConstraints=rules, **SOME)
    missing = "node(s) didn't match pod topology spread constraints (missing required label)"
    assert world.why(pod) == {"": 2, missing: 1}


def test_spread_leaves_out_pods_that_are_leaving() -> None:
    world = world_of(**ZONES)
    leaving = pod_object(labels={"app": "x"}, node_name="a", **SOME)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.pod(leaving)
    world.pod(labels={"app": "x"}, node_name="b", **SOME)
    pod = world.pod(labels={"app": "x"}, topologySpreadConstraints=_spread(), **SOME)
    assert world.place(pod) == "a"


def test_ordinary_pods_go_where_they_do_least_harm() -> None:
    world = World()
    world.node("zones")
    world.node("broken")
    none = {"cpu_policy": "none", "memory_policy": "None", "reserved_memory": {}}
    world.node("plain", state(policy="none", **none))
    for cpus in ("4", "4"):
        held = world.pod(cpu=cpus, node_name="broken")
        world.admit(held, "broken")
        world.report("broken")
    assert world.place(world.pod(**SOME)) == "plain"
    world.cluster.remove_node("plain")
    assert world.place(world.pod(**SOME)) in {"zones", "broken"}
    # Beyond what the zones can give anyway, the zones that are broken up already are used.
    assert world.place(world.pod(guaranteed=False, cpu="2")) == "broken"


def test_soft_rules_decide_between_nodes_that_would_do() -> None:
    taint = {"key": "t", "effect": "PreferNoSchedule"}
    world = world_of(a={}, b={"labels": {"fast": "yes"}}, c={"taints": [taint]})
    fast = {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}
    liked = {"weight": 10, "preference": fast}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [liked]}}
    assert world.place(world.pod(affinity=affinity, **SOME)) == "b"
    assert world.place(world.pod(**SOME)) == "a"


def test_tolerations_compare_numbers() -> None:
    taint = {"key": "sla", "value": "95", "effect": "NoSchedule"}
    world = world_of(a={"taints": [taint]})

    def asks(operator: str, value: str) -> str | None:
        toleration = {"key": "sla", "operator": operator, "value": value}
        pod = world.pod(tolerations=[toleration], **SOME)
        return next(iter(world.why(pod)))

    assert asks("Gt", "90") == ""
    assert asks("Lt", "90") == "node(s) had untolerated taint(s) sla"


@pytest.mark.parametrize("count", [6, 64, 65, 300])
def test_what_is_preferred_does_not_depend_on_the_number_of_nodes(count: int) -> None:
    last = f"n{count - 1:03}"
    taint = {"key": "t", "effect": "PreferNoSchedule"}
    world = World()
    for number in range(count):
        name = f"n{number:03}"
        # The one without a taint is a little fuller.
        options = {} if name == last else {"taints": [taint]}
        cpu = {"cpu": "15" if name == last else "16"}
        world.node(name, bare=True, allocatable=cpu, **options)
    assert world.place(world.pod(**SOME)) == last

    world = World()
    plain = {"cpu_policy": "none", "memory_policy": "None", "reserved_memory": {}}
    for number in range(count):
        name = f"n{number:03}"
        world.node(name, state(policy="none", **plain) if name == last else state())
    world.pod(guaranteed=False, cpu="1", node_name=last)
    # It is fuller, and aligns nothing: an ordinary pod does no harm there.
    assert world.place(world.pod(guaranteed=False, cpu="1")) == last
    # A node without a report is the last for what needs a zone, even when all have one in flight.
    world.node("bare", bare=True)
    for number in range(count):
        world.pod(cpu="1", node_name=f"n{number:03}")
    assert world.place(world.pod(cpu="2")) != "bare"


def test_preferred_terms_are_seen_among_many_nodes() -> None:
    world = World()
    for number in range(200):
        labels = {"fast": "yes"} if number == 150 else {}
        world.node(f"n{number:03}", bare=True, labels=labels)
    fast = {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}
    liked = {"weight": 10, "preference": fast}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [liked]}}
    assert world.place(world.pod(affinity=affinity, **SOME)) == "n150"


def test_replicas_that_need_no_zone_keep_apart_by_default() -> None:
    world = world_of(a={}, b={}, c={})
    placed = []
    for _ in range(6):
        obj = pod_object(guaranteed=False, cpu="10m")
        owner = {"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        obj["metadata"]["ownerReferences"] = [owner]
        placed.append(str(world.place(world.pod(obj))))
    assert sorted(placed) == ["a", "a", "b", "b", "c", "c"]


def scores(world: World, pod: PodView, rule: str) -> dict[str, float]:
    """What a rule gives each node, in whole hundredths as kube-scheduler has them."""
    found = [Candidate(entry, SUCCESS) for entry in world.cluster.nodes.values()]
    given = world.cycle.scores(pod, found).get(rule, [0.0] * len(found))
    weight = next(p.weight for p in world.cycle.profile.scores if p.name == rule)
    return {one.node.name: each / weight for one, each in zip(found, given, strict=True)}


def test_preferred_nodes_get_their_share_of_the_largest_weight() -> None:
    world = World()
    for name, labels in {"both": {"x": "", "y": ""}, "x": {"x": ""}, "y": {"y": ""}}.items():
        world.node(name, bare=True, labels=labels)
    liked = [
        {"weight": w, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key, w in (("x", 10), ("y", 5))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": liked}}
    pod = world.pod(affinity=affinity, **SOME)
    assert scores(world, pod, "NodeAffinity") == {"both": 100.0, "x": 66.0, "y": 33.0}


def test_disliked_taints_cost_their_share_of_the_largest_number() -> None:
    world = World()
    for number in range(1, 4):
        taints = [{"key": f"k{index}", "effect": "PreferNoSchedule"} for index in range(number)]
        world.node(f"n{number}", bare=True, taints=taints)
    found = scores(world, world.pod(**SOME), "TaintToleration")
    assert found == {"n1": 67.0, "n2": 34.0, "n3": 0.0}


def test_soft_spread_weighs_domains_by_their_number() -> None:
    """podtopologyspread/scoring.go: pods there times log(domains + 2), and the skew less one."""
    world = World()
    for zone, pods in (("1", 2), ("2", 0), ("3", 1)):
        world.node(f"n{zone}", bare=True, labels={"zone": zone})
        for _ in range(pods):
            world.pod(labels={"app": "x"}, node_name=f"n{zone}", **SOME)
    world.node("none", bare=True)
    rules = _spread(whenUnsatisfiable="ScheduleAnyway", maxSkew=2)
    pod = world.pod(labels={"app": "x"}, topologySpreadConstraints=rules, **SOME)
    # log(5) = 1.61: 4.2, 1 and 2.6, rounded; what lacks the label is last.
    found = scores(world, pod, "PodTopologySpread")
    assert found == {"n1": 25.0, "n2": 100.0, "n3": 50.0, "none": 0.0}


def test_pods_without_requests_pile_up_nowhere() -> None:
    world = World()
    for name in "abcd":
        world.node(name, bare=True)
    places = []
    for _ in range(8):
        obj = pod_object(guaranteed=False)
        obj["spec"]["containers"][0]["resources"] = {}
        places.append(world.place(world.pod(obj)))
    assert sorted(places) == [*"aabbccdd"]
