from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rte.placement.dra import ClaimNode, DeviceInventory, decode
from rte.placement.dra.structured.pools import PoolID
from tests.unit.placement.dra.build import NODE, gpu, slice_of

OTHER = ClaimNode(name="n1", labels={"rack": "r2"})


def rule(name: str = "rule", **selector: str) -> object:
    taint = {"key": name, "effect": "NoSchedule"}
    return decode.device_taint_rule(
        {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}
    )


def shown(inventory: DeviceInventory, node: ClaimNode) -> list[tuple]:
    return [
        (pool.id, pool.problem, [(d.id, d.taints) for d in pool.devices], pool.counters)
        for pool in inventory.pools(node)
    ]


def test_pools_stay_the_same_object_until_something_of_them_changes() -> None:
    inventory = DeviceInventory()
    inventory.put_slice(slice_of([gpu("a")], name="ours"))
    inventory.put_slice(slice_of([gpu("b")], name="theirs", pool="n1", nodeName="n1"))
    pools = inventory.pools(NODE)

    inventory.put_slice(slice_of([gpu("c")], name="theirs", pool="n1", nodeName="n1"))
    assert inventory.pools(NODE) is pools
    inventory.put_slice(slice_of([gpu("c")], name="ours"))
    assert inventory.pools(NODE) is not pools


def test_a_pool_over_several_nodes_is_complete_once_all_of_it_is_there() -> None:
    inventory = DeviceInventory()
    inventory.put_slice(slice_of([gpu("a")], name="first", pool="fabric", count=2))
    assert [pool.problem for pool in inventory.pools(NODE)] == ["incomplete"]

    inventory.put_slice(slice_of([gpu("b")], name="second", pool="fabric", count=2, nodeName="n1"))
    assert [pool.problem for pool in inventory.pools(NODE)] == [""]
    assert inventory.viewers(PoolID("gpu.example.com", "fabric")) == {"n0"}

    inventory.remove_slice("second")
    assert [pool.problem for pool in inventory.pools(NODE)] == ["incomplete"]


def test_a_changed_label_is_seen() -> None:
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    inventory = DeviceInventory()
    inventory.put_slice(slice_of([gpu("a")], nodeSelector={"nodeSelectorTerms": [term]}))

    assert inventory.pools(NODE)
    assert not inventory.pools(ClaimNode(name="n0", labels={"rack": "r2"}))


def test_a_rule_taints_what_it_selects_and_lets_go_of_it() -> None:
    inventory = DeviceInventory()
    inventory.put_slice(slice_of([gpu("a"), gpu("b")]))
    inventory.put_rule(rule(device="a", pool="n0"))

    def tainted() -> list[str]:
        return [d.id.device for pool in inventory.pools(NODE) for d in pool.devices if d.taints]

    assert tainted() == ["a"]
    inventory.put_rule(rule(device="b"))
    assert tainted() == ["b"]
    inventory.put_rule(rule())
    assert tainted() == ["a", "b"]
    inventory.remove_rule("rule")
    assert tainted() == []
    inventory.put_rule(
        decode.device_taint_rule(
            {"metadata": {"name": "none"}, "spec": {"taint": {"key": "k", "effect": "NoExecute"}}}
        )
    )
    assert tainted() == []


SLICES = st.builds(
    lambda name, pool, generation, count, place, device: slice_of(
        [gpu(device)], name=name, pool=pool, generation=generation, count=count, **place
    ),
    st.sampled_from("abc"),
    st.sampled_from(("p", "q")),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from(({"nodeName": "n0"}, {"nodeName": "n1"}, {"allNodes": True})),
    st.sampled_from(("x", "y")),
)
STEPS = st.lists(
    st.tuples(st.just("put"), SLICES)
    | st.tuples(st.just("remove"), st.sampled_from("abc"))
    | st.tuples(st.just("rule"), st.sampled_from("xy"))
    | st.tuples(st.just("look"), st.sampled_from((NODE, OTHER))),
    max_size=20,
)


@given(STEPS)
def test_whatever_the_order_of_changes_it_shows_what_is_there(steps) -> None:
    inventory, slices, rules = DeviceInventory(), {}, {}
    for what, value in steps:
        if what == "put":
            inventory.put_slice(value)
            # Where slices contradict each other, the order in which they came counts.
            slices.pop(value.metadata.name, None)
            slices[value.metadata.name] = value
        elif what == "remove":
            inventory.remove_slice(value)
            slices.pop(value, None)
        elif what == "rule":
            rules["r"] = rule("r", device=value)
            inventory.put_rule(rules["r"])
        else:
            inventory.pools(value)
    fresh = DeviceInventory()
    for one in rules.values():
        fresh.put_rule(one)
    for one in slices.values():
        fresh.put_slice(one)

    for node in (NODE, OTHER):
        assert shown(inventory, node) == shown(fresh, node)


def test_results_of_expressions_are_kept_for_devices_that_stay_as_they_are() -> None:
    inventory = DeviceInventory()
    inventory.put_slice(slice_of([gpu("a"), gpu("b")]))
    for device in inventory.pools(NODE)[0].devices:
        device.evaluated["true"] = True
    taint = {"key": "sick", "effect": "NoSchedule"}

    inventory.put_slice(slice_of([gpu("a", taints=[taint]), gpu("b", zone=1)], generation=2))

    assert [len(device.evaluated) for device in inventory.pools(NODE)[0].devices] == [1, 0]
