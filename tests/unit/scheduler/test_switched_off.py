"""A rule is one file: with its plugin switched off it is gone from everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from rte.k8s.selectors import parse_text
from rte.scheduler.framework.plugin import Filter, NodeFilter
from rte.scheduler.framework.profile import Profile
from rte.scheduler.loop import messages
from rte.scheduler.loop.gangs.ground import member_of
from rte.scheduler.plugins import registry
from rte.scheduler.plugins.registry import RuleOptions
from tests.unit.scheduler.build import machine, pod_object, state
from tests.unit.scheduler.gangs.build import Square

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.scheduler.framework.objects import PodView

#: Rules about amounts and zones: they are what the solver of gangs is about, and what evictions
#: are made for.
AMOUNTS = {"NodeResourcesFit", "NodeResourceTopology"}

#: Rules that need more than a node and a pod: tests of their own hold them.
ELSEWHERE = {
    "DynamicResources",
    "Koordinator",
    "DeviceShare",
    "NodeVolumeLimits",
    "ProcessingGroups",
    "ProcessingGroupsNode",
    "SharedPool",
    "VolumeBinding",
}

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "rack"}
        ]
    }
}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "absent",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "x"}},
}
DISK = {"name": "d", "gcePersistentDisk": {"pdName": "disk"}}


@dataclass
class Case:
    """A node that a rule keeps pods away from.

    Attributes:
        node: what is special about it.
        spec: what is special about the pods.
        held: of a pod that runs there.
        cpu: of a pod.
        port: host port of the pods.
    """

    node: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    held: dict[str, Any] | None = None
    cpu: str = "2"
    port: int = 0
    options: RuleOptions = field(default_factory=RuleOptions)


CASES = {
    "NodeUnschedulable": Case(node={"unschedulable": True}),
    "TaintToleration": Case(node={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    "NodeAffinity": Case(spec={"nodeSelector": {"disk": "fast"}}),
    "NodePool": Case(options=RuleOptions(pool=parse_text("pool=a"))),
    "NodeDeclaredFeatures": Case(spec={"hostNetwork": True, "hostUsers": False}),
    "NodePorts": Case(held={}, port=8080),
    "VolumeRestrictions": Case(held={"volumes": [DISK]}, spec={"volumes": [DISK]}),
    "InterPodAffinity": Case(
        node={"labels": {"rack": "r"}},
        held={"labels": {"app": "x"}},
        spec={"affinity": APART},
    ),
    "PodTopologySpread": Case(spec={"labels": {"app": "x"}, "topologySpreadConstraints": [SPREAD]}),
    "NodeResourcesFit": Case(spec={"guaranteed": False}, cpu="16"),
    "NodeResourceTopology": Case(cpu="9"),
}


@pytest.fixture
def switch_off(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes one plugin out of every profile that is made from then on."""
    whole = registry.profile

    def off(name: str) -> None:
        def without(*args: Any) -> Profile:
            plugins = whole(*args).plugins
            assert any(plugin.name == name for plugin in plugins)
            return Profile([plugin for plugin in plugins if plugin.name != name])

        monkeypatch.setattr(registry, "profile", without)

    return off


class Stage:
    """One node, and pods that the rule of the case is about."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.desk = Square(0, options=case.options)
        self.desk.node("n0", state(machine(cpus=8)), **case.node)
        if case.held is not None:
            self.put(self.object("held", "1", node_name="n0", **case.held))

    def object(self, name: str, cpu: str = "", **more: Any) -> dict[str, Any]:
        spec = {**({} if more else self.case.spec), **more}
        obj = pod_object(name, cpu or self.case.cpu, **spec)
        if self.case.port:
            obj["spec"]["containers"][0]["ports"] = [{"hostPort": self.case.port}]
        return obj

    def put(self, obj: dict[str, Any]) -> str:
        uid = str(obj["metadata"]["uid"])
        self.desk.put("pods", uid, obj)
        return uid

    def waiting(self, name: str, **more: Any) -> str:
        return self.put(self.object(name, **{**self.case.spec, **more}))

    def view(self) -> PodView:
        """The pod is known, and never decided."""
        return self.desk.view(self.waiting("asked", schedulingGates=[{"name": "g"}]))


def answers(case: Case) -> dict[str, bool]:
    """Whether each part of the scheduler takes the pod."""
    stage = Stage(case)
    pod, cluster, cycle = stage.view(), stage.desk.machine.cluster, stage.desk.machine.cycle
    entry = cluster.nodes["n0"]
    cycle.candidates.catch_up()
    around = cycle.around(pod)
    refused_by: set[str] = set()
    screened, *_ = cycle.candidates.ordered(pod, around, None, refused_by)
    return {
        "screen": entry in screened,
        "decision": cycle.decide(pod).node == "n0",
        "explain": "" in cycle.reasons(pod),
        "extender": not cycle.check(entry, pod, around).reason,
        "fit": "n0" in (member_of(cluster, cycle, pod).nodes or ()),
        "loop": bool(bound(case)),
        "gang": bool(gang(case)),
    }


def bound(case: Case) -> str:
    """Where a pod that comes by the watch is bound."""
    stage = Stage(case)
    uid = stage.waiting("single")
    assert not list(stage.desk.told(messages.Evict))
    return stage.desk.where(uid)


def gang(case: Case) -> str:
    """Where a gang of one is bound."""
    stage = Stage(case)
    stage.desk.group("g", 1)
    uid = stage.waiting("member", schedulingGroup={"podGroupName": "g"})
    return stage.desk.where(uid)


def evicts(case: Case) -> bool:
    """Whether a pod of high priority makes room on a node that others have filled."""
    stage = Stage(case)
    for number in range(2):
        pod = stage.object(f"low{number}", "7", guaranteed=True, node_name="n0", priority=0)
        pod["spec"]["containers"][0].pop("ports", None)
        uid = stage.put(pod)
        assert stage.desk.admit(uid) == ""
    stage.waiting("high", priority=1000)
    return bool(list(stage.desk.told(messages.Evict)))


@pytest.mark.parametrize("name", CASES)
def test_a_rule_that_is_switched_off_refuses_nobody_anywhere(
    name: str, switch_off: Callable[[str], None]
) -> None:
    case = CASES[name]
    parts = answers(case)
    # The solver's own subject: amounts and zones are no rule about where its pods may be.
    solver = {"fit", "gang"} if name in AMOUNTS else set()
    # A screen may let through what the exact check refuses.
    assert {part for part, takes in parts.items() if takes} <= solver | {"screen"}
    switch_off(name)
    parts = answers(case)
    assert {part for part, takes in parts.items() if not takes} <= solver


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.held is None and name not in AMOUNTS]
)
def test_nobody_is_evicted_for_a_pod_that_another_rule_keeps_away(
    name: str, switch_off: Callable[[str], None]
) -> None:
    case = CASES[name]
    assert not evicts(case)
    switch_off(name)
    assert evicts(case)


def test_every_rule_that_refuses_nodes_is_tried() -> None:
    options = RuleOptions(
        shared_limit=1.0, resource_status=True, device_share=True, pool=parse_text("pool=a")
    )
    plugins = Square(0, options=options).machine.cycle.profile.plugins
    refusing = {plugin.name for plugin in plugins if isinstance(plugin, NodeFilter | Filter)}
    assert refusing <= CASES.keys() | ELSEWHERE
