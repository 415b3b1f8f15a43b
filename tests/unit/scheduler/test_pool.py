"""``--nodes SELECTOR``: a scheduler places on its own nodes, and knows of the others."""

from __future__ import annotations

from rte.k8s.selectors import parse_text
from rte.scheduler.loop import messages
from rte.scheduler.plugins.registry import RuleOptions
from tests.unit.scheduler.build import World
from tests.unit.scheduler.desk import Desk

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
POOL = parse_text("pool=a")


def test_other_nodes_take_nothing() -> None:
    world = World(pool=POOL)
    world.node("mine", labels={"pool": "a"})
    world.node("other", labels={"pool": "b"})
    world.node("nobodys")
    assert world.place(world.pod(cpu="4")) == "mine"
    large = world.pod(cpu="12")
    assert world.place(large) is None
    assert world.why(large)["node(s) of another pool"] == 2


def test_pods_on_other_nodes_count_for_rules_between_pods() -> None:
    world = World(pool=POOL)
    world.node("mine", bare=True, labels={"pool": "a", "zone": "1"})
    world.node("other", bare=True, labels={"pool": "b", "zone": "1"})
    world.pod(guaranteed=False, cpu="1", labels={"app": "x"}, node_name="other")
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    shy = world.pod(guaranteed=False, cpu="1", affinity={"podAntiAffinity": {HARD: [term]}})
    assert world.place(shy) is None


def test_domains_without_a_node_of_the_pool_do_not_count_for_spread() -> None:
    world = World(pool=POOL)
    world.node("mine", bare=True, labels={"pool": "a", "zone": "1"})
    world.node("other", bare=True, labels={"pool": "b", "zone": "2"})
    rule = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    for _ in range(3):
        pod = world.pod(
            guaranteed=False, cpu="1", labels={"app": "x"}, topologySpreadConstraints=[rule]
        )
        assert world.place(pod) == "mine"


def test_reports_of_other_nodes_are_passed_over_until_they_come_in() -> None:
    desk = Desk(options=RuleOptions(pool=POOL))
    desk.node("mine", labels={"pool": "a"})
    desk.node("other", labels={"pool": "b"})
    cluster = desk.machine.cluster
    assert cluster.nodes["mine"].report is not None
    assert cluster.nodes["other"].report is None
    pod = desk.pod("large", cpu="7")
    assert desk.where(pod) == "mine"
    second = desk.pod("second", cpu="7", nodeSelector={"kubernetes.io/hostname": "other"})
    assert desk.where(second) == ""
    desk.label("other", pool="a")
    assert [e.node for e in desk.told(messages.Read)] == ["other"]
    desk.report("other")
    assert desk.where(second) == "other"
    desk.label("mine", pool="b")
    assert cluster.nodes["mine"].report is None
