"""The screen over many nodes is a necessary condition: it never drops a node that would do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.scheduler.framework.outlook import ZoneBound
from rte.scheduler.loop import candidates
from rte.scheduler.loop.candidates import Screened, Table
from tests.depth import scaled
from tests.unit.scheduler.build import World, machine, pod_object, state

_BOXES = st.lists(st.sampled_from(["1", "2", "1500m", "3", "6", "8", "12"]), min_size=1, max_size=3)


@settings(max_examples=scaled(60), deadline=None)
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
    table = Table(world.cluster.columns, world.cycle.profile)
    table.refresh(world.cluster.nodes.values())
    for boxes in asked:
        pod = world.pod(cpu=boxes, guaranteed=guaranteed)
        passed = list(table.screen(pod.shape).best_first())
        assert len(set(passed)) == len(passed)
        for entry in world.cluster.nodes.values():
            if not world.cycle.check(entry, pod).reason:
                assert entry.row in passed


def _screen(world: World) -> Table:
    table = Table(world.cluster.columns, world.cycle.profile)
    table.refresh(world.cluster.nodes.values())
    return table


def _with_parts(boxes, stanza):
    """A Guaranteed pod: CPUs, GiB, huge pages and "is an init container" of each container."""
    obj = pod_object(cpu=[cpu for cpu, *_ in boxes])
    parts = obj["spec"].pop("containers")
    obj["spec"].update(initContainers=[], containers=[])
    for part, (cpu, gib, pages, is_init) in zip(parts, boxes, strict=True):
        asked = {"cpu": cpu, "memory": f"{gib}Gi", **({"hugepages-2Mi": pages} if pages else {})}
        part["resources"] = {"requests": asked, "limits": asked}
        obj["spec"]["initContainers" if is_init else "containers"].append(part)
    if stanza is not None:
        asked = {"cpu": stanza[0], "memory": f"{stanza[1]}Gi"}
        obj["spec"]["resources"] = {"requests": asked, "limits": asked}
    return obj


_BOX = st.tuples(
    st.sampled_from(["1", "2", "3", "4", "5", "7", "8", "500m"]),
    st.sampled_from([1, 2, 4, 6, 9]),
    st.sampled_from(["", "", "", "32Mi"]),
    st.booleans(),
)
_STANZA = st.none() | st.tuples(st.sampled_from(["6", "8", "9"]), st.sampled_from([8, 12]))


@settings(max_examples=scaled(150), deadline=None)
@given(
    policy=st.sampled_from(["best-effort", "restricted", "single-numa-node"]),
    scope=st.sampled_from(["pod", "container"]),
    memory=st.sampled_from(["None", "Static"]),
    options=st.sampled_from([{}, {}, {"distribute-cpus-across-numa": "true"}]),
    zones=st.sampled_from([2, 3]),
    placed=st.lists(st.tuples(st.sampled_from(["1", "2", "4", "5"]), st.booleans()), max_size=6),
    asked=st.lists(
        st.tuples(st.lists(_BOX, min_size=1, max_size=3), _STANZA), min_size=1, max_size=4
    ),
)
def test_what_zones_rule_out_at_a_glance_is_refused_by_the_managers(
    policy, scope, memory, options, zones, placed, asked
) -> None:
    world = World()
    settings = {"policy": policy, "scope": scope, "memory_policy": memory, "cpu_options": options}
    world.node("n", state(machine(zones=zones, cpus=6, gib=8), **settings))
    held = [world.pod(cpu=cpu) for cpu, _ in placed]
    for pod in held:
        if world.place(pod):
            world.admit(pod, "n")
            world.report("n")
    for pod, (_, ends) in zip(held, placed, strict=True):
        if ends:
            world.end(pod)
    entry, table = world.cluster.nodes["n"], _screen(world)
    for boxes, stanza in asked:
        pod = world.pod(_with_parts(boxes, stanza))
        admission = placement.admit(entry.outlook().predicted, pod.shape.as_pod(pod.uid))
        if admission.verdict != "refused":
            assert entry.zone_bound().lets(pod.shape.needs)
        if not world.cycle.check(entry, pod).reason:
            assert entry.row in list(table.screen(pod.shape).best_first())
            assert table.roomy(pod.shape, [entry.row]).rows.tolist() == [entry.row]


def test_under_pod_scope_a_container_may_need_more_than_any_zone_has_left() -> None:
    world = World()
    settings = {"policy": "restricted", "scope": "pod", "memory_policy": "None"}
    world.node("n", state(machine(zones=2, cpus=16, gib=64), **settings))
    held = [world.pod(cpu=cpu) for cpu in ("6", "10", "8", "6")]
    for pod in held:
        world.place(pod)
        world.admit(pod, "n")
        world.report("n")
    world.end(held[1])
    world.end(held[2])
    entry = world.cluster.nodes["n"]
    assert [cpus for _, cpus, _ in entry.free_by_zone()] == [9, 10]
    # 17 CPUs need two zones of 16, whose 19 free CPUs then serve both containers.
    pod = world.pod(cpu=["11", "6"])
    assert not world.cycle.check(entry, pod).reason
    assert list(_screen(world).screen(pod.shape).best_first()) == [entry.row]


def test_a_pod_with_pod_level_resources_passes_where_its_kubelet_does_not_look_at_it() -> None:
    world = World()
    world.node("n", state(machine(zones=2, cpus=6)))
    for cpu in ("2", "4"):
        pod = world.pod(cpu=cpu)
        world.place(pod)
        world.admit(pod, "n")
        world.report("n")
    entry = world.cluster.nodes["n"]
    assert [cpus for _, cpus, _ in entry.free_by_zone()] == [3, 2]
    asked = {"cpu": "5", "memory": "2Gi"}
    pod = world.pod(cpu="5", resources={"requests": asked, "limits": asked})
    assert not world.cycle.check(entry, pod).reason
    assert list(_screen(world).screen(pod.shape).best_first()) == [entry.row]


def test_under_restricted_cpus_of_several_zones_and_memory_of_one_never_meet() -> None:
    world = World()
    world.node("static", state(machine(zones=4, cpus=6), policy="restricted"))
    world.node("none", state(machine(zones=4, cpus=6), policy="restricted", memory_policy="None"))
    bounds = {name: entry.zone_bound() for name, entry in world.cluster.nodes.items()}
    assert bounds == {
        "static": ZoneBound(free=6, size=6, memory=16 << 30),
        "none": ZoneBound(free=6, size=6),
    }
    wide, much = world.pod(cpu="8"), world.pod(cpu="8", mem="20Gi")
    assert world.why(wide) == {"TopologyAffinityError": 1, "": 1}
    assert world.why(much) == {"": 2}
    nodes = world.cluster.nodes
    assert list(_screen(world).screen(wide.shape).best_first()) == [nodes["none"].row]


@settings(max_examples=scaled(40), deadline=None)
@given(st.data())
def test_a_table_that_was_asked_before_answers_as_a_new_one(data: st.DataObject) -> None:
    world = World()
    for number, policy in enumerate(["restricted", "single-numa-node", "best-effort"]):
        world.node(f"n{number}", state(machine(zones=2, cpus=6), policy=policy))
    table, cluster = Table(world.cluster.columns, world.cycle.profile), world.cluster
    asked = [world.pod(cpu=data.draw(_BOXES), guaranteed=bool(n % 3)) for n in range(4)]
    seen, placed = 0, []
    for _ in range(data.draw(st.integers(1, 6))):
        table.refresh(cluster.changed_since(seen))
        seen = cluster.sequence
        fresh = Table(cluster.columns, world.cycle.profile)
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
    for number in range(candidates.ENOUGH + 4):
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
