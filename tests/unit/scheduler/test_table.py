"""The screen over many nodes is a necessary condition: it never drops a node that would do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rte.scheduler.cache.table import Screened, Table
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


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_table_that_was_asked_before_answers_as_a_new_one(data: st.DataObject) -> None:
    world = World()
    for number, policy in enumerate(["restricted", "single-numa-node", "best-effort"]):
        world.node(f"n{number}", state(machine(zones=2, cpus=6), policy=policy))
    table, cluster = Table(world.cluster.columns), world.cluster
    asked = [world.pod(cpu=data.draw(_BOXES), guaranteed=bool(n % 3)) for n in range(4)]
    seen, placed = 0, []
    for _ in range(data.draw(st.integers(1, 6))):
        table.refresh(cluster.changed_since(seen))
        seen = cluster.sequence
        fresh = Table(cluster.columns)
        fresh.refresh(cluster.nodes.values())
        for pod in asked:
            kept, new = table.screen(pod.shape), fresh.screen(pod.shape)
            assert kept.rows.tolist() == new.rows.tolist()
            assert kept.keys.tolist() == new.keys.tolist()
            assert kept.dropped == new.dropped
        match data.draw(st.sampled_from(["place", "end", "node"])):
            case "place":
                pod = world.pod(cpu=data.draw(_BOXES))
                if world.place(pod):
                    placed.append(pod)
            case "end" if placed:
                world.end(placed.pop(0))
            case _:
                world.node(f"n{len(cluster.nodes)}", state(machine(zones=4, cpus=2)))


@given(st.lists(st.integers(0, 5), max_size=600), st.booleans())
def test_rows_come_in_the_order_of_their_keys_the_first_of_equal_ones_first(
    keys: list[int], preferred: bool
) -> None:
    screened = Screened(np.arange(len(keys)), np.array(keys, dtype=np.int64), frozenset())
    preference = np.array([float(key % 2) for key in keys]) if preferred else None
    expected = sorted(
        range(len(keys)), key=lambda row: (-(keys[row] % 2) if preferred else 0, keys[row], row)
    )
    assert list(screened.best_first(preference)) == expected


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
