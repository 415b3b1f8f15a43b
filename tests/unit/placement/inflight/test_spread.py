"""Pods counted by amounts on nodes that refuse no zone: the same answers as admissions give."""

import dataclasses

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rte import placement
from rte.placement.inflight.orders import Orders, StepBudget
from rte.placement.inflight.spread import spread_of
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pool, simple

POLICIES = ("best-effort", "none")
MOST = 12


def refusing_nobody(state, policy):
    """The node under a policy that refuses nobody for zones."""
    return dataclasses.replace(
        state, config=dataclasses.replace(state.config, topology_policy=policy)
    )


@st.composite
def spreading(draw, longest=8):
    """A node in use whose policy refuses nobody for zones."""
    policies = st.sampled_from(POLICIES)
    # Most nodes for which amounts do not decide are known before they are in use.
    new = st.builds(refusing_nobody, build.nodes(), policies).filter(spread_of)
    state, uids = draw(build.used_nodes(longest=longest, new=new))
    state = refusing_nobody(state, draw(policies))
    for uid in draw(st.sets(st.sampled_from(uids))) if uids else ():
        state = placement.remove(state, uid)
    return state


def predicted(state, pod):
    for number in range(MOST):
        copy = dataclasses.replace(pod, uid=f"copy-{number}")
        if not placement.admit(state, copy).admitted:
            return number
        state = placement.execute(state, copy).state
    return MOST


@settings(max_examples=scaled(100), deadline=None)
@given(state=spreading(), pod=build.pods("new"))
def test_counting_is_predicting_one_after_the_other(state, pod):
    spread = spread_of(state)
    units = spread.units(pod) if spread else None
    assume(units is not None)
    assert spread.copies(units, MOST) in (None, predicted(state, pod))


@settings(
    max_examples=scaled(60), deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
@given(state=spreading(), pods=st.lists(build.pods(), min_size=1, max_size=3))
def test_amounts_say_what_all_orders_say(state, pods):
    pods = [dataclasses.replace(each, uid=str(number)) for number, each in enumerate(pods)]
    spread = spread_of(state)
    units = [spread.units(each) if spread else None for each in pods]
    assume(None not in units)
    told = spread.admits(units)
    if told is not None:
        orders = Orders([state], pods, StepBudget(20_000))
        assert told == (orders.refusal(tuple(range(len(pods)))) is None)


def counted(state, pod):
    spread = spread_of(state)
    units = spread.units(pod) if spread else None
    return None if units is None else spread.copies(units, MOST)


def test_what_no_zone_holds_is_spread():
    # Two zones of 8 CPUs, one of them reserved.
    state = build.filled(build.node(policy="best-effort"), simple("a", 5), simple("b", 5))
    assert counted(state, simple("c", 4)) == 1
    assert counted(state, simple("c", 3)) == 1
    assert counted(state, simple("c", 1)) == 5


def test_memory_comes_from_one_zone_where_both_serve_somebody():
    state = build.filled(build.node(policy="best-effort"), simple("a", 5, 13), simple("b", 5, 13))
    assert counted(state, simple("c", 1, 4)) == predicted(state, simple("c", 1, 4)) == 0


def test_unused_zones_may_be_grouped_so_that_is_left_to_prediction():
    assert counted(build.node(policy="best-effort"), simple("a", 9)) is None


def test_only_nodes_that_refuse_nobody_for_zones_are_told_by_amounts():
    assert spread_of(build.node()) is None
    assert spread_of(build.node(policy="restricted")) is None
    unknown = dataclasses.replace(build.node(policy="none"), kubelet_version="v1.50.0")
    assert spread_of(unknown) is None
    assert spread_of(build.node(policy="none")) is not None


def test_devices_that_name_a_zone_which_is_not_there_keep_memory_out_of_reach():
    state = build.node(policy="best-effort", devices={GPU: pool(5)})
    assert counted(state, simple("a", 1, gpus=1)) is None
    assert counted(state, build.pod("a", container(cpus=1, memory=1))) == MOST
