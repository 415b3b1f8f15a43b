"""Counting by arrays says what predicting copy after copy says, or that it does not know."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.model.totals import totals_of
from rte.placement.fleet.copies import UNKNOWN, count_copies
from rte.placement.fleet.screen import NodeTable
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod, pool, simple

ROOMY = {"cpu": 10**6, "memory": 1 << 50, "hugepages-2Mi": 1 << 50, GPU: 1000, "pods": 20}


def count(state, each, room=ROOMY):
    table = NodeTable()
    table.put("n", state, room)
    return int(count_copies(table, each, totals_of(each))[0])


def predicted(state, each, most=20):
    for number in range(most):
        answer = placement.admit(state, dataclasses.replace(each, uid=f"copy-{number}"))
        if not answer.admitted:
            return number
        state = placement.execute(state, dataclasses.replace(each, uid=f"copy-{number}")).state
    return most


@settings(max_examples=scaled(300), deadline=None)
@given(used=build.used_nodes(), each=build.pods("new"))
def test_counting_is_predicting_one_after_the_other(used, each):
    state, _ = used
    counted = count(state, each)
    assert counted in (UNKNOWN, predicted(state, each))


@settings(max_examples=scaled(60), deadline=None)
@given(
    states=st.lists(build.used_nodes(longest=4), min_size=1, max_size=4),
    each=build.pods("new"),
)
def test_a_row_says_the_same_in_whatever_company(states, each):
    table = NodeTable()
    for number, (state, _) in enumerate(states):
        table.put(f"n{number}", state, ROOMY)
    table.put("n0", states[-1][0], ROOMY)
    expected = [states[-1][0], *(state for state, _ in states[1:])]
    assert count_copies(table, each, totals_of(each)).tolist() == [
        count(one, each) for one in expected
    ]


def test_on_a_node_of_which_more_is_used_than_64_bits_say_there_is_no_room():
    used = dict.fromkeys(ROOMY, -(1 << 66))
    assert count(build.node(), simple("a", cpus=3), used) == 0
    assert count(build.node(), simple("a", cpus=3), {**ROOMY, "memory": 1 << 66}) == 4


@pytest.mark.parametrize(
    ("state", "each", "copies"),
    [
        (build.node(), simple("a", cpus=3), 4),
        (build.node(policy="restricted"), simple("a", cpus=3), 4),
        (build.node(policy="restricted"), simple("a", cpus=9), 0),
        (build.node(policy="restricted"), simple("a", cpus=9, memory=17), UNKNOWN),
        (build.node(policy="best-effort", memory_policy="None"), simple("a", cpus=3), 5),
        (build.node(policy="best-effort"), simple("a", cpus=3), UNKNOWN),
        (build.node(devices={GPU: pool(0, 1, 1)}), simple("a", cpus=1, gpus=1), 3),
        (build.node(devices={GPU: pool(None, None)}), simple("a", cpus=1, gpus=1), 2),
        (build.node(devices={GPU: pool((0, 1))}), simple("a", cpus=1, gpus=1), UNKNOWN),
        (build.node(), pod("a", container("i", "init", cpus=1), container(cpus=1)), UNKNOWN),
        (build.node(), pod("a", container("x", cpus=3), container("y", cpus=2)), UNKNOWN),
        (
            build.node(),
            pod("a", container("x", cpus=3, memory=1), container("y", cpus=2, memory=1)),
            3,
        ),
        (
            build.node(topology_scope="pod"),
            pod("a", container("x", cpus=3, memory=1), container("y", cpus=2, memory=1)),
            2,
        ),
    ],
)
def test_what_is_counted_and_what_is_not(state, each, copies):
    assert count(state, each) == copies


def test_node_totals_bound_the_copies():
    assert count(build.node(), simple("a", cpus=1), {**ROOMY, "pods": 3}) == 3
    assert count(build.node(), simple("a", cpus=1), {"cpu": 8000, "pods": 9}) == 0


def test_a_kubelet_without_rules_is_not_counted():
    unknown = dataclasses.replace(build.node(), kubelet_version="v1.50.0")
    assert count(unknown, simple("a", cpus=1)) == UNKNOWN


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort", "none"])
@pytest.mark.parametrize("bad", [pool(0, 1, complete=False), pool((0, 1), (0, 1))])
def test_devices_that_are_not_counted_hinder_nobody_who_asks_for_none(policy, bad):
    plain, spoilt = build.node(policy=policy), build.node(policy=policy, devices={GPU: bad})
    each = simple("a", cpus=3)
    assert count(spoilt, each) == count(plain, each)
    assert count(spoilt, simple("a", cpus=3, gpus=2)) == UNKNOWN or bad.complete
    table = NodeTable()
    table.put("n", spoilt, ROOMY)
    table.put("n", build.node(policy=policy, devices={GPU: pool(0, 1)}), ROOMY)
    fits = build.node(policy=policy, devices={GPU: pool(0, 1)})
    one = simple("a", cpus=3, gpus=1)
    assert int(count_copies(table, one, totals_of(one))[0]) == count(fits, one)
