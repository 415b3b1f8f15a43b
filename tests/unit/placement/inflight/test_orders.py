"""Sets of pods in an unknown order: every state, and nobody admitted who might be refused."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.placement.inflight.orders import CutOff, Orders, StepBudget, free_key, plus, without
from rte.placement.kubelet.outcome import Verdict
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod, pool, simple


def orders(state, *kinds, steps=10_000):
    return Orders([state], kinds, StepBudget(steps))


def played(state, pods):
    """The states that all orders lead to by the kubelet's possible picks, None if one refuses."""
    states = set()
    for order in itertools.permutations(pods):
        now = [state]
        for each in order:
            after = [placement.possible_states(before, each) for before in now]
            if None in after:
                return None
            now = [state for states in after for state in states]
        states |= {free_key(each) for each in now}
    return states


@settings(max_examples=scaled(80), deadline=None)
@given(used=build.used_nodes(longest=4), pods=st.lists(build.pods(), min_size=1, max_size=3))
def test_states_are_those_of_all_orders_and_refused_is_what_one_order_refuses(used, pods):
    state, _ = used
    pods = [dataclasses.replace(each, uid=str(number)) for number, each in enumerate(pods)]
    if any(each.kind == "init" for one in pods for each in one.containers):
        return  # those may start in between: see below
    walked = orders(state, *pods)
    everyone = tuple(range(len(pods)))
    expected = played(state, pods)
    assert (walked.refusal(everyone) is None) == (expected is not None)
    assert {free_key(each) for each in walked.outcomes(everyone)} == (expected or set())


def test_pods_of_one_kind_are_counted():
    budget = StepBudget(8)
    walked = Orders([build.node()], [simple("a", cpus=1)], budget)
    assert walked.refusal((0,) * 8) is None
    assert budget.spent == 8
    with pytest.raises(CutOff):
        walked.refusal((0,) * 9)


def test_a_refusal_names_the_pod_and_who_came_before():
    walked = orders(build.node(), simple("a", cpus=5), simple("b", cpus=6))
    refusal = walked.refusal((0, 0, 1))
    assert refusal.verdict is Verdict.REFUSED
    assert refusal.reason == "TopologyAffinityError"
    assert plus(refusal.ahead, refusal.kind) in [(0, 0, 1), (0, 1), (0, 0)]
    assert not walked.outcomes((0, 0, 1))


def test_starts_between_arrivals_are_followed():
    # Zones of 15 and 16 GiB. Zone 0 has room for "b" only after the init container of "a" has
    # ended; then "b" goes there.
    life = pod("a", container("i", "init", cpus=1, memory=10), container("m", cpus=1, memory=1))
    other = simple("b", cpus=1, memory=8)
    state = build.node()
    walked = orders(state, life, other)
    assert walked.refusal((0, 1)) is None
    after = placement.execute(state, life).state
    started = placement.start(after, life)
    both = {free_key(placement.execute(each, other).state) for each in (after, started)}
    assert len(both) == 2
    assert both <= {free_key(each) for each in walked.outcomes((0, 1))}


def test_every_pick_of_devices_is_followed():
    state = build.node(policy="none", memory_policy="None", devices={GPU: pool(0, 1)})
    walked = orders(state, simple("a", gpus=1))
    assert len(walked.outcomes((0,))) == 2
    assert len(walked.outcomes((0, 0))) == 1


def test_what_a_pick_decides_is_uncertain():
    # Both devices are aligned with zone 0; if the first pod gets the shared one, the other is left.
    state = build.node(devices={GPU: pool(0, (0, 1), 1, 1)})
    walked = orders(state, simple("a", cpus=1, gpus=1), simple("b", cpus=1, gpus=3))
    refusal = walked.refusal((0, 1))
    assert (refusal.kind, refusal.verdict) == (1, Verdict.REFUSED)
    two = pod(
        "a", container("x", cpus=1, memory=1, gpus=1), container("y", cpus=1, memory=1, gpus=3)
    )
    refusal = orders(state, two).refusal((0,))
    assert (refusal.verdict, refusal.reason) == (Verdict.UNCERTAIN, "DeviceChoice")


def test_bundles_are_sorted():
    assert plus((0, 2), 1) == (0, 1, 2)
    assert without((0, 1, 1), 1) == (0, 1)
