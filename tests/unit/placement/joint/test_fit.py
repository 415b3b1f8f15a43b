"""How many copies fit, and what the next one lacks."""

import dataclasses

import pytest
from hypothesis import given, settings

from rte.placement.joint import fit
from rte.placement.joint.node import Member
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, pool, simple
from tests.unit.placement.joint.worlds import node, takes


def count(nodes, pod, **options):
    return fit.FitTable(nodes).count(Member(pod=pod), **options)


@settings(max_examples=scaled(60), deadline=None)
@given(used=build.used_nodes(longest=4), pod=build.pods())
def test_so_many_are_taken_and_no_more(used, pod):
    each = node("n", used[0], room={"pods": 3})
    found = count([each], pod)
    if found.unsure:
        return
    copies = [dataclasses.replace(pod, uid=str(number)) for number in range(found.total + 1)]
    assert takes(each, copies[:-1])
    assert not takes(each, copies)


def test_node_totals_and_zones_are_told_apart():
    nodes = [node("a", build.node()), node("b", build.node(), room={"cpu": 3000})]
    found = count(nodes, simple("x", 3))
    assert found.copies == {"a": 4, "b": 1}
    assert found.totals["b"] == 1
    assert found.total == 5


def test_what_the_next_copy_lacks():
    state = build.filled(build.node(), simple("h", 4), simple("i", 6))
    found = count([node("a", state)], simple("x", 5))
    assert found.missing == fit.Missing(
        node="a", zone=0, short={"cpu": 2}, reason="TopologyAffinityError"
    )
    found = count([node("a", build.node(), room={"cpu": 6000})], simple("x", 5))
    assert found.missing == fit.Missing(node="a", zone=None, short={"cpu": 4000}, reason=fit.TOTALS)
    assert count([], simple("x")).missing is None


def test_nodes_that_are_alike_are_predicted_once():
    life = build.pod("a", build.container("i", "init", cpus=1, memory=1), build.container(memory=1))
    alone = count([node("n", build.node())], life, steps=3000)
    assert (alone.total, alone.unsure) == (15, frozenset())
    table = fit.FitTable([node(f"n{n}", build.node()) for n in range(50)])
    assert table.count(Member(pod=life), steps=3000).total == 50 * alone.total
    # A second question about the same kind costs nothing.
    assert table.count(Member(pod=life), steps=0).total == 50 * alone.total


#: A pod that is not followed zone by zone.
WITH_INIT = build.pod(
    "x", build.container("i", "init", cpus=1, memory=1), build.container("m", cpus=1, memory=1)
)


def test_where_the_budget_ends_more_may_fit():
    found = count([node("a", build.node(policy="best-effort"))], WITH_INIT, steps=3)
    assert found.unsure == {"a"}
    assert found.total < 16


def test_what_a_pick_decides_is_unsure():
    state = build.node(devices={GPU: pool(0, (0, 1), 1, 1)})
    two = build.pod(
        "a",
        build.container("x", cpus=1, memory=1, gpus=1),
        build.container("y", cpus=1, memory=1, gpus=3),
    )
    assert count([node("a", state)], two).unsure == {"a"}


def test_pods_in_flight_take_their_room_first():
    flying = node("a", build.node(), arriving=(simple("f", 8),))
    assert count([flying], simple("x", 8)).total == 0
    assert count([flying], simple("x", 7)).total == 1


def test_a_node_that_changed_is_counted_anew():
    table = fit.FitTable([node("a", build.node())])
    table.put(node("a", build.filled(build.node(), simple("h", 8))))
    assert table.count(Member(pod=simple("x", 8))).total == 0


def test_an_emptied_node_is_as_at_its_start():
    state = build.filled(build.node(), simple("h", 8))
    empty = fit.emptied(node("a", state, used={"cpu": 8000, "pods": 1}))
    assert count([empty], simple("x", 8)).total == 1
    assert empty.state.holdings == {}


def test_a_member_is_counted_where_it_may_go():
    nodes = [node("a", build.node()), node("b", build.node())]
    member = Member(pod=simple("x", 8), nodes=frozenset({"b"}))
    assert fit.FitTable(nodes).count(member).copies == {"b": 1}


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort", "none"])
@pytest.mark.parametrize("memory", ["Static", "None"])
def test_an_incomplete_pool_makes_nobody_unsure_who_asks_for_no_device(policy, memory):
    bad = {GPU: pool(0, 1, complete=False)}
    plain = build.node(policy=policy, memory_policy=memory)
    spoilt = build.node(policy=policy, memory_policy=memory, devices=bad)
    each = simple("x", 3)
    found = count([node(f"n{i}", spoilt) for i in range(30)], each, steps=0)
    expected = count([node(f"n{i}", plain) for i in range(30)], each, steps=0)
    assert found.copies == expected.copies
    assert found.unsure == expected.unsure
