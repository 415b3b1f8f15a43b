"""``rte drain`` and ``rte explain --restart NODE``: before and after a restart of a kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from rte.cli import main
from rte.cli.drain import DrainPlan
from tests.unit.cli.objects import node_objects
from tests.unit.scheduler.build import state
from tests.unit.scheduler.test_kubelets import STRICT, WHOLE_CORES, Watched
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = [{"uid": "set", "kind": "ReplicaSet", "name": "set", "controller": True}]


class Drained(Watched):
    """A kubelet that refuses containers beyond its whole free cores when it starts again."""

    def __init__(self) -> None:
        super().__init__()
        self.node("a", state(policy="none", **WHOLE_CORES))

    def start(self, name: str, cpu: str, node: str = "a", **spec: object) -> None:
        pod = self.pod(name=name, cpu=(cpu,), node_name=node, **{"owners": OWNER, **spec})
        assert self.admit(pod, node).admitted
        self.report(node)

    def plan(self, node: str = "a") -> DrainPlan:
        return DrainPlan.of(self.cluster, node)


def test_nothing_is_moved_where_a_restart_does_no_harm():
    world = Drained()
    world.start("small", "2")
    assert world.plan().is_complete
    assert not world.plan().leaving
    assert "no pod has to be moved" in world.plan().text()


def test_what_would_be_refused_is_moved_to_a_node_that_takes_it():
    world = Drained()
    world.node("b")
    world.start("half", "8")
    plan = world.plan()
    assert [pod.name for pod in plan.leaving] == ["half"]
    assert plan.places == {"uid-half": "b"}
    assert plan.is_complete
    assert "1. default/half: -> b" in plan.text()


def test_no_more_leave_than_have_to():
    """Both are refused as long as both are there; either fits without the other."""
    world = Drained()
    world.node("b")
    world.start("one", "6")
    world.start("two", "6")
    assert len(world.plan().leaving) == 1


def test_of_a_kubelet_that_would_not_start_one_pod_leaves():
    world = Drained()
    world.node("stuck", state(policy="none", **STRICT))
    world.node("b")
    world.start("most", "12", "stuck")
    world.start("rest", "3", "stuck")
    (leaving,) = world.plan("stuck").leaving
    assert leaving.name == "rest"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"owners": []}, "nothing creates it again"),
        ({"owners": [{**OWNER[0], "kind": "DaemonSet"}]}, "it belongs to its node"),
        ({}, "no other node has a place"),
    ],
)
def test_what_cannot_be_moved_is_told(spec, why):
    world = Drained()
    world.start("half", "8", **spec)
    assert not world.plan().is_complete
    assert why in world.plan().text()
    assert why in world.plan().document()["moves"][0]["stuck"]


def test_pods_that_cannot_leave_rather_stay():
    world = Drained()
    world.node("b")
    world.start("movable", "6")
    world.start("of-the-node", "6", owners=[{**OWNER[0], "kind": "DaemonSet"}])
    assert [pod.name for pod in world.plan().leaving] == ["movable"]


def test_of_a_node_that_nobody_tells_of_there_is_no_plan():
    world = Drained()
    world.node("dark", bare=True)
    plan = world.plan("dark")
    assert not plan.is_complete
    assert plan.text() == "? dark: no agent of ours publishes this node's state"


def test_on_files_it_is_a_plan_only(write, capsys):
    cluster = write("cluster.yaml", node_objects("n", (7,)))
    assert main(["drain", "n", "--from", cluster]) == 0
    assert main(["drain", "n", "--from", cluster, "-o", "json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["complete"] is True
    assert main(["drain", "m", "--from", cluster]) == 2
    assert main(["drain", "n", "--from", cluster, "--apply"]) == 2
    assert main(["explain", "--restart", "n", "--from", cluster, "--wait", "5"]) == 2
    assert main(["explain", "default/a", "--wait", "5", "--from", cluster]) == 2
    assert capsys.readouterr().err.count("\n") == 4


# In a cluster


@contextlib.contextmanager
def beside(work: asyncio.Task[None]) -> Iterator[None]:
    """Something that goes on until the test ends."""
    try:
        yield
    finally:
        work.cancel()


async def test_the_node_is_cordoned_and_the_pods_run_elsewhere(tmp_path, capsys):
    async with Town(tmp_path) as town:
        options = {"strict-cpu-reservation": "true"}
        await town.node("a", topologyManagerPolicy="none", cpuManagerPolicyOptions=options)
        cpus = int(town.api.get("nodes", "a")["status"]["allocatable"]["cpu"])
        await town.node("b")
        async with town.scheduler():
            for name, count in (("most", cpus - 3), ("rest", 3)):
                town.pod(name, str(count), owner=name, node_name="a")
                await until(lambda name=name: town.phase(name) == "Running")
            words = ["--kubeconfig", str(tmp_path / "kubeconfig")]
            gate = ["explain", "--restart", "a", *words]
            assert await asyncio.to_thread(main, gate) == 1
            waiting = asyncio.create_task(asyncio.to_thread(main, [*gate, "--wait", "60"]))
            with beside(asyncio.create_task(town.recreate({"rest": "3"}, owner="rest"))):
                code = await asyncio.to_thread(main, ["drain", "a", "--apply", *words])
            out = capsys.readouterr().out
            assert code == 0, out
            assert "evicting default/rest" in out
            assert await waiting == 0
            assert town.api.get("nodes", "a")["spec"]["unschedulable"] is True
            assert {p["metadata"]["name"]: p["spec"]["nodeName"] for p in town.pods()} == {
                "most": "a",
                "rest-1": "b",
            }


async def test_a_node_whose_agent_has_given_its_lease_back_is_waited_for_in_vain(tmp_path, capsys):
    async with Town(tmp_path) as town:
        await town.node("a")
        lease = {"metadata": {"name": "a", "namespace": "rte-agents"}, "spec": {}}
        town.api.create("leases", lease, "rte-agents")
        words = ["explain", "--restart", "a", "--kubeconfig", str(tmp_path / "kubeconfig")]
        assert await asyncio.to_thread(main, words) == 1
        assert "whose rte agent is not alive" in capsys.readouterr().out
        assert await asyncio.to_thread(main, [*words[:2], "none", *words[3:]]) == 2
