"""The screen over many nodes is a necessary condition: it never drops a node that would do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rte.scheduler.cache.table import Table
from rte.scheduler.loop import cycle
from tests.unit.scheduler.build import World, machine, state

_BOXES = st.lists(st.sampled_from(["1", "2", "1500m", "3", "6", "8", "12"]), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    policies=st.lists(
        st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
        min_size=3,
        max_size=3,
    ),
    scopes=st.lists(st.sampled_from(["pod", "container"]), min_size=3, max_size=3),
    zones=st.lists(st.sampled_from([1, 2, 4]), min_size=3, max_size=3),
    placed=st.lists(_BOXES, max_size=6),
    asked=st.lists(_BOXES, min_size=1, max_size=4),
    guaranteed=st.booleans(),
)
def test_what_the_check_accepts_passes_the_screen(
    policies, scopes, zones, placed, asked, guaranteed
) -> None:
    world = World()
    for number, (policy, scope, count) in enumerate(zip(policies, scopes, zones, strict=True)):
        world.node(f"n{number}", state(machine(zones=count, cpus=6), policy=policy, scope=scope))
    world.node("plain", bare=True)
    for boxes in placed:
        world.place(world.pod(cpu=boxes))
    table = Table(world.cluster.columns)
    table.refresh(world.cluster.nodes.values())
    for boxes in asked:
        pod = world.pod(cpu=boxes, guaranteed=guaranteed)
        passed = list(table.screen(pod.shape).best_first())
        assert len(set(passed)) == len(passed)
        for entry in world.cluster.nodes.values():
            if not world.cycle.check(entry, pod).reason:
                assert entry.row in passed


def test_many_nodes_are_decided_by_the_screen_in_best_fit_order() -> None:
    world = World()
    for number in range(cycle.ENOUGH + 4):
        world.node(f"n{number}")
    held = world.pod(cpu="4", node_name="n3")
    world.admit(held, "n3")
    world.report("n3")
    assert world.place(world.pod(cpu="2")) == "n3"
    # A pod is in flight there now: another node is as good, and certain.
    assert world.place(world.pod(cpu="1")) != "n3"


def test_rows_of_nodes_that_are_gone_are_used_again() -> None:
    world = World()
    world.node("old")
    assert world.place(world.pod(cpu="1")) == "old"
    for pod in list(world.cluster.pods.values()):
        world.end(pod)
    world.cluster.set_report("old", None, 0.0)
    world.cluster.remove_node("old")
    assert world.place(world.pod(cpu="1")) is None
    world.node("new")
    assert world.cluster.nodes["new"].row == 0
    assert world.place(world.pod(cpu="1")) == "new"
