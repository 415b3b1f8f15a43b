"""Pods that said they may be moved make room for one that has waited long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from rte.placement.joint.defrag import plan_moves
from rte.scheduler.loop import messages
from rte.scheduler.loop.room import descheduling
from rte.scheduler.loop.room.descheduling import LABEL
from tests.unit.scheduler.desk import Desk
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from pathlib import Path

EVERY = 60.0
OWNER = [
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set", "controller": True}
]


class Hall:
    """Nodes a and b with zones of 7 and 8 CPUs to be had; a pod of 4 in each zone of a.

    On b one zone has 4 CPUs left: who leaves a has a place there.
    """

    def __init__(self, every: float = EVERY, **options: object) -> None:
        self.desk = Desk(move_every=every)
        self.fill("a", "b", **options)

    def fill(self, crowded: str, other: str, **options: object) -> None:
        self.desk.node(crowded)
        self.desk.node(other)
        for _ in range(2):
            self.run(crowded, 4, **options)
        self.run(other, 7, willing=False)
        self.run(other, 4, willing=False)

    def run(self, node: str, cpu: int, *, willing: bool = True, **options: object) -> str:
        labels = {LABEL: "true", "app": "x"} if willing else {}
        options = {"labels": labels, "owners": OWNER, **options}
        uid = self.desk.pod(cpu=str(cpu), node_name=node, **options)
        assert self.desk.admit(uid) == ""
        return uid

    def asked(self) -> list[messages.PlanMoves]:
        return list(self.desk.told(messages.PlanMoves))

    def moves(self) -> list[messages.EvictPod]:
        return list(self.desk.told(messages.EvictPod))

    def plan(self) -> None:
        """What the solver finds for the latest question."""
        asked = self.asked()[-1]
        plan = plan_moves(
            asked.nodes, [asked.member], asked.movable, budgets=asked.budgets, steps=asked.steps
        )
        self.desk.handle(messages.Planned(asked.uid, plan))

    def evict(self, *, done: bool = True) -> str:
        """The eviction goes through, and the controller makes another pod; its UID."""
        move = self.moves()[-1]
        self.desk.handle(messages.Moved(move.uid, done=done))
        if not done:
            return ""
        obj = self.desk.objects["pods", move.pod.uid]
        self.desk.end(move.pod.uid)
        again = self.desk.pod(
            cpu="4", labels=obj["metadata"]["labels"], owners=obj["metadata"]["ownerReferences"]
        )
        self.desk.run_all()
        return again


def test_a_pod_that_waits_gets_its_place_by_one_move() -> None:
    town = Hall()
    large = town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY + 2)
    town.plan()
    (move,) = town.moves()
    assert move.pod.node == "a"
    assert town.desk.machine.cluster.nominations[large] == "a"
    assert town.desk.machine.cluster.promises[large].victims == {move.pod.uid}
    again = town.evict()
    # The room is kept for who waits, although the moved pod came to the queue after it.
    assert town.desk.where(again) == "b"
    town.desk.pass_time(2)
    assert town.desk.where(large) == "a"
    town.desk.run_all()
    notes = [post.note for post in town.desk.told(messages.Post) if post.reason == "Descheduled"]
    assert notes == ["makes room for default/large; there is a place for it on b"]


def test_the_least_important_pods_are_looked_at_of_as_many_kinds_as_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descheduling, "MOST_KINDS", 2)
    town = Hall()
    town.run("b", 1, priority=-2)
    town.run("b", 2, priority=-1)
    town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY + 2)
    (asked,) = town.asked()
    cpus = [one.pod.containers[0].requests["cpu"] for one in asked.movable]
    assert sorted(cpus) == [1000, 2000]


def test_nothing_is_moved_unless_it_is_asked_for() -> None:
    town = Hall(every=0.0)
    town.desk.pod("large", cpu="8")
    town.desk.pass_time(10_000)
    assert not town.asked()


def test_nothing_is_moved_before_the_pod_has_waited() -> None:
    town = Hall()
    town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY - 2)
    assert not town.asked()


@pytest.mark.parametrize(
    "options",
    [
        {"labels": {}},
        {"labels": {LABEL: "yes"}},
        {"owners": []},
        {"priority": 5},
        {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
        {"owners": [{**OWNER[0], "kind": "DaemonSet"}]},
        {"labels": {LABEL: "true", "scheduling.x-k8s.io/pod-group": "g"}},
    ],
    ids=[
        "no label",
        "another value",
        "no controller",
        "more important",
        "stays",
        "of its node",
        "of a gang",
    ],
)
def test_other_pods_stay_where_they_are(options: dict[str, object]) -> None:
    town = Hall(**options)
    town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY + 2)
    assert town.asked()[-1].movable == ()
    town.plan()
    assert not town.moves()


def test_disruption_budgets_are_kept() -> None:
    town = Hall()
    budget = {
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    town.desk.put("budgets", "default/all", budget)
    town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY + 2)
    town.plan()
    assert not town.moves()


def test_the_next_pod_is_moved_when_the_one_before_runs_again_and_not_sooner() -> None:
    town = Hall()
    for name in ("first", "second"):
        town.desk.pod(name, cpu="8")
    town.desk.pass_time(EVERY + 2)
    town.plan()
    move = town.moves()[-1]
    town.desk.handle(messages.Moved(move.uid, done=True))
    asked = len(town.asked())
    town.desk.begin_to_end(move.pod.uid)
    town.desk.pass_time(3 * EVERY)
    assert len(town.asked()) == asked, "it is still going"
    town.desk.end(move.pod.uid)
    town.desk.pass_time(1.0)
    assert len(town.asked()) == asked, "nothing has taken its place"
    again = town.desk.pod(cpu="4", labels={LABEL: "true"}, owners=OWNER)
    town.desk.run_all()
    assert town.desk.where(again)
    town.desk.pass_time(EVERY)
    assert len(town.asked()) > asked


def test_moves_are_no_more_frequent_than_asked_for() -> None:
    town = Hall()
    for number in range(3):
        town.desk.pod(f"large-{number}", cpu="8")
    town.desk.pass_time(EVERY + 2)
    town.plan()
    town.evict()
    asked = len(town.asked())
    town.desk.pass_time(EVERY - 2)
    assert len(town.asked()) == asked
    town.desk.pass_time(4)
    assert len(town.asked()) == asked + 1


def test_a_pod_that_nothing_helps_is_not_planned_for_all_the_time() -> None:
    town = Hall()
    town.desk.pod("huge", cpu="14")
    town.desk.pass_time(EVERY + 2)
    town.plan()
    asked = len(town.asked())
    town.desk.pass_time(descheduling.REST_S - 5)
    assert len(town.asked()) == asked
    town.desk.pass_time(10)
    assert len(town.asked()) == asked + 1


def test_an_eviction_that_is_refused_ends_it_for_a_while() -> None:
    town = Hall()
    large = town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY + 2)
    town.plan()
    town.evict(done=False)
    assert large not in town.desk.machine.cluster.nominations
    asked = len(town.asked())
    town.desk.pass_time(descheduling.REST_S - 5)
    assert len(town.asked()) == asked


def test_a_plan_for_a_pod_that_runs_by_now_moves_nobody() -> None:
    town = Hall()
    large = town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY + 2)
    town.desk.node("c")
    assert town.desk.where(large) == "c"
    town.plan()
    assert not town.moves()


def test_a_plan_whose_victim_has_gone_moves_nobody() -> None:
    town = Hall()
    town.desk.pod("large", cpu="14")
    town.desk.pod("wide", cpu="8")
    town.desk.pass_time(EVERY + 2)
    for uid in [key for kind, key in list(town.desk.objects) if kind == "pods"]:
        if town.desk.where(uid) == "a":
            town.desk.begin_to_end(uid)
    town.plan()
    assert not town.moves()


def test_when_the_room_is_lost_no_more_pods_are_moved_than_planned() -> None:
    town = Hall()
    # Two further nodes allow another plan of one move.
    town.fill("c", "d")
    large = town.desk.pod("large", cpu="8")
    town.desk.pass_time(EVERY + 2)
    town.plan()
    move = town.moves()[-1]
    thief = town.desk.pod(cpu="8", node_name=move.pod.node, priority=10)
    town.desk.handle(messages.Moved(move.uid, done=True))
    town.desk.end(move.pod.uid)
    assert town.desk.admit(thief) == ""
    again = town.desk.pod(cpu="4", owners=OWNER)
    town.desk.run_all()
    assert town.desk.where(again)
    assert not town.desk.where(large)
    for _ in range(3):
        asked = len(town.asked())
        town.desk.pass_time(EVERY + 2)
        if len(town.asked()) > asked:
            town.plan()
    assert len(town.moves()) == 1
    town.desk.pass_time(descheduling.REST_S)
    town.plan()
    assert len(town.moves()) == 2


async def test_in_a_cluster_the_pod_that_waited_runs_and_so_does_the_moved_one(
    tmp_path: Path,
) -> None:
    async with Town(tmp_path) as town:
        await town.node("a")
        await town.node("b")
        # A node has zones of 7 and 8 CPUs to be had.
        async with town.scheduler(move_every=1.0) as scheduler:
            sizes = {"p0": "4", "p1": "4", "p2": "5", "p3": "3"}
            options: dict[str, Any] = {"labels": {LABEL: "true"}, "owner": "owner"}
            for name, cpus in sizes.items():
                town.pod(name, cpus, node_name="a" if name < "p2" else "b", **options)
                await until(lambda name=name: town.phase(name) == "Running")
            town.pod("large", "8")
            controller = asyncio.create_task(town.recreate(sizes, **options))
            try:
                await until(lambda: town.phase("large") == "Running", 20)
                await until(lambda: all(p["status"]["phase"] == "Running" for p in town.pods()), 10)
            finally:
                controller.cancel()
                await asyncio.gather(controller, return_exceptions=True)
            assert not town.refusals
            assert scheduler.metrics.moves.labels("evicted")._value.get() == 1
