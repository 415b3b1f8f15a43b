"""NodeDeclaredFeatures (KEP-5328): pods go where the kubelet declares what they need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.build import World
from tests.unit.scheduler.desk import Desk

WHY = "node(s) didn't match Pod's required features"
RESOURCES = {"requests": {"cpu": "100m"}}
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
MOUNT = {"name": "v", "mountPath": "/v", "bindMountOptions": ["nosuid"]}


def box(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "resources": RESOURCES, **more}]


CASES = [
    ("UserNamespacesHostNetworkSupport", {"hostNetwork": True, "hostUsers": False}),
    ("RestartAllContainersOnContainerExits", {"containers": box(restartPolicyRules=[RULE])}),
    ("RestartAllContainersOnContainerExits", {"initContainers": box(restartPolicyRules=[RULE])}),
    ("VolumeBindMountOptions", {"containers": box(volumeMounts=[MOUNT])}),
]


@pytest.mark.parametrize(("feature", "spec"), CASES)
def test_a_pod_goes_where_its_feature_is_declared(feature: str, spec: dict[str, Any]) -> None:
    world = World()
    world.node("old", bare=True)
    world.node("other", bare=True, features=["SomethingElse"])
    pod = world.pod(guaranteed=False, cpu="100m", **spec)
    assert world.place(pod) is None
    assert world.why(pod) == {WHY: 2}
    world.node("new", bare=True, features=["Another", feature])
    assert world.place(pod) == "new"


@pytest.mark.parametrize(
    "spec",
    [
        {"hostNetwork": True},
        {"hostUsers": False},
        {"hostNetwork": True, "hostUsers": True},
        {"containers": box(restartPolicyRules=[{"action": "Restart"}])},
        {"containers": box(volumeMounts=[{"name": "v", "mountPath": "/v"}])},
    ],
)
def test_others_go_anywhere(spec: dict[str, Any]) -> None:
    world = World()
    world.node("old", bare=True)
    assert world.place(world.pod(guaranteed=False, cpu="100m", **spec)) == "old"


def test_a_kubelet_that_declares_more_wakes_the_pod() -> None:
    desk = Desk()
    desk.node("n", bare=True)
    pod = desk.pod("p", guaranteed=False, cpu="100m", hostNetwork=True, hostUsers=False)
    assert desk.where(pod) == ""
    desk.node("n", bare=True, features=["UserNamespacesHostNetworkSupport"])
    assert desk.where(pod) == "n"
